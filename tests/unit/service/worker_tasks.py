"""What the worker's tests run in a worker: many are started, and few need torch, a second each."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from atoll.errors import NotFound
from atoll.numerics.kernels.variables import DEVICE_VARIABLE
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore

LOADED: list[str] = []
"""Filled by a process that forks its worker."""


def inherited() -> tuple[str, ...]:
    return os.environ["OMP_NUM_THREADS"], *LOADED


def describe() -> tuple[int, str]:
    return os.getpid(), os.environ["OMP_NUM_THREADS"]


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise NotFound("gone", next_step="look elsewhere")


def read(root: str, file: bytes) -> int:
    return len(LocalStore(Path(root), sync=False).read_bytes(Cid.from_bytes(file), 1 << 30))


def device() -> str | None:
    return os.environ.get(DEVICE_VARIABLE)


def run_out_of_gpu_memory() -> str | None:
    import torch

    if device() == "cuda":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return device()


def find_no_driver() -> str | None:
    if device() == "cuda":
        raise RuntimeError("Found no NVIDIA driver on your system.")
    return device()


def fail_elsewhere() -> None:
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(started: str) -> None:
    Path(started).write_text("started")
    threading.Event().wait()


def begin_and_wait(begun: str, gate: str) -> str:
    """What comes through the gate, once somebody has seen that it was begun."""
    Path(begun).write_text("begun")
    return Path(gate).read_text()
