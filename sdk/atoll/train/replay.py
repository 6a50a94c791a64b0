"""What an auditor runs: a seat's whole round again, from its public opening.

Rule of this file: nothing that the provider sent is an input but the number of segments that it
says to have done; its leaves and its update's root are only compared with. What differs is accused
of only when a second run, by the reference, gives what the first gave: else it is our own fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.bits.segment import Course, SegmentRun
from atoll.bits.state import SeatState
from atoll.content.local import LocalStore
from atoll.errors import ProtocolError
from atoll.law.ballots import Duty
from atoll.law.leaves import Leaves
from atoll.law.words import Address, Digest, SeatIndex
from atoll.train.checkpoints import Checkpoints
from atoll.train.reference import fault, run_by_reference
from atoll.train.round import (
    SegmentRunner,
    TrainTask,
    checkpoints_of,
    read_global_state,
    run_alone,
    train_round,
)


class Disagreement(ProtocolError):
    """What we hold to be a round's model is not what the chain certifies: no seat is judged."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a seat revealed of its round.

    Attributes:
        model: digest of the global state that the round opens from, as certified; None in round 0,
            whose model everybody makes from the manifest.
    """

    leaves: Leaves
    update_root: Digest
    model: Digest | None = None


@dataclass(frozen=True, slots=True)
class SeatReplay:
    """What the replay of a seat's round gave.

    Attributes:
        words: plain, of the segments that are as revealed.
        differs_at: the first segment that is not; their number for the link; None for nothing.
        own: our closing digest there, or our update's root.
        seconds: wall time of the steps.
    """

    words: tuple[Digest, ...]
    differs_at: int | None
    own: Digest
    seconds: float

    def duty(self, seat: SeatIndex, account: Address) -> Duty:
        """What a ballot says of it."""
        if self.differs_at is None:
            return Duty.fine(seat, account, self.words)
        return Duty(seat, self.differs_at, self.own)


class _Differs(Exception):
    """A segment is not what was revealed; everything behind it follows from something else."""

    def __init__(self, segment: int, own: Digest) -> None:
        super().__init__(segment)
        self.segment, self.own = segment, own


def replay_seat(
    task: TrainTask, claimed: Claimed, store: LocalStore, run: SegmentRunner = run_alone
) -> SeatReplay:
    """Runs as many segments as the seat says to have done, and its link.

    What differs is run again, the segment by the reference, before it is said.

    Raises:
        NotFound, CorruptBlock, MalformedState, MalformedDataset: something is missing or damaged
            here; that is nobody's fault.
        Disagreement: the model in the store is not the certified one.
        MachineFault: two runs of ours differ; nothing can be said of the seat.
    """
    _check_model(task, claimed, store)
    # So that the second run has not to begin anew: what it takes is taken of the time to answer.
    checkpoints = checkpoints_of(task, store)
    checkpoints.drop()
    try:
        return _confirmed(task, claimed, store, checkpoints, run)
    finally:
        checkpoints.drop()


def _confirmed(
    task: TrainTask,
    claimed: Claimed,
    store: LocalStore,
    checkpoints: Checkpoints,
    run: SegmentRunner,
) -> SeatReplay:
    found = _replay(task, claimed, store, checkpoints, run)
    if found.differs_at is None:
        return found
    second = _second_run(found.differs_at, run)
    again = _replay(task, claimed, store, checkpoints, second)
    if (again.differs_at, again.own) != (found.differs_at, found.own):
        at = f"segment {found.differs_at} of seat {task.seat} in round {task.slot.round}"
        raise fault(f"two replays differ about {at}")
    return replace(found, seconds=found.seconds + again.seconds)


def _check_model(task: TrainTask, claimed: Claimed, store: LocalStore) -> None:
    if claimed.model is None:
        return
    own = read_global_state(task.manifest, task.global_state_cid, store).digest()
    if own != claimed.model:
        raise Disagreement(
            f"our model of round {task.slot.round} has digest {own.hex()}, "
            f"its certificate says {claimed.model.hex()}",
            next_step="judge no seat by it: what its providers opened from is another model",
        )


def _second_run(wrong: int, run: SegmentRunner) -> SegmentRunner:
    """As before up to the segment that differs, and that one by the reference.

    It begins with a checkpoint, or anew, as holding the state before each segment would take half
    as much memory again in every replay. Where only the link differs, all segments come before it.
    """

    def again(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        return (run_by_reference if segment == wrong else run)(states, segment, course)

    return again


def _replay(
    task: TrainTask,
    claimed: Claimed,
    store: LocalStore,
    checkpoints: Checkpoints,
    run: SegmentRunner,
) -> SeatReplay:
    words: list[Digest] = []
    seconds = 0.0

    def compared(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        nonlocal seconds
        done = run(states, segment, course)
        seconds += done.seconds
        if done.digest != claimed.leaves.items[segment].state:
            raise _Differs(segment, done.digest)
        words.append(done.work_word)
        return done

    told = claimed.leaves.segments
    try:
        part = replace(task, segments=told)
        own = train_round(part, store, run=compared, checkpoints=checkpoints).update_root
    except _Differs as found:
        return SeatReplay(tuple(words), found.segment, found.own, seconds)
    at = None if own == claimed.update_root else told
    return SeatReplay(tuple(words), at, own, seconds)
