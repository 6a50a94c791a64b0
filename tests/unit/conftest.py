"""Rule of this folder: a test of it starts no process.

So all of it ends in minutes on any machine, and whatever hangs is the test's own. What a test needs
that a compiler makes is made before the first of them.
"""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

FOLDER = Path(__file__).parent
STARTS = (
    (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)
"""What every way to start a process goes through."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fixtures of a whole module are made within it, too; tests of other folders pass through."""
    if FOLDER not in item.path.parents:
        return (yield)
    _compile()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STARTS:
            patch.setattr(owner, name, _refuse)
        return (yield)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError(
        "tests/unit starts no process: a test that needs one belongs in tests/integration, "
        "in the folder of the same name"
    )


@cache
def _compile() -> None:
    """Kernels are kept for all processes; where they cannot be built, their own tests say why."""
    from atoll.aggregation import merge_kernels
    from atoll.numerics.kernels.build import SOURCE, BuildFailed, load_library

    for source in (*SOURCE.parent.glob("*.c"), merge_kernels.SOURCE):
        try:
            load_library(source)
        except BuildFailed:
            return
