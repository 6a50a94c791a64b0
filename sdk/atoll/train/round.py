"""A seat's round: H inner steps from its opening, what is said of them, and the update.

Rule of this file: everything is a function of (manifest, slot, seat, data seed, global model), so
that a restarted provider comes to the same bytes, and anybody else who runs the seat's round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from atoll.errors import StorageError
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.grid import NonFiniteDeltaError
from atoll.numerics.errors import MalformedState
from atoll.numerics.layout import max_state_bytes, moment_layout, seat_layout, trained_shapes
from atoll.numerics.link import close_round
from atoll.numerics.opening import open_round
from atoll.numerics.pieces import root_of_update
from atoll.numerics.segment import Course, SegmentRun, run_segment
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import state_roots
from atoll.numerics.tensors import Source
from atoll.protocol.hashing import sha256
from atoll.protocol.leaves import Leaves, key_message
from atoll.protocol.manifest import Manifest
from atoll.protocol.words import ZERO_DIGEST, Address, Digest, Domain, SeatIndex, Slot
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import (
    CARRIED,
    CHECKPOINT,
    DISPUTED,
    NOTHING_DONE,
    REPLAYED,
    SHARE,
    Checkpoint,
    Checkpoints,
    newest,
)
from atoll.train.course import open_course
from atoll.train.earlier import EarlierRound

log = structlog.get_logger("atoll.train")
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
    slot: Slot
    seat: SeatIndex
    data_seed: Digest
    global_state_cid: bytes
    segments: int | None = None
    earlier: tuple[EarlierRound, ...] = ()

    @property
    def dither(self) -> DitherKey:
        """Of the seat's update of this round."""
        return DitherKey(self.data_seed, self.seat)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of a round stays on disk.

    Attributes:
        checkpoints: where to go on from, and what to keep; None for nothing of both.
        last: told of the last state of a whole round, where a seat goes on with that.
    """

    checkpoints: Checkpoints | None = None
    last: Callable[[Checkpoint, SeatState], None] | None = None


NOTHING_KEPT: Final = Keeping()


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """What a provider commits to, reveals and serves; or what a replay of its round gives.

    Attributes:
        states: digest of the state after each segment done, `words` their plain work tags.
        update: the encoded update; empty where no segment was done, or where what would be sent
            has a value that is not finite.
        losses: of each step, nats a token.
        seconds_in_steps: wall time of the steps; `seconds_before` those of them that a checkpoint
            brought, which another call ran.
        diverged: whether a step that was not finite ended it.
    """

    states: tuple[Digest, ...]
    words: tuple[Digest, ...]
    update: bytes
    losses: tuple[float, ...]
    seconds_in_steps: float
    seconds_before: float = 0.0
    diverged: bool = False

    @property
    def segments(self) -> int:
        return len(self.states)

    @property
    def update_root(self) -> Digest:
        """Binds the update's bytes, piece by piece, and their number; zero of no update."""
        return root_of_update(self.update) if self.update else ZERO_DIGEST

    def leaves(self, key: Digest) -> Leaves:
        """What is revealed of the segments, masked under the round's key."""
        return Leaves.of(self.states, self.words, key)


SegmentRunner = Callable[[list[SeatState], int, Course], SegmentRun]
"""Trains a segment from the one state in the list, and takes it out: whoever else held it would
keep it, 12 bytes a parameter, while the segment's later steps are made."""


