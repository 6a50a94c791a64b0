"""The replays that cheating verifiers do, as their worker processes run them.

Rule of this file: every function has the signature of `atoll.service.tasks.replay`.
"""

from __future__ import annotations

from dataclasses import replace

from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.service.duties.replay_seat import DoReplay
from atoll.service.tasks import task_of
from atoll.storage.local import LocalStore
from atoll.train.probe import pin_torch
from atoll.train.replay import SeatReplay
from atoll.train.round import train_round
from atoll_devnet.cheats.verifiers import ALWAYS_VALID, GUESSED


@GUESSED.runs
def guessed(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Runs nothing and knows no work_tag."""
    del model, store_dir
    return SeatReplay((), None, command.update_root, 0.0)


@ALWAYS_VALID.runs
def always_valid(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Runs the seat's round and tells its work_tags, whatever the seat says to have come to."""
    pin_torch()
    settled, task = (
        CheckpointCommitments.from_bytes(command.checkpoint_commitments),
        task_of(command, model),
    )
    trained = train_round(replace(task, segments=settled.segments), LocalStore(store_dir))
    return SeatReplay(trained.work_tags, None, command.update_root, trained.seconds_in_steps)
