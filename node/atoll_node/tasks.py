"""The provider's training, as the worker process runs it."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Digest
from atoll.store.local import LocalStore
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, TrainTask, train_round


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """What training left in the store, and what is committed to. CIDs are binary.

    Attributes:
        last_state: the last SeatState; its moments open the seat's next round once accepted.
        loss: mean of the last step trained, nats a token; 0.0 where no step was run.
        seconds: wall time in training steps.
    """

    trace_root: Digest
    trace_cid: bytes
    update_digest: Digest
    update_cid: bytes
    optimiser_root: Digest
    last_state: bytes
    steps: int
    reset: bool
    loss: float
    seconds: float


def train(task: TrainTask, store_dir: str, extra: tuple[bytes, ...]) -> TrainOutcome:
    """Trains one round honestly.

    Args:
        task: what to train.
        store_dir: the store's folder.
        extra: CIDs that the behaviour asked to have fetched; honest training needs none.
    """
    del extra
    configure_native()
    return outcome_of(train_round(task, LocalStore(store_dir)))


def outcome_of(trained: TrainedRound) -> TrainOutcome:
    """The part of a trained round that the service keeps."""
    return TrainOutcome(
        trace_root=trained.trace_root,
        trace_cid=trained.trace_cid,
        update_digest=trained.update_digest,
        update_cid=trained.update_cid,
        optimiser_root=trained.optimiser_root,
        last_state=trained.document.states[-1],
        steps=trained.steps,
        reset=trained.reset,
        loss=trained.losses[-1] if trained.losses else 0.0,
        seconds=trained.seconds_in_steps,
    )
