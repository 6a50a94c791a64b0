"""A place in a job: our gateway's address, joining with a bond, leaving, the bond's release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Never, TypeVar

from atoll.chain.calls import Call, Calls
from atoll.errors import InsufficientFunds, TransactionFailed
from atoll.law.views import JobView, SettledRound
from atoll.law.words import Address, JobId, Role
from atoll.service.commands import ContractCall, Done, Fact, NotYet, Transaction
from atoll.service.duties.upkeep import is_over
from atoll.service.machine import Decision, State
from atoll.service.policy import check_jobs, check_stake

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
NOTHING_HELD = "NotMember"
"""How the roster refuses to release a bond that is not there (any more)."""


@dataclass(frozen=True, slots=True)
class BondReleased(Fact):
    """The bond of a role was unlocked, when this many rounds were settled.

    `was_over` tells the last release from one between two memberships.
    """

    settled_rounds: int
    was_over: bool


@dataclass(frozen=True, slots=True)
class SendAnnounce(ContractCall):
    url: str

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.announce_gateway(self.url)


@dataclass(frozen=True, slots=True)
class SendJoin(ContractCall):
    """Deposit what the bond (wei) lacks, then join."""

    role: Role
    bond: int

    def call(self, calls: Calls, view: JobView) -> Call:
        join = {
            Role.PROVIDER: calls.join_as_provider,
            Role.VERIFIER: calls.join_as_verifier,
        }
        return join[self.role](view.job_id)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        async with effects.staking:
            check_jobs(effects.context.config.policy, _other_jobs(effects, self.role, view))
            await _ensure_stake(effects, self)
            done = await ContractCall.perform(self, effects, view)
            effects.joined[view.job_id] = done.block
            return done


@dataclass(frozen=True, slots=True)
class SendLeave(ContractCall):
    role: Role

    def call(self, calls: Calls, view: JobView) -> Call:
        leave = {
            Role.PROVIDER: calls.leave_as_provider,
            Role.VERIFIER: calls.leave_as_verifier,
        }
        return leave[self.role](view.job_id)


@dataclass(frozen=True, slots=True)
class SendRelease(Transaction[BondReleased]):
    """Unlock what this account no longer owes the job."""

    role: Role
    settled_rounds: int
    is_over: bool

    @property
    def about(self) -> tuple[object, ...]:
        return (self.role,)

    async def perform(self, effects: Effects, view: JobView) -> Done[BondReleased]:
        call = effects.calls.release_bond(view.job_id, self.role, effects.context.me)
        done = await effects.transact(view, self, call)
        try:
            await effects.context.chain.simulate(call, effects.context.me)
        except TransactionFailed as refused:
            if refused.error != NOTHING_HELD:
                raise NotYet(f"the bond is still held: {refused}", None) from refused
        else:
            raise NotYet("the bond is still held, and can be released now", None)
        return Done(BondReleased(self.settled_rounds, self.is_over), done.block)


def _other_jobs(effects: Effects, role: Role, view: JobView) -> int:
    """In how many other jobs that have not ended the account has a place, or just took one."""

    def is_fresh(job: JobId, other: JobView) -> bool:
        return other.block.number < effects.joined.get(job, 0)

    return sum(
        job != view.job_id
        and not other.state.status.is_closed
        and (is_fresh(job, other) or holds_place(other, role, effects.context.me))
        for job, other in effects.context.follower.views.items()
    )


async def _ensure_stake(effects: Effects, join: SendJoin) -> None:
    """Deposits what the free stake lacks. Keys name the stake found, so none is sent twice."""
    chain, queue, me = effects.context.chain, effects.context.queue, effects.context.me
    stake = await chain.stake(me, join.role)
    lacking = join.bond - (stake.active - stake.locked)
    if lacking <= 0:
        return
    balance = await chain.token_balance(me)
    if balance < lacking:
        raise InsufficientFunds(
            f"{me} has {balance} wei of the stake token, the bond lacks {lacking}",
            next_step="send stake tokens to this account, or take a job with a lower bond",
        )
    check_stake(effects.context.config.policy, lacking, stake.active, balance)
    at = f"{join.role.name.lower()}:{stake.active}:{stake.locked}:{lacking}"
    stakes = chain.deployment.addresses["Stakes"]
    if await chain.allowance(me, stakes) < lacking:
        approve = effects.calls.approve(stakes, lacking)
        await queue.submit(f"approve:{at}", approve, retry_failed=True)
        await queue.wait(f"approve:{at}")
    deposit = effects.calls.deposit(join.role, lacking)
    await queue.submit(f"deposit:{at}", deposit, retry_failed=True)
    await queue.wait(f"deposit:{at}")


# --- decisions ---


def decide_announce(state: State[S], url: str) -> Decision:
    """Says on chain where our blocks are served, whenever that changes."""
    announced = state.view.gateways.get(state.me)
    if announced == url or state.view.state.status.is_closed:
        return Decision("announce", f"announced {url}")
    return Decision("announce", f"announced {announced}, serving {url}", (SendAnnounce(url),))


def decide_release(state: State[S], role: Role) -> Decision:
    """Gets the bond unlocked once nothing that it answers for is open."""
    view, is_member = state.view, holds_place(state.view, role, state.me)
    if not is_member and not awaits_release(state, role):
        return Decision("release", "no bond is held")
    released = state.facts.of(SendRelease, role)
    if is_member and (not is_over(view) or (released is not None and released.was_over)):
        return Decision("release", "the job holds the bond, or it was released")
    if served_last(view, role, state.me) >= view.final_rounds:
        return Decision("release", "the last round served is not final")
    pending = _pending(view, role, state.me)
    if pending:
        return Decision("release", pending)
    command = SendRelease(role, len(view.settled), is_over(view))
    return Decision("release", "nothing is owed any more", (command,))


def _pending(view: JobView, role: Role, account: Address) -> str:
    """What the bond still answers for, beside rounds that are not final; empty for nothing."""
    if any(fault.account == account for fault in view.due_faults):
        return "a punishment is pending"
    if role is Role.PROVIDER and (account in view.fallen or view.is_held(account)):
        return "a game about our work is open, or was lost"
    return ""


def holds_place(view: JobView, role: Role, account: Address) -> bool:
    """Whether the account is a member now, or waits to become one: either locks a bond."""
    if role is Role.PROVIDER:
        return view.seat_of(account) is not None or account in view.waiting
    return view.verifier_of(account) is not None


def awaits_release(state: State[S], role: Role) -> bool:
    """Whether the bond of an earlier membership is still held."""
    released = state.facts.of(SendRelease, role)
    last = served_last(state.view, role, state.me)
    return last >= 0 and (released is None or released.settled_rounds <= last)


def served_last(view: JobView, role: Role, account: Address) -> int:
    """The last settled round in which the account had a part; −1 for none."""
    served = [past.slot.round for past in view.settled if account in _members(past, role)]
    return served[-1] if served else -1


def _members(past: SettledRound, role: Role) -> list[Address]:
    return list((past.seats if role is Role.PROVIDER else past.verifiers).values())
