"""Whole local networks, small enough for two cores.

Rule of this folder: every participant is a process of its own, and a test interferes only from
outside: by signals, by the chain's own RPC, or by naming a cheat at the start. A hostile stranger
is beside every network that trains (`atoll_devnet.run.stranger`), and costs nobody anything; that
each of its deeds happened is checked with the ledger.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support.beginnings import beginning_of
from tests.support.jobs import tiny_model
from tests.support.patience import ended_when_still

from atoll.job.presets import preset
from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.report.live import Display
from atoll_devnet.run.options import UNHURRIED, RunOptions, fitting
from atoll_devnet.run.runner import Result, run
from atoll_devnet.run.stranger import check_deeds

LOG_LINES = 40
"""Of each member, shown with a test that failed."""
TINY = preset("demo").but(
    {
        "rounds": 2,
        "model": tiny_model(),
        "data.max_tokens": 200_000,
        "inner.steps": 8,
        "inner.segment": 1,
        "inner.batch": 4,
        "evaluate.batches": 4,
        **UNHURRIED,
    }
)

Runner = Callable[[RunOptions], Any]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the end of every process's log to the report of a test that failed."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for log in sorted(folder.glob("*/*/*log")):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            end = "\n".join(lines[-LOG_LINES:])
            report.sections.append((f"end of {log.relative_to(folder)}", end))
    return report


@pytest.fixture(autouse=True)
def _goes_on_while_it_moves(tmp_path: Path) -> Iterator[None]:
    with ended_when_still(tmp_path):
        yield


@pytest.fixture(scope="session")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beginning_of(tmp_path_factory)


@pytest.fixture
async def network(tmp_path: Path, beginning: Path) -> AsyncIterator[Cluster]:
    """A chain with contracts, and accounts with money; nobody runs."""
    cluster = Cluster(ClusterConfig(tmp_path / "net", 1, 1, beginning=beginning))
    try:
        await cluster.start_chain()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def options(tmp_path: Path, beginning: Path) -> Callable[..., RunOptions]:
    """Options of a tiny job; what is different is passed as `job={KEY_PATH: VALUE}`."""

    def make(job: dict[str, Any] | None = None, **network: Any) -> RunOptions:
        network = {"providers": 4, "verifiers": 3, "skip_windows": True, **network}
        network.setdefault("has_stranger", True)
        cheats = network.get("cheats", {}), network.get("verifier_cheats", {})
        size = network["providers"], network["verifiers"]
        fitted = fitting(TINY, *size, *cheats).but(job or {})
        if network.get("backend", "anvil") == "anvil":
            network.setdefault("beginning", beginning)
        return RunOptions(folder=tmp_path / "run", job=fitted, **network)

    return make


@pytest.fixture
def display() -> Display:
    """Plain lines on standard error, which pytest shows when a test fails."""
    return Display(Console(file=sys.stderr, force_terminal=False, soft_wrap=True, highlight=False))


@pytest.fixture
def play(display: Display) -> Runner:
    """Runs a network to the end of its job, and holds its ledger against the contract."""

    async def go(options: RunOptions) -> dict[str, Any]:
        result: Result = await run(options, display)
        check_ledger(result.report)
        return result.report

    return go


def check_ledger(report: dict[str, Any]) -> None:
    """What holds in every run, whoever cheats and whatever a stranger did: money is kept, and no
    honest party loses any.
    """
    check_deeds(report["stranger"])
    money = report["money"]
    assert money["faults"] == []
    amounts = {
        name: int(value)
        for name, value in money.items()
        if name.endswith("_wei") and not isinstance(value, dict)
    }
    parties = [*report["providers"], *report["verifiers"]]
    spent = ("paid_wei", "burnt_wei", "refunded_wei", "balance_wei")
    assert amounts["funded_wei"] == sum(amounts[name] for name in spent)
    assert amounts["paid_wei"] == sum(int(party["paid_wei"]) for party in parties)
    retained = sum(int(p["retained_wei"]) for p in report["providers"])
    assert amounts["retained_wei"] == retained <= amounts["paid_wei"] // 2
    assert [p for p in parties if not p["cheat"] and p["slashed_wei"] != "0"] == []
    honest = {p["seat"] for p in report["providers"] if not p["cheat"]}
    sincere = {f"verifier {p['index']}" for p in report["verifiers"] if not p["cheat"]}
    for item in report["rounds"]:
        accused = {each["seat"] for each in item["accusations"] if each["auditor"] in sincere}
        assert not accused & honest


def provider(report: dict[str, Any], seat: int) -> dict[str, Any]:
    """The provider at a seat."""
    found: dict[str, Any] = report["providers"][seat]
    return found
