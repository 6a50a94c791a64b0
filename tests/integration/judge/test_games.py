"""Whole games on a chain about real steps: whoever is wrong loses, whatever is in dispute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.judge.costs import MOST
from tests.judge.table import CODE_LIMIT, Table, table
from tests.judge.trials import lies, positions, refute, survive

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome

SEED = 14
NUMBERS = iter(range(1, 1 << 30))
"""Of games: each is about a set of its own."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Table]:
    with table() as made:
        yield made


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_a_wrong_bit_is_refuted_and_a_right_one_is_not(judges: Table, op: Op) -> None:
    """At one of the nine positions of `places`; `bench/judge.py --parts trials` plays all."""
    wrong, right = list(lies(op)), list(positions(op))
    rng = np.random.default_rng((SEED, op))
    played = refute(judges, next(NUMBERS), wrong[rng.integers(len(wrong))])
    assert played is not None
    assert played.outcome is Outcome.HOLDER_LOST
    assert played.proof_gas <= MOST
    if op % 3 == SEED % 3:
        survived = survive(judges, next(NUMBERS), right[rng.integers(len(right))])
        assert survived.outcome is Outcome.CHALLENGER_LOST


def test_a_wrong_bit_is_refuted_where_a_link_reads_the_context(judges: Table) -> None:
    for place in list(positions(Op.CODES, "update proof of two_bit"))[:2]:
        played = refute(judges, next(NUMBERS), place)
        assert played is not None
        assert played.outcome is Outcome.HOLDER_LOST


@pytest.mark.parametrize("op", [Op.COPY, Op.ADD], ids=lambda op: op.name)
def test_a_wrong_bit_is_refuted_in_the_sums_of_lanes(judges: Table, op: Op) -> None:
    """The last COPY begins the last lane, in a template whose nodes are lanes apart; the last ADD
    adds its sum to those before.
    """
    *_, place = positions(op, "lanes")
    played = refute(judges, next(NUMBERS), place)
    assert played is not None
    assert played.outcome is Outcome.HOLDER_LOST
    assert survive(judges, next(NUMBERS), place).outcome is Outcome.CHALLENGER_LOST


def test_contracts_fit_a_chain(judges: Table) -> None:
    assert {n: size for n, size in judges.code_sizes().items() if size > CODE_LIMIT} == {}
