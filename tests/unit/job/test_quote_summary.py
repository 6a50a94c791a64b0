"""The first lines of `atoll job check`, by numbers that are multiplied out here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs import PLAIN
from tests.unit.job.plans import PACE
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.job.compute_prices import rented_flop_price, token_operations, token_price
from atoll.job.draft import Draft
from atoll.job.quote import quote
from atoll.job.quote_summary import (
    million_wei,
    rented_million_wei,
    summary,
    trained_tokens,
    training_share,
    verification_share,
)

DRAFT = Draft("key", PLAIN, PLAIN.resolve(DATA, None, NUMERICS, NOW), (), PACE)


def test_tokens_are_counted_each_time_and_the_price_is_of_a_million_of_them() -> None:
    manifest, look = DRAFT.manifest, quote(DRAFT, PACE, fee_cap=1)
    terms = manifest.terms
    count = 4 * terms.seats * 40 * 8 * manifest.model.seq
    assert trained_tokens(terms) == count
    assert look.training_wei == count * 10**12  # at a millionth of a token
    assert million_wei(terms, look) == look.budget_wei * 10**6 // count
    spent = look.training_wei + look.verification_wei
    assert training_share(look) * spent == look.training_wei
    assert verification_share(look) * look.training_wei == look.verification_wei
    assert 0 < look.verification_wei < look.fees_wei  # the rest comes back
    operations = token_operations(manifest.model, None) * 10**6
    rented = token_price(operations, rented_flop_price())
    assert rented_million_wei(terms, look) == pytest.approx(rented, rel=1e-6)
    assert million_wei(terms, look) > 10**18  # training alone is one token a million


def test_few_lines_have_what_is_asked_first_and_every_warning() -> None:
    look = quote(DRAFT, PACE, fee_cap=1)
    calm, noted = replace(look, warnings=()), replace(look, warnings=("half is unknown", "late"))
    lines = summary(DRAFT, calm).splitlines()
    starts = ["job", "data", "price", "a million", "training", "time", "--explain"]
    assert [line[:10].split("  ")[0].strip() for line in lines[:6]] == starts[:6]
    assert lines[6].startswith(starts[6])
    assert len(lines) == 7
    text = summary(DRAFT, noted)
    assert "\nwarning: half is unknown\nwarning: late\n" in text
    assert len(text.splitlines()) == 9


def test_what_a_lie_costs_is_said_where_it_costs_something() -> None:
    look = quote(DRAFT, PACE, fee_cap=1)
    terms = DRAFT.manifest.terms
    assert look.loses_wei == terms.segments * terms.segment_pay + terms.provider_bond
    # A half of the rounds is replayed, and two thirds of the auditors speak.
    assert look.lasts_rounds == 3
    assert "lasts 3 rounds and loses 100.02" in summary(DRAFT, look)
    assert "one lie pays from a gain of" in summary(DRAFT, look)
    assert "one lie pays" not in summary(DRAFT, replace(look, deterred_wei=-1))
