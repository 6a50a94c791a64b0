"""A job's payments: every amount by its reason, and what does not add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import ledger_of
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import events as ev
from atoll.protocol.types import (
    HolderId,
    JobId,
    Role,
    RoundIndex,
)


def claim_all(script: Script) -> None:
    net = script.net
    for role, id in list(net.members):
        net.claim(role, id, len(net.settled))


@pytest.fixture
def audited() -> Script:
    """One round, which is the last: audited by two each, and nothing claimed yet."""
    script = Script.ready(make_terms(rounds=1))
    script.audit(script.honest_round())
    script.net.wait_until(script.net.settled[0].ends["window"])
    return script


def test_before_any_claim_all_is_still_there(audited: Script) -> None:
    ledger = ledger_of(audited)
    assert ledger.sums.balance == ledger.sums.funded_wei == audited.net.funded
    assert (ledger.payments.paid, ledger.faults) == ({}, [])


def test_everybody_is_paid_for_what_it_did(audited: Script) -> None:
    claim_all(audited)
    net, terms = audited.net, audited.net.terms
    ledger = ledger_of(audited)
    assert ledger.faults == []
    assert ledger.paid(PROVIDERS[0]) == {"training": 8 * terms.segment_pay}
    assert ledger.paid_for("signatures") == 4 * terms.sign_fee
    assert ledger.paid_for("audits") == 4 * terms.duty_fee
    parts = map(ledger.paid_for, ("training", "signatures", "audits"))
    assert ledger.sums.paid_wei == net.claimed == sum(parts)
    assert ledger.sums.balance == net.funded - net.claimed


def test_what_a_slash_and_a_missing_key_took_is_burnt(audited: Script) -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    script.keyless(round, 3)
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 2, 0).id, WATCHER)
    net.wait_until(net.settled[round].ends["window"])
    claim_all(script)
    net.burn(1)
    ledger = ledger_of(script)
    assert ledger.faults == []
    assert ledger.sums.burnt_wei == net.burnt == 2 * 8 * net.terms.segment_pay
    assert set(ledger.payments.paid) & set(PROVIDERS) == set(PROVIDERS[:2])


def test_a_contest_moves_one_fee(audited: Script) -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    guesser, seat = script.guessed(round)
    net.contest(round, guesser, seat, WATCHER)
    net.wait_until(net.settled[round].ends["window"])
    net.settle_contest(round, guesser, seat)
    claim_all(script)
    ledger = ledger_of(script)
    assert ledger.faults == []
    assert ledger.paid(WATCHER) == {}
    fees = (4 - 1) * net.terms.duty_fee
    assert ledger.paid_for("audits") == fees


def test_an_early_key_burns_a_whole_pay_and_is_nobodys_gain() -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    net.leak(round, 2, script.secrets[round, 2][0], WATCHER)
    net.wait_until(net.settled[round].ends["window"])
    claim_all(script)
    net.burn(1)
    ledger = ledger_of(script)
    assert ledger.faults == []
    assert (ledger.paid(WATCHER), ledger.sums.burnt_wei) == ({}, 8 * net.terms.segment_pay)


def test_what_another_job_slashed_is_no_winning_of_this_one(audited: Script) -> None:
    net, liar, bond = audited.net, PROVIDERS[2], audited.net.terms.provider_bond
    holder, start = net.at(Role.PROVIDER, 2, 0).id, RoundIndex(0)
    for job in (net.job, JobId(net.job + 1)):
        share = (bond, WATCHER, bond // 4, bond - bond // 4)
        net.emit(ev.Slashed(liar, Role.PROVIDER, digest(f"fault {job}"), *share))
        net.emit(ev.HolderSlashed(job, liar, WATCHER, Role.PROVIDER, HolderId(holder), start, bond))
    assert ledger_of(audited).won == {WATCHER: bond // 4}


@pytest.mark.parametrize("field", ["amount", "burnt"])
def test_a_claim_of_another_amount_is_a_fault(audited: Script, field: str) -> None:
    claim_all(audited)
    log = audited.net.log
    at = next(i for i, (event, _) in enumerate(log) if isinstance(event, ev.Claimed))
    event, block = log[at]
    log[at] = (replace(event, **{field: getattr(event, field) + 1}), block)
    (fault,) = ledger_of(audited).faults
    assert "by the law of pay" in fault


def test_a_credit_for_nothing_is_a_fault(audited: Script) -> None:
    credited = ev.Credited(audited.net.job, VERIFIERS[0], 7)
    (fault,) = ledger_of(audited, credited).faults
    assert fault == f"{VERIFIERS[0]} has credits of 7 wei, and 0 by the law of pay"


def test_more_than_came_in_is_a_fault(audited: Script) -> None:
    refund = ev.Refunded(audited.net.job, PROVIDERS[0], audited.net.funded + 1)
    assert ledger_of(audited, refund).faults == ["1 wei left that never came in"]


def test_an_accusation_whose_seat_was_slashed_is_credited_its_fee() -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    accuser = next(id for id in script.auditors(round) if net.duties(round, id))
    seat = min(net.duties(round, accuser))
    script.audit_report(round, accuser, script.body(round, accuser, {seat: 2}))
    net.wait_until(net.settled[round].ends["audit"])
    script.open(round, accuser)
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, seat, round).id, WATCHER)
    net.prove(round, accuser, seat)
    author = net.member(Role.VERIFIER, accuser).account
    assert ledger_of(script).faults == []
    net.claim_credit(author)
    ledger = ledger_of(script)
    assert ledger.faults == []
    assert ledger.paid(author) == {"credits": net.terms.duty_fee}
