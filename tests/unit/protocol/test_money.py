"""What a round may cost, what a missed duty costs, and what a job has: numbers by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

from tests.support.manifests import make_terms
from tests.unit.protocol.script import WATCHER, Script

from atoll.protocol import events as ev
from atoll.protocol import pay
from atoll.protocol.missed_duties import MissRecord, first_penalty, penalty
from atoll.protocol.rounds import apply
from atoll.protocol.types import Bitmap, RoundIndex, SeatIndex

R = RoundIndex


def charged(rounds: Iterable[int]) -> list[int]:
    """What missed duties of these rounds cost, one after another, of a bond of 1,000."""
    record, found = MissRecord(), list[int]()
    for round in map(R, rounds):
        found.append(record.charge(round, 1_000, 100))
        record = record.missed(round)
    return found


def test_a_missed_duty_makes_others_dearer_for_eight_rounds() -> None:
    assert charged([0, 1, 2, 3, 4, 5]) == [10, 20, 40, 80, 125, 125]
    assert charged([0, 8]) == [10, 20]
    assert charged([0, 9]) == [10, 10]
    assert charged([3, 3]) == [10, 20]


def test_what_is_missed_costs_the_same_in_whatever_order_it_is_reported() -> None:
    assert charged([5, 3, 0]) == [10, 20, 10 + (20 - 10) + (40 - 20)]
    for missed in ((0, 6, 12, 18), (0, 2, 4, 6, 20), (1, 1, 9, 10)):
        assert len({sum(charged(order)) for order in permutations(missed)}) == 1


def test_a_penalty_is_at_most_an_eighth() -> None:
    assert [penalty(1_000, 100, level) for level in range(6)] == [10, 20, 40, 80, 125, 125]
    assert (first_penalty(999, 100), first_penalty(1_001, 100)) == (10, 11)


def test_what_a_round_may_cost_counts_everybody_who_may_be_paid() -> None:
    script = Script.ready(make_terms(rounds=2, audit_rate=2, last_rate=0))
    terms = script.net.terms
    script.honest_round()
    script.honest_round()
    first, last = script.net.view.settled
    seats = 4 * terms.segments * terms.segment_pay
    fees = 4 * terms.sign_fee
    for settled_round in (first, last):
        duties = settled_round.record.drawn.bit_count() * terms.duty_fee
        assert pay.may_earn(terms, settled_round) == seats + fees + duties
    assert last.drawn == last.record.drawn == last.record.revealed


def test_an_auditor_has_a_fee_for_its_signature_and_one_for_each_seat_that_it_found_valid() -> None:
    script = Script.ready(make_terms(rounds=2))
    terms, round = script.net.terms, script.honest_round()
    script.audit(round)
    settled_round = script.net.view.settled[round]
    holders = script.net.view.verifiers.values()
    duties = {holder.id: len(settled_round.duties_of(holder.id)) for holder in holders}
    assert sum(duties.values()) == settled_round.drawn.bit_count() > 0
    for holder in holders:
        fees = terms.sign_fee + duties[holder.id] * terms.duty_fee
        assert pay.round_pay(terms, settled_round, holder) == fees
        unsigned = replace(settled_round, signers=Bitmap(0))
        assert pay.round_pay(terms, unsigned, holder) == duties[holder.id] * terms.duty_fee


def test_what_is_refunded_is_what_nobody_can_earn() -> None:
    script = Script.ready(make_terms(rounds=2))
    net = script.net
    terms = net.terms
    spare = net.view.funded - pay.budget(terms)
    assert pay.refundable(net.view) == spare
    script.honest_round()
    first = net.view.settled[0]
    unearned = pay.round_budget(terms) - pay.may_earn(terms, first)
    unearned += first.record.drawn.bit_count() * terms.duty_fee  # from what was held for draws
    assert pay.refundable(net.view) == spare + unearned
    given = apply(net.view, ev.JobFunded(net.view.job_id, WATCHER, 7), net.view.block)
    assert given.funded == net.view.funded + 7
    assert pay.refundable(given) == spare + unearned + 7


def test_the_streak_of_empty_rounds_begins_anew_with_a_merge() -> None:
    script = Script.ready(make_terms(rounds=9))
    net = script.net
    for merged, streak in ((0, 1), (None, 0), (0, 1), (0, 2)):
        script.train()
        script.say()
        net.wait(1)
        script.settle(merged=merged)
        assert net.view.empty_streak == streak


def test_what_was_revealed_and_nobody_is_paid_for_is_burnt() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in range(3):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    for seat in range(3):
        script.reveal(seat)
    script.say(has=0b011)
    net.wait(1)
    script.settle()
    settled_round, whole = net.view.settled[0], net.terms.segments * net.terms.segment_pay
    assert (settled_round.record.revealed, settled_round.pay) == (0b111, 0b011)
    assert pay.unpaid(net.terms, settled_round) == whole
    paid = [pay.seat_pay(net.terms, settled_round, SeatIndex(seat)) for seat in range(4)]
    assert paid == [whole, whole, 0, 0]
