"""One segment of a round: k inner steps, and the digest of the state after the last.

Rule of this file: providers and verifiers run this one function; what differs between training and
replay is only what they do with its result.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass, fields

from torch import Tensor

from atoll.bits.batch import gather_batch
from atoll.bits.schedule import Recipe
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.step import inner_step, state_roots, take_in
from atoll.bits.tokens import TokenSource
from atoll.law.draws import batch_digest, dropout_key
from atoll.law.manifest import Manifest
from atoll.law.trace import (
    DIVERGED_LOSS_BITS,
    LeafKind,
    StateRoots,
    StepWork,
    TraceLeaf,
    float_bytes,
    work_word,
)
from atoll.law.words import Digest, SeatIndex, SegmentIndex, Slot


@dataclass(frozen=True, slots=True)
class Course:
    """What a seat's training in one round follows from.

    Attributes:
        model: what the round started from; None where it is not here, and then only steps can be
            run that come before it is taken in.
    """

    manifest: Manifest
    recipe: Recipe
    tokens: TokenSource
    data_seed: Digest
    seat: SeatIndex
    round: int
    model: GlobalState | None = None

    @property
    def global_step0(self) -> int:
        """The round's first step in the job's count, for the schedule: round · H."""
        return self.round * self.manifest.inner.steps

    def offsets(self, step: int) -> list[int]:
        """Where the sequences of a step of this round begin."""
        return self.manifest.batch_offsets(self.data_seed, self.seat, step)

    def batch(self, offsets: list[int]) -> Tensor:
        """The sequences that begin there: `gather_batch`."""
        spec = self.manifest
        return gather_batch(self.tokens, offsets, spec.model.seq, masked=spec.data.masked)

    def takes_in(self, step: int) -> bool:
        """Whether this step of the round begins with what the round before merged."""
        codec = self.manifest.codec
        return codec.is_delayed and self.round > 0 and step == codec.overlap

    def begin(self, state: SeatState, step: int) -> SeatState:
        """What the step starts from. Raises ValueError where it needs a model that is not here."""
        if not self.takes_in(step):
            return state
        if self.model is None:
            raise ValueError(f"step {step} takes the merged model in, which is not here")
        return take_in(state, self.model, self.manifest.codec)


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """A segment's result, as the trace states it.

    Steps count from 0 within the round, `last_step` is inclusive. A diverged segment ends at the
    first step that was not finite, and its state is the one before that step.

    Attributes:
        works: what the work word takes in of each step, the diverged one included.
        losses: each step's batch loss, nats a token.
        seconds: wall time of steps and digest together.
    """

    state: SeatState
    roots: StateRoots
    kind: LeafKind
    first_step: int
    last_step: int
    batch_digest: Digest
    works: tuple[StepWork, ...]
    losses: tuple[float, ...]
    seconds: float

    @property
    def loss_bits(self) -> int:
        """IEEE 754 binary32 of the mean loss; the one NaN when diverged."""
        if self.kind is LeafKind.DIVERGED:
            return DIVERGED_LOSS_BITS
        return loss_bits(math.fsum(self.losses) / len(self.losses))

    @property
    def work_word(self) -> Digest:
        """What shows that the steps were run."""
        return work_word(self.works)

    def leaf(
        self, slot: Slot, seat: SeatIndex, segment: SegmentIndex, previous: Digest
    ) -> TraceLeaf:
        """What is committed to of it; `previous` is the hash of the leaf before, zero of none."""
        return TraceLeaf(
            slot=slot,
            seat=seat,
            segment=segment,
            first_step=self.first_step,
            last_step=self.last_step,
            kind=self.kind,
            state_digest=self.roots.digest(),
            batch_digest=self.batch_digest,
            loss_bits=self.loss_bits,
            work_word=self.work_word,
            previous=previous,
        )

    def disproves(self, leaf: TraceLeaf) -> tuple[str, ...]:
        """Fields of somebody's leaf that this run of the same segment has otherwise."""
        own = self.leaf(leaf.slot, leaf.seat, leaf.segment, leaf.previous)
        names = (field.name for field in fields(TraceLeaf))
        return tuple(name for name in names if getattr(leaf, name) != getattr(own, name))


def loss_bits(loss: float) -> int:
    """A loss rounded once to binary32, as an integer."""
    return int.from_bytes(float_bytes(">f", loss), "big")


def float_of_bits(bits: int) -> float:
    """The binary32 with these bits; a NaN stays one."""
    value: float = struct.unpack(">f", bits.to_bytes(4, "big"))[0]
    return value


def run_segment(state: SeatState, segment: int, course: Course) -> SegmentRun:
    """Trains one segment from its opening state."""
    started = time.perf_counter()
    inner = course.manifest.inner
    first = segment * inner.segment
    key = dropout_key(course.data_seed, course.seat)
    kind = LeafKind.OK
    offsets: list[list[int]] = []
    works: list[StepWork] = []
    losses: list[float] = []
    for step in range(first, first + inner.segment):
        offsets.append(course.offsets(step))
        batch = course.batch(offsets[-1])
        begun = course.begin(state, step)
        done = inner_step(begun, batch, course.global_step0 + step, course.recipe, key)
        losses.append(done.loss)
        works.append(done.work)
        if done.diverged:
            kind = LeafKind.DIVERGED
            break
        state = done.state
    return SegmentRun(
        state=state,
        roots=state_roots(state),
        kind=kind,
        first_step=first,
        last_step=first + len(offsets) - 1,
        batch_digest=batch_digest(offsets),
        works=tuple(works),
        losses=tuple(losses),
        seconds=time.perf_counter() - started,
    )
