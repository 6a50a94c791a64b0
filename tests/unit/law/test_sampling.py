"""Who audits what: coverage, overlap, the last segment, outliers and substitutes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.unit.law.factories import digest, make_manifest

from atoll.law.sampling import (
    AuditPlan,
    SeatDuty,
    assign_seat,
    audit_plan,
    auditors_for,
    detection_probability,
    draw_segments,
    fallback,
    verifier_order,
)
from atoll.law.words import Bitmap, RoundIndex, SeatIndex, VerifierIndex, to_bitmap

SEED, SEAT = digest("audit"), SeatIndex(2)
SEVEN = Bitmap(0b1111111)
PLAN = AuditPlan(leaves=8, draws=4, overlapped=2, auditors=2)


def owners(duties: dict[VerifierIndex, SeatDuty], segment: int) -> int:
    return sum(segment in duty.segments for duty in duties.values())


def test_the_assigned_are_the_first_of_the_seats_order() -> None:
    order = verifier_order(SEED, SEAT, SEVEN)
    assert sorted(order) == list(range(7))
    assert list(assign_seat(SEED, SEAT, SEVEN, PLAN)) == order[:2]


def test_drawn_segments_have_one_owner_and_the_overlapped_two() -> None:
    duties = assign_seat(SEED, SEAT, SEVEN, PLAN)
    drawn = draw_segments(SEED, SEAT, 8)[:4]
    assert [owners(duties, segment) for segment in drawn] == [2, 2, 1, 1]


def test_the_last_segment_is_always_replayed_and_its_owner_checks_the_link() -> None:
    for seat in map(SeatIndex, range(50)):
        duties = assign_seat(SEED, seat, SEVEN, PLAN)
        for duty in duties.values():
            assert duty.link == (7 in duty.segments)
        assert owners(duties, 7) >= 1


def test_a_seat_that_diverged_has_no_link_to_check() -> None:
    duties = assign_seat(SEED, SEAT, SEVEN, replace(PLAN, has_update=False))
    assert not any(duty.link for duty in duties.values())
    assert owners(duties, 7) >= 1


def test_a_seat_audited_in_full_is_replayed_whole_by_its_assigned_verifiers() -> None:
    duties = assign_seat(SEED, SEAT, SEVEN, replace(PLAN, in_full=True))
    assert all(owners(duties, segment) >= 1 for segment in range(8))
    assert len(duties) == 2


def test_one_auditor_owns_everything_without_overlap() -> None:
    plan = replace(PLAN, auditors=1)
    (duty,) = assign_seat(SEED, SEAT, SEVEN, plan).values()
    assert duty.segments == set(draw_segments(SEED, SEAT, 8)[:4]) | {7}


def test_nobody_to_audit_means_no_duties() -> None:
    assert assign_seat(SEED, SEAT, Bitmap(0), PLAN) == {}
    assert fallback(SEED, SEAT, Bitmap(0), PLAN, Bitmap(0)) == {}


def test_the_silent_are_replaced_by_those_outside_that_balloted() -> None:
    order = verifier_order(SEED, SEAT, SEVEN)
    duties = assign_seat(SEED, SEAT, SEVEN, PLAN)
    balloted = to_bitmap([order[1], order[4], order[6]])
    assert fallback(SEED, SEAT, SEVEN, PLAN, balloted) == {order[4]: duties[order[0]]}


def test_two_silent_positions_go_to_two_substitutes() -> None:
    order = verifier_order(SEED, SEAT, SEVEN)
    duties = assign_seat(SEED, SEAT, SEVEN, PLAN)
    extra = fallback(SEED, SEAT, SEVEN, PLAN, to_bitmap(order[2:]))
    assert extra == {order[2]: duties[order[0]], order[3]: duties[order[1]]}


def test_the_assigned_that_balloted_stand_in_where_nobody_else_can() -> None:
    two = Bitmap(0b11)
    order = verifier_order(SEED, SEAT, two)
    duties = assign_seat(SEED, SEAT, two, PLAN)
    extra = fallback(SEED, SEAT, two, PLAN, to_bitmap([order[0]]))
    assert extra == {order[0]: duties[order[1]]}


def test_unassigned_that_did_not_ballot_stand_in_last() -> None:
    order = verifier_order(SEED, SEAT, SEVEN)
    duties = assign_seat(SEED, SEAT, SEVEN, PLAN)
    extra = fallback(SEED, SEAT, SEVEN, PLAN, Bitmap(0))
    assert extra == {order[2]: duties[order[0]], order[3]: duties[order[1]]}


def test_nobody_silent_means_no_substitutes() -> None:
    assert fallback(SEED, SEAT, SEVEN, PLAN, SEVEN) == {}


def test_being_audited_in_full_adds_segments_and_moves_none() -> None:
    for seat in map(SeatIndex, range(50)):
        before = assign_seat(SEED, seat, SEVEN, PLAN)
        after = assign_seat(SEED, seat, SEVEN, replace(PLAN, in_full=True))
        drawn = set(draw_segments(SEED, seat, 8)[:4])
        for position, (verifier, duty) in enumerate(before.items()):
            added = after[verifier].segments - duty.segments
            assert duty.segments <= after[verifier].segments
            assert added == {j for j in set(range(7)) - drawn if j % 2 == position}


def test_a_plan_covers_all_in_the_last_round() -> None:
    manifest = make_manifest()
    assert audit_plan(manifest, RoundIndex(0), 2, 8) == PLAN
    assert audit_plan(manifest, RoundIndex(3), 2, 8).draws == 8
    assert audit_plan(manifest, RoundIndex(0), 2, 3).draws == 3


def test_each_further_attempt_adds_an_auditor_up_to_all() -> None:
    assert [auditors_for(2, attempt, Bitmap(0b111)) for attempt in range(4)] == [2, 3, 3, 3]


def test_detection_follows_the_hypergeometric_formula() -> None:
    assert detection_probability(8, 4, 4) == 1 - Fraction(1, 70)
    assert detection_probability(8, 4, 1) == Fraction(1, 2)
    assert detection_probability(8, 8, 1) == 1
    assert detection_probability(8, 4, 0) == 0
    with pytest.raises(ValueError, match="cannot draw"):
        detection_probability(8, 9, 1)