def run_alone(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
    """A segment as it is, with `run_segment`."""
    return run_segment(states.pop(), segment, course)


def opening_of(task: TrainTask, store: LocalStore) -> SeatState:
    """The state that the task's round opens with.

    It is the model's, the same for every seat, or what the rounds before made of such a one. Of
    rounds that are run for it the last state is kept: whoever is killed has no time for them twice.

    Raises as `train_round`.
    """
    before = list(tasks_before(task))
    count, states = carried_of(before, store)
    for one in before[count:]:
        states = [open_with(one, store, states)]
        course, so_far = course_of(one, store), NOTHING_DONE
        for segment in range(one.manifest.segments):
            done = run_alone(states, segment, course)
            states.append(done.state)
            so_far = _with(so_far, done)
            del done
        carry(one, store)(so_far, states[0])
    return open_with(task, store, states)


def hand_over(task: TrainTask, segment: int, store: LocalStore, kept: Checkpoints) -> None:
    """Leaves the last state kept before a segment that differs for the game about it.

    Its clock has room for one replay of the round, and there may be as many games as liars.
    """
    size = 4 * seat_layout(task.manifest).elements
    for found in kept.before(segment + 1)[:1]:
        with suppress(StorageError, MalformedState):
            state = read_seat_state(task.manifest, found.state, store)
            checkpoints_of(task, store, last_part=DISPUTED).write(found, state.pieces(), size)


def state_after(task: TrainTask, segments: int, store: LocalStore, kept: Checkpoints) -> SeatState:
    """The state after so many of a task's segments, run again for a game about the next one.

    Args:
        kept: where to go on from, and what is reached is kept: the allowance of a player that is
            killed has no room for a second run of the round.

    Raises as `train_round`.
    """
    states, so_far = _begun(task, segments + 1, store, kept, opening_of)
    course, size = course_of(task, store), 4 * seat_layout(task.manifest).elements
    is_finite = True
    for segment in range(so_far.segments, segments):
        done = run_alone(states, segment, course)
        states.append(done.state)
        so_far, is_finite = _with(so_far, done), is_finite and done.is_finite
        if is_finite:
            kept.write(so_far, states[0].pieces(), size)
    return states.pop()


def train_round(
    task: TrainTask,
    store: LocalStore,
    run: SegmentRunner = run_alone,
    keeping: Keeping = NOTHING_KEPT,
    *,
    is_enough: Callable[[int], bool] = lambda _: False,
    opened: Callable[[TrainTask, LocalStore], SeatState] = opening_of,
) -> TrainedRound:
    """Trains a seat's round from its opening, or from a checkpoint of this very work.

    A step that is not finite ends it at the segment before. Of a round that is taken up again at
    least one segment is run, if `is_enough` leaves time for it.

    Args:
        task: what to train.
        store: holds the dataset and the global state; nothing but checkpoints is written to it.
        run: how a segment is trained.
        is_enough: whether to end the round with so many segments, as when its time is over.
        opened: what makes the state that the round opens with.

    Raises:
        NotFound, CorruptBlock: something needed is not in the store.
        MalformedState, MalformedDataset: what is there is not of this job.
    """
    manifest = task.manifest
    wanted = manifest.segments if task.segments is None else task.segments
    checkpoints = keeping.checkpoints
    states, so_far = _begun(task, wanted, store, checkpoints, opened)
    before = so_far.seconds
    course = course_of(task, store)
    while so_far.segments < wanted and not (so_far.segments and is_enough(so_far.segments)):
        done = run(states, so_far.segments, course)
        states.append(done.state)
        if not done.is_finite:
            # The state before the segment is gone, as it would double what training needs; and
            # a round that is not finite is rare.
            ended = replace(task, segments=so_far.segments)
            again = train_round(ended, store, run, Keeping(checkpoints), opened=opened)
            return replace(again, diverged=True)
        so_far = _with(so_far, done)
        del done
        if checkpoints is not None and so_far.segments < wanted:
            size = 4 * seat_layout(manifest).elements
            checkpoints.write(so_far, states[0].pieces(), size)
    is_whole = so_far.segments == manifest.segments
    is_gone_on_with = is_whole and not manifest.opens_publicly(task.slot.round + 1)
    if keeping.last is not None and is_gone_on_with:
        keeping.last(so_far, states[0])
    update = b""
    if so_far.segments:
        model = model_of(task, store)
        with suppress(NonFiniteDeltaError):  # nothing follows then, and the segments stand
            update, _ = close_round(manifest, model, states.pop(), task.dither)
    seconds = (so_far.seconds, before)
    return TrainedRound(so_far.states, so_far.words, update, so_far.losses, *seconds)


def checkpoints_of(
    task: TrainTask, store: LocalStore, share: float = SHARE, last_part: str = CHECKPOINT
) -> Checkpoints:
    """The checkpoints of a task's round, whoever else's of the job being let go of.

    Args:
        share, last_part: see `Checkpoints`.
    """
    slot = task.slot
    if last_part == DISPUTED:  # of whoever replays, or plays a game, which does not tell
        slot = replace(slot, domain=NO_DOMAIN)
    work = _work_of(replace(task, slot=slot))
    if last_part == DISPUTED:  # another game's are no older ones of this
        last_part = f"{DISPUTED}/{work.hex()}"
    found = Checkpoints(store, slot.job, slot.round, work, share, last_part=last_part)
    found.supersede()
    return found


def carry(
    task: TrainTask, store: LocalStore, said: bytes = b""
) -> Callable[[Checkpoint, SeatState], None]:
    """Keeps a round's last state for a later round of the seat, and then lets go of an older one,
    which saves as many rounds as there are up to it. A round never fails for it.

    Args:
        said: of a replay, what the seat revealed of the rounds up to there, and is right.
    """

    def write(done: Checkpoint, state: SeatState) -> None:
        part, size = _carried_part(task, said), 4 * seat_layout(task.manifest).elements
        work, slot = _work_of(task, said), task.slot
        try:
            kept = Checkpoints(store, slot.job, slot.round, work, 0, last_part=part)
            if not store.has_room(2 * size) and store.has_room(size):
                kept.supersede()  # it will do with the older one's room
            kept.write(done, state.pieces(), size)
        except StorageError as error:  # as where the disk is full, and takes no change of a pin
            log.warning("no state is carried", round=slot.round, cause=str(error))

    return write


def carried_of(
    before: Sequence[TrainTask], store: LocalStore, said: Sequence[bytes] = ()
) -> tuple[int, list[SeatState]]:
    """How many of a seat's rounds need not be run again, and the state that the last of them left.

    Args:
        before: its rounds since it opened publicly, the oldest first.
        said: of each, as `carry` was told.
    """
    if not before:
        return 0, []
    told = said or [b""] * len(before)
    rounds = {one.slot.round: at for at, one in enumerate(before)}
    works = {one.slot.round: _work_of(one, what) for one, what in zip(before, told, strict=True)}
    manifest, part = before[0].manifest, _carried_part(before[0], *said[:1])
    for round, found in newest(store, before[0].slot.job, works, part):
        with suppress(StorageError, MalformedState):
            state = read_seat_state(manifest, found.state, store)
            if state_roots(state).digest() == found.states[-1]:
                return rounds[round] + 1, [state]
        log.warning("a carried state is damaged", round=round)
    return 0, []


def _carried_part(task: TrainTask, said: bytes = b"") -> str:
    if (
        task.slot.domain == NO_DOMAIN
    ):  # of a game, beside which there may be one of another reset period
        first = min((one.round for one in task.earlier), default=task.slot.round)
        return f"{DISPUTED}/{task.seat}/{first}"
    return f"{REPLAYED if said else CARRIED}/{task.seat}"


def _work_of(task: TrainTask, said: bytes = b"") -> Digest:
    """Names all that a round's states follow from."""
    where = key_message(task.slot, task.data_seed, task.seat)
    earlier = b"".join(one.data_seed + one.global_state_cid for one in task.earlier)
    return sha256(task.manifest.digest() + where + task.global_state_cid + earlier + said)


def course_of(task: TrainTask, store: LocalStore) -> Course:
    """What a task's steps follow from. Raises as `train_round`."""
    manifest = task.manifest
    course = open_course(manifest, task.data_seed, task.seat, task.slot.round, store)
    if not manifest.codec.carries_params:
        return course
    return replace(course, model=model_of(task, store))


def open_with(task: TrainTask, store: LocalStore, carried: list[SeatState]) -> SeatState:
    """What the task's round opens with; the seat's own state, if it is there, is taken out."""
    model = read_global_state(task.manifest, task.global_state_cid, store, outer=False)
    return open_round(task.manifest, model, carried.pop() if carried else None)


def tasks_before(task: TrainTask) -> Iterator[TrainTask]:
    """The whole rounds that its state comes from, the oldest first."""
    for at, one in enumerate(task.earlier):
        yield replace(
            task,
            slot=replace(task.slot, round=one.round),
            segments=None,
            data_seed=one.data_seed,
            global_state_cid=one.global_state_cid,
            earlier=task.earlier[:at],
        )


def read_global_state(
    manifest: Manifest,
    cid: bytes,
    store: LocalStore,
    *,
    outer: bool = True,
    moments: bool = True,
) -> GlobalState:
    """Raises MalformedState unless the blob is a global state of the manifest's job.

    Args:
        outer: false leaves the outer optimiser's slots out, two thirds of the state.
        moments: false leaves the merged moments out.
    """
    source, shapes = state_source(cid, manifest, store), trained_shapes(manifest)
    state = GlobalState.from_bytes(source, shapes, outer=outer, moments=moments)
    state.check_moments(moment_layout(manifest))
    return state


def read_seat_state(manifest: Manifest, cid: bytes, store: LocalStore) -> SeatState:
    """Raises MalformedState unless the blob is a seat state of the manifest's job."""
    return SeatState.from_bytes(state_source(cid, manifest, store), seat_layout(manifest))


def state_source(cid: bytes, manifest: Manifest, store: LocalStore) -> Source:
    """A state's bytes, read as they are parsed.

    Raises:
        TooLarge, MalformedDag: it cannot be one of this job's; the first may be raised as late as
            the first byte is read.
        NotFound, CorruptBlock: its root is missing or damaged.
    """
    file, limit = Cid.from_bytes(cid), max_state_bytes(manifest)
    return Source(store.file_bytes(file), store.iter_bytes(file, limit))


def model_of(task: TrainTask, store: LocalStore) -> GlobalState:
    """What the round starts from, as far as the link needs it."""
    cid = task.global_state_cid
    return read_global_state(task.manifest, cid, store, outer=False, moments=False)


def _begun(
    task: TrainTask,
    wanted: int,
    store: LocalStore,
    checkpoints: Checkpoints | None,
    begin: Callable[[TrainTask, LocalStore], SeatState],
) -> tuple[list[SeatState], Checkpoint]:
    """The state to go on from, in a list of its own, and what was done up to there."""
    manifest, round_ = task.manifest, task.slot.round
    for found in checkpoints.before(wanted) if checkpoints is not None else ():
        with suppress(StorageError, MalformedState):
            state = read_seat_state(manifest, found.state, store)
            if state_roots(state).digest() == found.states[-1]:
                log.info("goes on from a checkpoint", round=round_, segments=found.segments)
                return [state], found
        log.warning("a checkpoint is damaged", round=round_, segments=found.segments)
        if checkpoints is not None:
            checkpoints.drop(found)
    return [begin(task, store)], NOTHING_DONE


def _with(so_far: Checkpoint, done: SegmentRun) -> Checkpoint:
    return replace(
        so_far,
        states=(*so_far.states, done.digest),
        words=(*so_far.words, done.work_tag),
        losses=(*so_far.losses, *done.losses),
        seconds=so_far.seconds + done.seconds,
    )
