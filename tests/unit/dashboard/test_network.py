"""The document of a network: stakes from events alone, and every job's standing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.identities import digest
from tests.unit.dashboard.jobs import LIAR, finished, items_of
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.dashboard.network_document import network_document
from atoll.job.job_snapshot import JobSnapshot
from atoll.protocol import events as ev
from atoll.protocol.types import TOKEN, Role


@pytest.fixture(scope="module")
def ended() -> Script:
    return finished()


def document_of(script: Script) -> dict[str, Any]:
    net = script.net
    return network_document({net.job: net.view}, items_of(script), net.now)


def test_a_job_stands_as_its_snapshot_says(ended: Script) -> None:
    (job,) = document_of(ended)["jobs"]
    snapshot = JobSnapshot.of(ended.net.view, ended.net.now)
    assert (job["job"], job["settled_rounds"], job["rounds"]) == (ended.net.job, 2, 2)
    assert job.items() >= snapshot.to_json_value().items()
    assert int(job["paid_wei"]) == ended.net.claimed
    assert int(job["funded_wei"]) == ended.net.funded
    assert int(job["burnt_wei"]) == ended.net.burnt
    assert job["open_games"] == 0


def test_bonds_are_those_that_are_not_released(ended: Script) -> None:
    bonds = {m["account"]: int(m["bonds_wei"]) for m in document_of(ended)["members"]}
    for member in ended.net.members.values():
        assert bonds[member.account] == member.bond
    assert bonds[PROVIDERS[LIAR]] == 0


def test_a_stake_is_what_came_in_and_has_not_gone() -> None:
    script = Script.ready()
    who, other, wei = PROVIDERS[0], VERIFIERS[0], TOKEN
    for event in (
        ev.Deposited(who, Role.PROVIDER, 900 * wei),
        ev.Deposited(who, Role.VERIFIER, 50 * wei),
        ev.UnbondStarted(who, Role.PROVIDER, 0, 300 * wei, 10),
        ev.Withdrawn(who, Role.PROVIDER, 0, 100 * wei),
        ev.Slashed(who, Role.PROVIDER, digest("fault"), 10 * wei, other, 3 * wei, 7 * wei),
    ):
        script.net.emit(event)
    members = {m["account"]: m for m in document_of(script)["members"]}
    assert members[who]["stake_wei"] == str((900 + 50 - 100 - 10) * wei)
    assert members[who]["slashed_wei"] == str(10 * wei)
    assert members[who]["roles"] == ["provider", "verifier"]
    assert (members[other]["stake_wei"], members[other]["won_wei"]) == (str(3 * wei),) * 2


def test_owners_and_payees_are_those_of_the_last_events() -> None:
    script = Script.ready()
    who, cold, wallet = PROVIDERS[0], VERIFIERS[0], VERIFIERS[1]
    script.net.emit(ev.Deposited(who, Role.PROVIDER, TOKEN))
    script.net.emit(ev.OwnerProposed(who, cold))
    (member,) = (m for m in document_of(script)["members"] if m["account"] == who)
    assert (member["owner"], member["payee"]) == (who, who)
    script.net.emit(ev.OwnerAccepted(who, cold))
    script.net.emit(ev.PayeeSet(who, wallet))
    (member,) = (m for m in document_of(script)["members"] if m["account"] == who)
    assert (member["owner"], member["payee"]) == (cold, wallet)


def test_an_empty_network_has_a_document() -> None:
    assert network_document({}, [], 5) == {
        "kind": "network",
        "now": 5,
        "block": 0,
        "sums": {"tokens": 0, "rounds": 0, "paid_wei": "0", "slashed_wei": "0"},
        "days": [],
        "jobs": [],
        "members": [],
    }
