"""Replays what the audit seed assigns to us, and from half time what falls to us; then the link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import MalformedTrace
from atoll.law.manifest import Manifest
from atoll.law.views import JobView
from atoll.law.words import ZERO_DIGEST, Address, Digest, Phase
from atoll.service.commands import Done, Fact, Work
from atoll.service.machine import AnyCommand, Decision
from atoll_verifier.limits import UNFETCHABLE_CONTENT, states_needed
from atoll_verifier.seatwork import SeatWork

if TYPE_CHECKING:
    from atoll.service.effects import Effects
    from atoll_verifier.audit import Audit

TASKS = "atoll_verifier.tasks"


@dataclass(frozen=True, slots=True)
class SegmentReplayed(Fact):
    """A segment was trained again.

    Attributes:
        account: the provider's.
        differs: what it disproves of the trace, empty where nothing; also what a served state is
            not.
        seconds: wall time in training steps.
        excess: in a tolerant job, how far the trace lies away: above 1 is out of tolerance.
        residual: in a tolerant job, how the segment was off, as a sketch of fp32 (`coherence`).
    """

    account: Address
    differs: str
    computed: Digest
    work_word: Digest
    steps: int
    seconds: float
    excess: float = 0.0
    residual: bytes = b""

    @property
    def matches(self) -> bool:
        return not self.differs and self.excess <= 1.0


@dataclass(frozen=True, slots=True)
class DoReplay(Work[SegmentReplayed]):
    """Fetch the states that a segment's replay needs, and train it again."""

    work: SeatWork
    segment: int

    @property
    def about(self) -> tuple[object, ...]:
        return (*self.work.about, self.segment)

    async def perform(self, effects: Effects, view: JobView) -> Done[SegmentReplayed]:
        work, segment, journal = self.work, self.segment, effects.context.journal
        manifest = Manifest.from_bytes(work.manifest)
        try:
            for index in states_needed(manifest, work.slot.round, segment):
                await work.fetch_state(effects, view, index)
        except (*UNFETCHABLE_CONTENT, MalformedTrace) as error:
            return Done(disproved(work, str(error)))
        sketch_key = int.from_bytes(journal.secret("sketch")[:16], "big")
        found: SegmentReplayed = await effects.work(
            f"{TASKS}:replay", work, segment, effects.store_dir, sketch_key
        )
        for name, value in (
            ("replayed_steps", found.steps),
            ("replayed_segments", 1),
            ("replay_seconds", found.seconds),
        ):
            journal.measure(view.job_id, view.state.round, name, value)
        return Done(found)


def disproved(work: SeatWork, why: str) -> SegmentReplayed:
    """What is found where there is no state to replay from."""
    return SegmentReplayed(work.account, why, ZERO_DIGEST, ZERO_DIGEST, 0, 0.0)


@dataclass(frozen=True, slots=True)
class LinkChecked(Fact):
    """The update was held against the last state; `fault` is empty where it follows from it."""

    fault: str


@dataclass(frozen=True, slots=True)
class DoLink(Work[LinkChecked]):
    """Fetch a seat's last state and hold the update against it."""

    work: SeatWork

    @property
    def about(self) -> tuple[object, ...]:
        return self.work.about

    async def perform(self, effects: Effects, view: JobView) -> Done[LinkChecked]:
        try:
            await self.work.fetch_state(effects, view, -1)
        except (*UNFETCHABLE_CONTENT, MalformedTrace) as error:
            return Done(LinkChecked(str(error)))
        return Done(LinkChecked(await effects.work(f"{TASKS}:link", self.work, effects.store_dir)))


# --- decisions ---


def decide_replays(audit: Audit, for_others: Callable[[Audit], list[AnyCommand]]) -> Decision:
    """Our duties first; what others wait for once nothing of ours can go on."""
    if audit.view.state.phase is not Phase.REPORT:
        return Decision("replay", "no audit is running")
    if audit.is_idle:
        return Decision("replay", "the behaviour replays nothing")
    duties = audit.all_duties
    tasks = [task for seat, duty in duties.items() for task in audit.tasks(seat, duty)]
    owed = sum(len(duty.segments) for duty in duties.values())
    waits = all(audit.state.is_missing(type(task), *task.about) for task in tasks)
    commands = (*tasks, *for_others(audit)) if waits else tuple(tasks)
    return Decision("replay", f"{len(tasks)} tasks left of {owed} segments", commands)
