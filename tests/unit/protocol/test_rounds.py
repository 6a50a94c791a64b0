"""A job in small steps: what the view says after each, and what is owed to whom by when."""

from __future__ import annotations

import pytest
from tests.support.contracts import Refused, bitmap
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.owing import calls, owed
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import pay
from atoll.protocol.committee_draws import seeded
from atoll.protocol.keeper_calls import KeeperCallKind
from atoll.protocol.late_votes import without_pay
from atoll.protocol.obligations import WHENEVER, Duty, committee_accounts
from atoll.protocol.types import (
    NO_ROUND,
    HolderId,
    JobStatus,
    MissedDuty,
    Phase,
    Role,
    SeatIndex,
    SlotIndex,
)


def test_a_round_from_its_opening_to_its_settlement() -> None:
    script = Script.ready()
    net = script.net
    assert (net.view.phase, calls(script)) == (Phase.WAITING, {KeeperCallKind.ADVANCE})
    net.advance()
    assert net.view.status is JobStatus.ACTIVE
    assert all(owed(script, who) == [(Duty.COMMIT, net.deadline)] for who in PROVIDERS[:4])
    for seat in range(4):
        script.commit(seat)
    assert net.view.phase is Phase.REVEAL
    assert all(owed(script, who) == [(Duty.REVEAL, net.deadline)] for who in PROVIDERS[:4])
    for seat in range(4):
        script.reveal(seat)
    running = net.view.open
    assert running is not None and running.phase is Phase.MERGE
    assert committee_accounts(net.view, running) == VERIFIERS[:4]
    assert all(owed(script, who) == [(Duty.VOTE, net.votes_end)] for who in VERIFIERS[:4])
    script.say([0, 1])
    assert not any(duty is Duty.SIGN for duty, _ in owed(script, VERIFIERS[0]))
    script.say([2])
    assert net.view.open is not None and net.view.open.is_merge_over
    assert (Duty.SIGN, net.deadline) in owed(script, VERIFIERS[0])
    net.settle({0, 1, 2})
    assert (net.view.phase, net.view.round) == (Phase.TRAIN, 1)
    settled_round = net.view.settled[0]
    assert settled_round.is_consistent and net.view.model == settled_round.verdict.state
    assert (settled_round.signers, settled_round.unsigned) == (0b111, 0b1000)
    assert (Duty.SIGN, settled_round.clock.audit_end) in owed(script, VERIFIERS[3])


def test_who_lacks_what_others_have_is_asked_for_no_signature() -> None:
    script = Script.ready()
    script.train()
    script.say([0, 1, 2])
    script.say([3], 0b0111)
    script.net.settle({0, 1, 2})
    assert script.net.view.settled[0].unsigned == 0
    assert not any(duty is Duty.SIGN for duty, _ in owed(script, VERIFIERS[3]))


def test_the_silent_of_a_replaced_committee_draw_miss_and_the_next_casts_its_own_votes() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say([0, 1])
    net.pass_deadline()
    running = net.view.open
    assert running is not None
    assert (running.committee_draw, running.silent, dict(running.votes)) == (1, 0b1100, {})
    assert KeeperCallKind.PENALISE_MEMBER in calls(script)
    net.penalise_member(0, net.at(Role.VERIFIER, 2, 0).id)
    penalty = net.view.verifiers[net.at(Role.VERIFIER, 2, 0).id]  # type: ignore[index]
    assert (0, MissedDuty.SILENCE) in penalty.penalties
    assert penalty.bond == net.terms.verifier_bond * 99 // 100
    script.say()
    script.settle()
    assert net.view.settled[0].silent == 0b1100


def test_a_committee_draw_has_its_seed_from_the_audits_and_each_later_one_from_the_one_before() -> (
    None
):
    script = Script.ready()
    net = script.net
    script.train()
    for _ in range(3):
        net.pass_deadline()
        running = net.view.open
        assert running is not None
        assert (running.committee_draw, running.committee_seed) == (
            net.committee_draw,
            net.committee_seed,
        )


def test_seats_that_miss_are_nobodys_until_they_are_penalised() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in (0, 1, 2):
        script.commit(seat)
    net.pass_deadline()
    assert (net.view.phase, net.view.held) == (Phase.REVEAL, 0b0111)
    assert net.view.free_seats() == []
    with pytest.raises(Refused):
        net.join(PROVIDERS[5], 3)
    net.penalise_seat(3)
    assert net.view.free_seats() == [3]
    net.join(PROVIDERS[5], 3)
    assert net.view.held == 0b1111


