"""What endpoints say that a transaction has to pay, in wei a gas.

Rule of this file: what is said is a proposal, and the caller's cap bounds it. Of two endpoints that
are at hand the lower number counts, so that one alone makes nothing dear; too low a bid is refused
with the floor in words, or raised when no block takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final, TypeVar

from atoll.chain.replies import Read
from atoll.chain.response_checks import BlockHeader, quantity
from atoll.chain.rpc import FailoverProvider
from atoll.chain.verdicts import RpcRefused, floor_of, is_of_base_fee
from atoll.errors import RpcUnavailable

T = TypeVar("T")

BLOCKS: Final = 5
PERCENTILE: Final = 50
TOLD: Final = 2
"""Endpoints that are asked, where so many are at hand."""
FLOOR_SECONDS: Final = 600.0
BASE_FEE_SECONDS: Final = 60.0
"""For so long a floor that a node named is bid without asking; the base fee moves with each block.
"""


@dataclass(frozen=True, slots=True)
class Prices:
    """Wei a gas: what the next block burns, and what its builder is to be given."""

    base_fee: int
    tip: int


@dataclass(frozen=True, slots=True)
class _History:
    """Of `eth_feeHistory`: the next block's base fee, and what builders were given."""

    next_base_fee: int
    tip: int | None


async def ask_prices(provider: FailoverProvider, newest: BlockHeader, usual_tip: int) -> Prices:
    """The prices of the next block.

    Args:
        newest: the newest block. No honest chain doubles its base fee in one block.
        usual_tip: the builder's part where nobody suggests one.
    """
    tips = await _told(provider, "eth_maxPriorityFeePerGas", [], quantity)
    question = [hex(BLOCKS), "latest", [PERCENTILE]]
    histories = await _told(provider, "eth_feeHistory", question, _history)
    following = min((each.next_base_fee for each in histories), default=0)
    base_fee = max(newest.base_fee, min(following, 2 * newest.base_fee))
    seen = [each.tip for each in histories if each.tip is not None]
    tip = min(tips or seen, default=usual_tip)
    return Prices(base_fee, max(1, tip))


class PriceFloors:
    """The least that nodes said they take, for as long as that is likely to hold."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._least, self._until = Prices(0, 0), float("-inf")

    def note(self, refused: RpcRefused) -> bool:
        """Remembers the floor that a refusal names; False where it names none."""
        floor = floor_of(refused)
        if floor is None:
            return False
        if is_of_base_fee(refused):
            self._least, seconds = Prices(floor, 0), BASE_FEE_SECONDS
        else:
            self._least, seconds = Prices(0, floor), FLOOR_SECONDS
        self._until = self._clock() + seconds
        return True

    def above(self, prices: Prices) -> Prices:
        """These prices, where they are not below what is known to be asked for."""
        if self._clock() >= self._until:
            return prices
        least = self._least
        return Prices(max(prices.base_fee, least.base_fee), max(prices.tip, least.tip))


async def _told(
    provider: FailoverProvider, method: str, params: Sequence[Any], read: Read[T]
) -> list[T]:
    """What endpoints say; nothing where none serves it."""
    try:
        return await provider.ask_several(TOLD, method, params, read)
    except RpcUnavailable:
        return []


def _history(value: Any) -> _History:
    following = quantity(value["baseFeePerGas"][-1])
    rewards = [quantity(row[0]) for row in value.get("reward") or ()]
    # Empty blocks give nobody anything, and say nothing of what a full one asks.
    paid = [reward for reward in rewards if reward > 0]
    return _History(following, median_low(paid) if paid else None)
