"""Resuming a seat's round: what of it stays on disk, and where it goes on from that.

There are two kinds. A *checkpoint* is a state within a round, for whoever is killed in it. A
*carried state* is the last of a stateful round, which the seat's next round opens with.

Rule of this file: what is kept saves time and decides nothing. A state is gone on with only where
its digest is what was said of it; else an older one is taken, or the segments are run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from atoll.errors import StorageError
from atoll.numerics.errors import MalformedState
from atoll.numerics.state import SeatState
from atoll.numerics.step import state_roots
from atoll.protocol.checkpoint_commitments import key_message
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import (
    CARRIED_STATE,
    CHECKPOINT,
    DISPUTED,
    NOTHING_DONE,
    REPLAYED,
    SHARE,
    Checkpoint,
    Checkpoints,
    newest,
)
from atoll.train.seat_task import (
    NO_DOMAIN,
    TrainTask,
    course_of,
    open_with,
    run_alone,
    tasks_before,
)
from atoll.train.sharded import RankEnded
from atoll.train.stored_states import read_seat_state, seat_state_bytes

log = structlog.get_logger("atoll.train")
LastState = Callable[[Checkpoint, SeatState], None]
"""Told of the last state of a whole round that the seat goes on with."""
Opener = Callable[[TrainTask, LocalStore], SeatState]
"""Makes the state that a task's round opens with: `round_start_of`, or as it does."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of a round stays on disk.

    Attributes:
        checkpoints: where to go on from, and what to keep; None for nothing of both.
        last: told of the last state of a whole round, where a seat goes on with that.
    """

    checkpoints: Checkpoints | None = None
    last: LastState | None = None

    def after_segment(self, task: TrainTask, progress: Checkpoint, state: SeatState) -> None:
        """Keeps the state that a segment of the task's round ended with.

        After the last segment a checkpoint would save nothing: the update follows at once.
        """
        if self.checkpoints is not None and progress.segments < task.most_segments:
            self.checkpoints.write(progress, state.pieces(), seat_state_bytes(task.manifest))
        is_whole = progress.segments == task.manifest.segments
        is_stateful = not task.manifest.opens_publicly(task.round_id.round + 1)
        if self.last is not None and is_whole and is_stateful:
            self.last(progress, state)


NOTHING_KEPT: Final = Keeping()


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a round goes on.

    Attributes:
        states: the one state to train on; whoever does takes it out of the list.
        progress: what was done up to there.
    """

    states: list[SeatState]
    progress: Checkpoint = NOTHING_DONE


@dataclass(frozen=True, slots=True)
class Carried:
    """What need not be run again of the rounds before one.

    Attributes:
        rounds: how many of them, from the oldest on.
        states: the state that the last of these left, alone in a list; none where `rounds` is 0.
    """

    rounds: int = 0
    states: list[SeatState] = field(default_factory=list)


# --- within a round ---


def resumed(
    task: TrainTask,
    store: LocalStore,
    checkpoints: Checkpoints | None,
    *,
    opened: Opener,
    below: int | None = None,
) -> Resumed:
    """The newest whole checkpoint of the task's work; where there is none, the round's opening.

    Args:
        below: how many segments it has to have less than; by default than the task runs.
    """
    if checkpoints is not None:
        for kept in checkpoints.before(task.most_segments if below is None else below):
            state = _read_kept(task.manifest, kept, store)
            where = {"round": task.round_id.round, "segments": kept.segments}
            if state is not None:
                log.info("goes on from a checkpoint", **where)
                return Resumed([state], kept)
            log.warning("a checkpoint is damaged", **where)
            checkpoints.drop(kept)
    return Resumed([opened(task, store)])


def checkpoints_of(
    task: TrainTask, store: LocalStore, *, share: float = SHARE, last_part: str = CHECKPOINT
) -> Checkpoints:
    """The checkpoints of a task's round, whoever else's of the job being let go of.

    Args:
        share, last_part: see `Checkpoints`.
    """
    round_id = task.round_id
    if last_part == DISPUTED:  # of whoever replays, or plays a game, which does not tell
        round_id = replace(round_id, domain=NO_DOMAIN)
    work = _work_of(replace(task, round_id=round_id))
    if last_part == DISPUTED:  # another game's are no older ones of this
        last_part = f"{DISPUTED}/{work.hex()}"
    checkpoints = Checkpoints(store, round_id.job, round_id.round, work, share, last_part=last_part)
    checkpoints.supersede()
    return checkpoints


def reached_after(task: TrainTask, segments: int, store: LocalStore, kept: Checkpoints) -> Resumed:
    """Where so many of a task's segments lead, run again for a game about the next one.

    Args:
        kept: where to go on from, and what is reached is kept: the allowance of a player that is
            killed has no room for a second run of the round.

    Raises as `train_round`.
    """
    start = resumed(task, store, kept, opened=round_start_of, below=segments + 1)
    states, progress = start.states, start.progress
    course, size = course_of(task, store), seat_state_bytes(task.manifest)
    is_finite = True
    for index in range(progress.segments, segments):
        segment = run_alone(states, index, course)
        states.append(segment.state)
        progress, is_finite = progress.plus(segment), is_finite and segment.is_finite
        del segment
        if is_finite:
            kept.write(progress, states[0].pieces(), size)
    return Resumed(states, progress)


