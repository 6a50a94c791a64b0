"""Every wei of an account in a job: its lines add up to the ledger, and each says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.manifests import make_terms
from tests.unit.dashboard.jobs import items_of, ledger_of
from tests.unit.job.test_payments import claim_all
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.ledger.entries import Line, State
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.statements import Statement, jobs_of, statement
from atoll.protocol.pay import claimable
from atoll.protocol.types import Address, HolderId, Role, SeatIndex

EVERYBODY = [*PROVIDERS[:4], *VERIFIERS[:4], WATCHER]


def told(script: Script, account: Address) -> Statement:
    return statement(ledger_of(script), account)


def lines(script: Script, account: Address, what: str) -> list[Line]:
    return [line for line in told(script, account).lines if line.what == what]


def check_sums(script: Script) -> None:
    """Of everybody: what was paid is what the ledger says, what is due what a claim would pay."""
    view, ledger = script.net.view, ledger_of(script)
    for account in EVERYBODY:
        found = told(script, account)
        assert found.faults == ()
        paid = sum(ledger.paid(account).values())
        assert found.total(State.PAID) == paid == view.paid.get(account, 0)
        holders = [h for r in Role for h in view.holders(r).values() if h.account == account]
        due = sum(claimable(view, holder, script.net.now) for holder in holders)
        assert found.total(State.DUE) == due + view.credits.get(account, 0)


@pytest.fixture
def script() -> Script:
    """One round, which is the last: audited by two each, and nothing claimed yet."""
    made = Script.ready(make_terms(rounds=1))
    made.audit(made.honest_round())
    return made


def test_what_is_earned_is_pending_then_due_then_paid(script: Script) -> None:
    net, me = script.net, PROVIDERS[0]
    (line,) = lines(script, me, "training")
    assert (line.state, line.wei) == (State.PENDING, 8 * net.terms.segment_pay)
    assert line.until == net.settled[0].ends["window"]
    check_sums(script)
    net.wait_until(net.settled[0].ends["window"])
    assert lines(script, me, "training")[0].state is State.DUE
    check_sums(script)
    claim_all(script)
    assert lines(script, me, "training")[0].state is State.PAID
    check_sums(script)


def test_a_verifier_is_paid_for_its_signature_and_each_duty(script: Script) -> None:
    net = script.net
    duties = [len(lines(script, me, "audits")) for me in VERIFIERS[:4]]
    assert sum(duties) == 4
    for me in VERIFIERS[:4]:
        (line,) = lines(script, me, "signatures")
        assert (line.state, line.wei) == (State.PENDING, net.terms.sign_fee)


def test_a_slash_takes_what_was_not_final(script: Script) -> None:
    net = script.net
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 2, 0).id, WATCHER)
    net.wait_until(net.settled[0].ends["window"])
    claim_all(script)
    (line,) = lines(script, PROVIDERS[2], "training")
    assert line.state is State.LOST
    assert "slashed" in line.text
    (penalty,) = lines(script, PROVIDERS[2], "penalties")
    assert (penalty.wei, penalty.text) == (
        net.terms.provider_bond,
        f"slashed for {WATCHER}: a key that it never showed",
    )
    check_sums(script)


def test_a_partial_seat_loses_what_it_did_not_do() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.train({1: 7})
    script.say()
    script.net.wait(1)
    script.settle()
    missing, done = lines(script, PROVIDERS[1], "training")
    segment = script.net.terms.segment_pay
    assert (missing.state, missing.wei) == (State.UNEARNED, segment)
    assert missing.text == "partial: 7 of 8 segments in time"
    assert (done.state, done.wei) == (State.PENDING, 7 * segment)
    check_sums(script)


def test_who_was_short_in_a_round_of_nothing_earns_nothing() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.train({1: 4, 2: 5})
    script.say()
    script.net.wait(1)
    script.settle(merged=0)
    missing, done = lines(script, PROVIDERS[1], "training")
    assert missing.wei == done.wei == 4 * script.net.terms.segment_pay
    assert done.state is State.UNEARNED
    assert "too short to be merged, in a round that merged nothing" in done.text
    (whole,) = lines(script, PROVIDERS[0], "training")
    assert whole.state is State.PENDING
    check_sums(script)


def unavailable() -> Script:
    """A settled round of which the committee did not have seat 3."""
    script = Script.ready(make_terms(rounds=1))
    script.train()
    script.say(has=0b0111)
    script.net.wait(1)
    script.settle(merged=3)
    return script


def say_late(script: Script, slots: list[int]) -> None:
    for slot in slots:
        script.net.late_vote(0, script.net.at(Role.VERIFIER, slot, 0).id, 0b1000)


def test_an_unavailable_seat_is_pending_while_late_votes_may_grant_it() -> None:
    script = unavailable()
    ends = script.net.settled[0].ends
    (line,) = lines(script, PROVIDERS[3], "training")
    assert (line.state, line.until) == (State.PENDING, ends["window"])
    assert (
        "not available: 0 of 4 said to have its update; late votes may still grant it" in line.text
    )
    say_late(script, [0])
    (line,) = lines(script, PROVIDERS[3], "training")
    assert "0 of 4 said to have its update, with late votes 1 of 4; late votes" in line.text
    check_sums(script)
    script.net.wait_until(ends["audit"])
    (line,) = lines(script, PROVIDERS[3], "training")
    assert line.state is State.UNEARNED
    assert line.text.endswith("said to have its update, with late votes 1 of 4")
    check_sums(script)


def test_late_votes_pay_a_seat_once_they_are_granted() -> None:
    script = unavailable()
    net, me = script.net, PROVIDERS[3]
    say_late(script, [0, 1, 2])
    (line,) = lines(script, me, "training")
    assert (line.state, "late votes 3 of 4, enough" in line.text) == (State.PENDING, True)
    net.grant(0, 3)
    (line,) = lines(script, me, "training")
    assert (line.state, line.wei) == (State.PENDING, 8 * net.terms.segment_pay)
    assert line.text == "8 of 8 segments; its window is open"
    check_sums(script)
    net.wait_until(net.settled[0].ends["window"])
    assert lines(script, me, "training")[0].state is State.DUE
    check_sums(script)
    net.claim(Role.PROVIDER, net.at(Role.PROVIDER, 3, 0).id, 1)
    assert lines(script, me, "training")[0].state is State.PAID
    check_sums(script)


def test_late_votes_that_nobody_had_granted_pay_nothing_and_it_is_said() -> None:
    script = unavailable()
    say_late(script, [0, 1, 2])
    script.net.wait_until(script.net.settled[0].ends["audit"])
    (line,) = lines(script, PROVIDERS[3], "training")
    assert line.state is State.UNEARNED
    assert line.text.endswith("nobody sent the grant before AUDIT ended")
    check_sums(script)


def test_who_neither_commits_nor_reveals_earns_nothing() -> None:
    script = Script.ready(make_terms(rounds=1))
    net = script.net
    net.advance()
    for seat in range(3):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    (line,) = lines(script, PROVIDERS[3], "training")
    assert "missed: it owed the phase before REVEAL" in line.text
    for seat in range(3):
        script.reveal(seat)
    script.say()
    net.wait(1)
    script.settle(merged=3)
    (line,) = lines(script, PROVIDERS[3], "training")
    assert (line.state, line.wei) == (State.UNEARNED, 8 * net.terms.segment_pay)
    assert "no commitment, or not revealed" in line.text
    net.penalise_seat(3)
    (penalty,) = lines(script, PROVIDERS[3], "penalties")
    assert penalty.text == "penalised for a missing commit or reveal, or too little work"
    assert penalty.wei == net.terms.provider_bond // 100
    check_sums(script)


def test_a_drawn_seat_without_key_is_struck() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.keyless(script.honest_round(), 3)
    (line,) = lines(script, PROVIDERS[3], "training")
    assert (line.state, line.text) == (
        State.LOST,
        "8 of 8 segments; struck: it was drawn, and showed no key",
    )
    check_sums(script)


def test_an_auditor_without_audit_report_and_one_that_does_not_open() -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    silent, closed, *_ = script.auditors(round)
    script.audit_report(round, closed)
    first = net.member(Role.VERIFIER, silent).account
    second = net.member(Role.VERIFIER, closed).account
    assert all("an audit report is taken" in x.text for x in lines(script, first, "audits"))
    net.wait_until(net.settled[round].ends["audit"])
    assert all("missed, no audit report" in x.text for x in lines(script, first, "audits"))
    assert all(x.state is State.PENDING for x in lines(script, second, "audits"))
    net.wait_until(net.settled[round].ends["open"])
    assert all("was not opened" in x.text for x in lines(script, second, "audits"))
    assert {x.state for x in lines(script, second, "audits")} == {State.UNEARNED}
    check_sums(script)


def test_a_wrong_digest_loses_its_fee_to_nobody() -> None:
    script = Script.ready(make_terms(rounds=1))
    net, round = script.net, script.honest_round()
    guesser, seat = script.guessed(round)
    author = net.member(Role.VERIFIER, guesser).account
    net.contest(round, guesser, seat, WATCHER)
    assert lines(script, author, "audits")[0].state is State.PENDING
    net.wait_until(net.settled[round].ends["window"])
    net.settle_contest(round, guesser, seat)
    assert "a wrong digest" in lines(script, author, "audits")[0].text
    assert lines(script, WATCHER, "credits") == []
    check_sums(script)


def test_the_running_round_is_pending() -> None:
    script = Script.ready()
    script.net.advance()
    (line,) = lines(script, PROVIDERS[0], "training")
    assert (line.state, line.text) == (State.PENDING, "at most: the round runs (TRAIN)")
    assert lines(script, VERIFIERS[0], "signatures") == []


def test_a_stranger_has_no_line_and_no_job(script: Script) -> None:
    assert told(script, WATCHER).lines == ()
    events = [event for event, _ in script.net.log]
    assert jobs_of(events, WATCHER) == []
    assert jobs_of(events, PROVIDERS[0]) == jobs_of(events, VERIFIERS[0]) == [script.net.job]


def test_a_line_that_was_not_paid_is_told(script: Script) -> None:
    net = script.net
    net.wait_until(net.settled[0].ends["window"])
    claim_all(script)
    view, me = net.view, PROVIDERS[0]
    id = next(iter(view.ids_of(me, Role.PROVIDER)))
    unclaimed = replace(view.providers[HolderId(id)], claimed_to=0)
    other = replace(view, providers={**view.providers, id: unclaimed})
    found = statement(Ledger.of(other, items_of(script), net.now), me)
    (fault,) = found.faults
    assert fault.startswith("0 wei of training are listed, and ")
    assert SeatIndex(0) in view.settled[0].seats
