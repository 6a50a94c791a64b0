"""The rule of this folder is held."""

from __future__ import annotations

import asyncio
import multiprocessing.process
import os
import subprocess
from collections.abc import Callable

import pytest

BELONGS = "a test that needs one belongs in tests/integration"


def process(how: str) -> multiprocessing.process.BaseProcess:
    return multiprocessing.get_context(how).Process(target=print)  # type: ignore[attr-defined]


STARTS: dict[str, Callable[[], object]] = {
    "a command": lambda: subprocess.run(["true"], check=True),
    "a shell": lambda: os.system("true"),
    "a fork": lambda: os.fork(),  # noqa: PLW0108 (as it is by then)
    "a terminal": lambda: os.forkpty(),  # noqa: PLW0108
    "a spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "a function, spawned": lambda: (
        multiprocessing.get_context("spawn").Process(target=print).start()
    ),
    "a function, forked": lambda: process("fork").start(),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_no_test_here_starts_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match=BELONGS):
        start()


async def test_nor_one_beside_it() -> None:
    with pytest.raises(AssertionError, match=BELONGS):
        await asyncio.create_subprocess_exec("true")
