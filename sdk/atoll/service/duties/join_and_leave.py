"""A part in a job: our gateway's address, a seat or a slot with a bond, leaving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Never, TypeVar

from eth_utils.address import to_checksum_address

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.errors import InsufficientFunds
from atoll.protocol.holders import Holder
from atoll.protocol.membership import NOWHERE
from atoll.protocol.types import (
    NO_ROUND,
    Address,
    JobStatus,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
)
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Transaction
from atoll.service.duties.certification import enrolment_of, ensure_key
from atoll.service.duties.material import has_material
from atoll.service.entries import Done
from atoll.service.machine import Decision, State
from atoll.service.policy import NotOurPolicy, check_jobs, check_stake

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
Pick = Callable[[JobView, Sequence[int]], int | None]
"""Which of the free slots to take; None leaves it to the account's number."""


@dataclass(frozen=True, slots=True)
class SendAnnounce(ContractCall):
    kind: ClassVar[str] = "announce-gateway.v1"
    is_of_account = True
    url: str

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.announce_gateway(self.url)


@dataclass(frozen=True, slots=True)
class SendJoin(Transaction[Never]):
    """Deposit what the bond (wei) lacks, then take a seat, or a slot in the pool.

    A verifier shows that it can sign certificates: by its account's key, or by one that it
    registers first, for ever.

    Attributes:
        index: of the seat or the slot; `round` the one that runs or opens next.
    """

    kind: ClassVar[str] = "join.v1"
    role: Role
    index: int
    round: RoundIndex
    bond: int

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        async with effects.staking:
            check_jobs(effects.context.config.policy, len(effects.other_jobs(view)))
            await _ensure_owner(effects)
            await _ensure_payee(effects)
            await _ensure_stake(effects, view, self)
            if self.role is Role.VERIFIER:
                await ensure_key(effects, view)
            sent = await effects.transact(view, self, self._call(effects, view))
            effects.joined[view.job_id] = sent.block
            return sent

    def _call(self, effects: Effects, view: JobView) -> Call:
        if self.role is Role.PROVIDER:
            return effects.calls.join(view.job_id, SeatIndex(self.index))
        signature = enrolment_of(effects.context, view, self.index, self.bond)
        return effects.calls.enrol(view.job_id, SlotIndex(self.index), self.bond, signature)


@dataclass(frozen=True, slots=True)
class SendLeave(ContractCall):
    kind: ClassVar[str] = "leave.v1"
    role: Role
    round: RoundIndex

    def call(self, calls: Calls, view: JobView) -> Call:
        is_seat = self.role is Role.PROVIDER
        return (calls.leave_seat if is_seat else calls.leave_pool)(view.job_id)


async def _ensure_owner(effects: Effects) -> None:
    """Nothing is staked for an owner that has not accepted: it would lie with the key that works.

    Raises:
        NotOurPolicy: it has not, or the account is somebody else's.
    """
    context, wanted = effects.context, effects.context.config.owner
    if wanted is None:
        return
    me, ownership = context.me, await context.chain.ownership(context.me)
    if ownership.owner.lower() == wanted.lower():
        return
    if ownership.owner != me:
        raise NotOurPolicy(
            f"{me} belongs to {ownership.owner}, and the config names {wanted} as its owner",
            next_step="correct `owner` in the config, or have the owner propose that one",
        )
    if ownership.proposed is None or ownership.proposed.lower() != wanted.lower():
        owner = Address(to_checksum_address(wanted))
        key = f"owner:{owner}:{await context.chain.nonce(me)}"
        await context.queue.submit(key, effects.calls.propose_owner(me, owner), retry_failed=True)
        await context.queue.wait(key)
    raise NotOurPolicy(
        f"{wanted} has not accepted to be the owner of {me}, and nothing is staked before",
        next_step=f"with that one's key: `atoll stake owner accept --node {me}`",
    )


async def _ensure_payee(effects: Effects) -> None:
    """Who has the pay is named before anything is earned.

    Raises:
        NotOurPolicy: the account is somebody else's, who names another one.
    """
    context, wanted = effects.context, effects.context.config.reward_address
    if wanted is None:
        return
    me, ownership = context.me, await context.chain.ownership(context.me)
    if ownership.payee.lower() == wanted.lower():
        return
    if ownership.owner != me:
        raise NotOurPolicy(
            f"{ownership.owner} owns {me} and has its pay go to {ownership.payee}, "
            f"the config to {wanted}",
            next_step="leave `reward_address` out, or have the owner name that one",
        )
    payee = Address(to_checksum_address(wanted))
    key = f"payee:{payee}:{await context.chain.nonce(me)}"
    await context.queue.submit(key, effects.calls.set_payee(me, payee), retry_failed=True)
    await context.queue.wait(key)


