"""The provider's training, as the worker process runs it."""

from __future__ import annotations

import secrets

from atoll.content.local import LocalStore
from atoll.law.manifest import Manifest
from atoll.law.words import Reveal, SeatIndex
from atoll.service.worker import resolve
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, TrainTask, train_ahead, train_round
from atoll_node.duties.train import DoTrain, SegmentsTrained, Trained

SALT_BYTES = 32


def run_training(command: DoTrain, store_dir: str) -> Trained:
    """Runs the command's training function, and draws the salt that is kept until the reveal."""
    done: TrainedRound = resolve(command.function)(_task(command), store_dir, command.extra)
    reveal = Reveal(
        trace_root=done.trace_root,
        update_root=done.update_root,
        optimiser_root=done.optimiser_root,
        steps=done.steps,
        reset=done.reset,
        salt=secrets.token_bytes(SALT_BYTES),
        update_cid=done.update_cid,
        trace_cid=done.trace_cid,
    )
    return Trained(
        round=command.slot.round,
        reveal=reveal,
        carried_state=done.carried_cid,
        loss=done.losses[-1] if done.losses else 0.0,
        seconds=done.seconds_in_steps,
    )


def run_ahead(command: DoTrain, store_dir: str) -> SegmentsTrained:
    """Trains the command's first segments, without the global state that it names."""
    configure_native()
    ahead = train_ahead(_task(command), LocalStore(store_dir))
    return SegmentsTrained(ahead.document.to_bytes(), ahead.seconds_in_steps)


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
        opening_optimiser=command.optimiser,
        begun=command.begun.trace if command.begun else b"",
    )
