"""What a network's owner decides, as the configuration contract says it now.

Rule of this file: bounds, and who may do what, are the contract's to say; none is written here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from eth_utils.address import to_checksum_address

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import from_abi
from atoll.protocol.owners import NOBODY
from atoll.protocol.words import Address, Params

CONFIG: Final = "Config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedParams:
    """And the second of the chain's clock from which on anybody can apply them."""

    params: Params
    applicable_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedPolicy:
    """The same of a contract that checks certificates."""

    policy: Address
    applicable_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Of a network.

    Attributes:
        owner: who alone may pause, propose and drop.
        next_owner: who may accept to be the owner; None where nobody was asked.
        params: what a job that is created now copies.
        proposed_params, proposed_policy: None where nothing is proposed.
        change_delay: seconds between a proposal and when it can be applied.
    """

    owner: Address
    next_owner: Address | None
    paused: bool
    params: Params
    proposed_params: ProposedParams | None
    proposed_policy: ProposedPolicy | None
    change_delay: int


async def read_configuration(chain: AtollChain) -> Configuration:
    """Asks the contract.

    Raises:
        ChainError: no endpoint answers, or another version's contract is there.
    """
    names = ("owner", "pendingOwner", "paused", "params", "changeDelay")
    named = (chain.read(name, contract=CONFIG) for name in names)
    waits = (chain.read(name, contract=CONFIG) for name in ("proposedParams", "proposedPolicy"))
    *plain, (wanted, wanted_at), (policy, policy_at) = await asyncio.gather(*named, *waits)
    owner, next_owner, paused, now, delay = (values[0] for values in plain)
    asked = _address(next_owner)
    return Configuration(
        owner=_address(owner),
        next_owner=None if asked == NOBODY else asked,
        paused=paused,
        params=from_abi(Params, now),
        proposed_params=ProposedParams(params=from_abi(Params, wanted), applicable_at=wanted_at)
        if wanted_at
        else None,
        proposed_policy=ProposedPolicy(policy=_address(policy), applicable_at=policy_at)
        if policy_at
        else None,
        change_delay=delay,
    )


def _address(value: str) -> Address:
    return Address(to_checksum_address(value))