async def _ensure_stake(effects: Effects, view: JobView, join: SendJoin) -> None:
    """Deposits what the free stake lacks.

    Keys name the stake found, so that none is sent twice. Who has withdrawn an earlier deposit
    finds the same stake again: where its block is confirmed, no node that lags tells so.
    """
    chain, queue, me = effects.context.chain, effects.context.queue, effects.context.me
    stake = await chain.stake(me, join.role)
    lacking = join.bond - (stake.active - stake.locked)
    if lacking <= 0:
        return
    balance = await chain.token_balance(me)
    if balance < lacking:
        step = "send stake tokens to this account, or take a job with a lower bond"
        if effects.context.config.owner is not None:
            role = join.role.name.lower()
            step = f"with the owner's key: `atoll stake add AMOUNT --as {role} --node {me}`"
        raise InsufficientFunds(
            f"{me} has {balance} wei of the stake token, the bond lacks {lacking}", next_step=step
        )
    check_stake(effects.context.config.policy, lacking, stake.active, balance)
    at = f"{view.job_id}:{join.role.name.lower()}:{stake.active}:{stake.locked}:{lacking}"
    stakes, seen = chain.deployment.addresses["Stakes"], effects.context.follower.confirmed
    if await chain.allowance(me, stakes) < lacking:
        key = effects.serial_key(f"approve:{at}", seen)
        await queue.submit(key, effects.calls.approve(stakes, lacking), retry_failed=True)
        await queue.wait(key)
    key = effects.serial_key(f"deposit:{at}", seen)
    await queue.submit(key, effects.calls.deposit(join.role, lacking), retry_failed=True)
    await queue.wait(key)


# --- decisions ---


def decide_announce(state: State[S], url: str) -> Decision:
    """Says on chain where our blocks are served, whenever that changes; who serves nobody takes
    back what was announced, since others wait for whoever is said to serve.
    """
    announced = state.view.gateways.get(state.me)
    if not url and (announced is None or state.view.status.is_closed):
        return Decision("announce", "serves nobody, and brings what it owes")
    if not url:
        text = f"announced {announced}, and serves nobody any more"
        return Decision("announce", text, (SendAnnounce(NOWHERE),))
    if announced == url or state.view.status.is_closed:
        return Decision("announce", f"announced {url}")
    return Decision("announce", f"announced {announced}, serving {url}", (SendAnnounce(url),))


def decide_membership(
    state: State[S], role: Role, may_join: bool, pick: Pick, *, stops: str = ""
) -> Decision:
    """Takes a seat or a slot once the data is here; leaves where it is to take no part.

    Args:
        may_join: whether the behaviour wants to; pick: where.
        stops: why it leaves and does not join, as when an operator asks to.
    """
    view, held = state.view, state.view.standing(state.me)
    if view.phase is Phase.CLOSED or view.status is JobStatus.NONE:
        return Decision("membership", f"the job is {view.status.name}")
    if stops:
        return _decide_leaving(state, role, held, stops)
    if held is not None:
        is_mine = held.role is role and held.to == NO_ROUND
        where = f"holds {role.name.lower()}'s index {held.index}"
        return Decision("membership", where if is_mine else "an earlier bond is not released")
    if not has_material(state):
        return Decision("membership", "joins once manifest and data are here")
    if _is_slashed(view, state.me) or not may_join or not state.may_take:
        return Decision(
            "membership", "was slashed, or waits with joining as its behaviour or other jobs say"
        )
    return _decide_joining(state, role, pick)


def _decide_leaving(state: State[S], role: Role, held: Holder | None, why: str) -> Decision:
    if held is None or held.role is not role or held.to != NO_ROUND:
        return Decision("membership", f"has no part in it: {_untimed(why)}")
    running = state.view.open if state.view.phase is Phase.MERGE else None
    if role is Role.VERIFIER and running is not None and running.committee_draw == 0:
        return Decision("membership", "leaves: the pool lets nobody go while a round merges")
    leave = SendLeave(role, state.view.round)
    return Decision("membership", f"leaves: {_untimed(why)}", (leave,))


def _untimed(why: str) -> str:
    """Without how long it still lasts: a changed reason is logged."""
    return why.partition(" for ")[0]


def _decide_joining(state: State[S], role: Role, pick: Pick) -> Decision:
    view, terms = state.view, state.view.require_terms()
    # Others take slots meanwhile: what is free changes, and we want one.
    joins = tuple(c for c in state.in_flight.values() if isinstance(c, SendJoin))
    if joins:
        return Decision("membership", "joins", joins)
    is_seat = role is Role.PROVIDER
    if not is_seat and view.phase is Phase.MERGE:
        return Decision("membership", "the pool takes nobody while a round merges")
    free: Sequence[int] = view.free_seats() if is_seat else free_slots(view)
    if not free:
        return Decision("membership", "every slot is taken")
    # Who comes at the same time tries another one.
    index = pick(view, free)
    index = free[int(state.me, 16) % len(free)] if index is None else index
    bond = terms.provider_bond if is_seat else terms.verifier_bond
    return Decision("membership", "joins", (SendJoin(role, index, view.round, bond),))


def free_slots(view: JobView) -> list[int]:
    """Slots of the pool that nobody has."""
    held = {h.index for h in view.verifiers.values() if h.to == NO_ROUND and not h.is_released}
    return [slot for slot in range(view.require_terms().slots) if slot not in held]


def _is_slashed(view: JobView, account: Address) -> bool:
    """Whether a lost game took a part of ours: then an operator has to look."""
    everyone = (*view.providers.values(), *view.verifiers.values())
    return any(h.is_slashed for h in everyone if h.account == account)
