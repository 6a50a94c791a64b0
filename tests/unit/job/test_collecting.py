"""What can be claimed now, in how many calls, and what not before when."""

from __future__ import annotations

import pytest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import ledger_of
from tests.unit.job.test_payments import claim_all
from tests.unit.protocol.script import PROVIDERS, WATCHER, Script

from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.job import collecting
from atoll.job.collecting import Collect, collectable, later, releasable, transactions
from atoll.job.ledger.statements import statement
from atoll.job.stake import bonds_of
from atoll.protocol.call_structs import Due
from atoll.protocol.types import Address, HolderId, Role, RoundIndex

CALLS = Calls(Deployment(31337, 0, dict.fromkeys(REQUIRED, WATCHER)))


@pytest.fixture
def script() -> Script:
    made = Script.ready(make_terms(rounds=2))
    made.honest_round()
    made.net.wait(5)
    made.honest_round()
    return made


def due(script: Script, account: Address) -> list[Collect]:
    views = {script.net.job: script.net.view}
    return list(collectable(views, account, script.net.now, CALLS))


def test_all_final_rounds_of_a_holder_are_one_call(script: Script) -> None:
    net, me = script.net, PROVIDERS[0]
    assert due(script, me) == []
    net.wait_until(net.settled[0].ends["window"])
    (one,) = due(script, me)
    assert one.wei == 8 * net.terms.segment_pay
    net.wait_until(net.settled[1].ends["window"])
    (both,) = due(script, me)
    assert (both.wei, both.call.label) == (2 * 8 * net.terms.segment_pay, "claim")
    assert both.text == f"job {net.job}, seat 0: rounds 0 to 1"
    claim_all(script)
    assert due(script, me) == []


def test_claims_of_several_holders_are_one_transaction(script: Script) -> None:
    net = script.net
    net.wait_until(net.settled[1].ends["window"])
    claims = [*due(script, PROVIDERS[0]), *due(script, PROVIDERS[1])]
    bond = Collect("release:1:0:1", CALLS.release(net.job, Role.PROVIDER, HolderId(1)), 1, "", True)
    sent = list(transactions([bond, *claims], CALLS))
    assert [(key, call.label) for key, call in sent] == [
        (bond.key, "release"),
        (f"{claims[0].key}+{claims[1].key}", "claimMany"),
    ]
    dues = [Due(net.job, Role.PROVIDER, HolderId(id), RoundIndex(2)) for id in (1, 2)]
    assert sent[1][1].data == CALLS.claim_many(dues).data
    assert list(transactions(claims[:1], CALLS)) == [(claims[0].key, claims[0].call)]


def test_a_transaction_claims_no_more_rounds_than_a_block_can_hold(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = script.net
    net.wait_until(net.settled[1].ends["window"])
    monkeypatch.setattr(collecting, "MOST_CLAIMED", 1)
    claims = due(script, PROVIDERS[0])
    assert [claim.text[-13:] for claim in claims] == ["rounds 0 to 0", "rounds 1 to 1"]
    assert [claim.wei for claim in claims] == [8 * net.terms.segment_pay] * 2
    assert [call.label for _, call in transactions(claims, CALLS)] == ["claim", "claim"]


def test_rounds_that_paid_nothing_cost_no_call() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.train()
    script.say(has=0b0111)
    script.net.wait(1)
    script.settle(merged=3)
    script.net.wait_until(script.net.settled[0].ends["window"])
    assert due(script, PROVIDERS[3]) == []
    assert len(due(script, PROVIDERS[0])) == 1


def test_what_is_pending_is_told_with_its_time(script: Script) -> None:
    net, me = script.net, PROVIDERS[0]
    first, second = later([statement(ledger_of(script), me)])
    assert (first.round, first.at) == (0, net.settled[0].ends["window"])
    assert (second.round, second.at) == (1, net.settled[1].ends["window"])
    net.wait_until(net.settled[1].ends["window"])
    assert list(later([statement(ledger_of(script), me)])) == []


def test_a_bond_that_is_over_is_released_once(script: Script) -> None:
    net, me = script.net, PROVIDERS[0]

    def home() -> list[Collect]:
        return list(releasable(bonds_of(net.view, me, net.now, 1 << 40), net.now, CALLS))

    assert home() == []
    net.wait_until(net.settled[1].ends["window"])
    (bond,) = home()
    assert (bond.call.label, bond.wei, bond.is_bond) == ("release", net.terms.provider_bond, True)
