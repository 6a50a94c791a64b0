"""Draws: unbiased, complete, and of exactly those that there are."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.identities import digest

from atoll.protocol.audit_rates import ALWAYS, RATES
from atoll.protocol.committee_draws import auditors_of, draw_audits, draw_committee, draw_duties
from atoll.protocol.draws import DrawStream, batch_offsets
from atoll.protocol.types import (
    NO_BITS,
    Bitmap,
    Digest,
    SeatIndex,
    SlotIndex,
    bits,
    to_bitmap,
)

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


@given(SEEDS, SLOTS, SLOTS, st.integers(0, 15), st.integers(0, 300))
def test_who_is_drawn_revealed_and_of_the_excluded_one_is(
    seed: Digest, revealed: Bitmap, out: Bitmap, rate: int, left: int
) -> None:
    excluded = Bitmap(out & revealed)
    drawn = draw_audits(seed, revealed, excluded, rate=rate, left=left)
    assert drawn & ~revealed == 0
    assert bool(drawn & excluded) or not excluded
    assert drawn.bit_count() <= left + bool(excluded)
    if rate == 0 and left >= 256:
        assert drawn == revealed


@given(SEEDS, SLOTS, SLOTS)
def test_every_drawn_seat_has_its_auditor(seed: Digest, drawn: Bitmap, ready: Bitmap) -> None:
    drawn, ready = Bitmap(drawn & 0xFF), Bitmap(ready & 0xFFFF | 1)
    slots, count = ready.bit_count(), drawn.bit_count()
    duties, auditors = draw_duties(seed, drawn, ready), auditors_of(seed, drawn, ready)
    assert {seat: slot for slot, seats in duties.items() for seat in seats} == auditors
    assert sum(map(len, duties.values())) == count
    # Nobody has two before everybody has one.
    counts = [len(duties.get(SlotIndex(slot), ())) for slot in bits(ready)]
    assert max(counts) == -(-count // slots)
    assert max(counts) - min(counts) <= 1
    assert to_bitmap(duties) & ~ready == 0
    assert all(list(seats) == sorted(seats) for seats in duties.values())


def test_every_slot_audits_as_often_as_any_other() -> None:
    pool = Bitmap(0b1101_1010)
    drawn = (auditors_of(digest(f"audit {i}"), Bitmap(0b100), pool) for i in range(6_000))
    counts = Counter(auditors[SeatIndex(2)] for auditors in drawn)
    assert set(counts) == {1, 3, 4, 6, 7}
    assert chi_squared(counts, 5) < bound(5)


@pytest.mark.parametrize("rate", [1, 4, 8])
def test_a_seat_is_drawn_as_often_as_its_rate_says(rate: int) -> None:
    seats, times = Bitmap(0xFFFF_FFFF), 400
    drawn = sum(
        draw_audits(digest(f"rate {i}"), seats, NO_BITS, rate=rate, left=256).bit_count()
        for i in range(times)
    )
    chance, trials = RATES[rate] / ALWAYS, 32 * times
    assert abs(drawn - trials * chance) < 5 * sqrt(trials * chance * (1 - chance))
