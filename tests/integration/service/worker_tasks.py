"""What the worker's tests run in a worker: many are started, and few need torch, a second each."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Final

from atoll.errors import NotFound
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.service.task import Task
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore

INHERITED: Final[Task[[], tuple[str, ...]]] = Task("test-inherited.v1", __name__)
DESCRIBE: Final[Task[[], tuple[int, str]]] = Task("test-describe.v1", __name__)
ADD: Final[Task[[int, int], int]] = Task("test-add.v1", __name__)
FAIL: Final[Task[[], None]] = Task("test-fail.v1", __name__)
READ: Final[Task[[str, bytes], int]] = Task("test-read.v1", __name__)
DEVICE: Final[Task[[], str | None]] = Task("test-device.v1", __name__)
RUN_OUT_OF_GPU_MEMORY: Final[Task[[], str | None]] = Task("test-run-out-of-gpu-memory.v1", __name__)
FIND_NO_DRIVER: Final[Task[[], str | None]] = Task("test-find-no-driver.v1", __name__)
FAIL_ELSEWHERE: Final[Task[[], None]] = Task("test-fail-elsewhere.v1", __name__)
DIE: Final[Task[[], None]] = Task("test-die.v1", __name__)
HANG: Final[Task[[str], None]] = Task("test-hang.v1", __name__)
BEGIN_AND_WAIT: Final[Task[[str, str], str]] = Task("test-begin-and-wait.v1", __name__)
LOADED: list[str] = []
"""Filled by a process that forks its worker."""


@INHERITED.runs
def inherited() -> tuple[str, ...]:
    return os.environ["OMP_NUM_THREADS"], *LOADED


@DESCRIBE.runs
def describe() -> tuple[int, str]:
    return os.getpid(), os.environ["OMP_NUM_THREADS"]


@ADD.runs
def add(a: int, b: int) -> int:
    return a + b


@FAIL.runs
def fail() -> None:
    raise NotFound("gone", next_step="look elsewhere")


@READ.runs
def read(root: str, file: bytes) -> int:
    return len(LocalStore(Path(root), sync=False).read_bytes(Cid.from_bytes(file), 1 << 30))


@DEVICE.runs
def device() -> str | None:
    return os.environ.get(DEVICES_VARIABLE)


@RUN_OUT_OF_GPU_MEMORY.runs
def run_out_of_gpu_memory() -> str | None:
    import torch

    if device() != "cpu":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return device()


@FIND_NO_DRIVER.runs
def find_no_driver() -> str | None:
    if device() != "cpu":
        raise RuntimeError("Found no NVIDIA driver on your system.")
    return device()


@FAIL_ELSEWHERE.runs
def fail_elsewhere() -> None:
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@DIE.runs
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@HANG.runs
def hang(started: str) -> None:
    Path(started).write_text("started")
    threading.Event().wait()


@BEGIN_AND_WAIT.runs
def begin_and_wait(begun: str, gate: str) -> str:
    """What comes through the gate, once somebody has seen that it was begun."""
    Path(begun).write_text("begun")
    return Path(gate).read_text()
