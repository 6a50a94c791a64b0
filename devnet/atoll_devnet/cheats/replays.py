"""The replays that cheating verifiers do, as their worker processes run them.

Rule of this file: every function has the signature of `atoll.service.tasks.replay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from atoll.numerics.generate import Generated, Generator, Request, generate
from atoll.numerics.rollouts import Make
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.service.duties.replay_seat import DoReplay
from atoll.service.tasks import revealed_round, task_of
from atoll.storage.local import LocalStore
from atoll.train.probe import pin_torch
from atoll.train.replay import SeatReplay, replay_seat
from atoll.train.round import train_round
from atoll.train.seat_task import run_alone
from atoll_devnet.cheats.verifiers import ALWAYS_VALID, GUESSED, UNCHECKED


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


@UNCHECKED.runs
def unchecked(command: DoReplay, model: bytes, store_dir: str) -> SeatReplay:
    """Trains on the ids that the seat says it sampled, none of which it holds against the law."""
    pin_torch()
    store = LocalStore(store_dir)
    return replay_seat(
        task_of(command, model), revealed_round(command, store), store, run=run_unchecked
    )


def run_unchecked(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
    """A segment by the course's ids; where there are none it samples."""
    trusting = replace(course, sampled={}, make=_taken(course.sampled, course.global_step0))
    return run_alone(states, segment, trusting)


def _taken(ids: Mapping[int, Tensor], first_step: int) -> Make:
    def make(params: Mapping[str, Tensor], generator: Generator, request: Request) -> Generated:
        del params
        given = None if request.draw is None else ids.get(request.draw.step - first_step)
        if given is None:
            return generate(generator, request)
        lengths = [_length(row, request, at) for at, row in enumerate(given)]
        return Generated(given, tuple(lengths), torch.zeros_like(given))

    return make


def _length(row: Tensor, request: Request, at: int) -> int:
    start = len(request.prompts[at])
    limit = min(start + request.new_tokens, len(row))
    ends = torch.isin(row[start:limit], torch.tensor(sorted(request.ends))).nonzero()
    return start + int(ends[0]) + 1 if len(ends) else limit
