"""Who is drawn to audit and to sign, at the edges of each rule."""

from __future__ import annotations

import pytest
from eth_hash.auto import keccak
from tests.support.identities import digest

from atoll.protocol.committee_draws import (
    audited_share,
    auditors_of,
    draw_committee,
    draw_duties,
    draw_seats,
    following_committee,
    next_committee,
)
from atoll.protocol.types import Bitmap, SeatIndex, bits, to_bitmap

SEED = digest("audit")
POOL = Bitmap((1 << 40) - 1)
EIGHT = Bitmap(0xFF)


def ticket(seed: bytes, *numbers: int) -> bytes:
    return keccak(seed + b"".join(number.to_bytes(32, "big") for number in numbers))


def in_draw(bitmap: int, *before: int) -> list[int]:
    return sorted(bits(bitmap), key=lambda number: ticket(SEED, *before, number))


@pytest.mark.parametrize(
    ("share", "ready", "count"),
    [(2_500, 40, 2), (2_501, 40, 3), (5_000, 40, 4), (10_000, 40, 8), (1, 40, 1),
     (10_000, 1, 1), (10_000, 3, 2), (10_000, 4, 2), (10_000, 5, 3)],
)  # fmt: skip
def test_a_share_rounded_up_but_half_of_the_ready_at_most(
    share: int, ready: int, count: int
) -> None:
    assert audited_share(8, share, ready) == count
    assert audited_share(0, share, ready) == 1


def test_a_seats_ordinal_is_its_rank_by_ticket_and_where_all_are_drawn_by_number() -> None:
    first = {seat: at for at, seat in enumerate(in_draw(0xFF)[:7])}
    assert draw_seats(SEED, EIGHT, Bitmap(0), 7) == first
    assert draw_seats(SEED, Bitmap(0b1010), Bitmap(0), 2) == {1: 0, 3: 1}


def test_who_was_excluded_is_drawn_beside_the_share_and_stands_behind_it() -> None:
    first, second, *_, other, last = in_draw(0xFF)
    for out in ((last,), (other, last), (first,), (first, last)):
        excluded = to_bitmap(out)
        behind = {seat: 2 + at for at, seat in enumerate(in_draw(excluded))}
        found = draw_seats(SEED, EIGHT, excluded, 2)
        assert found == behind | {first: 0, second: 1}


def test_drawn_seats_go_round_the_pool_in_the_order_of_its_tickets() -> None:
    order = in_draw(POOL, 256)
    for ordinal in (0, 1, 38, 39, 40, 79):
        first, second = (order[(ordinal + k) % len(order)] for k in (0, 1))
        assert auditors_of(SEED, ordinal, POOL) == (first,)
        assert auditors_of(SEED, ordinal, POOL, is_last=True) == (first, second)
    assert auditors_of(SEED, 5, Bitmap(0b100), is_last=True) == (2,)


def test_duties_are_of_slots_with_ascending_seats() -> None:
    drawn = {SeatIndex(seat): at for at, seat in enumerate((3, 1, 2, 0))}
    duties = draw_duties(SEED, drawn, Bitmap(0b100), is_last=True)
    assert duties == {2: (0, 1, 2, 3)}
    assert draw_duties(SEED, {}, POOL, is_last=False) == {}


def test_a_committee_are_the_smallest_tickets_in_the_order_of_slots() -> None:
    assert list(draw_committee(SEED, POOL)) == sorted(in_draw(POOL)[:32])
    assert draw_committee(SEED, Bitmap(0b10110)) == (1, 2, 4)
    assert draw_committee(next_committee(SEED, 1), POOL) != draw_committee(SEED, POOL)


def test_a_committee_draws_seed_is_of_the_one_before() -> None:
    assert following_committee(SEED) == ticket(SEED, 0)
    assert next_committee(SEED, 1) == ticket(SEED, 1)
    assert next_committee(next_committee(SEED, 1), 2) == ticket(ticket(SEED, 1), 2)
