"""The provider's training, as the worker process runs it."""

from __future__ import annotations

from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.law.words import SeatIndex
from atoll.service.worker import resolve
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, TrainTask, train_round
from atoll_node.duties.train import DoTrain, Work


def run_training(command: DoTrain, store_dir: str) -> Work:
    """Runs the command's training function and puts the update into the store."""
    done: TrainedRound = resolve(command.function)(_task(command), store_dir, command.extra)
    cid = LocalStore(store_dir).add_bytes(done.update).to_bytes() if done.update else b""
    loss = done.losses[-1] if done.losses else 0.0
    return Work(done.states, done.words, done.update_root, cid, loss, done.seconds_in_steps)


def train(task: TrainTask, store_dir: str, extra: tuple[bytes, ...]) -> TrainedRound:
    """Trains one round honestly.

    Args:
        task: what to train.
        store_dir: the store's folder.
        extra: CIDs that the behaviour asked to have fetched; honest training needs none.
    """
    del extra
    configure_native()
    return train_round(task, LocalStore(store_dir))


def _task(command: DoTrain) -> TrainTask:
    return TrainTask(
        manifest=Manifest.from_bytes(command.manifest),
        slot=command.slot,
        seat=SeatIndex(command.seat),
        data_seed=command.data_seed,
        global_state_cid=command.opening,
    )
