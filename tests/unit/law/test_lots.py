"""Who is drawn to audit and to sign."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.unit.law.identities import address, digest

from atoll.law.lots import (
    auditor_ticket,
    auditors_of,
    draw_committee,
    draw_seats,
    lot_seed,
    member_ticket,
    most_duties,
    seat_ticket,
)
from atoll.law.words import Bitmap, SeatIndex, bits, to_bitmap

SEED = digest("audit")
POOL = [address(i) for i in range(40)]
EIGHT = Bitmap(0xFF)


def in_draw(revealed: int) -> list[int]:
    return sorted(bits(revealed), key=lambda seat: seat_ticket(SEED, SeatIndex(seat)))


@pytest.mark.parametrize(
    ("share", "count"), [("1/4", 2), ("1/3", 3), ("1/2", 4), ("1", 8), ("0", 0)]
)
def test_a_share_of_the_revealed_is_drawn_rounded_up(share: str, count: int) -> None:
    found = draw_seats(SEED, EIGHT, Bitmap(0), share=Fraction(share), pool=40)
    assert found == to_bitmap(in_draw(0xFF)[:count])


def test_who_did_not_reveal_is_not_drawn() -> None:
    found = draw_seats(SEED, Bitmap(0b1010_1010), Bitmap(0b1), share=Fraction(1), pool=40)
    assert found == 0b1010_1010


def test_who_was_left_out_is_drawn_beside_the_share() -> None:
    last = in_draw(0xFF)[-1]
    found = draw_seats(SEED, EIGHT, Bitmap(1 << last), share=Fraction(1, 4), pool=40)
    assert found == to_bitmap([*in_draw(0xFF)[:2], last])
    first = in_draw(0xFF)[0]
    found = draw_seats(SEED, EIGHT, Bitmap(1 << first), share=Fraction(1, 4), pool=40)
    assert found == to_bitmap(in_draw(0xFF)[:2])


@pytest.mark.parametrize(("pool", "count"), [(0, 0), (1, 0), (3, 1), (4, 2), (17, 8)])
def test_never_more_than_half_of_the_pool_the_left_out_first(pool: int, count: int) -> None:
    last = in_draw(0xFF)[-1]
    found = draw_seats(SEED, EIGHT, Bitmap(1 << last), share=Fraction(1), pool=pool)
    assert found == to_bitmap([last, *in_draw(0xFF)][:count])


def test_an_auditor_has_the_smallest_ticket_and_never_holds_the_seat() -> None:
    for seat in map(SeatIndex, range(20)):
        order = sorted(POOL, key=lambda member: auditor_ticket(SEED, seat, member))
        assert auditors_of(SEED, seat, POOL, address("holder")) == (order[0],)
        assert auditors_of(SEED, seat, POOL, order[0], 2) == (order[1], order[2])
        assert auditors_of(SEED, seat, POOL[::-1], order[5], 2) == (order[0], order[1])


def test_of_nobody_but_the_holder_there_is_no_auditor() -> None:
    assert auditors_of(SEED, SeatIndex(0), [POOL[0]], POOL[0], 2) == ()
    assert auditors_of(SEED, SeatIndex(0), POOL[:2], POOL[0], 2) == (POOL[1],)


def test_a_committee_are_the_smallest_tickets_in_the_order_of_addresses() -> None:
    order = sorted(POOL, key=lambda member: member_ticket(SEED, member))
    found = draw_committee(SEED, POOL)
    assert set(found) == set(order[:32])
    assert list(found) == sorted(found, key=lambda member: int(member, 16))
    assert draw_committee(SEED, POOL[:5]) == tuple(sorted(POOL[:5], key=lambda m: int(m, 16)))
    assert draw_committee(lot_seed(SEED, 1), POOL) != found


def test_lots_differ() -> None:
    assert len({lot_seed(SEED, lot) for lot in range(5)} | {SEED}) == 6


def test_the_busiest_auditor_sets_the_length_of_the_last_audit() -> None:
    a, b, c = POOL[:3]
    assert most_duties([(a, b), (b, c), (b,)]) == 3
    assert most_duties([(a, b)]) == 1
    assert most_duties([]) == 0
