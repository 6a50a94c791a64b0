"""What a network's owner decides, as the configuration contract says it now.

Rule of this file: bounds, and who may do what, are the contract's to say; none is written here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from atoll.chain import contract_views as views
from atoll.chain.contract_views import ProposedParams, ProposedPolicy
from atoll.chain.contracts import AtollChain
from atoll.protocol.owners import NOBODY
from atoll.protocol.types import Address, Params


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
    owner, next_owner, paused, params, delay = await asyncio.gather(
        chain.ask(views.owner()),
        chain.ask(views.pending_owner()),
        chain.ask(views.paused()),
        chain.ask(views.params()),
        chain.ask(views.change_delay()),
    )
    wanted, policy = await asyncio.gather(
        chain.ask(views.proposed_params()), chain.ask(views.proposed_policy())
    )
    return Configuration(
        owner=owner,
        next_owner=None if next_owner == NOBODY else next_owner,
        paused=paused,
        params=params,
        proposed_params=wanted if wanted.applicable_at else None,
        proposed_policy=policy if policy.applicable_at else None,
        change_delay=delay,
    )
