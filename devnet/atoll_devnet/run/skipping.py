"""Moves the chain's clock on while everybody only waits for a window to end.

Rule of this file: nobody's duty is skipped into a missed duty. The law says what is owed and what
is due, the processes say what they still compute or send, and a cheat's name says what it never
does; only where nothing is left of all three is there nothing to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from atoll.errors import AtollError, ChainError
from atoll.protocol.certificates import is_enough
from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls
from atoll.protocol.obligations import Duty, Obligation, committee_accounts, obligations_of
from atoll.protocol.types import Address, JobId, Phase
from atoll.protocol.views import JobView
from atoll.service.background_tasks import background_tasks
from atoll.service.control import StoppedBySignal, ask
from atoll.service.duties.game import SendMove
from atoll.service.duties.updates import DoGetUpdate
from atoll.service.entries import key_of
from atoll.service.session import SessionConfig, open_session
from atoll.storage.storage import StoreConfig
from atoll_devnet.cheats.catalogue import never_does, never_serves
from atoll_devnet.processes.chain import LocalChain
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_node.duties.commit import shown_from
from atoll_node.duties.push import DoPush

POLL_SECONDS = 0.5
LOOK_SECONDS = 0.25
"""Between two questions to whoever was at work last: they are cheaper than a look at the chain."""
UNAWAITED = frozenset({KeeperCallKind.CLAIM, KeeperCallKind.RELEASE})
"""What nobody waits for: who is gone never takes it."""
EVERYTHING = frozenset(Duty)
NO_JOBS: frozenset[int] = frozenset()
_NOT_WHAT_WAS_SAID = ("WrongClosing", "WrongWork", "WrongUpdate")
FAR = 1 << 62
"""The block that somebody who is gone has seen: it is not waited for."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member's process says of itself, and what it is known never to do.

    Attributes:
        taken: the block up to which it has begun what follows from everything confirmed.
        sent: the newest block that has a transaction of its own.
        busy: jobs of which it computes, fetches or sends something.
        plays_on: jobs in which it will try a move again that failed.
        never: duties that it does not do, whatever happens.
        lacks: jobs in which all updates that it still gets are of members who serve nobody.
    """

    account: Address
    taken: int
    busy: frozenset[int] = NO_JOBS
    plays_on: frozenset[int] = NO_JOBS
    never: frozenset[Duty] = frozenset()
    lacks: frozenset[int] = NO_JOBS
    sent: int = 0


def is_free(view: JobView) -> bool:
    """Whether it pays nobody and nobody is in it: a job that anybody may announce."""
    holders = (*view.providers, *view.verifiers)
    return not holders and view.require_terms().segment_pay == 0


def next_moment(view: JobView, now: int) -> int | None:
    """Chain time at which somebody may next have something to do; None where no window runs.

    Whether a challenge or money is due then is not for the law alone to say: all stop there.
    """
    # Who is late with a move keeps a challenger from no other liar any more.
    late = [g.clock.since + g.clock.move for g in view.games.values() if g.clock and g.deadline]
    stops, others = [*late, *(game.deadline for game in view.games.values())], []
    for settled_round in view.auditing(now):
        clock = settled_round.clock
        stops += [clock.audit_end, clock.window_end]
        others += [clock.open_end, shown_from(view, settled_round), clock.keys_end, clock.half]
    if view.open is not None:
        stops.append(view.open.deadline)
        is_merge = view.phase is Phase.MERGE
        others += [view.open.half_merge, view.open.votes_end] if is_merge else []
    stops += [moment for moment in others if _is_something_due(view, moment)]
    return min((moment for moment in stops if moment > now), default=None)


def _is_something_due(view: JobView, now: int) -> bool:
    """Whether anybody would owe anything then, or anything be due, as things stand."""
    everyone = (*view.providers.values(), *view.verifiers.values())
    owed = (_owed(view, account, now) for account in {h.account for h in everyone})
    return any(map(any, owed)) or any(
        _is_for_others(view, item.call) for item in keeper_calls(view, now)
    )


def _owed(view: JobView, account: Address, now: int) -> Iterator[Obligation]:
    """What somebody owes and does now: a key is owed for a while before it is shown."""
    for owed in obligations_of(view, account, now):
        settled_round = view.settled_round(owed.round) if owed.duty is Duty.KEY else None
        if settled_round is None or now >= shown_from(view, settled_round):
            yield owed


def is_waiting(view: JobView, now: int, members: Sequence[MemberStatus], since: int) -> bool:
    """Whether everybody only waits: nothing is owed or due, and nobody is at work.

    Args:
        since: the block at which the clock was last moved, or that has somebody's transaction.
    """
    mute = {member.account for member in members if Duty.SIGN in member.never}
    if any(is_at_work(view, now, member, since, mute) for member in members):
        return False
    return not any(_is_for_others(view, item.call) for item in keeper_calls(view, now))


def is_at_work(
    view: JobView, now: int, member: MemberStatus, since: int, mute: Collection[Address]
) -> bool:
    """Whether it computes or sends, has not taken the last event, or owes what it will do. Who
    computes and sends nothing has no move to make.

    Args:
        mute: accounts that never sign.
    """
    if view.job_id in member.busy or member.taken < max(since, view.block.number):
        return True
    never = member.never if view.job_id in member.plays_on else member.never | {Duty.MOVE}
    # Until half of MERGE is over, a vote waits for updates that are not here.
    if view.job_id in member.lacks and view.open is not None and now < view.open.half_merge:
        never |= {Duty.VOTE}
    owes = (owed for owed in _owed(view, member.account, now) if owed.duty not in never)
    return any(not _is_for_nothing(view, owed, mute) for owed in owes)


def _is_for_nothing(view: JobView, owed: Obligation, mute: Collection[Address]) -> bool:
    """A signature of a committee that too few of sign: it is given, and no block shows it."""
    if owed.duty is not Duty.SIGN or view.open is None or owed.round != view.open.round:
        return False
    committee = committee_accounts(view, view.open)
    signing = sum(member not in mute for member in committee)
    return not is_enough(signing, len(committee))


def _is_for_others(view: JobView, call: KeeperCallKind) -> bool:
    """Whether somebody will make that call; what is burnt is burnt once the job is closed."""
    return call not in UNAWAITED and (call is not KeeperCallKind.BURN or view.phase is Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class Seen:
    """What somebody who follows the chain knows: every job, and the newest block and its clock."""

    views: Callable[[], Mapping[JobId, JobView]]
    now: Callable[[], int]
    block: Callable[[], int]

    def moment(self) -> int | None:
        """The soonest of all jobs' next moments."""
        moments = (next_moment(view, self.now()) for view in self.views().values())
        return min((moment for moment in moments if moment is not None), default=None)


