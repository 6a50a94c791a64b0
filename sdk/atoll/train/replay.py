"""What a verifier runs: one segment again.

Rule of this file: nothing a provider sent is used before its digest was compared with what the
provider committed to; a blob that is not the committed state is the trace's fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from atoll.bits.opening import committed_state, open_round
from atoll.bits.segment import Course, SegmentRun, float_of_bits, run_segment
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import state_roots
from atoll.bits.tensors import Source
from atoll.content.local import LocalStore
from atoll.errors import MalformedTrace
from atoll.law.manifest import Manifest
from atoll.law.trace import LeafKind, TraceLeaf
from atoll.law.words import Digest, SeatIndex, Slot
from atoll.train.course import open_course
from atoll.train.tolerance import Replayed, distances, excess, residual


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One segment to replay.

    Attributes:
        opening_digest: the digest that the opening state must have (see `bits.opening`).
        sketch_key: the verifier's own, for the residuals of tolerant replays.
        model: what the round started from, where the manifest has it come in during the round.
    """

    manifest: Manifest
    slot: Slot
    seat: SeatIndex
    data_seed: Digest
    opening_digest: Digest
    sketch_key: int = 0
    model: GlobalState | None = None


@dataclass(frozen=True, slots=True)
class SegmentReplay:
    """What the replay gave, and whether the leaf says the same.

    Attributes:
        differs: what the replay disproves of the leaf, empty where nothing.
        excess: in tolerant mode, the largest measure over its limit (above 1 is out of tolerance).
        residual: in tolerant mode, the sketch of how it is off: little-endian fp32.
        work_word: of the replayed steps, for the ballot's replay root.
        steps: steps replayed, a diverged one included.
        seconds: wall time of steps and digest.
    """

    differs: tuple[str, ...]
    kind: LeafKind
    state_digest: Digest
    batch_digest: Digest
    loss_bits: int
    work_word: Digest
    steps: int
    seconds: float
    excess: float = 0.0
    residual: bytes = b""

    @property
    def matches(self) -> bool:
        return not self.differs and self.excess <= 1.0


MakeState: TypeAlias = Callable[[], SeatState]


def served(task: ReplayTask, blob: bytes | Source) -> MakeState:
    """A state that the provider serves; `blob` is a SeatState's canonical bytes.

    Raises, when it is made:
        MalformedTrace: the blob is not the committed state: the provider's fault.
    """
    return lambda: committed_state(task.manifest, task.slot.round, blob, task.opening_digest)


def opened(task: ReplayTask, model: Callable[[], GlobalState]) -> MakeState:
    """The state that a round opens with that opens from public data: nobody serves it.

    Args:
        model: reads what the round starts from; it is let go once the state is made.

    Raises, when it is made:
        MalformedTrace: the trace opens with another one.
    """

    def make() -> SeatState:
        state = open_round(task.manifest, task.slot.round, model(), None)
        if state_roots(state).digest() != task.opening_digest:
            raise MalformedTrace("the round does not open with what everybody's opens with")
        return state

    return make


def replay_segment(
    task: ReplayTask,
    opening: MakeState,
    leaf: TraceLeaf,
    store: LocalStore,
    closing_blob: bytes | Source | None = None,
) -> SegmentReplay:
    """Trains the leaf's segment again.

    Args:
        task: what the segment follows from.
        opening: makes the state that it begins with.
        leaf: what the provider committed to.
        store: holds the dataset.
        closing_blob: the state the leaf commits to; a tolerant replay is held against it.

    Raises:
        MalformedTrace: a blob is not the committed state: the provider's fault.
        NotFound, CorruptBlock, MalformedDataset: the dataset cannot be used; nobody's fault.
    """
    round = task.slot.round
    # Popped below, so that it is not kept beside the states that come of it.
    openings = [opening()]
    begun = claimed = None
    if task.manifest.numerics.tolerance is not None:
        if closing_blob is None:
            raise ValueError("a tolerant replay needs the closing state")
        begun = openings[0]
        claimed = committed_state(task.manifest, round, closing_blob, leaf.state_digest)
    course = open_course(task.manifest, task.data_seed, task.seat, round, store, model=task.model)
    done = run_segment(openings.pop(), leaf.segment, course)
    replay = SegmentReplay(
        differs=done.disproves(leaf),
        kind=done.kind,
        state_digest=done.roots.digest(),
        batch_digest=done.batch_digest,
        loss_bits=done.loss_bits,
        work_word=done.work_word,
        steps=len(done.works),
        seconds=done.seconds,
    )
    if begun is None or claimed is None:
        return replay
    segment = _held_against(claimed, leaf, begun, done, course)
    ends_alike = (done.kind, done.last_step) == (leaf.kind, leaf.last_step)
    found = _excess(segment, leaf, done, task.manifest) if ends_alike else math.inf
    return replace(
        replay,
        differs=_miscounted(segment),
        excess=found,
        residual=residual(segment, task.sketch_key) if found <= 1.0 else b"",
    )


def _held_against(
    claimed: SeatState, leaf: TraceLeaf, opening: SeatState, done: SegmentRun, course: Course
) -> Replayed:
    """What is compared; a merged fragment that came in counts as there from the opening on."""
    finite = leaf.last_step - leaf.first_step + (leaf.kind is LeafKind.OK)
    took_in = [s for s in range(leaf.first_step, leaf.first_step + finite) if course.takes_in(s)]
    for step in took_in:
        opening = course.begin(opening, step)
    return Replayed(opening, claimed, done.state, finite, len(took_in))


def _excess(segment: Replayed, leaf: TraceLeaf, done: SegmentRun, manifest: Manifest) -> float:
    limits = manifest.numerics.tolerance
    losses = float_of_bits(done.loss_bits), float_of_bits(leaf.loss_bits)
    return math.inf if limits is None else excess(distances(segment), losses, limits)


def _miscounted(segment: Replayed) -> tuple[str, ...]:
    """What a tolerant replay can disprove: counters, which are integers on every machine."""
    opening, claimed, steps = segment.opening, segment.claimed, segment.steps
    counters = (opening.count + steps, opening.batches + steps)
    return () if (claimed.count, claimed.batches) == counters else ("state_digest",)