def test_a_void_round_waits_under_its_own_number() -> None:
    script = Script.ready()
    net = script.net
    script.honest_round()
    net.pass_deadline()
    assert (net.view.phase, net.view.round, net.view.open) == (Phase.WAITING, 1, None)
    missed = {h.index: h.missed for h in net.view.providers.values()}
    assert missed == dict.fromkeys(range(4), 1)
    assert net.view.held == 0


def test_a_round_that_is_void_as_the_job_ends_is_missed_by_who_owed_it() -> None:
    for reveals in (False, True):
        script = Script.ready()
        net = script.net
        net.advance()
        for seat in (0, 1, 2) if reveals else ():
            script.commit(seat)
        if reveals:
            net.pass_deadline()  # seat 3 has missed its commitment, and the others their reveals
        assert not net.view.cancel_requested
        net.cancel()
        assert net.view.cancel_requested
        net.pass_deadline()
        assert (net.view.phase, net.view.status) == (Phase.CLOSED, JobStatus.CANCELLED)
        missed = {h.index: h.missed for h in net.view.providers.values()}
        assert missed == dict.fromkeys(range(4), 0)
        assert net.view.held == 0


def test_who_is_ready_and_leaves_before_it_counts_is_not_ready() -> None:
    script = Script.ready(make_terms(slots=5))
    net = script.net
    net.advance()
    net.enrol(WATCHER, 4, net.terms.verifier_bond)
    net.say_ready(WATCHER)
    assert net.view.verifiers[HolderId(5)].is_ready
    net.leave_pool(WATCHER)
    assert not net.view.verifiers[HolderId(5)].is_ready
    first = net.view.verifiers[HolderId(1)]
    net.leave_pool(first.account)
    assert net.view.verifiers[HolderId(1)].is_ready  # it counts until the round is over


def test_a_void_round_opens_again_with_seats_that_came_and_with_its_own_pool() -> None:
    script = Script.ready(make_terms(slots=4, seats=8))
    net = script.net
    net.advance()
    net.join(PROVIDERS[4], 4)
    new = net.view.holder_of(PROVIDERS[4])
    assert new is not None and new.start == 0
    net.leave_pool(VERIFIERS[0])
    net.enrol(WATCHER, 0, net.terms.verifier_bond)
    net.say_ready(WATCHER)
    net.leave_seat(PROVIDERS[4])
    gone = net.view.providers[new.id]
    assert (gone.start, gone.to) == (0, 0)
    net.release(Role.PROVIDER, new.id)
    net.join(PROVIDERS[5], 5)
    net.pass_deadline()
    assert (net.view.phase, net.view.round) == (Phase.WAITING, 0)
    assert net.view.ready_slots(net.view.round) == bitmap(net.ready) == 0b1111
    net.join(PROVIDERS[6], 6)
    net.join(PROVIDERS[7], 7)
    net.wait(1)
    round = script.honest_round()
    settled_round = net.view.settled[round]
    assert round == 0 and settled_round.record.revealed == 0b1110_0000
    held = net.view.providers[settled_round.seats[SeatIndex(5)]]
    assert held.account == PROVIDERS[5] and held.counts_in(0)
    slots = {net.view.verifiers[id].account for id in settled_round.slots.values()}
    assert slots == set(VERIFIERS[:4])
    assert net.view.open is not None
    at_zero = net.view.open.slots[SlotIndex(0)]
    assert net.view.verifiers[at_zero].account == WATCHER
    net.wait_until(net.settled[0].ends["window"])
    assert pay.claimable(net.view, held, net.now) == 8 * net.terms.segment_pay


def test_who_disagrees_is_not_waited_for_and_misses_nothing() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in (0, 1, 2):
        script.commit(seat)
    net.disagree(PROVIDERS[3])
    assert net.view.phase is Phase.REVEAL
    assert net.view.open is not None and net.view.open.stopped == 0b1000
    assert all(holder.missed == NO_ROUND for holder in net.view.providers.values())


def test_partial_rounds_are_paid_by_the_segment_and_short_again_is_a_missed_duty() -> None:
    script = Script.ready()
    net = script.net
    for segments in (5, 4):
        script.train({0: segments})
        script.say()
        script.settle()
    view = net.view
    assert [settled_round.reveals[SeatIndex(0)].segments for settled_round in view.settled] == [
        5,
        4,
    ]
    assert pay.seat_pay(net.terms, view.settled[0], SeatIndex(0)) == 5 * net.terms.segment_pay
    first = net.at(Role.PROVIDER, 0, 0).id
    assert view.providers[first].missed == 1  # type: ignore[index]
    assert view.held == 0b1110