@asynccontextmanager
async def skipping(cluster: Cluster, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Follows every job of a network and skips its windows, until the context ends.

    Raises what `skip_windows` raises, and what following raises.
    """
    folder = cluster.folder / "clock"
    store = StoreConfig(folder / "store")
    config = SessionConfig((cluster.chain.rpc_url,), cluster.deployment, folder, store)
    async with open_session(replace(config, confirmations=0)) as session:
        now = 0

        async def follow() -> None:
            nonlocal now
            while True:
                news = await session.follower.poll_patiently()
                now = news.head.timestamp if news.head else now
                await asyncio.sleep(POLL_SECONDS)

        def views() -> dict[JobId, JobView]:
            return {j: view for j, view in session.follower.views.items() if not is_free(view)}

        seen = Seen(views, lambda: now, lambda: session.follower.confirmed)
        async with background_tasks([follow(), skip_windows(cluster, seen, tell)]):
            yield


async def skip_windows(cluster: Cluster, seen: Seen, tell: Callable[[str], None]) -> None:
    """Moves the chain's clock whenever a window is only waited out; until cancelled.

    Args:
        tell: is given a line for each time.
    """
    moved_at, last = 0, next(cluster.members)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        # Who was at work a moment ago mostly is: while it is, nobody else is asked, or looked at.
        each = await _ask(last, _in_vain(list(cluster.members), seen.views()))
        mute = _mute(cluster)
        if _is_busy(each, seen.views(), seen.now(), moved_at, mute):
            continue
        views, now, moment = dict(seen.views()), seen.now(), seen.moment()
        if moment is None:
            continue
        members = list(cluster.members)
        vain = _in_vain(members, views)
        statuses = await asyncio.gather(*(_ask(member, vain) for member in members))
        # All are of the same moment only if no event came while the members were asked, and what
        # they sent before has been seen by everybody.
        since = max(moved_at, *(each.sent for each in statuses))
        if dict(seen.views()) != views or seen.moment() != moment or seen.block() < since:
            continue
        if all(is_waiting(view, seen.now(), statuses, since) for view in views.values()):
            moved_at = await _move(cluster.chain, moment, moment - now)
            tell(f"nobody has anything to do for {moment - now} s: the chain's clock skips them")
            continue
        by_member = zip(members, statuses, strict=True)
        busy = (m for m, each in by_member if _is_busy(each, views, seen.now(), moved_at, mute))
        last = next(busy, last)


def _is_busy(
    member: MemberStatus,
    views: Mapping[JobId, JobView],
    now: int,
    since: int,
    mute: Collection[Address],
) -> bool:
    return any(is_at_work(view, now, member, since, mute) for view in views.values())


def _lacks(member: Member) -> frozenset[Duty]:
    """What it never does; a process that ended does nothing more."""
    is_there = member.process.is_running
    return never_does(member.kind, member.cheat or "") if is_there else EVERYTHING


def _mute(cluster: Cluster) -> set[Address]:
    return {member.account for member in cluster.members if Duty.SIGN in _lacks(member)}


def _in_vain(members: Sequence[Member], views: Mapping[JobId, JobView]) -> frozenset[str]:
    silent = {m.account for m in members if never_serves(m.kind, m.cheat or "")}
    return frozenset[str]().union(*(in_vain(view, silent) for view in views.values()))


def in_vain(view: JobView, silent: Collection[Address]) -> frozenset[str]:
    """What a status calls the getting of updates that these revealed and never give anybody."""
    rounds = [(settled_round.round, settled_round.reveals) for settled_round in view.settled]
    rounds += [(view.open.round, view.open.reveals)] if view.open is not None else []
    return frozenset(
        f"{view.job_id}:{key_of(DoGetUpdate, round, reveal.commitment)}"
        for round, reveals in rounds
        for reveal in reveals.values()
        if reveal.account in silent
    )


async def _ask(member: Member, vain: frozenset[str]) -> MemberStatus:
    """One that does not answer is at work, unless its process has ended."""
    lacks = _lacks(member)
    if not member.process.is_running:
        return MemberStatus(member.account, FAR, never=lacks)
    try:
        status = await ask(member.folder / "data", "status")
    except AtollError:
        return MemberStatus(member.account, -1, never=lacks)
    return told_by(status, member.account, lacks, vain)


async def is_anybody_at_work(cluster: Cluster, view: JobView) -> bool:
    """Whether a member has not taken in what the chain last said of a job, or does something in it.

    Who still gets an update does not count: whoever has it may be gone.
    """
    return any(await asyncio.gather(*(_works(member, view) for member in cluster.members)))


async def _works(member: Member, view: JobView) -> bool:
    if not member.process.is_running:
        return False
    try:
        status = await ask(member.folder / "data", "status")
    except StoppedBySignal:
        return False
    except AtollError:
        return True
    brought = (f":{DoGetUpdate.kind}:", f":{DoPush.kind}:")
    keys = {key for key in status["under_way"] if not any(kind in key for kind in brought)}
    return status["taken"] < view.block.number or view.job_id in _jobs(keys)


def _is_hopeless(refused: str) -> bool:
    """Whether the contract says that a run is not what was claimed: it will say so again."""
    return any(f"{name}(" in refused for name in _NOT_WHAT_WAS_SAID)


def told_by(
    status: Mapping[str, Any], account: Address, never: frozenset[Duty], vain: frozenset[str]
) -> MemberStatus:
    """From what a service answers of its status.

    Args:
        vain: what it gets from members who serve nobody, `in_vain`.
    """
    failing = {_key(move) for move in status["failing"]}
    # Who still needs an update that is brought is at work itself.
    under_way = {key for key in status["under_way"] if f":{DoPush.kind}:" not in key}
    busy = _jobs(under_way - vain)
    # Whoever answered will be asked again.
    wanted = {key for key in under_way | failing if f":{DoGetUpdate.kind}:" in key}
    lacks = _jobs(wanted & vain) - _jobs(wanted - vain)
    moves = (move for move in status["failing"] if move["command"].startswith(key_of(SendMove, "")))
    plays_on = frozenset(int(move["job"]) for move in moves if not _is_hopeless(move["text"]))
    return MemberStatus(account, status["taken"], busy, plays_on, never, lacks, status["sent"])


def _key(failing: Mapping[str, Any]) -> str:
    return f"{failing['job']}:{failing['command']}"


def _jobs(keys: Collection[str]) -> frozenset[int]:
    return frozenset(int(key.partition(":")[0]) for key in keys)


async def _move(chain: LocalChain, moment: int, seconds: int) -> int:
    """Has the next block be of that time, unless one came first; the chain's height then."""
    with suppress(ChainError):  # a block of that time or later came first
        if chain.config.backend == "anvil":
            await chain.rpc("evm_setNextBlockTimestamp", moment)
        else:
            await chain.rpc("evm_increaseTime", seconds)
        chain.hasten()
    try:
        return int(str(await chain.rpc("eth_blockNumber")), 16) + 1
    except ChainError:  # it restarts; nobody waits for a block that it had
        return 0
