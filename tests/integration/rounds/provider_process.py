"""Trains a task's round as a provider's worker does, and tells of each segment that it begins.

Arguments: the pickled task, the store's folder, and the segment at which it waits to be killed.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import structlog

from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.storage.local import LocalStore
from atoll.train.probe import pin_torch
from atoll.train.resume import Keeping, checkpoints_of
from atoll.train.round import train_round
from atoll.train.seat_task import TrainTask
from atoll.train.second_run import SelfCheck


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(task_file: str, store_dir: str, waits_at: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    pin_torch()
    task: TrainTask = pickle.loads(Path(task_file).read_bytes())
    store, check = LocalStore(store_dir), SelfCheck(task.manifest.segments)

    def told(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        tell(f"begins {segment}")
        if segment == int(waits_at):
            sys.stdin.read()
        return check(states, segment, course)

    keeping = Keeping(checkpoints_of(task, store, share=0))
    done = train_round(task, store, run=told, keeping=keeping)
    tell(" ".join(digest.hex() for digest in (*done.states, *done.work_tags, done.update_root)))


if __name__ == "__main__":
    main(*sys.argv[1:])
