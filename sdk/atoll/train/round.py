"""One seat's round of DiLoCo (Douillard et al. 2023, arXiv:2311.08105, algorithm 1).

    θ ← θ(t−1)                 the certified global model
    H times: θ ← step(θ)       the inner optimiser, k steps a segment, on data that the seed draws
    Δ ← θ(t−1) − θ             the pseudo-gradient, whose canonical bytes are the seat's update

The outer step, which takes what all seats send, is `atoll.aggregation.merge_round`.

Rule of this file: everything is a function of (manifest, round id, seat, data seed, global model),
so that a restarted provider comes to the same bytes, and anybody else who runs the seat's round.
What stays on disk to go on from is `resume`'s, and decides no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.pieces import root_of_update
from atoll.numerics.state import SeatState
from atoll.numerics.update_proof import close_round
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.types import ZERO_DIGEST, Digest
from atoll.storage.local import LocalStore
from atoll.train.island import again_where_ranks_end
from atoll.train.resume import NOTHING_KEPT, Keeping, resumed, round_start_of
from atoll.train.seat_task import SegmentRunner, TrainTask, course_of, model_of, run_alone


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """What a provider commits to, reveals and serves; or what a replay of its round gives.

    Attributes:
        states: digest of the state after each segment done, `work_tags` their plain work tags.
        update: the encoded update; empty where no segment was done, or where what would be sent
            has a value that is not finite.
        losses: of each step, nats a token.
        seconds_in_steps: wall time of the steps; `seconds_before` those of them that a checkpoint
            brought, which another call ran.
        diverged: whether a step that was not finite ended it.
        sampled: ids of all steps, as the update has them: who has them repeats the training and not
            the generation.
    """

    states: tuple[Digest, ...]
    work_tags: tuple[Digest, ...]
    update: bytes
    losses: tuple[float, ...]
    seconds_in_steps: float
    seconds_before: float = 0.0
    diverged: bool = False
    sampled: bytes = field(default=b"", repr=False)

    @property
    def segments(self) -> int:
        return len(self.states)

    @property
    def update_root(self) -> Digest:
        """Binds the update's bytes, piece by piece, and their number; zero of no update."""
        return root_of_update(self.update) if self.update else ZERO_DIGEST

    def checkpoint_commitments(self, key: Digest) -> CheckpointCommitments:
        """What is revealed of the segments, masked under the round's key."""
        return CheckpointCommitments.of(self.states, self.work_tags, key)


def train_round(
    task: TrainTask,
    store: LocalStore,
    *,
    run: SegmentRunner = run_alone,
    keeping: Keeping = NOTHING_KEPT,
    is_enough: Callable[[int], bool] = lambda _: False,
    opened: Callable[[TrainTask, LocalStore], SeatState] = round_start_of,
) -> TrainedRound:
    """Trains a seat's round from its initial state, or from a checkpoint of this very work.

    A step that is not finite ends it at the segment before. Of a round that is taken up again at
    least one segment is run, if `is_enough` leaves time for it.

    Args:
        task: what to train.
        store: holds the dataset and the global state; nothing but checkpoints is written to it.
        run: how a segment is trained.
        keeping: what stays on disk, and is gone on from.
        is_enough: whether to end the round with so many segments, as when its time is over.
        opened: what makes the state that the round opens with.

    Raises:
        NotFound, CorruptBlock: something needed is not in the store.
        MalformedState, MalformedDataset: what is there is not of this job.
    """
    work = partial(_train_round, task, store, run, keeping, is_enough=is_enough, opened=opened)
    return again_where_ranks_end(work)


def _train_round(
    task: TrainTask,
    store: LocalStore,
    run: SegmentRunner,
    keeping: Keeping,
    *,
    is_enough: Callable[[int], bool],
    opened: Callable[[TrainTask, LocalStore], SeatState],
) -> TrainedRound:
    # θ ← θ(t−1). In a list of one, which whoever trains on empties: two names for the state would
    # keep it while the next is made.
    start = resumed(task, store, keeping.checkpoints, opened=opened)
    states, progress = start.states, start.progress
    course = course_of(task, store)
    while progress.segments < task.most_segments:
        if progress.segments and is_enough(progress.segments):
            break
        segment = run(states, progress.segments, course)  # k times θ ← step(θ)
        if not segment.is_finite:
            # The state before the segment is gone, as it would double what training needs; a round
            # that is not finite is rare, and is run again up to there.
            del segment
            ended = replace(task, segments=progress.segments)
            kept = Keeping(keeping.checkpoints)
            finite = train_round(ended, store, run=run, keeping=kept, opened=opened)
            return replace(finite, diverged=True)
        states.append(segment.state)
        progress = progress.plus(segment)
        del segment
        keeping.after_segment(task, progress, states[0])
    update = _pseudo_gradient(task, store, states, progress.sampled) if progress.segments else b""
    return TrainedRound(
        states=progress.states,
        work_tags=progress.work_tags,
        update=update,
        losses=progress.losses,
        seconds_in_steps=progress.seconds,
        seconds_before=start.progress.seconds,
        sampled=progress.sampled,
    )


def _pseudo_gradient(
    task: TrainTask, store: LocalStore, states: list[SeatState], sampled: bytes
) -> bytes:
    """Δ = θ(t−1) − θ as the codec writes it; none where a value of it is not finite.

    The segments stand then, and are paid: every step was finite, and what overflowed in the
    difference says nothing against them.
    """
    with suppress(NonFiniteDeltaError):
        # No name holds the model here, so that it is let go once the difference is written.
        return close_round(
            task.manifest, model_of(task, store), states.pop(), task.dither, sampled=sampled
        )[0]
    return b""
