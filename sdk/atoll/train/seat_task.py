"""One seat's work in one round, and what its steps follow from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.initial_state import open_round
from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import GlobalState, SeatState
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address, Digest, Domain, RoundId, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train.course import open_course
from atoll.train.earlier import EarlierRound
from atoll.train.memory_room import holds_here, seat_allocator
from atoll.train.open_base import open_base_of_ranks
from atoll.train.stored_states import read_global_state

NO_DOMAIN: Final = Domain(0, Address("0x" + "00" * 20))
"""A state follows from seeds and models; where they are from does not matter to it."""


@dataclass(frozen=True, slots=True)
class TrainTask:
    """One seat's work in one round.

    Attributes:
        global_state_cid: binary, of the GlobalState that the round opens from.
        segments: how many to run at most; None for the whole round.
        earlier: the rounds since the seat opened publicly, the oldest first; none where this one
            does.
    """

    manifest: Manifest
    round_id: RoundId
    seat: SeatIndex
    data_seed: Digest
    global_state_cid: bytes
    segments: int | None = None
    earlier: tuple[EarlierRound, ...] = ()

    @property
    def most_segments(self) -> int:
        """How many are run unless something ends the round."""
        return self.manifest.segments if self.segments is None else self.segments

    @property
    def dither(self) -> DitherKey:
        """Of the seat's update of this round."""
        return DitherKey(self.data_seed, self.seat)


SegmentRunner: TypeAlias = Callable[[list[SeatState], int, Course], SegmentRun]
"""Trains a segment from the one state in the list, and takes it out: whoever else held it would
keep it, 12 bytes a parameter, beside the one of the segment's steps."""


def run_alone(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
    """A segment as it is, with `run_segment`."""
    return run_segment(states.pop(), segment, course)


def tasks_before(task: TrainTask) -> Iterator[TrainTask]:
    """The whole rounds that its state comes from, the oldest first."""
    for index, earlier in enumerate(task.earlier):
        yield replace(
            task,
            round_id=replace(task.round_id, round=earlier.round),
            segments=None,
            data_seed=earlier.data_seed,
            global_state_cid=earlier.global_state_cid,
            earlier=task.earlier[:index],
        )


def model_of(task: TrainTask, store: LocalStore) -> GlobalState:
    """What the round starts from, as far as the update proof needs it."""
    params = holds_here(task.manifest, store)("params")
    cid = task.global_state_cid
    return read_global_state(task.manifest, cid, store, outer=False, moments=False, params=params)


def course_of(task: TrainTask, store: LocalStore) -> Course:
    """What a task's steps follow from. Raises as `train_round`."""
    manifest = task.manifest
    course = open_course(
        manifest,
        data_seed=task.data_seed,
        seat=task.seat,
        round=task.round_id.round,
        store=store,
        base_of=open_base_of_ranks,
    )
    if not manifest.codec.carries_params:
        return course
    return replace(course, model=model_of(task, store))


def open_with(task: TrainTask, store: LocalStore, carried_states: list[SeatState]) -> SeatState:
    """What the task's round opens with; the seat's own state, if it is there, is taken out."""
    manifest, cid, holds = task.manifest, task.global_state_cid, holds_here(task.manifest, store)
    model = read_global_state(manifest, cid, store, outer=False, params=holds("params"))
    carried_state = carried_states.pop() if carried_states else None
    allocate = seat_allocator(manifest, store)
    return open_round(manifest, model, carried_state, allocate=allocate, holds=holds)
