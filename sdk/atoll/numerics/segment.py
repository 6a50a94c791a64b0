"""One segment of a round: k inner steps, and the digest of the state after the last.

Rule of this file: providers and verifiers run this one function; what differs between training and
replay is only what they do with its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch import Tensor

from atoll.numerics.batch import BatchPosition, BatchSource, MicroBatch, batch_source
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.gradients import StepInput
from atoll.numerics.kernels.interface import CPU
from atoll.numerics.problems import Problems
from atoll.numerics.rollouts import Make, Place, Sampler, ids_bytes, make_here
from atoll.numerics.schedule import Recipe
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import StepResult, mix_in, state_roots, step_in_place
from atoll.numerics.tokens import TokenSource
from atoll.numerics.update_proof import with_residual
from atoll.protocol.checkpoint_commitments import StateRoots, StepWork, work_tag
from atoll.protocol.draws import dropout_key
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import ZERO_DIGEST, Digest, SeatIndex

StepRunner: TypeAlias = Callable[[SeatState, StepInput, Recipe], StepResult]
"""With the arguments of `step_in_place`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a seat's training in one round follows from.

    Attributes:
        tokens: of the job's data, as words.
        model: what the round started from; None where it is not here, and then only steps can be
            run that come before it is taken in.
        sampled: ids by step that somebody says were sampled: they are checked, which is less work
            than sampling, and sampled where they are not.
        make: what generates a step's completions, where the ids are not said, or false.
    """

    manifest: Manifest
    recipe: Recipe
    tokens: TokenSource
    data_seed: Digest
    seat: SeatIndex
    round: int
    model: GlobalState | None = None
    sampled: Mapping[int, Tensor] = field(default_factory=dict)
    make: Make = make_here

    @property
    def global_step0(self) -> int:
        """The round's first step in the job's count, for the schedule: round · H."""
        return self.round * self.manifest.inner.steps

    @property
    def batches(self) -> BatchSource:
        """Where micro-batches come from."""
        return batch_source(self.manifest, self.tokens)

    def batch(self, step: int) -> list[MicroBatch]:
        """The micro-batches of a step of this round."""
        inner, source = self.manifest.inner, self.batches
        return [
            source.micro_batch(BatchPosition(self.data_seed, self.seat, self.round, step, index))
            for index in range(inner.micro_batches)
        ]

    def input(self, step: int) -> StepInput:
        """What a step of this round reads beside its state."""
        return StepInput(
            batch=self.batch(step),
            global_step=self.global_step0 + step,
            dropout_key=dropout_key(self.data_seed, self.seat),
        )

    def input_of(self, step: int, begun: SeatState) -> StepInput:
        """What a step reads that begins with this state: where it samples, by the state's model."""
        task = self.manifest.task
        if task is None:
            return self.input(step)
        sampler = Sampler(
            task,
            self.manifest.inner,
            self.recipe,
            Problems(self.tokens, task, self.manifest.model.vocab),
            self.make,
        )
        place = Place(self.data_seed, self.seat, step, self.global_step0 + step)
        params = dict(begun.params)  # of shards, too: every token is made by all of them
        rollouts = sampler.rollouts(params, place, self.sampled.get(step))
        batch = rollouts.micro_batches(self.manifest.inner.micro_batch)
        return StepInput(batch=batch, global_step=place.global_step, rollouts=rollouts)

    def mixes_in(self, step: int) -> bool:
        """Whether this step of the round begins with what the round before merged."""
        codec = self.manifest.codec
        return codec.carries_params and self.round > 0 and step == codec.overlap

    def begin(self, state: SeatState, step: int) -> SeatState:
        """What the step starts from. Raises ValueError where it needs a model that is not here."""
        if step == 0:
            state = replace(state, batches=0, rollouts=ZERO_DIGEST)
        if not self.mixes_in(step):
            return state
        if self.model is None:
            raise ValueError(f"step {step} takes the merged model in, which is not here")
        return mix_in(state, self.model, self.manifest.codec)

    def end(self, state: SeatState) -> SeatState:
        """What is hashed of a state after a step. Raises ValueError as `begin`."""
        if not self.manifest.codec.carries_feedback:
            return state
        if self.model is None:
            raise ValueError("what an update would leave out follows from the model")
        return with_residual(self.manifest, self.model, state, DitherKey(self.data_seed, self.seat))


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """A segment's result.

    Attributes:
        state: after the last step, on the CPU; of a segment that is not finite nobody's, as steps
            are in place: whoever wants the one before runs up to there again, from the opening.
        is_finite: whether every step was. One that was not ends its seat's round before the
            segment.
        works: what the work tag takes in of each step.
        losses: each step's batch loss, nats a token.
        sampled: ids of the steps that sampled, by step, as a trace has them.
        seconds: wall time of the steps, without the digest.
    """

    state: SeatState
    roots: StateRoots
    is_finite: bool
    works: tuple[StepWork, ...]
    losses: tuple[float, ...]
    seconds: float
    sampled: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def digest(self) -> Digest:
        """Of the closing state; zero, which is nobody's, where a step was not finite."""
        return self.roots.digest() if self.is_finite else ZERO_DIGEST

    @property
    def sampled_bytes(self) -> bytes:
        """The ids, as an update has them."""
        return ids_bytes(self.sampled)

    @property
    def work_tag(self) -> Digest:
        """What shows that the steps were run."""
        return work_tag(self.works)


def run_segment(
    state: SeatState, segment: int, course: Course, *, step_by: StepRunner = step_in_place
) -> SegmentRun:
    """Trains one segment from its initial state; `step_by` runs each of its steps.

    A tensor of that state is let go once the first step has the next one, unless whoever gives the
    state still has it.
    """
    started = time.perf_counter()
    state = state.unshared()
    inner = course.manifest.inner
    first = segment * inner.segment
    is_finite = True
    works: list[StepWork] = []
    losses: list[float] = []
    sampled: dict[int, Tensor] = {}
    for step in range(first, first + inner.segment):
        state = course.begin(state, step)
        given = course.input_of(step, state)
        result = step_by(state, given, course.recipe)
        state = result.state
        losses.append(result.loss)
        if given.rollouts is not None:
            sampled[step] = given.rollouts.signed
        works.append(result.work)
        if result.diverged:
            is_finite = False
            break
    state = state.on(CPU)
    if is_finite:
        state = course.end(state)
    seconds = time.perf_counter() - started
    return SegmentRun(
        state=state,
        roots=state_roots(state),
        is_finite=is_finite,
        works=tuple(works),
        losses=tuple(losses),
        seconds=seconds,
        sampled=sampled,
    )