def hand_over(task: TrainTask, segment: int, store: LocalStore, kept: Checkpoints) -> None:
    """Leaves the last state kept before a segment that differs for the game about it.

    Its clock has room for one replay of the round, and there may be as many games as liars.
    """
    for before in kept.before(segment + 1)[:1]:
        with suppress(StorageError, MalformedState, RankEnded):
            state = read_seat_state(task.manifest, before.state, store)
            disputed = checkpoints_of(task, store, last_part=DISPUTED)
            disputed.write(before, state.pieces(), seat_state_bytes(task.manifest))


# --- from round to round ---


def round_start_of(task: TrainTask, store: LocalStore) -> SeatState:
    """The state that the task's round opens with.

    It is the model's, the same for every seat, or what the rounds before made of such a one. Of
    rounds that are run for it the last state is kept: whoever is killed has no time for them twice.

    Raises as `train_round`.
    """
    before = list(tasks_before(task))
    kept = carried_states_of(before, store)
    states = kept.states
    for earlier in before[kept.rounds :]:
        states = [open_with(earlier, store, states)]
        course, progress = course_of(earlier, store), NOTHING_DONE
        for index in range(earlier.manifest.segments):
            segment = run_alone(states, index, course)
            states.append(segment.state)
            progress = progress.plus(segment)
            del segment
        carry(earlier, store)(progress, states[0])
    return open_with(task, store, states)


def carry(task: TrainTask, store: LocalStore, revealed: bytes = b"") -> LastState:
    """Keeps a round's last state for a later round of the seat, and then lets go of an older one,
    which saves as many rounds as there are up to it. A round never fails for it.

    Args:
        revealed: of a replay, names what the seat revealed of the rounds up to there, which is
            right.
    """

    def write(progress: Checkpoint, state: SeatState) -> None:
        part, size = _carried_state_part(task, revealed), seat_state_bytes(task.manifest)
        work, round_id = _work_of(task, revealed), task.round_id
        try:
            # A share of 0: it is written once a round, and what it saves is whole rounds.
            kept = Checkpoints(store, round_id.job, round_id.round, work, 0, last_part=part)
            if not store.has_room(2 * size) and store.has_room(size):
                kept.supersede()  # it will do with the older one's room
            kept.write(progress, state.pieces(), size)
        except (StorageError, RankEnded) as error:  # as where the disk is full
            log.warning("no state is carried", round=round_id.round, cause=str(error))

    return write


def carried_states_of(
    before: Sequence[TrainTask], store: LocalStore, revealed: Sequence[bytes] = ()
) -> Carried:
    """What is kept of a seat's rounds.

    Args:
        before: its rounds since it opened publicly, the oldest first.
        revealed: of each, as `carry` was told.
    """
    if not before:
        return Carried()
    by_round = {task.round_id.round: count for count, task in enumerate(before, 1)}
    works = {
        task.round_id.round: _work_of(task, name)
        for task, name in zip(before, revealed or [b""] * len(before), strict=True)
    }
    part = _carried_state_part(before[0], *revealed[:1])
    for round, kept in newest(store, before[0].round_id.job, works, part):
        state = _read_kept(before[0].manifest, kept, store)
        if state is not None:
            return Carried(by_round[round], [state])
        log.warning("a carried state is damaged", round=round)
    return Carried()


# --- both ---


def _read_kept(manifest: Manifest, kept: Checkpoint, store: LocalStore) -> SeatState | None:
    """A kept state; None where it is missing, damaged, or not the one whose digest was noted.

    The store checks bytes against their CID, and that is not enough: what was written from memory
    that was wrong by then has a right CID.
    """
    with suppress(StorageError, MalformedState):
        state = read_seat_state(manifest, kept.state, store)
        if state_roots(state).digest() == kept.states[-1]:
            return state
    return None


def _work_of(task: TrainTask, revealed: bytes = b"") -> Digest:
    """Names all that a round's states follow from: after a reorg the same round is other work."""
    where = key_message(task.round_id, task.data_seed, task.seat).digest
    earlier = b"".join(before.data_seed + before.global_state_cid for before in task.earlier)
    return sha256(task.manifest.digest() + where + task.global_state_cid + earlier + revealed)


def _carried_state_part(task: TrainTask, revealed: bytes = b"") -> str:
    """The last part of a carried state's pin."""
    if task.round_id.domain == NO_DOMAIN:
        # Of a game, beside which there may be one of another reset period.
        first = min((earlier.round for earlier in task.earlier), default=task.round_id.round)
        return f"{DISPUTED}/{task.seat}/{first}"
    return f"{REPLAYED if revealed else CARRIED_STATE}/{task.seat}"
