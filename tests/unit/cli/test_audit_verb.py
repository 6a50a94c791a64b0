"""`atoll job audit`: a line a round, a verdict, and an exit code that a script can go by."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from atoll.cli.main import app
from atoll.cli.network_commands import Network
from atoll.errors import ConfigError
from atoll.job import audit as auditing
from atoll.job.audit import EQUAL, GONE, MISMATCH, Extent, JobCheck, RoundCheck, SeatCheck
from atoll.protocol.types import RoundIndex, SeatIndex

MONEY = {"balance_wei": "50", "faults": []}
SHORT = {"balance_wei": "50", "faults": ["the contract has balance 49 wei, its events 50"]}


def seat(outcome: str, *, is_paid: bool = True) -> SeatCheck:
    return SeatCheck(SeatIndex(2), outcome, "it has a mismatch at segment 1", is_paid)


def checked(*seats: SeatCheck, merge: str = EQUAL, money: dict[str, Any] = MONEY) -> JobCheck:
    settled_round = RoundCheck(RoundIndex(0), True, merge, "the update of seat 1 is gone", seats, 4)
    return JobCheck(7, (settled_round,), money)


Audit = Callable[..., Result]


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Runs the command, where an audit finds this; the extent that was asked for is in `asked`."""

    @asynccontextmanager
    async def nothing(self: Network) -> AsyncIterator[Any]:
        yield SimpleNamespace(attach=lambda job: job)

    def run(found: JobCheck, *words: str, asked: list[Extent] | None = None) -> Result:
        async def audit(
            handle: int,
            extent: Extent,
            tell: Callable[[RoundCheck], None],
            announce: Callable[[str], None],
        ) -> JobCheck:
            (asked if asked is not None else []).append(extent)
            announce("round 0: begins")
            tell(found.rounds[0])
            return found

        monkeypatch.setattr(Network, "open", nothing)
        monkeypatch.setattr(auditing, "audit", audit)
        return CliRunner().invoke(app, ["job", "audit", "7", *words])

    return run


def test_a_job_that_is_so_ends_well(audited: Audit) -> None:
    done = audited(checked(seat(EQUAL)))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "round 0: certificate fits; merge equal; seat 2 equal",
        "job 7: everything that was checked is so: 1 of 1 merges, 1 of 4 seats' rounds",
    ]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_begins_is_told_beside_the_data(audited: Audit, words: tuple[str, ...]) -> None:
    done = audited(checked(seat(EQUAL)), *words)
    assert done.stderr == "round 0: begins\n"
    assert "begins" not in done.stdout


def test_what_differs_ends_with_one(audited: Audit) -> None:
    done = audited(checked(seat(MISMATCH)))
    assert done.exit_code == 1
    assert "mismatch: round 0: seat 2 is paid, and it has a mismatch at segment 1" in done.stdout
    assert audited(checked(seat(MISMATCH, is_paid=False))).exit_code == 0
    assert audited(checked(money=SHORT)).exit_code == 1


def test_what_could_not_be_checked_is_said_last_and_ends_with_four(audited: Audit) -> None:
    done = audited(checked(seat(EQUAL), merge=GONE))
    assert done.exit_code == 4
    *_, gap, last = done.stdout.splitlines()
    assert gap == "  not checked: round 0: the update of seat 1 is gone"
    assert last.endswith("1 things could not be checked: 0 of 1 merges, 1 of 4 seats' rounds")
    assert audited(checked(seat(MISMATCH), merge=GONE)).exit_code == 1  # a fault is worse


def test_a_script_reads_one_document(audited: Audit) -> None:
    told = json.loads(audited(checked(seat(MISMATCH)), "--json").stdout)
    assert told["mismatches"] == ["round 0: seat 2 is paid, and it has a mismatch at segment 1"]
    assert told["rounds"][0]["seats"][0]["outcome"] == MISMATCH
    assert told["money"]["balance_wei"] == "50"


@pytest.mark.parametrize(
    ("words", "extent"),
    [
        ((), Extent()),
        (("--all",), Extent(sample=None)),
        (("--seats", "0"), Extent(sample=0)),
        (("--round", "3", "--seat", "1"), Extent(3, 1)),
    ],
)
def test_the_extent_is_what_was_asked_for(
    audited: Audit, words: tuple[str, ...], extent: Extent
) -> None:
    asked: list[Extent] = []
    audited(checked(), *words, asked=asked)
    assert asked == [extent]


@pytest.mark.parametrize(
    "words", [("--seat", "1", "--all"), ("--seat", "1", "--seats", "1"), ("--seats", "2", "--all")]
)
def test_which_seats_are_trained_again_is_said_once(audited: Audit, words: tuple[str, ...]) -> None:
    asked: list[Extent] = []
    done = audited(checked(), *words, asked=asked)
    assert isinstance(done.exception, ConfigError)
    assert asked == []
