"""The shape both machines share: level-triggered decisions from the chain's mirror and the journal.

Rule of this file: pure. Clock, chain and results come in as events, effects go out as commands, and
nothing but the events decides. Each step derives anew what is to be done *now* from (view, entries,
time); what is in flight or backing off is excluded. So a crash, a restart and a reorg need no paths
of their own: the view is rebuilt, the entries are read back, and the same derivation continues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from typing import Generic, Protocol, TypeAlias, TypeVar

from atoll.protocol.types import Address
from atoll.protocol.views import JobView
from atoll.service.commands import Command
from atoll.service.config import KeeperConfig, ScheduleSection
from atoll.service.entries import Entries, Entry

FIRST_RETRY_SECONDS = 2
LONGEST_RETRY_SECONDS = 60  # what a deadline may be missed by once the cause is gone
REMEMBERED = 32  # states, of as many jobs as a service may follow closely
AnyCommand: TypeAlias = Command[Entry]


B = TypeVar("B")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop work that a changed view made pointless."""

    key: str


Order: TypeAlias = AnyCommand | Cancel
"""What a step gives out."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest block seen, confirmed or not: the clock of every window."""

    number: int
    time: int


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The mirror of the chain at the last confirmed block; after a reorg, rebuilt.

    `ahead` is it at the newest block; None where that tells nothing more. `block_time` is that of
    the confirmed one, unix seconds.
    """

    view: JobView
    block: int
    ahead: JobView | None = None
    block_time: int = 0


@dataclass(frozen=True, slots=True)
class HeadAdvanced:
    head: Head


@dataclass(frozen=True, slots=True)
class Finished:
    """A command's effect took place; the entry that it left is in the journal already."""

    key: str
    entry: Entry | None = None
    block: int = 0
    """Block in which a transaction was mined; 0 for work. Until the view has reached that block,
    the same command is not given again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A command's effect did not take place; it may be given again after a pause."""

    key: str
    error: str
    due_at: int | None = None
    """When it will be due, where the chain said so: unix seconds of the chain."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """What the operator asks for: why this job is left, or not joined; empty to take part.

    `may_take` says whether its data may be fetched, and a place in it be taken.
    """

    sits_out: str
    may_take: bool = True


Event = ViewChanged | HeadAdvanced | Finished | Failed | Ordered


@dataclass(frozen=True, slots=True)
class Decision:
    """What one duty wants now, and why; a changed reason is logged."""

    duty: str
    reason: str
    commands: tuple[AnyCommand, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a command is not given again yet."""

    until_time: int
    until_block: int
    failures: int


@dataclass(frozen=True)
class State(Generic[S]):
    """A machine's whole memory.

    Attributes:
        me: the account this service acts for.
        setup: the role's constants (config and behaviour).
        view: the chain's mirror at `block`, the last confirmed one; `head` may be newer.
        block_time: of `block`, unix seconds: what was said before is in the view.
        ahead: the mirror at the head, which a reorg may take back; None where it is `view`.
        in_flight: commands whose effect is under way, by key.
        holds: commands that must wait before they are given again, by key.
        reasons: what each duty decided last.
        sits_out: why the operator wants no part in the job; empty where it does.
        may_take: whether it is this job's turn, of those that the service could take.
    """

    me: Address
    setup: S
    view: JobView
    head: Head
    block: int = 0
    block_time: int = 0
    entries: Entries = field(default_factory=Entries)
    in_flight: Mapping[str, AnyCommand] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    sits_out: str = ""
    may_take: bool = True
    ahead: JobView | None = None

    @property
    def now(self) -> int:
        """Chain time, unix seconds."""
        return self.head.time

    @property
    def sent_in(self) -> int:
        """The newest block that has a transaction of the machine's; 0 where none has."""
        return max((hold.until_block for hold in self.holds.values()), default=0)


@dataclass(frozen=True, slots=True)
class Setup(Generic[B]):
    """A role's constants.

    Attributes:
        gateway_url: what is announced on chain.
        behaviour: where the role decides for itself.
        auto_claim: `never`, `each` or `end`.
        schedule: the hours in which it joins rounds.
        merge: whether a provider applies merges: `auto`, `self` or `apply`.
    """

    gateway_url: str
    behaviour: B
    keeper: KeeperConfig = field(default_factory=KeeperConfig)
    auto_claim: str = "end"
    schedule: ScheduleSection = field(default_factory=ScheduleSection)
    merge: str = "auto"


