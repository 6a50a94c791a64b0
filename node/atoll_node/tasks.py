"""The provider's training, as the worker process runs it."""

from __future__ import annotations

from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.law.words import SeatIndex
from atoll.service.worker import resolve
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, TrainTask, train_ahead, train_round
from atoll_node.commands import DoTrain
from atoll_node.outcome import AheadOutcome, TrainOutcome

__all__ = ["TrainOutcome", "outcome_of", "run_ahead", "run_training", "train"]


def run_training(command: DoTrain, store_dir: str) -> TrainOutcome:
    """Runs the command's training function on its task."""
    outcome: TrainOutcome = resolve(command.function)(_task(command), store_dir, command.extra)
    return outcome


def run_ahead(command: DoTrain, store_dir: str) -> AheadOutcome:
    """Trains the command's first segments, without the global state that it names."""
    configure_native()
    ahead = train_ahead(_task(command), LocalStore(store_dir))
    return AheadOutcome(ahead.document.to_bytes(), ahead.seconds_in_steps)


def _task(command: DoTrain) -> TrainTask:
    manifest = Manifest.from_bytes(command.manifest)
    return TrainTask(
        manifest=manifest,
        slot=command.slot,
        seat=SeatIndex(command.seat),
        data_seed=command.data_seed,
        global_state_cid=command.opening,
        opening_optimiser=command.optimiser,
        global_step0=command.slot.round * manifest.inner.steps,
        begun=command.begun,
    )


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
        update_root=trained.update_root,
        update_cid=trained.update_cid,
        optimiser_root=trained.optimiser_root,
        carried_state=trained.carried_cid,
        steps=trained.steps,
        reset=trained.reset,
        loss=trained.losses[-1] if trained.losses else 0.0,
        seconds=trained.seconds_in_steps,
    )
