"""Settings of every test, and in which order several processes take them.

Hypothesis has no deadlines, since timings never decide a test. Logs are plain lines, as a
service's are: structlog's own default draws every exception with `rich`, which costs more than what
is tested. A module's tests stay together, so that what it trains once is trained once; a test of a
whole network stands alone. What takes longest goes first, since whatever is taken last is what
everyone else ends up waiting for. What `BEYOND` names is marked so, and `make test` leaves it to
`make test-all`. Every process imports every module of tests: `transformers` and
`peft`, which take four seconds, are imported where they are used.

Threads of numerical libraries spin as they wait, and most tensors here are tiny: two of them took
five times as much of two cores as they computed. So a process has one, which what is tested with
several changes, and none spins.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads them
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["ATOLL_NETWORKS"] = os.devnull  # whatever network the user of this machine chose

import eth_account  # noqa: F401 (before atoll.chain, which undoes what this does to recursion)
import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support.patience import STILL_SECONDS

import atoll.chain  # noqa: F401 (undoes it)

TESTS = Path(__file__).parent
# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C,
# which some of them send. What is handled here is at its default in what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NETWORKS = ("e2e", "network")
WAITING = (*NETWORKS, "integration")
HANGS_SECONDS = 900
"""What takes longer hangs, and is ended before a whole run waits for it; what itself waits for
chains and nodes has the time that pyproject.toml gives, and a network goes on while it moves.
"""
LONGEST_FIRST = (
    "e2e/test_quickstart.py::test_the_page",  # its windows nobody skips: it waits for minutes
    "e2e/test_chaos.py::test_the_same_run_on_ganache",
    "e2e/test_acceptance.py",
    "e2e/test_second_client.py",
    "e2e/test_lora.py",
    "e2e/test_rl.py",
    "network/test_lies.py",
    "e2e/test_reset_periods.py",
    "e2e/test_finetune.py",
    "e2e/test_jobs.py",
    "e2e/test_chaos.py",
    "e2e/test_six_decimals.py",
    "e2e/test_honest.py",
    "network/test_interrupted.py",
    "network/test_killed_players.py",
    "network/test_two_of_four.py",
    *NETWORKS,
    "integration",
    "adversary",
    "property",
    "unit/train",
    "unit/numerics",
)
SHORT = "e2e/test_command_line.py"
"""Of networks, what takes seconds and is a test for each process."""
BEYOND = (
    *NETWORKS,
    "adversary",
    "integration/storage/test_libkubo.py",
    "integration/chain/test_brownie.py",
    "integration/chain/test_other_nodes.py::test_they_work_on_hardhat_s_node",
    "integration/dashboard",  # in a Chromium
    "integration/job/test_lm_eval.py",  # of .venv-notebook
    "integration/numerics/test_fused.py",  # with Triton
    "integration/test_docs_site.py",  # of .venv-docs
    "property/schedules/test_random_schedules.py",  # minutes of computing
    "property/train/test_island.py",  # starts some fifty processes that load torch
)
"""What a newcomer need not run: what takes minutes, or more than set-up fetches."""
NEVERTHELESS = ("e2e/test_acceptance.py", "e2e/test_finetune.py", SHORT, "adversary/test_seats.py")
"""Of these, what `make test` runs: two whole networks, and what takes seconds."""

settings.register_profile(
    "atoll", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("atoll")
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=repr),
    ]
)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command has logs go to the standard error that it was given, which ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A core each: members of networks train, and have deadlines."""
    return max(2, os.cpu_count() or 1)


def pytest_collection() -> None:
    """What is imported is kept: nothing of it is garbage, and looking for some takes a second."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is imported by now lives as long as the process: torch and the tests are most of a
    million objects, which every full collection would walk through, and pytest's last ten do.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    module = _module_of(item.path)
    if module.parts[0] in NETWORKS:
        item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(STILL_SECONDS))
    else:
        item.add_marker(pytest.mark.xdist_group(module.as_posix()))
    if module.parts[0] not in WAITING:
        item.add_marker(pytest.mark.timeout(HANGS_SECONDS))
    if module.as_posix().startswith(BEYOND) and not module.as_posix().startswith(NEVERTHELESS):
        item.add_marker(pytest.mark.beyond)


@pytest.hookimpl(trylast=True)  # of what is left, where a part is chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(_name(item)))
    # xdist gives a process its second test at once, and nobody else takes that any more: behind
    # the longest of all comes what is not waited for.
    processes = getattr(config, "workerinput", {}).get("workercount", 0)
    short = [item for item in items if _name(item).startswith(SHORT)][:processes]
    rest = [item for item in items if item not in short]
    items[:] = [*rest[:processes], *short, *rest[processes:]]


@cache
def _module_of(path: Path) -> Path:
    return path.relative_to(TESTS)


def _name(item: pytest.Item) -> str:
    """As `e2e/test_jobs.py::test_name[parameters]`."""
    return f"{_module_of(item.path).as_posix()}::{item.nodeid.rpartition('.py::')[2]}"


def _place(name: str) -> int:
    within = (n for n, first in enumerate(LONGEST_FIRST) if name.startswith(first))
    return next(within, len(LONGEST_FIRST))
