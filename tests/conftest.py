"""Settings of every test, and in which order several processes take them.

Hypothesis has no deadlines, since timings never decide a test. Logs are plain lines, as a
service's are: structlog's own default draws every exception with `rich`, which costs more than what
is tested. A module's tests stay together, so that what it trains once is trained once; a test of a
whole network stands alone. What takes longest goes first, since whatever is taken last is what
everyone else ends up waiting for. What `BEYOND` names is marked so, and `make test` leaves it to
`make test-all`; of a test with several seeds it runs the first. Every process imports every module
of tests: `transformers` and `peft`, which take four seconds, are imported where they are used.

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
    "integration/chain/test_other_nodes.py",
    "integration/dashboard",  # in a Chromium
    "integration/job/test_lm_eval.py",  # of .venv-notebook
    "integration/numerics/test_fused.py",  # with Triton
    "integration/test_benches.py::test_rewards_are_learned_as_trl_learns_them",  # of .venv-trl
    "integration/test_docs_site.py",  # of .venv-docs
    # Of what is left, the dearest by what it takes of the cores: dozens of processes that import
    # the product, and many cases of one kind. The comments say seconds of a core.
    "integration/chain/test_checkpoints.py",  # 12
    "integration/chain/test_client_homes.py::test_one_file_that_two_programs",  # 8
    "integration/chain/test_cold_owner.py",  # 44
    "integration/chain/test_doubted.py::test_no_kind_of_trouble",  # 8
    "integration/chain/test_recursion.py",  # 27
    "integration/chain/test_service_process.py",  # 10
    "integration/chain/test_web3.py::test_alone_it_is_one_error[HTTP 429]",  # waits two minutes
    "integration/cli/test_job_check.py",  # 17
    "integration/cli/test_wrong_use.py",  # 9
    "integration/judge/test_costs.py",  # 25
    "integration/judge/test_games.py::test_a_wrong_bit_is_refuted_and_a_right_one_is_not",  # 25
    "integration/judge/test_ganache.py",  # 10
    "integration/numerics/test_lab.py",  # 5
    "integration/numerics/test_not_finite.py",  # 6
    "integration/protocol/test_crowd.py",  # 36
    "integration/protocol/test_standstill.py::test_a_drawn_provider_that_sleeps_loses_its_pay_meanwhile"
    "_and_an_eighth_at_most[28800]",  # 18
    "integration/rounds/test_checkpoints.py",  # 6
    "integration/service/test_gateway_process.py",  # 17
    "integration/storage/test_kill.py::test_g",  # 8
    "integration/test_benches.py",  # 7
    "integration/test_releases_beside.py",  # 51
    "integration/test_wheel.py",  # 5
    "integration/train/test_code_digest.py",  # 13
    "property/job/test_first_updates.py::test_a_first_merged_update",  # 110
    "property/rounds/test_poisoned_reset_periods.py",  # 4
    "property/rounds/test_reset_period_games.py",  # 6
    "property/schedules/test_random_schedules.py",  # minutes of computing
    "property/service/test_damaged_journals.py",  # 5
    "property/train/test_code_digest.py",  # 10
    "property/train/test_island.py",  # starts some fifty processes that load torch
    "property/train/test_lanes.py::test_lanes_hold_two_sums",  # 10
    "property/train/test_local_names.py",  # 13
    "property/train/test_methods.py",  # 7
    "property/train/test_one_state.py::test_a_step_in_place",  # 7
    "property/train/test_one_state.py::test_layers_that_are_computed_again",  # 9
)
"""What a newcomer need not run: what takes minutes, or more than set-up fetches."""
NEVERTHELESS = (
    "e2e/test_acceptance.py",
    "e2e/test_finetune.py",
    f"{SHORT}::test_a_missing",
    f"{SHORT}::test_a_run_that_cannot_be[arguments1",
    f"{SHORT}::test_help",
    "adversary/test_seats.py",
    "integration/judge/test_games.py::test_a_wrong_bit_is_refuted_and_a_right_one_is_not[A",
    "integration/protocol/test_crowd.py::test_who_follows_it_has_that_view",
    "integration/test_releases_beside.py::test_work_of_both_releases_is_done_by_one_worker",
    "property/job/test_first_updates.py::test_a_first_merged_update_is_not_lost_to_its_grid[adamw-0.0001",
)
"""Of these, what `make test` runs: two whole networks, what takes seconds, of many cases a few."""

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
    is_named = _name(item).startswith(BEYOND) and not _name(item).startswith(NEVERTHELESS)
    if is_named or _is_another_seed(item):
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


def _is_another_seed(item: pytest.Item) -> bool:
    """Whether the same test has a seed before this one's: `make test` runs it with the first."""
    seeds = [m.args[1] for m in item.iter_markers("parametrize") if m.args[0] == "seed"]
    return any(item.callspec.params["seed"] != next(iter(each)) for each in seeds)  # type: ignore[attr-defined]


def _place(name: str) -> int:
    within = (n for n, first in enumerate(LONGEST_FIRST) if name.startswith(first))
    return next(within, len(LONGEST_FIRST))
