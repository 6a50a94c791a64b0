"""Where one set of contracts lives: the file every participant of a network shares."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eth_utils.address import is_address, to_checksum_address

from atoll.errors import ConfigError
from atoll.files import durable_rename
from atoll.nested import loads
from atoll.protocol.token_units import MOST_DECIMALS, checked_decimals
from atoll.protocol.types import Address, Domain

DEVELOPMENT_CHAINS = frozenset({1337, 31337})
"""Of Ganache and Anvil: everybody is on this machine, and the chain begins anew at each start."""
_EXPLORER: Final = re.compile(r"https?://[^\s\"'<>\\]{1,200}", re.ASCII)
MOST_NAME: Final = 64
"""Characters of an account's name."""
REQUIRED = (
    "AtollToken",
    "Config",
    "Stakes",
    "Jobs",
    "Rounds",
    "Members",
    "Audits",
    "LateVotes",
    "Strikes",
    "EcdsaPolicy",
    "Claims",
    "Game",
    "Judge",
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses of the contracts on one chain.

    Attributes:
        block: the block before which none of them has said anything.
        addresses: contract name to address; "AtollToken" is the ERC-20 of stakes and pay, and
            "BlsPolicy" is among them where the chain has what it calls, and of "HistoryBeacon" and
            "DrandBeacon" the one that draws.
        explorer: where people look at the chain: pages link to its `/tx/`, `/address/` and
            `/block/`; empty where there is none.
        names: what some accounts are called, as a development network's members are.
        decimals: of the token, as it says itself.
    """

    chain_id: int
    block: int
    addresses: Mapping[str, Address]
    explorer: str = ""
    names: Mapping[Address, str] = field(default_factory=dict)
    decimals: int = MOST_DECIMALS

    @property
    def domain(self) -> Domain:
        """Where what is signed for this deployment is valid."""
        return Domain(self.chain_id, self.addresses["Rounds"])

    def to_json(self) -> str:
        """Canonical text; `from_json` reads it back."""
        document = {
            "chain_id": self.chain_id,
            "block": self.block,
            "addresses": dict(sorted(self.addresses.items())),
            **({"explorer": self.explorer} if self.explorer else {}),
            **({"names": dict(sorted(self.names.items()))} if self.names else {}),
            **({"decimals": self.decimals} if self.decimals != MOST_DECIMALS else {}),
        }
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Deployment:
        """Parses and checks.

        Raises:
            ConfigError: not JSON, a contract is missing, or something is not an address.
        """
        try:
            document = loads(text)
            chain_id, block = int(document["chain_id"]), int(document["block"])
            addresses = dict(document["addresses"])
            explorer, names = document.get("explorer", ""), dict(document.get("names", {}))
            decimals = int(document.get("decimals", MOST_DECIMALS))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"malformed deployment: {_lack(error)}") from error
        missing = [name for name in REQUIRED if name not in addresses]
        if missing:
            raise ConfigError(f"the deployment lacks {', '.join(missing)}")
        bad = [name for name, address in addresses.items() if not is_address(address)]
        if bad:
            raise ConfigError(f"the deployment's {', '.join(bad)} is not an address")
        return cls(
            chain_id,
            block,
            {name: Address(to_checksum_address(value)) for name, value in addresses.items()},
            checked_explorer(explorer),
            _checked_names(names),
            checked_decimals(decimals),
        )

    def save(self, path: Path) -> None:
        """Writes the file at once or not at all; once this returns, it is on the disk."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(self.to_json(), encoding="utf-8")
        durable_rename(temporary, path)

    @classmethod
    def load(cls, path: Path) -> Deployment:
        """Reads a deployment file.

        Raises:
            ConfigError: absent, unreadable or malformed.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the deployment file {path}: {error}",
                next_step="ask whoever runs the network for its deployment file",
            ) from error
        try:
            return cls.from_json(text)
        except ConfigError as error:
            raise ConfigError(
                f"{path} is no deployment file: {error}",
                next_step="pass the file that `atoll network deploy --out` wrote",
            ) from error


def checked_explorer(url: object) -> str:
    """A web address without its last slash. Raises ConfigError: pages make links of it."""
    if url == "" or (isinstance(url, str) and _EXPLORER.fullmatch(url)):
        return url.rstrip("/")
    raise ConfigError("the deployment's explorer is no https:// or http:// address")


def _checked_names(names: Mapping[str, object]) -> dict[Address, str]:
    """Raises ConfigError where one is of no account, or no short text."""
    for account, name in names.items():
        if not is_address(account) or not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
            raise ConfigError(f"the deployment's name of {account} is none")
    return {Address(to_checksum_address(account)): str(name) for account, name in names.items()}


def _lack(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
