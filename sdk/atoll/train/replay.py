"""What an auditor runs: a seat's whole round again, and those before it since a public initial
state, or since our own last replay of the seat.

Rule of this file: nothing that the provider sent is an input but the number of segments that it
says to have done; its checkpoint commitments and its update's root are only compared with. What
differs is accused of only when a second run, by the reference, gives what the first gave: else it
is our own fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from atoll.errors import ProtocolError
from atoll.numerics.pieces import root_of_update
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.numerics.update_proof import close_round
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.hashing import sha256
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, RoundIndex, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import Checkpoint, Checkpoints
from atoll.train.resume import Keeping, carried_states_of, carry, checkpoints_of, hand_over
from atoll.train.round import train_round
from atoll.train.seat_task import (
    SegmentRunner,
    TrainTask,
    course_of,
    model_of,
    open_with,
    run_alone,
    tasks_before,
)
from atoll.train.second_run import fault, run_by_reference
from atoll.train.stored_states import read_global_state


class Disagreement(ProtocolError):
    """What we hold to be a round's model is not what the chain certifies: no seat is judged."""


@dataclass(frozen=True, slots=True)
class RevealedRound:
    """What a seat revealed of its round.

    Attributes:
        model: digest of the global state that the round opens from, as certified; None in round 0,
            whose model everybody makes from the manifest.
        earlier: the same of the task's earlier rounds.
        sampled: ids by step that the seat says it sampled. They are nobody's word: each is checked,
            and where one is not what the sampler gives, the replay samples for itself.
    """

    checkpoint_commitments: CheckpointCommitments
    update_root: Digest
    model: Digest | None = None
    earlier: tuple[RevealedRound, ...] = ()
    sampled: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeatReplay:
    """What the replay of a seat's round gave.

    Attributes:
        work_tags: plain, of the segments that are as revealed.
        mismatch_at: the first segment that is not; their number for the update proof; None for
            nothing.
        own: our closing digest there, or our update's root.
        seconds: wall time of the steps.
        earlier: the round of the reset period that `mismatch_at` and `own` are of; None for the
            seat's audited one. Then nothing is said of that, whose beginning is false.
    """

    work_tags: tuple[Digest, ...]
    mismatch_at: int | None
    own: Digest
    seconds: float
    earlier: RoundIndex | None = None

    def entry(self, seat: SeatIndex, account: Address) -> AuditEntry:
        """What an audit report says of it."""
        if self.earlier is not None:
            return AuditEntry(seat, 0, self.own)
        if self.mismatch_at is None:
            return AuditEntry.valid(seat, account, self.work_tags)
        return AuditEntry(seat, self.mismatch_at, self.own)


class _Mismatch(Exception):
    """A segment is not what was revealed; everything behind it follows from something else."""

    def __init__(self, round: RoundIndex, segment: int, own: Digest) -> None:
        super().__init__(segment)
        self.round, self.segment, self.own = round, segment, own


