"""Who may still be paid for an update that its committee did not have, by whose late votes."""

from __future__ import annotations

import pytest
from tests.support.contracts import Refused
from tests.support.manifests import make_terms
from tests.unit.protocol.script import WATCHER, Script

from atoll.protocol import pay
from atoll.protocol.holders import Holder
from atoll.protocol.late_votes import (
    electors,
    grantable,
    having,
    is_available_late,
    lacks_vote,
    without_pay,
)
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Role, SeatIndex

SEAT = SeatIndex(3)
EVERYBODY = 0b1111


def lacking(script: Script, slots: set[int], seat: int = SEAT) -> int:
    """A round in which these slots did not have the seat's update."""
    net, round = script.net, script.net.round
    script.train()
    script.say(set(net.committee) - slots)
    script.say(slots, EVERYBODY & ~(1 << seat))
    net.wait(1)
    script.settle()
    return round


def member(script: Script, slot: int) -> Holder:
    net = script.net
    return net.view.verifiers[net.at(Role.VERIFIER, slot, 0).id]  # type: ignore[index]


def settled(script: Script, round: int = 0) -> SettledRound:
    return script.net.view.settled[round]


def test_late_votes_of_more_than_half_pay_a_seat_that_was_not_available() -> None:
    script = Script.ready()
    net, round = script.net, lacking(script, {1, 2, 3})
    view, settled_round = net.view, settled(script)
    assert settled_round.pay == EVERYBODY & ~(1 << SEAT)
    assert electors(view, settled_round) == EVERYBODY
    assert (having(view, settled_round, SEAT), having(view, settled_round, SeatIndex(0))) == (
        0b1,
        EVERYBODY,
    )
    assert list(without_pay(view, settled_round, net.now)) == [SEAT]
    assert lacks_vote(view, settled_round, member(script, 0), net.now) == []
    assert lacks_vote(view, settled_round, member(script, 1), net.now) == [SEAT]
    net.late_vote(round, member(script, 1).id, 1 << SEAT)
    view, settled_round = net.view, settled(script)
    assert (having(view, settled_round, SEAT), is_available_late(view, settled_round, SEAT)) == (
        0b11,
        False,
    )
    assert lacks_vote(view, settled_round, member(script, 1), net.now) == []
    assert grantable(view, settled_round, net.now) == []
    with pytest.raises(Refused):
        net.grant(round, SEAT)
    net.late_vote(round, member(script, 2).id, 1 << SEAT)
    view, settled_round = net.view, settled(script)
    assert grantable(view, settled_round, net.now) == [SEAT]
    assert lacks_vote(view, settled_round, member(script, 3), net.now) == []
    net.grant(round, SEAT)
    assert settled(script).pay == EVERYBODY
    assert list(without_pay(net.view, settled(script), net.now)) == []
    assert pay.seat_pay(net.terms, settled(script), SEAT) == 8 * net.terms.segment_pay


def test_nobody_is_heard_once_audit_is_over() -> None:
    script = Script.ready()
    net, _ = script.net, lacking(script, {1, 2, 3})
    net.wait_until(net.settled[0].ends["audit"] - 1)
    assert list(without_pay(net.view, settled(script), net.now)) == [SEAT]
    net.wait(1)
    assert list(without_pay(net.view, settled(script), net.now)) == []
    assert lacks_vote(net.view, settled(script), member(script, 1), net.now) == []


def test_electors_are_both_committees_and_members_of_neither_round_are_not_asked() -> None:
    script = Script.ready(make_terms(audit_seconds=5_000, rounds=5))
    net = script.net
    lacking(script, {1, 2, 3})
    running = net.view.open
    assert running is not None and running.committee == EVERYBODY
    net.enrol(WATCHER, 4, net.terms.verifier_bond)
    net.say_ready(WATCHER)
    lacking(script, {2, 3})
    lacking(script, {2, 3})
    new = next(m for m in net.view.verifiers.values() if m.account == WATCHER)
    assert new.start == 2
    assert net.view.open is not None and net.view.open.committee == EVERYBODY | 1 << 4
    asked = [lacks_vote(net.view, settled(script, r), new, net.now) for r in range(3)]
    assert asked == [[], [], [SEAT]]
    # A later round than the next one has no say.
    sides = [electors(net.view, settled(script, r)) for r in range(3)]
    assert sides == [EVERYBODY, EVERYBODY, EVERYBODY | 1 << 4]
    script.honest_round()
    assert electors(net.view, settled(script, 2)) == EVERYBODY | 1 << 4


def test_what_was_leaked_slashed_or_is_worth_nothing_is_not_paid_late() -> None:
    script = Script.ready()
    net = script.net
    net.advance()
    for seat in range(4):
        script.commit(seat, 0 if seat == 2 else None)
    for seat in range(4):
        script.reveal(seat)
    script.say({0, 1, 2, 3}, 0b0001)
    net.wait(1)
    script.settle()
    assert settled(script).pay == 0b0001
    assert list(without_pay(net.view, settled(script), net.now)) == [1, 3]
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 3, 0).id, WATCHER)
    assert list(without_pay(net.view, settled(script), net.now)) == [1]


def test_a_member_that_left_before_the_round_has_no_say() -> None:
    script = Script.ready(make_terms(audit_seconds=5_000, rounds=5), slots=4)
    net = script.net
    script.honest_round()
    left = member(script, 3)
    net.leave_pool(left.account)
    lacking(script, {1, 2, 3})
    lacking(script, {1, 2})
    gone = member(script, 3)
    assert gone.to == 2
    assert lacks_vote(net.view, settled(script, 1), gone, net.now) == [SEAT]
    assert lacks_vote(net.view, settled(script, 2), gone, net.now) == []


def test_who_takes_a_slot_does_not_cast_its_late_vote() -> None:
    """Of a slot of the round's committee it is who held it then; of others the next one's."""
    script = Script.ready(make_terms(audit_seconds=5_000, rounds=5), slots=4)
    net = script.net
    lacking(script, {1, 2, 3})
    old = member(script, 3)
    net.leave_pool(old.account)
    net.enrol(WATCHER, 3, net.terms.verifier_bond)
    net.say_ready(WATCHER)
    lacking(script, {1, 2, 3})
    new = next(m for m in net.view.verifiers.values() if m.account == WATCHER)
    assert (new.start, old.index) == (2, new.index)
    assert lacks_vote(net.view, settled(script), new, net.now) == []
    net.late_vote(1, new.id, 1 << SEAT)
    settled_round = settled(script, 1)
    assert (having(net.view, settled_round, SEAT), dict(settled_round.late)) == (
        0b1,
        {new.id: 1 << SEAT},
    )
    for slot in (1, 2):
        net.late_vote(1, member(script, slot).id, 1 << SEAT)
    net.late_vote(1, old.id, 1 << SEAT)
    assert having(net.view, settled(script, 1), SEAT) == EVERYBODY
    net.grant(1, SEAT)
