"""Who is mergeable, named, excluded and merged: sets worked out by hand, and the vectors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.protocol.checks import Check, Gram
from atoll.protocol.merge_inputs import (
    MergeInputs,
    MergeRecord,
    MergeTerms,
    available_seats,
    candidates,
    is_availability_settled,
    is_whole_enough,
    merge_inputs,
)
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.types import Bitmap, SeatIndex, bits, to_bitmap

SEGMENTS = 8


def terms_of(f: int, rule: str = "nnm_trimmed_mean") -> MergeTerms:
    return MergeTerms(SEGMENTS, RobustSpec(rule=rule, f=f, kappa="1.5"))


def record_of(n: int) -> MergeRecord:
    """Everybody did everything, and all of a committee of three have it."""
    everyone = Bitmap((1 << n) - 1)
    done = dict.fromkeys(map(SeatIndex, range(n)), SEGMENTS)
    return MergeRecord(everyone, 3, [everyone] * 3, done)


def merged_of(n: int, gram: Gram | None, terms: MergeTerms, **record: Bitmap) -> MergeInputs:
    grams = [] if gram is None else [gram]
    return merge_inputs(replace(record_of(n), **record), seats(*range(n)), grams, terms)


def seats(*which: int) -> tuple[SeatIndex, ...]:
    return tuple(map(SeatIndex, which))


def alike(n: int) -> list[list[int]]:
    """The Gram matrix of n updates with squared norm 200 and inner products of 100."""
    return [[200 if i == j else 100 for j in range(n)] for i in range(n)]


def with_silent(n: int, *silent: int) -> Gram:
    """As `alike`, where these seats sent zeros: silent, and misaligned."""
    gram = alike(n)
    for seat in silent:
        for other in range(n):
            gram[seat][other] = gram[other][seat] = 0
    return gram


def test_honest_updates_are_all_merged_and_nobody_is_named() -> None:
    found = merged_of(7, alike(7), terms_of(2))
    assert found.mergeable == found.merged == seats(*range(7))
    assert found.named == found.excluded == ()
    assert found.f_prime == 2


def test_who_stands_out_is_excluded_as_far_as_the_rule_can_spare_it() -> None:
    """Leaving out and trimming must not both spend f: the rule keeps its 2f + 1 updates."""
    for n, room in ((5, 0), (6, 1), (7, 2), (8, 2)):
        found = merged_of(n, with_silent(n, 1, 3), terms_of(2))
        assert found.excluded == seats(1, 3)[:room]
        assert found.merged == tuple(s for s in range(n) if s not in found.excluded)
        assert found.f_prime == 2


def test_moments_are_set_aside_as_far_as_the_rule_can_spare_them() -> None:
    """Of what is excluded already the moments are gone, too."""
    apart = alike(8)
    for seat in (1, 3):  # at right angles to everybody's, and no shorter
        for other in range(8):
            apart[seat][other] = apart[other][seat] = 200 if seat == other else 0
    for n, room in ((5, 0), (6, 1), (7, 2), (8, 2)):
        moments = [row[:n] for row in apart[:n]]
        found = merge_inputs(record_of(n), seats(*range(n)), [alike(n), moments], terms_of(2))
        assert (found.excluded, found.momentum_excluded) == ((), seats(1, 3)[:room])
        named = [with_silent(n, 0), moments]
        found = merge_inputs(record_of(n), seats(*range(n)), named, terms_of(2))
        assert len(found.excluded) == min(1, room)
        assert len(found.momentum_excluded) == max(0, n - 6)


@pytest.mark.parametrize("rule", ["krum", "nnm_multi_krum"])
def test_krum_needs_two_more(rule: str) -> None:
    terms = terms_of(2, rule)
    for n, room in ((7, 0), (8, 1), (9, 2)):
        assert len(merged_of(n, with_silent(n, 1, 3), terms).excluded) == room
    assert merged_of(6, alike(6), terms).merged == ()


@pytest.mark.parametrize(("rule", "f", "minimum"), [("median", 2, 5), ("krum", 1, 5)])
def test_below_the_rules_minimum_nothing_is_merged(rule: str, f: int, minimum: int) -> None:
    found = merged_of(minimum, with_silent(minimum, 0), terms_of(f, rule))
    assert (len(found.merged), found.excluded, found.f_prime) == (minimum, (), f)
    found = merged_of(minimum - 1, with_silent(minimum - 1, 0), terms_of(f, rule))
    assert (found.merged, found.excluded, found.f_prime) == ((), (), 0)
    assert found.mergeable == seats(*range(minimum - 1))


@pytest.mark.parametrize("rule", ["mean", "contributor_mean", "krum"])
def test_a_rule_that_bears_nothing_names_nobody_and_merges_one(rule: str) -> None:
    found = merged_of(4, with_silent(4, 1), terms_of(0, rule), accused=Bitmap(0b1111))
    assert (found.named, found.excluded, found.f_prime) == ((), (), 0)
    assert found.merged == seats(0, 1, 2, 3)
    assert merged_of(1, alike(1), terms_of(0, rule)).merged == seats(0)
    assert merged_of(0, alike(0), terms_of(0, rule)).merged == ()


def test_the_accused_go_before_the_named_and_share_their_room() -> None:
    gram = with_silent(9, 1)
    assert merged_of(9, gram, terms_of(2), accused=Bitmap(1 << 7)).excluded == seats(7, 1)
    assert merged_of(9, gram, terms_of(1), accused=Bitmap(1 << 7)).excluded == seats(7)
    both = merged_of(9, gram, terms_of(2), accused=Bitmap(0b111 << 4))
    assert both.excluded == seats(4, 5)
    assert merged_of(9, gram, terms_of(2), accused=Bitmap(0b10)).excluded == seats(1)


def test_fp32_updates_have_no_gram_matrix_and_name_nobody() -> None:
    found = merged_of(5, None, terms_of(0, "mean"))
    assert (found.named, found.excluded, found.merged) == ((), (), seats(*range(5)))


def test_who_is_no_candidate_shifts_no_median() -> None:
    """Fallen, hardly there, or bytes that do not decode: dropped before anything is counted."""
    record = replace(record_of(8), slashed=Bitmap(0b1))
    record = replace(record, segments={**record.segments, SeatIndex(1): 5})
    record = replace(record, votes=[Bitmap(0xFF), Bitmap(0xFB), Bitmap(0xFB)])
    assert candidates(record, terms_of(1)) == seats(3, 4, 5, 6, 7)
    gram = with_silent(8, 0, 1, 2)
    found = merge_inputs(record, seats(*range(8)), [gram, gram], terms_of(1))
    assert (found.mergeable, found.named) == (seats(3, 4, 5, 6, 7), ())
    found = merge_inputs(record, seats(3, 4, 6, 7), [alike(4)], terms_of(1))
    assert found.merged == seats(3, 4, 6, 7)


def test_three_quarters_of_a_round_are_enough() -> None:
    assert [is_whole_enough(done, 8) for done in (5, 6, 8)] == [False, True, True]
    assert [is_whole_enough(done, 5) for done in (3, 4)] == [False, True]
    assert is_whole_enough(1, 1)


@pytest.mark.parametrize(("committee", "enough"), [(1, 1), (2, 2), (3, 2), (4, 3), (32, 17)])
def test_more_than_half_of_the_committee_have_it(committee: int, enough: int) -> None:
    """Also of those who said nothing; what was not revealed nobody can have."""
    votes = [Bitmap(0b11)] * enough
    assert available_seats(votes, committee, Bitmap(0b101)) == 0b1
    assert available_seats(votes[1:], committee, Bitmap(0b101)) == 0


def test_votes_are_over_when_none_can_change_anything() -> None:
    """Three of five: seat 0 has three, seat 1 can have two at most, seat 2 hangs on the next."""
    votes = [Bitmap(0b001), Bitmap(0b001), Bitmap(0b001)]
    assert is_availability_settled(votes, 5, Bitmap(0b011))
    assert is_availability_settled(votes, 5, Bitmap(0))
    assert not is_availability_settled([*votes[:2], Bitmap(0b101)], 5, Bitmap(0b111))
    assert not is_availability_settled(votes[:2], 5, Bitmap(0b001))
    assert is_availability_settled([Bitmap(0)] * 5, 5, Bitmap(0b111))


def test_light_misalignment_costs_nothing() -> None:
    gram = alike(8)
    for product, odd in ((75, ()), (74, seats(5))):
        for other in range(8):
            if other != 5:
                gram[5][other] = gram[other][5] = product
        found = merged_of(8, gram, terms_of(2))
        assert tuple(x.seat for x in found.named) == found.excluded == odd
        assert all(x.check is Check.MISALIGNED for x in found.named)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[MergeRecord, list[SeatIndex], list[Gram], MergeTerms]:
    n = draw(st.integers(0, 9))
    rows = st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=n, max_size=n)
    gram, moments = (
        [[sum(a * b for a, b in zip(x, y, strict=True)) for y in vectors] for x in vectors]
        for vectors in (draw(rows), draw(rows))
    )
    mask = st.integers(0, (1 << n) - 1).map(Bitmap)
    done = {SeatIndex(s): draw(st.sampled_from([8, 8, 8, 6, 3])) for s in range(n)}
    votes = draw(st.lists(mask, max_size=4))
    committee = len(votes) + draw(st.integers(0, 2))
    record = MergeRecord(
        Bitmap((1 << n) - 1), committee, votes, done, slashed=draw(mask), accused=draw(mask)
    )
    rule = draw(st.sampled_from(["mean", "nnm_trimmed_mean", "krum"]))
    f = 0 if rule == "mean" else draw(st.integers(0, 3))
    grams = draw(st.sampled_from([[gram], [gram, moments], []]))
    return record, [SeatIndex(s) for s in range(n)], grams, terms_of(f, rule)


@given(rounds())
def test_the_rule_is_never_left_with_too_few(
    case: tuple[MergeRecord, list[SeatIndex], list[Gram], MergeTerms],
) -> None:
    record, decoded, grams, terms = case
    found = merge_inputs(record, decoded, grams, terms)
    f, extra = terms.robust.f, 2 if terms.robust.rule == "krum" and terms.robust.f else 0
    if found.merged:
        assert len(found.merged) >= 2 * f + 1 + extra
        assert found.f_prime == f
        assert set(found.merged) | set(found.excluded) == set(found.mergeable)
        assert len(found.merged) - len(found.momentum_excluded) >= 2 * f + 1 + extra
    else:
        assert len(found.mergeable) < 2 * f + 1 + extra
    assert not set(found.merged) & set(found.excluded)
    assert len(found.excluded) <= f
    odd = {x.seat for x in found.named} | set(bits(record.accused))
    assert set(found.excluded) <= odd
    assert not to_bitmap(found.mergeable) & record.slashed
    counts = {s: sum(vote >> s & 1 for vote in record.votes) for s in found.mergeable}
    assert all(2 * count > record.committee for count in counts.values())
    assert all(a < b for a, b in pairwise(found.mergeable))