def replay_seat(
    task: TrainTask, claimed: RevealedRound, store: LocalStore, *, run: SegmentRunner = run_alone
) -> SeatReplay:
    """Runs as many segments as the seat says to have done, and its update proof.

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
    # What is there is of an earlier call, whose run nobody confirmed.
    checkpoints.drop()
    try:
        return _Audit(task, claimed, store, checkpoints).confirmed(run)
    finally:
        checkpoints.drop()


def _check_model(task: TrainTask, claimed: RevealedRound, store: LocalStore) -> None:
    if claimed.model is None:
        return
    ours = read_global_state(task.manifest, task.global_state_cid, store).digest()
    if ours != claimed.model:
        raise Disagreement(
            f"our model of round {task.round_id.round} has digest {ours.hex()}, "
            f"its certificate says {claimed.model.hex()}",
            next_step="judge no seat by it: what its providers opened from is another model",
        )


class _Comparison:
    """Runs segments and compares each with what the seat revealed of it.

    Attributes:
        seconds: wall time of every segment that was run.
    """

    def __init__(self, run: SegmentRunner) -> None:
        self._run = run
        self.seconds: list[float] = []
        self._work_tags: dict[int, Digest] = {}

    @property
    def work_tags(self) -> tuple[Digest, ...]:
        """Of each once, though a rank that ended had some run again."""
        return tuple(tag for _, tag in sorted(self._work_tags.items()))

    def earlier(self, claimed: RevealedRound) -> SegmentRunner:
        """Of a round that comes before the audited one."""

        def ran(states: list[SeatState], index: int, course: Course) -> SegmentRun:
            segment = self._run(states, index, replace(course, sampled=claimed.sampled))
            self.seconds.append(segment.seconds)
            if (
                not segment.is_finite
                or segment.digest != claimed.checkpoint_commitments.items[index].state
            ):
                raise _Mismatch(RoundIndex(course.round), index, segment.digest)
            return segment

        return ran

    def audited(self, claimed: RevealedRound) -> SegmentRunner:
        """Of the round whose work tags are asked for."""
        compare = self.earlier(claimed)

        def ran(states: list[SeatState], index: int, course: Course) -> SegmentRun:
            segment = compare(states, index, course)
            self._work_tags[index] = segment.work_tag
            return segment

        return ran


@dataclass(frozen=True, slots=True)
class _Audit:
    """One seat's round, and what the seat revealed of it.

    Attributes:
        checkpoints: of our runs, where a second one goes on.
    """

    task: TrainTask
    claimed: RevealedRound
    store: LocalStore
    checkpoints: Checkpoints

    def confirmed(self, run: SegmentRunner) -> SeatReplay:
        """A replay; where something differs, one that a second run gave as well.

        An accusation that is false costs its author a bond, and a memory cell suffices for one.
        """
        first = self.replayed(run)
        if first.mismatch_at is None:
            return first
        round = self.task.round_id.round if first.earlier is None else first.earlier
        second = self.replayed(_by_reference_at(round, first.mismatch_at, run))
        if replace(second, work_tags=first.work_tags, seconds=first.seconds) != first:
            at = f"segment {first.mismatch_at} of seat {self.task.seat} in round {round}"
            raise fault(f"two replays differ about {at}")
        if first.earlier is None:
            hand_over(self.task, first.mismatch_at, self.store, self.checkpoints)
        return replace(first, seconds=first.seconds + second.seconds)

    def replayed(self, run: SegmentRunner) -> SeatReplay:
        """Our run of the round, up to what differs first."""
        task, claimed, comparison = self.task, self.claimed, _Comparison(run)
        last = list[tuple[Checkpoint, SeatState]]()
        keeping = Keeping(self.checkpoints, last=lambda *reached: last.append(reached))
        try:
            trained = train_round(
                replace(task, segments=claimed.checkpoint_commitments.segments),
                self.store,
                run=comparison.audited(claimed),
                keeping=keeping,
                opened=lambda _, __: self._initial_state(comparison),
            )
        except _Mismatch as differs:
            return SeatReplay(
                work_tags=comparison.work_tags,
                mismatch_at=differs.segment,
                own=differs.own,
                seconds=math.fsum(comparison.seconds),
                earlier=differs.round if differs.round != task.round_id.round else None,
            )
        is_right = trained.update_root == claimed.update_root
        for progress, state in last if is_right else ():
            carry(task, self.store, _name_of((*claimed.earlier, claimed)))(progress, state)
        return SeatReplay(
            work_tags=comparison.work_tags,
            mismatch_at=None if is_right else claimed.checkpoint_commitments.segments,
            own=trained.update_root,
            seconds=math.fsum(comparison.seconds),
        )

    def _initial_state(self, comparison: _Comparison) -> SeatState:
        """`round_start_of`, where whatever the seat said of the rounds before is compared, updates
        too.

        Of rounds that we replayed before, all of which was right, the last one's state is here;
        their models were compared then, and reading each anew may take longer than the steps that
        are left.
        """
        before, claims = list(tasks_before(self.task)), self.claimed.earlier
        names = [_name_of(claims[:count]) for count in range(1, len(claims) + 1)]
        kept = carried_states_of(before, self.store, names)
        states = kept.states
        rest = list(zip(before[kept.rounds :], claims[kept.rounds :], strict=True))
        for earlier, claimed in rest:
            _check_model(earlier, claimed, self.store)
        for earlier, claimed in rest:
            states = [open_with(earlier, self.store, states)]
            self._run_earlier(earlier, claimed, states, comparison)
        return open_with(self.task, self.store, states)

    def _run_earlier(
        self,
        task: TrainTask,
        claimed: RevealedRound,
        states: list[SeatState],
        comparison: _Comparison,
    ) -> None:
        """Runs a round before the audited one, its update proof too; `states` has its last state
        then."""
        course, run = course_of(task, self.store), comparison.earlier(claimed)
        sampled = b""
        for index in range(claimed.checkpoint_commitments.segments):
            segment = run(states, index, course)
            states.append(segment.state)
            sampled += segment.sampled_bytes
            del segment
        # Nor is the model kept: it has no name here.
        update, _ = close_round(
            task.manifest, model_of(task, self.store), states[0], task.dither, sampled=sampled
        )
        ours = root_of_update(update)
        if ours != claimed.update_root:
            raise _Mismatch(task.round_id.round, claimed.checkpoint_commitments.segments, ours)


def _by_reference_at(round: RoundIndex, segment: int, run: SegmentRunner) -> SegmentRunner:
    """As before up to the segment that differs, and that one by the reference.

    It begins with a checkpoint, or anew, as holding the state before each segment would take half
    as much memory again in every replay. Where only the update proof differs, all segments come
    before it.
    """

    def ran(states: list[SeatState], index: int, course: Course) -> SegmentRun:
        is_wrong = (course.round, index) == (round, segment)
        return (run_by_reference if is_wrong else run)(states, index, course)

    return ran


def _name_of(claims: Sequence[RevealedRound]) -> Digest:
    """Names what a seat revealed of its rounds, and the models that they are held to."""
    fields = ((c.checkpoint_commitments, c.update_root, c.model or ZERO_DIGEST) for c in claims)
    return sha256(
        b"".join(
            sha256(checkpoint_commitments.to_bytes()) + root + model
            for checkpoint_commitments, root, model in fields
        )
    )