def test_a_seat_without_a_segment_is_nobodys_duty_and_short() -> None:
    script = Script.ready(make_terms(rounds=9, f=0))
    net = script.net
    for segments in (0, 8, 8, 0, 8, 0):
        script.train({2: segments})
        script.say()
        net.wait(1)
        script.settle()
        settled_round = net.view.settled[-1]
        assert bool(settled_round.drawn >> 2 & 1) == bool(segments)
        assert all((2 in seats) <= bool(segments) for seats in settled_round.duties.values())
        assert all(
            net.duties(settled_round.round, id) == set(settled_round.duties_of(id))
            for id in net.view.verifiers
        )
    missed = net.view.providers[net.settled[0].holders[2]]  # type: ignore[index]
    assert missed.missed == 5 and net.owing == {2: 5}


def test_half_of_every_second_round_is_a_missed_duty_and_unpaid_where_nothing_is_merged() -> None:
    """Whoever was whole is paid, and what the others would have had is the submitter's at once."""
    script = Script.ready(make_terms(rounds=9))
    net, before = script.net, pay.refundable(script.net.view)
    halves = {0: 4, 1: 0}
    for done, merged in ((halves, 0), ({}, 4), (halves, 0)):
        script.train(done)
        script.say(has=0b1011)
        net.wait(1)
        script.settle(merged=min(merged, 3))
    first, second, third = net.view.settled
    assert (first.short, second.short, third.short) == (0b0011, 0, 0b0011)
    assert (first.unearned, second.unearned, third.unearned) == (0b0011, 0, 0b0011)
    assert (first.pay, second.pay, third.pay) == (0b1000, 0b1011, 0b1000)
    whole = 8 * net.terms.segment_pay
    assert [pay.unpaid(net.terms, settled_round) for settled_round in net.view.settled] == [
        whole
    ] * 3  # seat 2
    assert net.owing == {0: 2, 1: 2} and net.view.held == 0b1100
    settled = net.view.settled
    spared = 3 * pay.round_budget(net.terms) - sum(pay.may_earn(net.terms, s) for s in settled)
    held = sum(seeded(s.record) for s in settled) * net.terms.duty_fee
    assert pay.refundable(net.view) - before == spared + held
    assert grantable_ever(net) == {2}


def grantable_ever(net: Network) -> set[int]:
    """Seats that late votes could pay of the rounds so far."""
    now = net.view.settled[0].clock.settled_at
    return {
        seat
        for settled_round in net.view.settled
        for seat in without_pay(net.view, settled_round, now)
    }


def test_a_round_that_nobody_certified_makes_nobody_short() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train({0: 1, 1: 1, 2: 1, 3: 1})
    script.say()
    net.wait_until(max(net.deadline, net.terms.expiry))
    net.settle_late()
    (settled_round,) = net.view.settled
    assert (settled_round.verdict.merged, settled_round.short, settled_round.unearned) == (0, 0, 0)
    assert (settled_round.pay, net.owing) == (0b1111, {})


def test_who_takes_a_seat_is_not_short_for_who_had_it() -> None:
    script = Script.ready(make_terms(rounds=9))
    net = script.net
    for segments in (0, 8):
        script.train({2: segments})
        script.say()
        net.wait(1)
        if segments:
            net.leave_seat(script.account(2))
        script.settle()
    net.join(PROVIDERS[5], 2)
    script.honest_round()
    for segments in (0, 8):
        script.train({2: segments})
        script.say()
        net.wait(1)
        script.settle()
    assert net.view.providers[HolderId(5)].missed == NO_ROUND


def test_three_rounds_that_merge_nothing_end_a_job() -> None:
    script = Script.ready()
    for done in range(3):
        assert script.net.view.empty_streak == done
        script.train()
        script.say()
        script.settle(merged=0)
    assert script.net.view.status is JobStatus.EXPIRED
    assert script.net.view.phase is Phase.CLOSED


def test_the_budget_covers_every_round_at_its_dearest() -> None:
    terms = make_terms(rounds=3, f=0, min_providers=1)
    script = Script.ready(terms)
    for _ in range(3):
        script.honest_round()
    settled = script.net.view.settled
    most = sum(pay.may_earn(terms, settled_round) for settled_round in settled)
    assert most <= pay.budget(terms)
    assert pay.refundable(script.net.view) == script.net.funded - most


def test_ready_is_owed_by_its_time_and_then_whenever() -> None:
    script = Script.ready(make_terms(slots=5))
    net = script.net
    net.enrol(WATCHER, 4, net.terms.verifier_bond)
    until = net.view.verifiers[HolderId(5)].ready_until
    assert owed(script, WATCHER) == [(Duty.READY, until)]
    net.wait_until(until)
    assert owed(script, WATCHER) == [(Duty.READY, WHENEVER)]
    net.say_ready(WATCHER)
    assert owed(script, WATCHER) == []
