"""The judges of a storm see what they are there for, and its clock is wrong for everyone alike."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.manifests import make_terms
from tests.unit.devnet.test_report import LIAR, finished
from tests.unit.protocol.script import Script

from atoll.chain.contracts import AtollChain
from atoll.chain.follower import Follower
from atoll.chain.indexed import Indexed
from atoll.chain.structs import Escrow
from atoll.protocol.rounds import apply
from atoll.protocol.types import Role
from atoll.protocol.views import JobView
from atoll.service.journal import Journal
from atoll_devnet.chaos import faults
from atoll_devnet.chaos.growth import _grown
from atoll_devnet.chaos.invariants import Signatures, Verdict, judge
from atoll_devnet.chaos.storm import Storm, defects, holds
from atoll_devnet.processes.cluster import Member

__all__ = ["finished"]


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """Has signed two things."""
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        journal.sign_once("commit:1", b"one")
        journal.sign_once("commit:2", b"two")
    return cast(Member, SimpleNamespace(name="provider 0", journal_file=path))


async def test_a_disk_that_is_full_is_not_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(faults, "_fill", lambda ballast: ballast.write_bytes(b"full"))
    storm = Storm(*[cast(Any, None)] * 4, random=Random(0))
    storm.small_disks.append(cast(Member, SimpleNamespace(name="provider 0", folder=tmp_path)))
    monkeypatch.setattr(Storm, "some_time", lambda *_: asyncio.sleep(0.05))
    told: list[str] = []
    monkeypatch.setattr(Storm, "note", lambda _, what: told.append(what))
    await asyncio.gather(*[faults.fill_disk(storm) for _ in range(3)])
    assert len(told) == 1
    await faults.fill_disk(storm)
    assert len(told) == 2 and not (tmp_path / "data" / "ballast").exists()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("SELECT 1", None),
        ("INSERT INTO signed VALUES ('commit:3', x'00', 0, x'')", None),
        ("UPDATE signed SET content = x'00' WHERE subject = 'commit:1'", "signed commit:1 twice"),
        ("DELETE FROM signed WHERE subject = 'commit:2'", "forgot that it signed commit:2"),
    ],
)
def test_a_subject_is_claimed_once_and_for_ever(
    member: Member, statement: str, fault: str | None
) -> None:
    seen = Signatures()
    seen.look([member])
    assert (seen.subjects, seen.faults) == (2, [])
    with closing(sqlite3.connect(member.journal_file)) as db, db:
        db.execute(statement)
    seen.look([member])
    assert seen.faults == ([f"provider 0 {fault}"] if fault else [])


def test_a_journal_that_is_not_there_is_looked_at_later(member: Member) -> None:
    seen = Signatures()
    aside = member.journal_file.rename(member.journal_file.with_name("aside"))
    seen.look([member])
    aside.rename(member.journal_file)
    seen.look([member])
    assert (seen.subjects, seen.faults) == (2, [])


async def judged(script: Script, missing: int = 0) -> Verdict:
    """What a storm's judge says of a job whose contract lacks so many wei."""
    net, view = script.net, JobView.of(script.net.domain, script.net.job)
    for event, block in net.log:
        view = apply(view, event, block)
    items = tuple(Indexed(event, block, at) for at, (event, block) in enumerate(net.log))
    balance = net.funded - net.claimed - net.burnt - net.refunded - missing

    async def escrow(_: Any, block: str) -> Escrow:
        assert block == hex(view.block.number)
        return Escrow(net.funded, net.claimed, net.refunded, net.burnt, balance)

    follower = SimpleNamespace(
        views={net.job: view}, history=lambda *_: items, confirmed=view.block.number
    )
    chain = cast(AtollChain, SimpleNamespace(escrow=escrow))
    return await judge(chain, cast(Follower, follower), net.job)


async def test_a_job_that_lost_money_or_a_member_is_told_of(finished: Script) -> None:
    found = await judged(finished)
    assert found.money == ()
    assert any(f"seat {LIAR}" in what for what in found.slashed)
    liar = finished.net.at(Role.PROVIDER, LIAR, 0).account
    assert any(what.startswith(liar) for what in found.slashed)
    assert any("the contract has balance" in what for what in (await judged(finished, 1)).money)


async def test_a_job_that_is_not_done_is_lost() -> None:
    script = Script.ready(make_terms(rounds=2))
    script.honest_round()
    found = await judged(script)
    assert "after 1 rounds" in found.lost
    assert found.slashed == found.missed_duties == found.money == ()


def test_a_storm_holds_only_with_nothing_found() -> None:
    names = ("lost", "signed_twice", "slashed", "money", "findings")
    fine: dict[str, list[str]] = {name: [] for name in (*names, "missed_duties")}
    assert holds(fine | {"missed_duties": ["one"]})
    for name in names:
        assert not holds(fine | {name: ["one"]})


def test_what_services_say_against_themselves_is_told_with_its_cause(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '{"level": "info", "event": "Traceback"}\n'
        "Error handling request from nobody\n"
        "Traceback (most recent call last):\n"
        '  File "gateway.py", line 1, in answer\n'
        "    prepare()\n"
        "ConnectionError: it is gone\n"
        '{"level": "error", "event": "defect", "command": "C", "exception": "a\\nKeyError: 3"}\n'
    )
    member = SimpleNamespace(name="provider 0", process=SimpleNamespace(log_file=log))
    assert list(defects([cast(Member, member)])) == [
        "provider 0: a traceback in its log: ConnectionError: it is gone",
        "provider 0: defect C: KeyError: 3",
    ]


def test_growth_is_of_the_last_quarter_against_the_first() -> None:
    flat = [(rounds, 100) for rounds in range(8)]
    assert _grown(flat) == {"first": 100, "last": 100, "per_round": 0}
    rising = [(rounds, 100 + 7 * rounds) for rounds in range(8)]
    assert _grown(rising)["per_round"] == 7
    assert _grown([(0, 100)]) == {"first": 100, "last": 100, "per_round": None}
