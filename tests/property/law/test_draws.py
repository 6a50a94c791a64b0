"""Draws: unbiased, complete, and detecting at the rate that the design predicts."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from math import comb, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.law.factories import digest

from atoll.law.draws import DrawStream, batch_offsets
from atoll.law.sampling import (
    AuditPlan,
    assign_seat,
    detection_probability,
    fallback,
    verifier_order,
)
from atoll.law.words import Bitmap, Digest, SeatIndex, bits

SEEDS = st.binary(min_size=32, max_size=32).map(Digest)
SEATS = st.integers(0, 255).map(SeatIndex)
VERIFIERS = st.integers(1, 2**32 - 1).map(Bitmap)


@st.composite
def plans(draw: st.DrawFn) -> AuditPlan:
    leaves = draw(st.integers(1, 64))
    draws = draw(st.integers(1, leaves))
    return AuditPlan(
        leaves=leaves,
        draws=draws,
        overlapped=draw(st.integers(0, draws)),
        auditors=draw(st.integers(1, 32)),
        in_full=draw(st.booleans()),
    )


def chi_squared(counts: Counter[Any], cells: int) -> float:
    expected = counts.total() / cells
    return sum((n - expected) ** 2 for n in counts.values()) / expected + expected * (
        cells - len(counts)
    )


def bound(cells: int) -> float:
    """Six standard deviations above the mean of chi-squared with cells − 1 degrees of freedom."""
    freedom = cells - 1
    return freedom + 6 * sqrt(2 * freedom)


def test_a_shuffle_gives_every_order_the_same_chance() -> None:
    counts = Counter(tuple(DrawStream("test", digest(i)).shuffle(4)) for i in range(12_000))
    assert set(counts) == set(permutations(range(4)))
    assert chi_squared(counts, 24) < bound(24)


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


@given(st.integers(0, 200), SEEDS)
def test_a_shuffle_keeps_every_item(n: int, seed: Digest) -> None:
    assert sorted(DrawStream("test", seed).shuffle(n)) == list(range(n))


@given(SEEDS, SEATS, VERIFIERS)
def test_an_order_is_of_exactly_the_snapshot(seed: Digest, seat: SeatIndex, v: Bitmap) -> None:
    assert sorted(verifier_order(seed, seat, v)) == bits(v)


@given(SEEDS, SEATS, VERIFIERS, plans())
def test_duties_cover_the_drawn_the_last_and_of_full_audits_all(
    seed: Digest, seat: SeatIndex, verifiers: Bitmap, plan: AuditPlan
) -> None:
    duties = assign_seat(seed, seat, verifiers, plan)
    covered = frozenset[int]().union(*(duty.segments for duty in duties.values()))
    assert plan.leaves - 1 in covered
    assert len(duties) == min(plan.auditors, verifiers.bit_count())
    assert sum(duty.link for duty in duties.values()) >= 1
    if plan.in_full:
        assert covered == set(range(plan.leaves))
    else:
        assert plan.draws <= len(covered) <= plan.draws + 1
    shared = sum(len(duty.segments) for duty in duties.values()) - len(covered)
    assert shared == (plan.overlapped if len(duties) > 1 else 0)


@given(SEEDS, SEATS, VERIFIERS, plans(), st.integers(0, 2**32 - 1))
def test_substitutes_take_over_all_and_only_what_the_silent_owe(
    seed: Digest, seat: SeatIndex, verifiers: Bitmap, plan: AuditPlan, balloted: int
) -> None:
    duties = assign_seat(seed, seat, verifiers, plan)
    extra = fallback(seed, seat, verifiers, plan, Bitmap(balloted & verifiers))
    silent = [v for v in duties if not balloted >> v & 1]
    assert not set(extra) & set(silent)
    owed = frozenset[int]().union(*(duties[v].segments for v in silent))
    taken = frozenset[int]().union(*(duty.segments for duty in extra.values()))
    assert taken == (owed if extra else frozenset())
    assert bool(extra) == (bool(silent) and len(silent) < verifiers.bit_count())


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


@pytest.mark.parametrize("skipped", [1, 2, 4])
def test_detection_at_half_coverage_is_what_the_formula_says(skipped: int) -> None:
    """n = 8 segments, c = 2 verifiers, m = 2 draws; the last segment, always replayed, is clean."""
    trials, verifiers = 4_000, Bitmap(0b111)
    plan = AuditPlan(leaves=8, draws=4, overlapped=2, auditors=2)
    bad = set(DrawStream("test", digest(f"bad {skipped}")).shuffle(7)[:skipped])
    found = 0
    for trial in range(trials):
        duties = assign_seat(digest(f"audit {trial}"), SeatIndex(trial % 256), verifiers, plan)
        found += any(duty.segments & bad for duty in duties.values())
    p = float(detection_probability(8, 4, skipped))
    assert p == pytest.approx(1 - comb(8 - skipped, 4) / comb(8, 4))
    assert abs(found - trials * p) <= 5 * sqrt(trials * p * (1 - p)) + 1


def test_over_rounds_one_poisoned_segment_is_found_as_often_as_the_design_says() -> None:
    """n = 32, m = c = 2: an eighth of the time in a round, 95 % after 23."""
    plan = AuditPlan(leaves=32, draws=4, overlapped=2, auditors=2)
    jobs, rounds, found = 600, 23, 0
    for job in range(jobs):
        seeds = (digest(f"{job} {round_}") for round_ in range(rounds))
        found += any(
            any(
                5 in duty.segments
                for duty in assign_seat(s, SeatIndex(0), Bitmap(7), plan).values()
            )
            for s in seeds
        )
    p = 1 - (1 - 4 / 32) ** rounds
    assert p == pytest.approx(0.953, abs=0.001)
    assert abs(found - jobs * p) <= 5 * sqrt(jobs * p * (1 - p)) + 1
