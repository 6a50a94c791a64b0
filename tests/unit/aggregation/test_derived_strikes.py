"""What does not follow in a statement is seen, and a true one's all follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.aggregation.test_stated_merge import ROUNDED, STATED, Round, round_of

from atoll.aggregation.derived_strikes import are_exponents, are_groups
from atoll.protocol.merge_statement import MergeStatement, SectionStatement
from atoll.protocol.types import ZERO_DIGEST, Bitmap


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("rule", STATED)
def test_all_of_a_true_statement_follows(kind: str, rule: str) -> None:
    round = round_of(kind, rule)
    assert groups(round, round.statement)
    assert exponents(round, round.statement)


@pytest.mark.parametrize("number", [4, 5])
def test_all_follows_where_a_fragment_is_sent(number: int) -> None:
    round = round_of("grid8", "nnm_median", fragments=2, whole=True)
    model = replace(round.model, round=number)
    round = Round(round.manifest, model)
    assert groups(round, round.statement)
    assert exponents(round, round.statement)
    assert len(round.statement.delta.exponents) < len(model.exponents)


def groups(round: Round, statement: MergeStatement) -> bool:
    return are_groups(statement, round.layout.updates, round.manifest)


def exponents(round: Round, statement: MergeStatement) -> bool:
    return are_exponents(statement, round.model, round.manifest)


def test_no_other_group_follows() -> None:
    round = round_of("grid8", "nnm_trimmed_mean")
    for name in ("delta", "first"):
        section: SectionStatement = getattr(round.statement, name)
        for row in range(len(section.groups)):
            for one in range(7):
                for other in range(one, 7):
                    changed = list(section.groups)
                    changed[row] = Bitmap(changed[row] ^ (1 << one | 1 << other))
                    lie = replace(section, groups=tuple(changed))
                    assert not groups(round, replace(round.statement, **{name: lie}))


Lie = Callable[[SectionStatement], SectionStatement]
PRODUCTS: dict[str, Lie] = {
    "a negative square": lambda it: replace(it, gram=changed(it, 0, 0, -1)),
    "more than values can have": lambda it: replace(it, gram=changed(it, 3, 3, 1 << 62)),
    "an impossible angle": lambda it: replace(it, gram=changed(it, 2, 1, it.gram[2][2] << 8)),
}


def changed(section: SectionStatement, i: int, j: int, value: int) -> list[list[int]]:
    gram = [list(row) for row in section.gram]
    gram[i][j] = gram[j][i] = value
    return gram


@pytest.mark.parametrize("lie", PRODUCTS)
def test_products_that_no_vectors_have(lie: str) -> None:
    round = round_of("grid8", "median")
    wrong = PRODUCTS[lie](round.statement.delta)
    assert not groups(round, replace(round.statement, delta=wrong))


def test_no_other_exponent_follows() -> None:
    round = round_of("grid4", "median")
    for name in ("delta", "first"):
        section: SectionStatement = getattr(round.statement, name)
        for at in range(len(section.exponents)):
            moved = list(section.exponents)
            moved[at] += 1
            lie = replace(section, exponents=tuple(moved))
            assert not exponents(round, replace(round.statement, **{name: lie}))
        votes = ((-5, *section.votes[0][1:]), *section.votes[1:])
        assert not exponents(
            round, replace(round.statement, **{name: replace(section, votes=votes)})
        )
    parts = round.statement.parts
    other = (*parts[:2], ZERO_DIGEST, *parts[3:])
    assert not exponents(round, replace(round.statement, parts=other))
