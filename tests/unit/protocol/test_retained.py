"""Pay that is retained, and rates that fall for it: the model of the contracts beside the fold."""

from __future__ import annotations

import pytest
from tests.support.contracts.values import stake_for
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import ledger_of
from tests.unit.job.test_payments import claim_all
from tests.unit.protocol.script import PROVIDERS, WATCHER, Script

from atoll.job.ledger.statements import statement
from atoll.protocol import events as ev
from atoll.protocol.types import HolderId, Role, RoundIndex

SEAT, ANOTHER = HolderId(1), HolderId(2)
PAY = 8 * 2_560 * 10**12
"""Of a whole round."""


@pytest.fixture
def script() -> Script:
    """Of a bond 0.7 are burnt, which a round's half is more than half of."""
    terms = make_terms(
        rounds=12, audit_rate=1, last_rate=1, rate_steps=3, provider_bond=PAY, train_seconds=5_000
    )
    return Script.ready(terms)


def final_round(script: Script) -> int:
    """Played, and its window over; without audits, which cost nobody anything here."""
    round = script.honest_round()
    script.net.wait_until(script.net.settled[round].ends["window"])
    return round


def test_a_half_joins_the_bond_until_every_step_is_paid_for(script: Script) -> None:
    net, most = script.net, stake_for(script.net.terms, 3) - stake_for(script.net.terms, 0)
    for claims in range(1, 5):
        net.claim(Role.PROVIDER, SEAT, final_round(script) + 1)
        held = net.view.providers[SEAT]
        assert held.retained == min(claims * (PAY // 2), most)
        assert held.bond == PAY + held.retained == net.member(Role.PROVIDER, SEAT).bond
    assert (held.retained, held.steps) == (most, 3)
    assert net.view.providers[ANOTHER].retained == 0
    assert net.view.paid[PROVIDERS[0]] == 4 * PAY


def test_a_claim_changes_no_round_that_has_opened(script: Script) -> None:
    net = script.net
    final_round(script)
    script.train()
    net.claim(Role.PROVIDER, SEAT, 1)
    held = net.view.providers[SEAT]
    assert (held.steps_in(1), held.steps_in(2)) == (0, held.steps) == (0, 1)
    script.say()
    net.wait(1)
    script.settle()
    net.wait_until(net.settled[1].ends["window"])
    script.train()
    net.claim(Role.PROVIDER, SEAT, 2)
    held = net.view.providers[SEAT]
    assert (held.steps_in(1), held.steps_in(2), held.steps_in(3)) == (1, 1, held.steps)
    assert held.steps > 1


def test_everybody_computes_who_is_drawn_at_which_rate(script: Script) -> None:
    """The model draws by its own members' steps; the fold's record is the same in each round."""
    net, drawn = script.net, {0: 0, 3: 0}
    for round in range(12):
        script.honest_round()
        settled = net.view.settled[round]
        assert settled.is_consistent
        for seat in drawn:
            drawn[seat] += settled.record.drawn >> seat & 1
        if round < 11:
            net.wait_until(net.settled[round].ends["window"])
            net.claim(Role.PROVIDER, SEAT, round + 1)
    assert net.view.providers[SEAT].steps == 3
    assert drawn[0] < drawn[3]


def test_the_ledger_computes_what_is_retained_a_second_time(script: Script) -> None:
    net = script.net
    final_round(script)
    claim_all(script)
    ledger = ledger_of(script)
    assert ledger.faults == []
    assert ledger.payments.retained == dict.fromkeys(PROVIDERS[:4], PAY // 2)
    assert ledger.sums.balance == net.funded - net.claimed
    (held,) = statement(ledger, PROVIDERS[0]).retained
    assert (held.wei, held.free_at) == (PAY // 2, None)
    net.leave_seat(PROVIDERS[0])
    round = script.honest_round()
    (held,) = statement(ledger_of(script), PROVIDERS[0]).retained
    assert held.free_at == net.settled[round].ends["window"]


def test_the_ledger_sees_what_is_retained_against_the_law(script: Script) -> None:
    net = script.net
    final_round(script)
    claim_all(script)
    net.emit(ev.Retained(net.job, PROVIDERS[1], ANOTHER, 7))
    (fault,) = ledger_of(script).faults
    assert f"of {PROVIDERS[1]} are retained 7 wei, and 0 by the law of pay" in fault


def test_a_slash_takes_it_and_what_is_claimed_behind_it_is_paid_out(script: Script) -> None:
    net = script.net
    final_round(script)
    final_round(script)
    net.claim(Role.PROVIDER, SEAT, 1)
    net.slash(Role.PROVIDER, SEAT, WATCHER)
    assert net.view.providers[SEAT].bond == net.member(Role.PROVIDER, SEAT).bond == 0
    net.claim(Role.PROVIDER, SEAT, 2)
    assert net.view.providers[SEAT].retained == PAY // 2
    assert ledger_of(script).faults == []
    assert statement(ledger_of(script), PROVIDERS[0]).retained == ()


def test_who_comes_back_begins_anew(script: Script) -> None:
    net = script.net
    final_round(script)
    net.claim(Role.PROVIDER, SEAT, 1)
    net.leave_seat(PROVIDERS[0])
    final_round(script)
    net.release(Role.PROVIDER, SEAT)
    net.claim(Role.PROVIDER, SEAT, 2)
    assert net.view.providers[SEAT].retained == PAY // 2  # of the first claim alone
    net.join(PROVIDERS[0], 0)
    newest = net.view.providers[HolderId(5)]
    assert (newest.bond, newest.retained, newest.steps_in(RoundIndex(net.round))) == (PAY, 0, 0)
    assert ledger_of(script).faults == []
