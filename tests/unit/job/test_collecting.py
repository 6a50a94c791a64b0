"""What can be claimed now, in how many calls, and what not before when."""

from __future__ import annotations

import pytest
from tests.unit.job.test_books import claim_all
from tests.unit.law.factories import make_terms
from tests.unit.law.script import PROVIDERS, WATCHER, Script

from atoll.chain.calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.job.collecting import Collect, collectable, later, releasable
from atoll.job.earnings import statement
from atoll.job.stake import bonds_of
from atoll.law.words import Address

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
    events = [event for event, _ in net.log]
    first, second = later([statement(net.view, events, me, net.now)])
    assert (first.round, first.at) == (0, net.settled[0].ends["window"])
    assert (second.round, second.at) == (1, net.settled[1].ends["window"])
    net.wait_until(net.settled[1].ends["window"])
    assert list(later([statement(net.view, events, me, net.now)])) == []


def test_a_bond_that_is_over_is_released_once(script: Script) -> None:
    net, me = script.net, PROVIDERS[0]

    def home() -> list[Collect]:
        return list(releasable(bonds_of(net.view, me, net.now, 1 << 40), net.now, CALLS))

    assert home() == []
    net.wait_until(net.settled[1].ends["window"])
    (bond,) = home()
    assert (bond.call.label, bond.wei, bond.is_bond) == ("release", net.terms.provider_bond, True)
