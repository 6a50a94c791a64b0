"""Typed views of the contracts: what can be asked, and what the answer is.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atoll.chain.structs import Escrow, RoundState
from atoll.chain.view import View
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Params,
    Role,
    RoundIndex,
    Terms,
)


def state(job_id: JobId) -> View[RoundState]:
    return View("Rounds", "state", (job_id,), RoundState)


def awaited_block(job_id: JobId) -> View[int]:
    """The block by whose seed the job's next draw is; 0 where no draw waits for a seed."""
    return View("Rounds", "awaitedBlock", (job_id,), int)


def absolute_end(job_id: JobId) -> View[int]:
    """Unix seconds from which on no lock of the job holds."""
    return View("Rounds", "absoluteEnd", (job_id,), int)


@dataclass(frozen=True, slots=True)
class Id:
    """What `idOf` returns.

    Attributes:
        role: of the account's seat or slot in the job.
        id: of its holder; 0 for none.
    """

    role: Role
    id: HolderId


def id_of(job_id: JobId, account: Address) -> View[Id]:
    return View("Members", "idOf", (job_id, account), Id)


def announced_in(commitment: Digest) -> View[int]:
    """In which a strike was announced; 0 for none."""
    return View("Strikes", "announcedIn", (commitment,), int)


def shown_of(job_id: JobId, round: RoundIndex, what: int) -> View[Bitmap]:
    """Whose rows were shown there.

    Args:
        what: as `commitmentOf` has it.
    """
    return View("Strikes", "shownOf", (job_id, round, what), Bitmap)


def budget(terms: Terms) -> View[int]:
    """Wei that the job can cost at most."""
    return View("Jobs", "budget", (terms,), int)


def terms_of(job_id: JobId) -> View[Terms]:
    return View("Jobs", "termsOf", (job_id,), Terms)


def escrow_of(job_id: JobId) -> View[Escrow]:
    return View("Jobs", "escrowOf", (job_id,), Escrow)


def claimed_to(job_id: JobId, role: Role, id: HolderId) -> View[RoundIndex]:
    """The first round that the holder has not claimed."""
    return View("Jobs", "claimedTo", (job_id, role, id), RoundIndex)


def refundable(job_id: JobId) -> View[int]:
    return View("Jobs", "refundable", (job_id,), int)


def kept_of(account: Address) -> View[int]:
    """Wei of all jobs that were claimed for an account and could not be sent; no job's any more."""
    return View("Jobs", "keptOf", (account,), int)


def owner_of(account: Address) -> View[Address]:
    """Who may unbond, withdraw, propose and name a payee: the account itself, unless another one
    accepted.
    """
    return View("Jobs", "ownerOf", (account,), Address)


def payee_of(account: Address) -> View[Address]:
    """Whom pay, credits and what games bring a holder are sent to."""
    return View("Jobs", "payeeOf", (account,), Address)


def proposed_owner_of(account: Address) -> View[Address]:
    """Who may accept; zero for nobody."""
    return View("Jobs", "proposedOwnerOf", (account,), Address)


def credit_of(job_id: JobId, account: Address) -> View[int]:
    """Wei that the account got by contests or by showing a key, and has not taken."""
    return View("Jobs", "creditOf", (job_id, account), int)


@dataclass(frozen=True, slots=True)
class Stake:
    """What `stakeOf` returns.

    Attributes:
        active: stake that is not leaving, locked stake included.
        locked: the part of it that jobs hold.
        unbonding: stake on its way out.
    """

    active: int
    locked: int
    unbonding: int


def stake_of(account: Address, role: Role) -> View[Stake]:
    return View("Stakes", "stakeOf", (account, role), Stake)


def owed(account: Address) -> View[int]:
    """Wei that `withdraw` sends to the account's payee."""
    return View("Game", "owed", (account,), int)


def delegate_of(holder: Address) -> View[Address]:
    """Who may make a holder's moves beside itself; zero for nobody."""
    return View("Game", "delegateOf", (holder,), Address)


def key_of(account: Address) -> View[bytes]:
    """Of the account, x ‖ y; nothing where it has none."""
    return View("BlsPolicy", "keyOf", (account,), bytes)


def sum_of(accounts: Sequence[Address]) -> View[bytes]:
    """Of the keys, x ‖ y, as kept of these accounts in this order; nothing where none is."""
    return View("BlsPolicy", "sumOf", (accounts,), bytes)


def awaited(number: int) -> View[int]:
    """The round that draws what was fixed in a block; 0 where nothing was, where somebody has
    posted it, and where the block's hash is lost, so that it draws nothing any more.
    """
    return View("DrandBeacon", "awaited", (number,), int)


def randomness(round: int) -> View[Digest]:
    """What drand publishes as the round's randomness; 0 where nobody has posted its signature."""
    return View("DrandBeacon", "randomness", (round,), Digest)


def genesis() -> View[int]:
    """Unix seconds of round 1."""
    return View("DrandBeacon", "genesis", (), int)


def period() -> View[int]:
    """Seconds from a round to the next."""
    return View("DrandBeacon", "period", (), int)


def owner() -> View[Address]:
    return View("Config", "owner", (), Address)


def paused() -> View[bool]:
    return View("Config", "paused", (), bool)


def params() -> View[Params]:
    return View("Config", "params", (), Params)


@dataclass(frozen=True, slots=True)
class ProposedParams:
    """What `proposedParams` returns."""

    proposed: Params
    applicable_at: int


def proposed_params() -> View[ProposedParams]:
    """What is proposed and from when on `applyParams` takes it; that second is 0 where nothing
    is.
    """
    return View("Config", "proposedParams", (), ProposedParams)


@dataclass(frozen=True, slots=True)
class ProposedPolicy:
    """What `proposedPolicy` returns."""

    policy: Address
    is_allowed: bool
    applicable_at: int


def proposed_policy() -> View[ProposedPolicy]:
    return View("Config", "proposedPolicy", (), ProposedPolicy)


def is_policy(policy: Address) -> View[bool]:
    return View("Config", "isPolicy", (policy,), bool)


def change_delay() -> View[int]:
    return View("Config", "changeDelay", (), int)


def pending_owner() -> View[Address]:
    return View("Config", "pendingOwner", (), Address)


def allowance(owner: Address, spender: Address) -> View[int]:
    return View("AtollToken", "allowance", (owner, spender), int)


def balance_of(account: Address) -> View[int]:
    return View("AtollToken", "balanceOf", (account,), int)
