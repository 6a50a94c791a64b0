"""Who is drawn to audit and to sign, at the edges of each rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_hash.auto import keccak
from tests.support.identities import digest

from atoll.protocol.audit_rates import RATES
from atoll.protocol.committee_draws import (
    auditors_of,
    draw_audits,
    draw_committee,
    draw_duties,
    following_committee,
    next_committee,
    one_of,
    seeded,
)
from atoll.protocol.types import NO_BITS, Bitmap, Digest, bits, to_bitmap

SEED = digest("audit")
POOL = Bitmap((1 << 40) - 1)
EVERYBODY = Bitmap((1 << 256) - 1)


def ticket(seed: bytes, *numbers: int) -> bytes:
    return keccak(seed + b"".join(number.to_bytes(32, "big") for number in numbers))


def in_draw(bitmap: int, *before: int) -> list[int]:
    return sorted(bits(bitmap), key=lambda number: ticket(SEED, *before, number))


def in_rate(seat: int, rate: int) -> bool:
    tickets = keccak(keccak(b"atoll.audit-rate.v1") + SEED + (seat // 8).to_bytes(32, "big"))
    return int.from_bytes(tickets[seat % 8 * 4 :][:4], "big") < RATES[rate]


@pytest.mark.parametrize("rate", [0, 1, 4, 9, 15])
def test_each_seat_is_drawn_by_itself(rate: int) -> None:
    seats = [seat for seat in range(256) if in_rate(seat, rate)]
    assert draw_audits(SEED, EVERYBODY, NO_BITS, rate=rate, left=256) == to_bitmap(seats)
    some = Bitmap(EVERYBODY // 3)
    drawn = [seat for seat in seats if some >> seat & 1]
    assert draw_audits(SEED, some, NO_BITS, rate=rate, left=256) == to_bitmap(drawn)


def test_where_fewer_are_left_the_first_seats_go() -> None:
    every = bits(draw_audits(SEED, EVERYBODY, NO_BITS, rate=4, left=256))
    assert draw_audits(SEED, EVERYBODY, NO_BITS, rate=4, left=3) == to_bitmap(every[-3:])
    assert draw_audits(SEED, EVERYBODY, NO_BITS, rate=4, left=0) == NO_BITS


def test_of_the_excluded_one_is_audited_in_any_case_and_takes_nothing_from_others() -> None:
    out = [seat for seat in range(256) if not in_rate(seat, 4)][:3]
    sure = one_of(SEED, to_bitmap(out))
    assert bits(sure) == [out[int.from_bytes(SEED, "big") % 3]]
    alone = draw_audits(SEED, EVERYBODY, NO_BITS, rate=4, left=256)
    for left in (256, 3, 0):
        drawn = draw_audits(SEED, EVERYBODY, to_bitmap(out), rate=4, left=left)
        assert drawn == to_bitmap(bits(alone)[-left or 256 :]) | sure
    assert one_of(SEED, NO_BITS) == NO_BITS
    # Whoever the seed draws besides is one duty, which its round pays.
    both = to_bitmap([bits(alone)[0]])
    assert draw_audits(SEED, EVERYBODY, both, rate=4, left=256) == alone


def test_drawn_seats_go_round_the_pool_from_a_slot_that_the_seed_draws() -> None:
    first = int.from_bytes(keccak(keccak(b"atoll.auditors.v1") + SEED), "big")
    pool = Bitmap(0b1011_0100)
    slots = bits(pool)
    drawn = to_bitmap(range(3, 90, 7))
    expected = {seat: slots[(first + at) % 4] for at, seat in enumerate(bits(drawn))}
    assert auditors_of(SEED, drawn, pool) == expected


def test_duties_are_of_slots_with_ascending_seats() -> None:
    assert draw_duties(SEED, Bitmap(0b1111), Bitmap(0b100)) == {2: (0, 1, 2, 3)}
    assert draw_duties(SEED, NO_BITS, POOL) == {}


def test_a_committee_are_the_smallest_tickets_in_the_order_of_slots() -> None:
    assert list(draw_committee(SEED, POOL)) == sorted(in_draw(POOL)[:32])
    assert draw_committee(SEED, Bitmap(0b10110)) == (1, 2, 4)
    assert draw_committee(next_committee(SEED, 1), POOL) != draw_committee(SEED, POOL)


def test_a_committee_draws_seed_is_of_the_one_before() -> None:
    assert following_committee(SEED) == ticket(SEED, 0)
    assert next_committee(SEED, 1) == ticket(SEED, 1)
    assert next_committee(next_committee(SEED, 1), 2) == ticket(ticket(SEED, 1), 2)


@pytest.mark.parametrize(("drawn", "excluded", "count"), [(0b111, 0, 3), (0b111, 0b100, 2)])
def test_of_a_rounds_duties_all_but_an_excluded_seats_are_the_seeds(
    drawn: int, excluded: int, count: int
) -> None:
    record = SimpleNamespace(drawn=Bitmap(drawn), excluded=Bitmap(excluded))
    assert seeded(cast(Any, record)) == count


@pytest.mark.parametrize("excluded", [(5,), (5, 9), (0, 5, 9, 255)])
def test_the_seed_chooses_evenly_among_the_excluded(excluded: tuple[int, ...]) -> None:
    for number in range(2 * len(excluded)):
        seed = Digest(number.to_bytes(32, "big"))
        assert bits(one_of(seed, to_bitmap(excluded))) == [excluded[number % len(excluded)]]