def begun_ahead(state: State[S], decide: Callable[[State[S]], list[Decision]]) -> list[Decision]:
    """What may be begun from blocks that are not confirmed: work alone, which costs only us."""
    if state.ahead is None:
        return []
    decisions = decide(replace(state, view=state.ahead, ahead=None))
    return [
        Decision(
            f"{decision.duty} ahead",
            decision.reason,
            tuple(c for c in decision.commands if c.is_work),
        )
        for decision in decisions
    ]


Decide = Callable[[State[S]], list[Decision]]


class Step(Protocol[S]):
    """One step of a role's machine over the events that came since the last."""

    def __call__(self, state: State[S], *events: Event) -> tuple[State[S], list[Order]]:
        """The new state, and what to start now."""


def advance(
    state: State[S], events: Iterable[Event], decide: Decide[S]
) -> tuple[State[S], list[Order]]:
    """One step: fold the events in order, derive what is wanted, give what is not under way.

    Returns:
        the new state, and the commands to start (or `Cancel`) in order of importance.
    """
    state = reduce(_fold, events, state)
    decisions = decide(state)
    wanted: dict[str, AnyCommand] = {}
    for decision in decisions:
        for command in decision.commands:
            wanted.setdefault(command.key, command)
    stale = [Cancel(key) for key, c in state.in_flight.items() if c.is_work and key not in wanted]
    fresh = [c for key, c in wanted.items() if key not in state.in_flight and _free(state, key)]
    gone = {cancel.key for cancel in stale}
    in_flight = {key: c for key, c in state.in_flight.items() if key not in gone}
    in_flight.update((c.key, c) for c in fresh)
    reasons = {decision.duty: decision.reason for decision in decisions}
    kept = {**wanted, **in_flight}
    holds = {k: h for k, h in state.holds.items() if k in kept or not _is_stale(state, h)}
    state = replace(state, in_flight=in_flight, reasons=reasons, holds=holds)
    return state, [*stale, *fresh]


def _is_stale(state: State[S], hold: Hold) -> bool:
    """Whether it is a failure of long ago; a decision that comes and goes forgets no newer one."""
    return hold.failures > 0 and state.now >= hold.until_time + LONGEST_RETRY_SECONDS


def by_view_and_entries(decide: Callable[[State[S]], T]) -> Callable[[State[S]], T]:
    """Remembers what came of a state's view and entries, the only things that `decide` reads.

    Most steps are of a new block that nothing happened in: both are the same objects then, and what
    takes hashing and sorting of a round's votes is not done again.
    """
    known: OrderedDict[tuple[int, int], tuple[JobView, Entries, T]] = OrderedDict()

    @wraps(decide)
    def remembered(state: State[S]) -> T:
        key = (id(state.view), id(state.entries))
        known_result = known.pop(key, None)  # it holds both: no other object has their addresses
        if known_result is None:
            known_result = (state.view, state.entries, decide(state))
        known[key] = known_result
        if len(known) > REMEMBERED:
            known.popitem(last=False)
        return known_result[2]

    return remembered


def _fold(state: State[S], event: Event) -> State[S]:
    match event:
        case ViewChanged(view, block, ahead, time):
            return replace(state, view=view, block=block, block_time=time, ahead=ahead)
        case HeadAdvanced(head):
            return replace(state, head=head)
        case Ordered(sits_out, may_take):
            return replace(state, sits_out=sits_out, may_take=may_take)
        case Finished(key, entry, block):
            holds = {k: h for k, h in state.holds.items() if k != key}
            if block:
                holds[key] = Hold(until_time=0, until_block=block, failures=0)
            entries = state.entries if entry is None else state.entries.plus(key, entry)
            state = replace(state, entries=entries, holds=holds)
        case Failed(key, _, due_at):
            failures = state.holds[key].failures + 1 if key in state.holds else 1
            pause = min(FIRST_RETRY_SECONDS << min(failures - 1, 8), LONGEST_RETRY_SECONDS)
            until = state.now + pause
            if due_at is not None:
                until = max(due_at, state.now + FIRST_RETRY_SECONDS)
            state = replace(state, holds={**state.holds, key: Hold(until, 0, failures)})
    return replace(state, in_flight={k: c for k, c in state.in_flight.items() if k != key})


def _free(state: State[S], key: str) -> bool:
    hold = state.holds.get(key)
    if hold is None:
        return True
    return state.now >= hold.until_time and state.block >= hold.until_block
