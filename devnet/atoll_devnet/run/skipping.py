"""Moves the chain's clock on while everybody only waits for a window to end.

Rule of this file: nobody's duty is skipped into a miss. The law says what is owed and what is due,
the processes say what they still compute or send, and a cheat's name says what it never does; only
where nothing is left of all three is there nothing to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from atoll.errors import AtollError, ChainError, ConfigError
from atoll.law.owes import Duty, owed_by
from atoll.law.upkeep import Call, upkeep
from atoll.law.views import JobView
from atoll.law.words import Address, JobId, Phase
from atoll.service.control import ask
from atoll_devnet.cheats.catalogue import never_does
from atoll_devnet.processes.chain import Endpoint
from atoll_devnet.processes.cluster import Cluster, Member

LOOK_SECONDS = 0.25
CALM_BLOCKS = 2
"""So many after the last event, all have seen it confirmed and have begun what follows from it."""
OWN = frozenset({Call.CLAIM, Call.RELEASE})
"""What nobody waits for: who is gone never takes it."""
EVERYTHING = frozenset(Duty)


class Seen(Protocol):
    """What the observer knows: the job, and the clock of the chain's newest block."""

    @property
    def view(self) -> JobView | None: ...
    @property
    def now(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Told:
    """What a member's process says of itself, and what it is known never to do.

    Attributes:
        block: the newest that it has seen.
        is_busy: it computes, fetches or sends something of the job.
        plays_on: it will try a move again that failed.
        never: duties that it does not do, whatever happens.
    """

    account: Address
    block: int
    is_busy: bool
    plays_on: bool
    never: frozenset[Duty]


def next_moment(view: JobView, now: int) -> int | None:
    """Chain time at which somebody may next have something to do; None where no window runs.

    Whether a challenge or money is due then is not for the law alone to say: all stop there.
    """
    stops, others = [game.deadline for game in view.games.values()], []
    for past in view.auditing(now):
        clock = past.clock
        stops += [clock.audit_end, clock.window_end]
        others += [clock.open_end, clock.keys_end, clock.half]
    if view.open is not None:
        stops.append(view.open.deadline)
        others += [view.open.half_merge] if view.phase is Phase.MERGE else []
    stops += [moment for moment in others if _is_something_due(view, moment)]
    return min((moment for moment in stops if moment > now), default=None)


def _is_something_due(view: JobView, now: int) -> bool:
    """Whether anybody would owe anything then, or anything be due, as things stand."""
    everyone = (*view.providers.values(), *view.verifiers.values())
    owed = (owed_by(view, account, now) for account in {h.account for h in everyone})
    return any(owed) or any(_is_for_others(view, item.call) for item in upkeep(view, now))


def is_waiting(view: JobView, now: int, members: Sequence[Told], since: int) -> bool:
    """Whether everybody only waits: nothing is owed or due, and nobody is at work.

    Args:
        since: the block of the last event, or of the last time that the clock was moved.
    """
    if any(told.is_busy or told.block < since + CALM_BLOCKS for told in members):
        return False
    if any(owed.duty in _done_by(told) for told in members for owed in _owed(view, told, now)):
        return False
    return not any(_is_for_others(view, item.call) for item in upkeep(view, now))


def _owed(view: JobView, told: Told, now: int) -> Any:
    return owed_by(view, told.account, now)


def _done_by(told: Told) -> frozenset[Duty]:
    """Whoever computes nothing and has nothing to send has no move to make either."""
    done = EVERYTHING - told.never
    return done if told.plays_on else done - {Duty.MOVE}


def _is_for_others(view: JobView, call: Call) -> bool:
    """Whether somebody will make that call; what is burnt is burnt once the job is closed."""
    return call not in OWN and (call is not Call.BURN or view.phase is Phase.CLOSED)


async def skip_windows(cluster: Cluster, job: JobId, seen: Seen, tell: Any) -> None:
    """Moves the chain's clock whenever a window is only waited out; until cancelled.

    Args:
        tell: is given a line for each time.

    Raises:
        ConfigError: the chain is not Anvil.
    """
    if cluster.config.backend != "anvil":
        raise ConfigError("only Anvil skips windows", next_step="use the anvil chain")
    moved_at = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        view, now = seen.view, seen.now
        moment = None if view is None else next_moment(view, now)
        if view is None or moment is None:
            continue
        since = max(view.block.number, moved_at)
        members = await asyncio.gather(*(_ask(member, job) for member in cluster.members))
        # Both are of the same moment only if no event came while the members were asked.
        is_same = seen.view is view and next_moment(view, seen.now) == moment
        if is_same and is_waiting(view, seen.now, members, since):
            moved_at = await _move(cluster.chain, moment)
            tell(
                f"nobody has anything to do for {moment - seen.now} s: the chain's clock skips them"
            )


async def _ask(member: Member, job: JobId) -> Told:
    """A process that ended does nothing more; one that does not answer is at work."""
    lacks = never_does(member.kind, member.cheat or "")
    if not member.process.is_running:
        return Told(member.account, 1 << 62, False, False, EVERYTHING)
    try:
        status = await ask(member.folder / "data", "status")
    except AtollError:
        return Told(member.account, 0, True, True, lacks)
    return told_by(status, member.account, job, lacks)


def told_by(
    status: Mapping[str, Any], account: Address, job: JobId, lacks: frozenset[Duty]
) -> Told:
    """From what a service answers of its status."""
    head = status["head"] or {"block": 0}
    is_busy = any(key.startswith(f"{job}:") for key in status["under_way"])
    failing = (one for one in status["failing"] if one["job"] == job)
    plays_on = any(one["command"].startswith("SendMove:") for one in failing)
    return Told(account, head["block"], is_busy, plays_on, lacks)


async def _move(chain: Endpoint, moment: int) -> int:
    """Has the next block be of that time, unless one came first; the chain's height then."""
    with suppress(ChainError):  # a block of that time or later came first
        await chain.rpc("evm_setNextBlockTimestamp", moment)
    return int(str(await chain.rpc("eth_blockNumber")), 16) + 1
