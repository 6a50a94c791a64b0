"""Who is named, audited in full, left out and merged: sets worked out by hand, and the vectors."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.law.checks import Check, Gram
from atoll.law.manifest import RobustSpec
from atoll.law.merge_inputs import MergeFacts, MergeTerms, candidates, merge_inputs
from atoll.law.words import Bitmap, SeatIndex, to_bitmap

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "merge_inputs.json").read_text())
STEPS = 40


def terms_of(f: int, rule: str = "nnm_trimmed_mean", min_providers: int = 1) -> MergeTerms:
    return MergeTerms(STEPS, min_providers, RobustSpec(rule=rule, f=f, kappa="1.5"))


def facts_of(n: int, caught: int = 0) -> MergeFacts:
    steps = dict.fromkeys(map(SeatIndex, range(n)), STEPS)
    return MergeFacts(Bitmap((1 << n) - 1), Bitmap(0), Bitmap(0), caught, steps)


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
    found = merge_inputs(facts_of(7), seats(*range(7)), alike(7), terms_of(2))
    assert found.available == found.merged == seats(*range(7))
    assert found.named == found.in_full == found.left_out == ()
    assert found.f_prime == 2


def test_who_stands_out_is_left_out_as_far_as_the_rule_can_spare_it() -> None:
    """Leaving out and trimming must not both spend f: the rule keeps its 2f + 1 updates."""
    for n, room in ((5, 0), (6, 1), (7, 2), (8, 2)):
        found = merge_inputs(facts_of(n), seats(*range(n)), with_silent(n, 1, 3), terms_of(2))
        assert found.left_out == seats(1, 3)[:room]
        assert found.in_full == seats(1, 3)
        assert found.merged == tuple(s for s in range(n) if s not in found.left_out)
        assert found.f_prime == min(2, (n - room - 1) // 2)


def test_krum_needs_two_more() -> None:
    for n, room in ((7, 0), (8, 1), (9, 2)):
        terms = terms_of(2, "multi_krum")
        found = merge_inputs(facts_of(n), seats(*range(n)), with_silent(n, 1, 3), terms)
        assert len(found.left_out) == room
        assert found.f_prime == 2
    assert merge_inputs(facts_of(5), seats(*range(5)), alike(5), terms_of(2, "krum")).f_prime == 1
    assert merge_inputs(facts_of(4), seats(*range(4)), alike(4), terms_of(2, "krum")).f_prime == 0


def test_what_was_caught_need_not_be_borne_again() -> None:
    gram = with_silent(6, 1, 3)
    found = merge_inputs(facts_of(6, caught=1), seats(*range(6)), gram, terms_of(2))
    assert (found.left_out, found.f_prime) == (seats(1), 1)
    many = merge_inputs(facts_of(6, caught=9), seats(*range(6)), gram, terms_of(2))
    assert many == found  # one is borne however many were caught


@pytest.mark.parametrize("n", [0, 1, 2])
def test_of_two_updates_or_fewer_each_is_audited_in_full(n: int) -> None:
    found = merge_inputs(facts_of(n), seats(*range(n)), alike(n), terms_of(1))
    assert found.in_full == found.merged == found.available == seats(*range(n))
    assert (found.named, found.left_out, found.f_prime) == ((), (), 0)


def test_updates_that_did_not_come_count_for_the_full_audit_too() -> None:
    """Who reveals three seats and sends two bad files gets no sampled audit of the third."""
    found = merge_inputs(facts_of(4), seats(0, 2), alike(2), terms_of(1))
    assert found.in_full == seats(0, 2)


def test_fp32_updates_have_no_gram_matrix_and_name_nobody() -> None:
    found = merge_inputs(facts_of(5), seats(*range(5)), None, terms_of(1, "mean"))
    assert (found.named, found.left_out, found.f_prime) == ((), (), 1)
    assert found.merged == seats(*range(5))


def test_below_the_minimum_nothing_is_merged_and_the_audit_goes_on() -> None:
    terms = terms_of(1, min_providers=6)
    found = merge_inputs(facts_of(5), seats(*range(5)), with_silent(5, 4), terms)
    assert (found.merged, found.left_out, found.f_prime) == ((), (), 0)
    assert found.in_full == seats(4)


def test_only_who_stands_and_did_all_steps_is_a_candidate() -> None:
    facts = replace(facts_of(6), rejected=Bitmap(0b1), unresolved=Bitmap(0b10))
    facts = replace(facts, steps={**facts.steps, SeatIndex(2): STEPS - 1})
    assert candidates(facts, terms_of(1)) == seats(3, 4, 5)
    gram = with_silent(6, 0, 1, 2)
    assert merge_inputs(facts, seats(*range(6)), gram, terms_of(1)).available == seats(3, 4, 5)


def test_a_light_finding_costs_an_audit_and_no_weight() -> None:
    gram = alike(8)
    for other in range(8):
        if other != 5:
            gram[5][other] = gram[other][5] = 80
    found = merge_inputs(facts_of(8), seats(*range(8)), gram, terms_of(2))
    assert [(named.seat, named.check, named.grave) for named in found.named] == [
        (5, Check.MISALIGNED, False)
    ]
    assert found.in_full == seats(5)
    assert found.left_out == ()
    sparse = terms_of(2, "contributor_mean")
    for alignment, left_out in ((60, ()), (59, seats(5))):
        for other in range(8):
            if other != 5:
                gram[5][other] = gram[other][5] = alignment
        assert merge_inputs(facts_of(8), seats(*range(8)), gram, sparse).left_out == left_out


def test_a_finding_that_costs_weight_is_not_saved_by_a_light_one() -> None:
    found = merge_inputs(facts_of(8), seats(*range(8)), with_silent(8, 2), terms_of(2))
    assert [named.check for named in found.named] == [Check.SILENT, Check.MISALIGNED]
    assert found.left_out == seats(2)


def read_gram(rows: list[list[str]] | None) -> list[list[int]] | None:
    return None if rows is None else [[int(value) for value in row] for row in rows]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_the_vectors(case: dict) -> None:
    facts, terms, expected = case["facts"], case["terms"], case["inputs"]
    steps = {SeatIndex(s): done for s, done in enumerate(facts["steps"]) if done is not None}
    robust = RobustSpec(rule=terms["rule"], f=terms["f"], kappa=terms["kappa"])
    bitmaps = (Bitmap(int(facts[name], 16)) for name in ("revealed", "rejected", "unresolved"))
    found = merge_inputs(
        MergeFacts(*bitmaps, facts["caught"], steps),
        seats(*case["decoded"]),
        read_gram(case["gram"]),
        MergeTerms(terms["steps"], terms["minProviders"], robust),
        read_gram(case["gramOfMoments"]),
    )
    named = [{"check": x.check, "grave": x.grave, "seat": x.seat} for x in found.named]
    assert named == expected["named"]
    assert list(found.available) == expected["available"]
    assert list(found.in_full) == expected["inFull"]
    assert list(found.left_out) == expected["leftOut"]
    assert list(found.merged) == expected["merged"]
    assert found.f_prime == expected["fPrime"]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[MergeFacts, list[SeatIndex], Gram | None, MergeTerms]:
    n = draw(st.integers(0, 9))
    vectors = draw(
        st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=n, max_size=n)
    )
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in vectors] for x in vectors]
    mask = st.integers(0, (1 << n) - 1).map(Bitmap)
    steps = {SeatIndex(s): draw(st.sampled_from([STEPS, STEPS, STEPS, 3])) for s in range(n)}
    facts = MergeFacts(Bitmap((1 << n) - 1), draw(mask), draw(mask), draw(st.integers(0, 4)), steps)
    rule = draw(st.sampled_from(["mean", "nnm_trimmed_mean", "krum", "contributor_mean"]))
    terms = terms_of(draw(st.integers(0, 3)), rule, draw(st.integers(1, 4)))
    return facts, [SeatIndex(s) for s in range(n)], draw(st.sampled_from([gram, None])), terms


@given(rounds())
def test_the_rule_is_never_left_with_too_few(
    case: tuple[MergeFacts, list[SeatIndex], Gram | None, MergeTerms],
) -> None:
    facts, decoded, gram, terms = case
    found = merge_inputs(facts, decoded, gram, terms)
    f, krum = terms.robust.f, terms.robust.base == "krum"
    minimum = 2 * max(f - facts.caught, 1) + (3 if krum else 1)
    assert set(found.merged) | set(found.left_out) <= set(found.available)
    assert not set(found.merged) & set(found.left_out)
    assert len(found.left_out) <= max(f - facts.caught, 1)
    if found.left_out:
        assert len(found.merged) >= minimum
        assert set(found.left_out) <= set(found.in_full)
    assert 2 * found.f_prime < max(1, len(found.merged))
    if krum and len(found.merged) > 2 and found.f_prime:
        assert len(found.merged) >= 2 * found.f_prime + 3
    standing = to_bitmap(found.available)
    assert not standing & (facts.rejected | facts.unresolved)
    assert all(a < b for a, b in pairwise(found.available))
