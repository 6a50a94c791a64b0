"""Chains that a network's contracts are sound on, by their numbers; others are refused by name.

What decides is where randomness comes from. Committees and audits are drawn by drand together with
the hash of a block, where the chain has the precompiles of BLS12-381; on a development chain by the
hash alone: `blockhash`, of the last 256 blocks, and of the last 8,191 where the chain keeps them
(EIP-2935), as Ethereum and chains of the OP stack do.
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
ALONE: Final = frozenset({1337, 31337})
"""Chains whose blocks nobody makes but their users, and which no drand follows."""
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


def beacon_of(chain_id: int, *, has_bls: bool) -> str:
    """The contract that draws on a chain, unless its deployer names another one.

    Where blocks are somebody's to make, their hashes are that somebody's to choose.
    """
    return "DrandBeacon" if has_bls and chain_id not in ALONE else "HistoryBeacon"


def check_chain(chain_id: int) -> None:
    """Raises ConfigError, which names it, of a chain that is not supported."""
    if chain_id in SUPPORTED:
        return
    name, reason = UNSOUND.get(chain_id, (f"chain {chain_id}", "nobody has looked at it"))
    known = ", ".join(f"{each} ({number})" for number, each in SUPPORTED.items())
    raise ConfigError(
        f"{name} is not supported: {reason}", next_step=f"deploy to one of these: {known}"
    )
