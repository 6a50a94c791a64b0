"""What anybody may call when: each call is due from its second on, and only while it succeeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.contracts import Refused
from tests.support.manifests import make_terms
from tests.unit.protocol.due_calls import FIRST, due, seat_holder, settled
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import pay
from atoll.protocol.clocks import last_moment
from atoll.protocol.keeper_calls import (
    KeeperCall,
    KeeperCallKind,
    burnable_to,
    is_releasable,
    keeper_calls,
)
from atoll.protocol.obligations import Duty, obligations_of
from atoll.protocol.types import (
    NO_ROUND,
    HolderId,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
)


def test_the_audit_seed_is_anybodys_when_nobody_spoke_for_a_while() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    running = net.view.open
    assert running is not None
    assert running.seed_due == net.now + min(30, net.terms.merge_seconds // 2)
    net.wait_until(running.seed_due - 1)
    assert due(script, KeeperCallKind.SEED_AUDIT) == []
    net.wait(1)
    assert due(script, KeeperCallKind.SEED_AUDIT) == [KeeperCall(KeeperCallKind.SEED_AUDIT, FIRST)]
    net.seed_audit()
    assert due(script, KeeperCallKind.SEED_AUDIT) == []


def test_a_vote_draws_the_audit_seed() -> None:
    script = Script.ready()
    script.train()
    running = script.net.view.open
    assert running is not None
    script.say([0])
    script.net.wait_until(running.seed_due)
    assert due(script, KeeperCallKind.SEED_AUDIT) == []


def test_a_job_that_expired_in_merge_is_settled_without_certificate() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    running = net.view.open
    assert running is not None
    net.wait_until(max(net.terms.expiry, running.deadline) - 1)
    assert due(script, KeeperCallKind.SETTLE_LATE) == []
    net.wait(1)
    assert due(script, KeeperCallKind.SETTLE_LATE) == [
        KeeperCall(KeeperCallKind.SETTLE_LATE, FIRST)
    ]
    net.settle_late()
    assert due(script, KeeperCallKind.SETTLE_LATE) == []


def test_from_the_last_moment_on_a_job_is_closed_and_nothing_is_signed() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    script.say()
    for wait, calls, owes in (
        (-1, [KeeperCallKind.SETTLE_LATE], 1),
        (0, [KeeperCallKind.ADVANCE], 0),
    ):
        net.wait_until(last_moment(net.terms) + wait)
        assert [each.call for each in keeper_calls(net.view, net.now)] == calls
        for account in VERIFIERS[:4]:
            signing = [o for o in obligations_of(net.view, account, net.now) if o.duty is Duty.SIGN]
            assert len(signing) == owes
    with pytest.raises(Refused):
        net.settle_late()
    with pytest.raises(Refused):
        net.settle({0, 1, 2, 3})


def test_without_a_certificate_the_silent_miss_and_nobody_owes_a_signature() -> None:
    script = Script.ready(make_terms(expiry=1_000_200))
    net = script.net
    script.train()
    script.say([0, 2])
    net.wait_until(max(net.terms.expiry, net.deadline))
    net.settle_late()
    silent = [HolderId(net.at(Role.VERIFIER, slot, 0).id) for slot in (1, 3)]
    assert net.view.settled[0].silent == 0b1010
    assert [each.holder for each in due(script, KeeperCallKind.PENALISE_MEMBER)] == silent
    for id in silent:
        net.penalise_member(0, id)
    net.wait_until(net.settled[0].ends["audit"])
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []
    for id in range(1, 5):
        with pytest.raises(Refused):
            net.penalise_member(0, id)


@pytest.mark.parametrize("late", [0, 1])
def test_who_says_nothing_misses_once_votes_are_over(late: int) -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say([0, 1, 2])
    net.wait_until(net.votes_end - 1 + late)
    net.settle({0, 1, 2})
    settled_round = net.view.settled[0]
    assert (settled_round.unsigned, settled_round.silent) == (0b1000, late << 3)
    holder = HolderId(net.at(Role.VERIFIER, 3, 0).id)
    missed = [KeeperCall(KeeperCallKind.PENALISE_MEMBER, FIRST, Role.VERIFIER, holder)] * late
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == missed
    if late:
        net.penalise_member(0, holder)
        assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_nobody_misses_a_signature() -> None:
    """The last round's is taken until its AUDIT ends."""
    script = Script.ready(make_terms(rounds=1))
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    net.settle({0, 1, 2})
    assert net.view.phase is Phase.CLOSED
    net.wait_until(net.settled[0].ends["audit"])
    assert net.view.settled[0].unsigned == 0b1000
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_who_disagreed_is_bound_as_long_as_an_audit_takes() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    gone = net.at(Role.PROVIDER, 1, 0)
    net.disagree(gone.account)
    at, terms = net.now, net.terms
    holder = net.view.providers[HolderId(gone.id)]
    until = at + terms.audit_seconds + terms.open_seconds
    until += terms.key_seconds + terms.window_seconds
    assert (holder.bound_until, holder.to, holder.missed) == (until, 0, NO_ROUND)
    with pytest.raises(Refused):
        net.join(gone.account, 1)  # with another account, and another bond, at once
    net.wait_until(until - 1)
    assert not is_releasable(net.view, holder, net.now)
    with pytest.raises(Refused):
        net.release(Role.PROVIDER, gone.id)
    net.wait(1)
    assert is_releasable(net.view, holder, net.now)
    net.release(Role.PROVIDER, gone.id)


