"""The provider's training, as the worker process runs it."""

from __future__ import annotations

import time
from dataclasses import asdict

import structlog

from atoll.errors import MachineFault
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import RoundId, SeatIndex
from atoll.storage.local import LocalStore
from atoll.train.probe import pin_torch
from atoll.train.resume import Keeping, carry, checkpoints_of
from atoll.train.rollout_figures import figures_of
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll.train.second_run import SelfCheck
from atoll_node.behaviour import TRAIN
from atoll_node.deadlines import Limit, deadline_file
from atoll_node.duties.train import RUN_TRAINING, DoTrain, Work
from atoll_node.rollouts.shared_generation import helped
from atoll_node.rollouts.spool import Spool

log = structlog.get_logger("atoll.train")
_doubted: set[RoundId] = set()
"""Rounds in which this process found a fault of the machine."""


@RUN_TRAINING.runs
def run_training(command: DoTrain, store_dir: str) -> Work:
    """Runs the command's training function and puts the update into the store."""
    started = time.perf_counter()
    task = _task(command)
    trained = command.function.resolve()(task, store_dir, command.extra)
    if (figures := figures_of(task, trained.sampled, LocalStore(store_dir))) is not None:
        log.info("sampled", job=task.round_id.job, round=task.round_id.round, **asdict(figures))
    cid = LocalStore(store_dir).add_bytes(trained.update).to_bytes() if trained.update else b""
    loss = trained.losses[-1] if trained.losses else 0.0
    result = (
        trained.states,
        trained.work_tags,
        trained.update_root,
        cid,
        loss,
        trained.seconds_in_steps,
    )
    return Work(*result, time.perf_counter() - started + trained.seconds_before, trained.diverged)


@TRAIN.runs
def train(task: TrainTask, store_dir: str, extra: tuple[bytes, ...]) -> TrainedRound:
    """Trains one round honestly, from its last checkpoint on where it was begun before.

    Args:
        task: what to train.
        store_dir: the store's folder.
        extra: CIDs that the behaviour asked to have fetched; honest training needs none.

    Raises:
        MachineFault: a step had other bits by the reference. Asked for again, the round is trained
            anew, and every step of it is compared.
    """
    del extra
    pin_torch()
    store = LocalStore(store_dir)
    checkpoints = checkpoints_of(task, store)
    check = SelfCheck(task.manifest.segments, doubts=task.round_id in _doubted)
    try:
        run = helped(check, Spool.beside(store_dir))
        limit = Limit(deadline_file(store_dir, task.round_id, task.data_seed), run)
        return train_round(
            task,
            store,
            run=limit,
            keeping=Keeping(checkpoints, last=carry(task, store)),
            is_enough=limit.is_reached,
        )
    except MachineFault:
        checkpoints.drop()  # what was done before may be as wrong, and no step of it was looked at
        _doubted.add(task.round_id)
        raise


def _task(command: DoTrain) -> TrainTask:
    return TrainTask(
        manifest=Manifest.from_bytes(command.manifest),
        round_id=command.round_id,
        seat=SeatIndex(command.seat),
        data_seed=command.data_seed,
        global_state_cid=command.initial_state,
        segments=command.segments,
        earlier=command.earlier,
    )
