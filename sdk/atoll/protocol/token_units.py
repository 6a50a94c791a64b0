"""A network's token as people write it: its units, and how many of them are one token.

Rule of this file: the law counts units and asks nothing here. Texts, files and defaults do, as they
would ask a locale: a process is of one network, and whatever connects to it says its decimals.
"""

from __future__ import annotations

from typing import Final

from atoll.errors import ConfigError
from atoll.protocol.types import TOKEN

LEAST_DECIMALS: Final = 6
"""A segment's pay has no fraction of a unit: with fewer, small models could not be priced."""
MOST_DECIMALS: Final = 18
"""A job file counts in parts of a token, `TOKEN`, of which every unit is a whole number."""


class _Network:
    """The decimals of the token of this process's network."""

    decimals = MOST_DECIMALS


def use_decimals(decimals: int) -> None:
    """Has amounts read and written in a token of so many decimals."""
    _Network.decimals = checked_decimals(decimals)


def decimals_used() -> int:
    """Of this process's network."""
    return _Network.decimals


def whole_token() -> int:
    """Units of a token of this process's network."""
    return int(10**_Network.decimals)


def checked_decimals(decimals: int) -> int:
    """Raises ConfigError where a token has more or fewer than a network bears."""
    if not LEAST_DECIMALS <= decimals <= MOST_DECIMALS:
        raise ConfigError(
            f"a token of {decimals} decimals: a network's has {LEAST_DECIMALS} to {MOST_DECIMALS}"
        )
    return decimals


def parts_of(decimals: int) -> int:
    """Parts, of a job file, of a unit of a token with so many decimals."""
    return int(TOKEN // 10**decimals)