def test_rounds_are_claimed_when_they_are_final_and_only_where_they_are_worth_it() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say(has=0b0111)
    net.wait(1)
    script.settle()
    script.honest_round()
    assert due(script, KeeperCallKind.CLAIM) == []
    net.wait_until(net.settled[0].ends["window"] - 1)
    assert due(script, KeeperCallKind.CLAIM) == []
    assert burnable_to(net.view, net.now) == 0
    net.wait(1)
    claims = {(each.role, each.holder): each.round for each in due(script, KeeperCallKind.CLAIM)}
    seats = {(Role.PROVIDER, seat_holder(script, seat).id) for seat in range(3)}
    slots = {(Role.VERIFIER, HolderId(net.at(Role.VERIFIER, p, 0).id)) for p in range(4)}
    assert set(claims) == seats | slots and set(claims.values()) == {1}
    assert due(script, KeeperCallKind.BURN) == [KeeperCall(KeeperCallKind.BURN, RoundIndex(1))]
    net.burn(1)
    assert due(script, KeeperCallKind.BURN) == []
    for role, id in claims:
        net.claim(role, id, 1)
    assert due(script, KeeperCallKind.CLAIM) == []


def test_what_a_slash_took_is_claimed_too_so_that_it_burns() -> None:
    script = settled()
    net, id = script.net, seat_holder(script, 1).id
    net.slash(Role.PROVIDER, id, WATCHER)
    net.wait_until(net.settled[0].ends["window"])
    assert (Role.PROVIDER, id) in {
        (each.role, each.holder) for each in due(script, KeeperCallKind.CLAIM)
    }
    assert net.claim(Role.PROVIDER, id, 1) == (0, net.terms.segments * net.terms.segment_pay)


def test_a_bond_goes_home_when_nothing_can_be_asked_of_it() -> None:
    script = settled()
    net = script.net
    held = seat_holder(script, 0)
    assert not is_releasable(net.view, held, net.settled[0].ends["window"] + 10**6)
    net.leave_seat(PROVIDERS[0])
    left = seat_holder(script, 0)
    assert left.to == 2
    script.honest_round()
    assert not is_releasable(net.view, left, net.settled[1].ends["window"] - 1)
    assert is_releasable(net.view, left, net.settled[1].ends["window"])
    assert not is_releasable(net.view, replace(left, is_released=True), 10**9)
    assert not is_releasable(net.view, replace(left, missed=FIRST), 10**9)
    new = replace(held, start=RoundIndex(3), to=RoundIndex(3))
    assert is_releasable(net.view, new, net.now)
    net.wait_until(net.settled[1].ends["window"])
    about = (KeeperCallKind.RELEASE, net.view.round, Role.PROVIDER, left.id)
    assert KeeperCall(*about) in due(script, KeeperCallKind.RELEASE)
    net.release(Role.PROVIDER, left.id)
    assert KeeperCall(*about) not in due(script, KeeperCallKind.RELEASE)


def test_a_seats_missed_duty_is_penalised_and_nobody_elses() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in range(3):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    missed = seat_holder(script, 3)
    expected = KeeperCall(
        KeeperCallKind.PENALISE_SEAT, missed.missed, Role.PROVIDER, missed.id, SeatIndex(3)
    )
    assert due(script, KeeperCallKind.PENALISE_SEAT) == [expected]
    net.penalise_seat(3)
    assert due(script, KeeperCallKind.PENALISE_SEAT) == []


