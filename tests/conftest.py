"""Settings of every test, and in which order several processes take them.

Hypothesis has no deadlines, since timings never decide a test. Logs are plain lines, as a
service's are: structlog's own default draws every exception with `rich`, which costs more than what
is tested. A module's tests stay together, so that what it trains once is trained once; a test of a
whole network stands alone. What takes longest goes first, since whatever is taken last is what
everyone else ends up waiting for. Every process imports every module of tests: `transformers` and
`peft`, which take four seconds, are imported where they are used.
"""

from __future__ import annotations

import gc
import os
import signal
from functools import cache
from pathlib import Path

import eth_account  # noqa: F401 (before atoll.chain, which undoes what this does to recursion)
import pytest
import structlog
from hypothesis import HealthCheck, settings

import atoll.chain  # noqa: F401 (undoes it)

TESTS = Path(__file__).parent
# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C,
# which some of them send. What is handled here is at its default in what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NETWORKS = ("e2e", "network")
WINDOWS_RUN = "e2e/test_quickstart.py"
"""The one network whose windows nobody skips: it waits for minutes, whatever the machine."""
LONGEST_FIRST = (
    WINDOWS_RUN,
    "e2e/test_weather.py",  # one of it on Ganache
    "e2e/test_second_client.py",
    "network/test_two_of_four.py",
    "network/test_colluders.py",
    "e2e/test_acceptance.py",
    *NETWORKS,
    "integration",
    "adversary",
    "unit/train",
    "unit/bits",
    "property",
)

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = _module_of(item.path)
        if module.parts[0] in NETWORKS:
            item.add_marker(pytest.mark.e2e)
        else:
            item.add_marker(pytest.mark.xdist_group(module.as_posix()))
    items.sort(key=lambda item: _place(_module_of(item.path)))


@cache
def _module_of(path: Path) -> Path:
    return path.relative_to(TESTS)


@cache
def _place(module: Path) -> int:
    within = (n for n, name in enumerate(LONGEST_FIRST) if module.is_relative_to(name))
    return next(within, len(LONGEST_FIRST))
