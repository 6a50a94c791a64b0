"""Draws: unbiased, complete, and of exactly those that there are."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.identities import digest

from atoll.protocol.committee_draws import (
    audited_share,
    auditors_of,
    draw_committee,
    draw_duties,
    draw_seats,
)
from atoll.protocol.draws import DrawStream, batch_offsets
from atoll.protocol.types import Bitmap, Digest, SeatIndex, SlotIndex, bits, to_bitmap

SEEDS = st.binary(min_size=32, max_size=32).map(Digest)
SEATS = st.integers(0, 255).map(SeatIndex)
SLOTS = st.integers(1, 2**256 - 1).map(Bitmap)


def chi_squared(counts: Counter[Any], cells: int) -> float:
    expected = counts.total() / cells
    return sum((n - expected) ** 2 for n in counts.values()) / expected + expected * (
        cells - len(counts)
    )


def bound(cells: int) -> float:
    """Six standard deviations above the mean of chi-squared with cells − 1 degrees of freedom."""
    freedom = cells - 1
    return freedom + 6 * sqrt(2 * freedom)


@pytest.mark.parametrize("n", [2, 3, 7, 10, 64])
def test_draws_below_n_are_uniform(n: int) -> None:
    stream = DrawStream("test", digest("uniform"))
    counts = Counter(stream.draw(n) for _ in range(20_000))
    assert chi_squared(counts, n) < bound(n)


def test_a_range_just_above_half_of_all_words_is_not_biased() -> None:
    n = (1 << 63) + 1
    stream = DrawStream("test", digest("large"))
    draws = [stream.draw(n) for _ in range(4_000)]
    low = sum(value < n // 2 for value in draws)
    assert abs(low - 2_000) < 6 * sqrt(1_000)


@given(st.integers(1, 2**64 - 1), SEEDS)
def test_every_draw_is_below_n(n: int, seed: Digest) -> None:
    stream = DrawStream("test", seed)
    assert all(0 <= stream.draw(n) < n for _ in range(5))


@pytest.mark.parametrize("n", [0, -1, 1 << 64])
def test_what_cannot_be_drawn_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        DrawStream("test", b"").draw(n)


@given(SEEDS, SEATS, st.integers(0, 2**32 - 1), st.integers(1, 64), st.integers(1, 2**62))
def test_batches_lie_within_the_data(
    seed: Digest, seat: SeatIndex, step: int, batch: int, limit: int
) -> None:
    offsets = batch_offsets(seed, seat, step, batch, limit)
    assert len(offsets) == batch
    assert all(0 <= offset < limit for offset in offsets)


def test_batches_of_other_steps_and_seats_differ() -> None:
    seed = digest("data")
    drawn = {
        tuple(batch_offsets(seed, SeatIndex(seat), step, 8, 10**9))
        for seat in range(8)
        for step in range(50)
    }
    assert len(drawn) == 400


@given(SEEDS, SLOTS)
def test_a_committee_is_of_the_pool_and_of_32_at_most(seed: Digest, pool: Bitmap) -> None:
    committee = to_bitmap(draw_committee(seed, pool))
    assert committee & ~pool == 0
    assert committee.bit_count() == min(32, pool.bit_count())


@given(SEEDS, SLOTS, SLOTS, SLOTS, st.integers(1, 10_000))
def test_who_is_drawn_revealed_and_who_was_excluded_is(
    seed: Digest, revealed: Bitmap, ready: Bitmap, out: Bitmap, share: int
) -> None:
    excluded = Bitmap(out & revealed)
    count = audited_share(revealed.bit_count(), share, ready.bit_count())
    half = -(-ready.bit_count() // 2)
    assert count == max(1, min(-(-share * revealed.bit_count() // 10_000), half))
    drawn = draw_seats(seed, revealed, excluded, count)
    assert to_bitmap(drawn) & ~revealed == 0
    assert excluded & ~to_bitmap(drawn) == 0
    assert min(count, revealed.bit_count()) <= len(drawn) <= count + excluded.bit_count()
    # So an auditor has no more than its part of the share and of who was excluded.
    assert len(set(drawn.values())) == len(drawn)
    assert max(drawn.values(), default=0) < count + excluded.bit_count()


@given(SEEDS, SLOTS, SLOTS, st.booleans())
def test_every_drawn_seat_has_its_auditors(
    seed: Digest, drawn: Bitmap, ready: Bitmap, is_last: bool
) -> None:
    drawn, ready = Bitmap(drawn & 0xFF), Bitmap(ready & 0xFFFF | 1)
    slots, count = ready.bit_count(), drawn.bit_count()
    standing = draw_seats(seed, drawn, Bitmap(0), count)
    duties = draw_duties(seed, standing, ready, is_last=is_last)
    each = min(2 if is_last else 1, slots)
    for seat in map(SeatIndex, bits(drawn)):
        own = {slot for slot, seats in duties.items() if seat in seats}
        assert own == set(auditors_of(seed, standing[seat], ready, is_last=is_last))
        assert len(own) == each
    # Nobody has more than one more than anybody else, in the last round than two.
    least = min((len(duties.get(SlotIndex(slot), ())) for slot in bits(ready)), default=0)
    assert max(map(len, duties.values()), default=0) <= least + each
    assert max(map(len, duties.values()), default=0) <= each * -(-count // slots)
    assert to_bitmap(duties) & ~ready == 0
    assert all(list(seats) == sorted(seats) for seats in duties.values())


def test_every_slot_audits_as_often_as_any_other() -> None:
    counts = Counter(
        auditors_of(digest(f"audit {i}"), i % 256, Bitmap(0b1101_1010))[0] for i in range(6_000)
    )
    assert set(counts) == {1, 3, 4, 6, 7}
    assert chi_squared(counts, 5) < bound(5)