def test_the_silent_of_a_replaced_committee_draw_are_penalised_before_the_settlement() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say([0])
    net.pass_deadline()
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == [], "most were: nobody misses"
    script.say([0, 1])
    net.pass_deadline()
    assert [each.holder for each in due(script, KeeperCallKind.PENALISE_MEMBER)] == [
        net.at(Role.VERIFIER, slot, 0).id for slot in (2, 3)
    ]
    net.penalise_member(0, net.at(Role.VERIFIER, 2, 0).id)
    assert len(due(script, KeeperCallKind.PENALISE_MEMBER)) == 1
    assert net.view.verifiers[HolderId(net.at(Role.VERIFIER, 2, 0).id)].account == VERIFIERS[2]


def test_a_late_signature_counts_until_the_next_settlement() -> None:
    script = Script.ready()
    net = script.net
    script.train()
    script.say()
    net.wait(1)
    net.settle({0, 1, 2})
    late = net.at(Role.VERIFIER, 3, 0).id
    net.sign(late)
    settled_round = net.view.settled[0]
    assert (settled_round.signers, settled_round.unsigned) == (0b1111, 0)
    holder = net.view.verifiers[HolderId(late)]
    assert pay.verifier_pay(net.terms, settled_round, holder) == net.terms.sign_fee
    script.honest_round()
    assert due(script, KeeperCallKind.PENALISE_MEMBER) == []


def test_an_accounts_part_in_a_job_is_its_newest_that_stands() -> None:
    script = settled()
    net = script.net
    assert net.view.holder_of(WATCHER) is None
    first = seat_holder(script, 0)
    assert net.view.holder_of(PROVIDERS[0]) == first
    net.leave_seat(PROVIDERS[0])
    script.honest_round()
    net.wait_until(net.settled[1].ends["window"])
    net.release(Role.PROVIDER, first.id)
    held = net.view.holder_of(PROVIDERS[0])
    assert held is not None and held.is_released
    net.join(PROVIDERS[0], 0)
    again = net.view.holder_of(PROVIDERS[0])
    assert again is not None and again.id > first.id
    assert net.view.ids_of(PROVIDERS[0], Role.PROVIDER) == {first.id, again.id}
    assert net.view.ids_of(PROVIDERS[0], Role.VERIFIER) == set()


def test_a_advance_is_due_when_a_deadline_or_the_last_moment_is_over() -> None:
    script = Script.ready(make_terms(expiry=1_000_500))
    net = script.net
    assert [each.round for each in due(script, KeeperCallKind.ADVANCE)] == [0]
    net.advance()
    net.wait_until(net.deadline - 1)
    assert due(script, KeeperCallKind.ADVANCE) == []
    net.wait(1)
    assert due(script, KeeperCallKind.ADVANCE) == [KeeperCall(KeeperCallKind.ADVANCE, FIRST)]
    for late in (net.terms.expiry, last_moment(net.terms) - 1, last_moment(net.terms)):
        assert net.view.is_advance_due(late)
    again = Script.ready(make_terms(expiry=1_000_500))
    again.train()
    view, terms = again.net.view, again.net.terms
    assert view.open is not None
    times = (view.open.deadline - 1, view.open.deadline, terms.expiry - 1, terms.expiry)
    assert [view.is_advance_due(when) for when in times] == [False, True, True, False]
    assert [view.is_advance_due(last_moment(terms) + d) for d in (-1, 0)] == [False, True]


def test_a_job_with_too_few_waits_until_it_expires() -> None:
    script = Script.ready(seats=2)
    net = script.net
    assert due(script, KeeperCallKind.ADVANCE) == []
    assert [net.view.is_advance_due(net.terms.expiry + d) for d in (-1, 0)] == [False, True]


def test_a_job_begins_with_as_many_as_it_needs_and_no_more() -> None:
    terms = make_terms(min_providers=3, min_verifiers=2, f=0)
    for seats, slots, begins in ((3, 2, True), (2, 2, False), (3, 1, False)):
        assert (
            bool(due(Script.ready(terms, seats=seats, slots=slots), KeeperCallKind.ADVANCE))
            is begins
        )
