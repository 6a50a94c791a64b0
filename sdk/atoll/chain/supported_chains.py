"""Chains that a network's contracts are sound on, by their numbers; others are refused by name.

What decides is where randomness comes from: committees and audits are drawn from the hash of a
block that nobody can choose among several (`blockhash`, of the last 256 blocks).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from atoll.errors import ConfigError

SUPPORTED: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "Ethereum",
        10: "OP Mainnet",
        1337: "a development chain (Ganache)",
        8453: "Base",
        31337: "a development chain (Anvil, Hardhat)",
        84532: "Base Sepolia",
        11155111: "Sepolia",
        11155420: "OP Sepolia",
    }
)
UNSOUND: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        number: (name, reason)
        for reason, chains in (
            (
                "its `blockhash` follows from the sequencer's count of blocks, and is no source of "
                "randomness",
                {42161: "Arbitrum One", 42170: "Arbitrum Nova", 421614: "Arbitrum Sepolia"},
            ),
            (
                "its code is no EVM's: what `verify` compares, and the judge's gas, are others",
                {324: "zkSync Era", 300: "zkSync Sepolia", 2741: "Abstract"},
            ),
        )
        for number, name in chains.items()
    }
)
"""Chains that people ask for, and why there is no network on them."""


def check_chain(chain_id: int) -> None:
    """Raises ConfigError, which names it, of a chain that is not supported."""
    if chain_id in SUPPORTED:
        return
    name, reason = UNSOUND.get(chain_id, (f"chain {chain_id}", "nobody has looked at it"))
    known = ", ".join(f"{each} ({number})" for number, each in SUPPORTED.items())
    raise ConfigError(
        f"{name} is not supported: {reason}", next_step=f"deploy to one of these: {known}"
    )
