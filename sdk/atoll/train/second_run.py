"""Second runs by the reference, which find what this machine computes wrongly.

Fast kernels are compared with the reference when a process starts. What goes wrong later, or on
shapes that no comparison had (a memory cell, a core, a library), would cost a provider its bond and
have an auditor accuse an honest seat: so one step of a round, or one segment, is run once more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch

from atoll.errors import MachineFault
from atoll.numerics.gradients import BatchGradients, StepInput
from atoll.numerics.kernels.graphs import Graphs
from atoll.numerics.ops import reference_operations
from atoll.numerics.optimisers import OtherBits
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course, SegmentRun, StepRunner, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.step import (
    StepResult,
    finish_step,
    gradients_of,
    norm_of,
    step_in_place,
)
from atoll.numerics.tensors import tree_root
from atoll.protocol.checkpoint_commitments import StepWork, work_tag
from atoll.protocol.types import Digest

_NEXT_STEP = (
    "test this machine's memory and processor (memtest86+, stress-ng --verify), run them at their "
    "rated clocks; ATOLL_KERNELS=eager trains without compiled kernels, more slowly, and "
    "ATOLL_DEVICES=cpu without a GPU"
)


def fault(what: str) -> MachineFault:
    """The error that says what differed between two runs, and what helps."""
    said = f"{what}: this machine's memory or processor is at fault"
    return MachineFault(said, next_step=_NEXT_STEP)


def run_by_reference(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
    """Trains a segment as a `SegmentRunner`, every operation by the reference."""
    # What a step samples is the course's, by the reference as well.
    course = replace(course, recipe=_by_reference(course.recipe))
    return run_segment(states.pop(), segment, course, step_by=_reference_step)


class SelfCheck:
    """Runs a round's segments as `run_segment`, and two steps, drawn by chance, twice.

    They are drawn by this machine's own randomness, so that what is wrong in some steps only
    is found by some of many. One is among the steps of the first segment that is run, as the round
    may end early for want of time; the other among all that are left of the round. A round that is
    taken up again, from a checkpoint or because a step was not finite, draws its own.

    Args:
        segments: how many the round has.
        doubts: whether every step is run twice, as this machine was seen to be wrong before.
        draw: a number below its argument.

    Raises:
        MachineFault: when called: the two runs of the step differ.
    """

    def __init__(
        self,
        segments: int,
        doubts: bool = False,
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._end, self._draw = segments, draw
        self._doubts = doubts
        self._next = -1
        self._drawn: set[int] = set()

    def __call__(self, states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if segment != self._next:
            length = course.manifest.inner.segment
            first = course.global_step0 + segment * length
            ranges = (length, (self._end - segment) * length)
            self._drawn = {first + self._draw(below) for below in ranges}
        drawn = None if self._doubts else self._drawn
        step_by = _checked(drawn)
        segment_run = run_segment(states.pop(), segment, course, step_by=step_by)
        self._next = segment + 1
        if not segment_run.is_finite:
            self._end = segment  # the round is run again up to here
        return segment_run


def _by_reference(recipe: Recipe) -> Recipe:
    return replace(recipe, ops=reference_operations(recipe.ops.device))


def _reference_step(state: SeatState, given: StepInput, recipe: Recipe) -> StepResult:
    state, reference = state.on(recipe.ops.device), _by_reference(recipe)
    return finish_step(state, _reference_gradients(state, given, reference), given, reference)


def _reference_gradients(state: SeatState, given: StepInput, reference: Recipe) -> BatchGradients:
    # The GPU also holds what the fast run captured. An error that is still being handled would hold
    # what the first try had made.
    with suppress(torch.OutOfMemoryError):
        return gradients_of(state.params, given, reference)
    Graphs.let_go()
    return gradients_of(state.params, given, reference)


def _checked(drawn: set[int] | None) -> StepRunner:
    """Steps in place, where those drawn, or all, are run by the reference as well.

    Neither a second state nor second gradients are held: of the reference's gradients digests are
    kept, and the optimiser's two results are compared parameter by parameter.
    """

    def run(state: SeatState, given: StepInput, recipe: Recipe) -> StepResult:
        step = given.global_step
        if drawn is not None and step not in drawn:
            return step_in_place(state, given, recipe)
        state, reference = state.on(recipe.ops.device), _by_reference(recipe)
        expected = _digest_of(state, _reference_gradients(state, given, reference), reference)
        batch = gradients_of(state.params, given, recipe)
        if _digest_of(state, batch, recipe) != expected:
            raise _step_fault(step)
        try:
            return finish_step(state, batch, given, recipe, reference=reference)
        except OtherBits as error:
            raise _step_fault(step) from error

    return run


def _digest_of(state: SeatState, batch: BatchGradients, recipe: Recipe) -> tuple[Digest, Digest]:
    """Losses, norm and gradients; NaN equals itself."""
    norm = norm_of(state.params, batch.gradients, recipe)
    return tree_root(batch.gradients), work_tag([StepWork(norm, batch.losses)])


def _step_fault(step: int) -> MachineFault:
    return fault(f"step {step} has other bits by the reference kernels")
