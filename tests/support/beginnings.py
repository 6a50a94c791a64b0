"""The first blocks of every network: contracts deployed, keys made, accounts funded, once a run."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Final

import pytest

from atoll_devnet.processes.cluster import prepare_beginning

PROVIDERS: Final = 8
VERIFIERS: Final = 7
"""The most of any network that starts from it."""


def beginning_of(factory: pytest.TempPathFactory) -> Path:
    """The folder of it, made by the process of this run that asks first."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "beginning"
    with (shared / "beginning.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "chain" / "state.json").exists():
            asyncio.run(prepare_beginning(folder, PROVIDERS, VERIFIERS))
    return folder
