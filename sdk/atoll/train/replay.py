"""What an auditor runs: a seat's whole round again, and those before it since a public opening, or
since our own last replay of the seat.

Rule of this file: nothing that the provider sent is an input but the number of segments that it
says to have done; its leaves and its update's root are only compared with. What differs is accused
of only when a second run, by the reference, gives what the first gave: else it is our own fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from atoll.errors import ProtocolError
from atoll.numerics.link import close_round
from atoll.numerics.pieces import root_of_update
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.protocol.audit_reports import Duty
from atoll.protocol.hashing import sha256
from atoll.protocol.leaves import Leaves
from atoll.protocol.words import ZERO_DIGEST, Address, Digest, RoundIndex, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import Checkpoint, Checkpoints
from atoll.train.reference import fault, run_by_reference
from atoll.train.round import (
    Keeping,
    SegmentRunner,
    TrainTask,
    carried_of,
    carry,
    checkpoints_of,
    course_of,
    hand_over,
    model_of,
    open_with,
    read_global_state,
    run_alone,
    tasks_before,
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
        earlier: the same of the task's earlier rounds.
    """

    leaves: Leaves
    update_root: Digest
    model: Digest | None = None
    earlier: tuple[Claimed, ...] = ()


@dataclass(frozen=True, slots=True)
class SeatReplay:
    """What the replay of a seat's round gave.

    Attributes:
        words: plain, of the segments that are as revealed.
        differs_at: the first segment that is not; their number for the link; None for nothing.
        own: our closing digest there, or our update's root.
        seconds: wall time of the steps.
        earlier: the round of the reset period that `differs_at` and `own` are of; None for the
        seat's
            audited one. Then nothing is said of that, whose beginning is false.
    """

    words: tuple[Digest, ...]
    differs_at: int | None
    own: Digest
    seconds: float
    earlier: RoundIndex | None = None

    def duty(self, seat: SeatIndex, account: Address) -> Duty:
        """What an audit report says of it."""
        if self.earlier is not None:
            return Duty(seat, 0, self.own)
        if self.differs_at is None:
            return Duty.fine(seat, account, self.words)
        return Duty(seat, self.differs_at, self.own)


class _Differs(Exception):
    """A segment is not what was revealed; everything behind it follows from something else."""

    def __init__(self, round: RoundIndex, segment: int, own: Digest) -> None:
        super().__init__(segment)
        self.round, self.segment, self.own = round, segment, own


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
    round = task.slot.round if found.earlier is None else found.earlier
    second = _second_run((round, found.differs_at), run)
    again = _replay(task, claimed, store, checkpoints, second)
    if (again.earlier, again.differs_at, again.own) != (found.earlier, found.differs_at, found.own):
        at = f"segment {found.differs_at} of seat {task.seat} in round {round}"
        raise fault(f"two replays differ about {at}")
    if found.earlier is None:
        hand_over(task, found.differs_at, store, checkpoints)
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


def _second_run(wrong: tuple[RoundIndex, int], run: SegmentRunner) -> SegmentRunner:
    """As before up to the segment that differs, and that one by the reference.

    It begins with a checkpoint, or anew, as holding the state before each segment would take half
    as much memory again in every replay. Where only the link differs, all segments come before it.
    """

    def again(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        is_wrong = (course.round, segment) == wrong
        return (run_by_reference if is_wrong else run)(states, segment, course)

    return again


def _replay(
    task: TrainTask,
    claimed: Claimed,
    store: LocalStore,
    checkpoints: Checkpoints,
    run: SegmentRunner,
) -> SeatReplay:
    seconds = list[float]()
    words = list[Digest]()

    def compared(said: Claimed) -> SegmentRunner:
        def ran(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
            done = run(states, segment, course)
            seconds.append(done.seconds)
            if not done.is_finite or done.digest != said.leaves.items[segment].state:
                raise _Differs(RoundIndex(course.round), segment, done.digest)
            if said is claimed:
                words.append(done.work_tag)
            return done

        return ran

    def opened(_: TrainTask, store: LocalStore) -> SeatState:
        return _opening(task, claimed, store, compared)

    told = claimed.leaves.segments
    last = list[tuple[Checkpoint, SeatState]]()
    keeping = Keeping(checkpoints, last=lambda done, state: last.append((done, state)))
    try:
        part = replace(task, segments=told)
        own = train_round(part, store, compared(claimed), keeping, opened=opened).update_root
    except _Differs as found:
        earlier = found.round if found.round != task.slot.round else None
        spent = math.fsum(seconds)
        return SeatReplay(tuple(words), found.segment, found.own, spent, earlier)
    at = None if own == claimed.update_root else told
    for done, state in last if at is None else ():
        carry(task, store, _said_of((*claimed.earlier, claimed)))(done, state)
    return SeatReplay(tuple(words), at, own, math.fsum(seconds))


def _opening(
    task: TrainTask,
    claimed: Claimed,
    store: LocalStore,
    compared: Callable[[Claimed], SegmentRunner],
) -> SeatState:
    """`opening_of`, where whatever the seat said of the rounds before is compared, updates too.

    Of rounds that we replayed before, all of which was right, the last one's state is here; their
    models were compared then, and reading each anew may take longer than the steps that are left.
    """
    before, earlier = list(tasks_before(task)), claimed.earlier
    told = [_said_of(earlier[: count + 1]) for count in range(len(earlier))]
    count, states = carried_of(before, store, told)
    left = list(zip(before[count:], earlier[count:], strict=True))
    for one, said in left:
        _check_model(one, said, store)
    for one, said in left:
        states = [open_with(one, store, states)]
        course, run = course_of(one, store), compared(said)
        for segment in range(said.leaves.segments):
            states.append(run(states, segment, course).state)
        update, _ = close_round(one.manifest, model_of(one, store), states[0], one.dither)
        own = root_of_update(update)
        if own != said.update_root:
            raise _Differs(one.slot.round, said.leaves.segments, own)
    return open_with(task, store, states)


def _said_of(claims: Sequence[Claimed]) -> Digest:
    """Names what a seat revealed of its rounds, and the models that they are held to."""
    named = ((one.leaves, one.update_root, one.model or ZERO_DIGEST) for one in claims)
    return sha256(
        b"".join(sha256(leaves.to_bytes()) + root + model for leaves, root, model in named)
    )
