"""The judge's bars at the size of a billion parameters: its dearest moves, and a whole game."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.judge.costs import (
    MOST,
    MOST_OF_A_GAME,
    MOST_TRANSACTIONS,
    VARIANTS,
    dearest,
    demo_game,
    large_game,
    world_of,
)
from tests.judge.table import Bill, Table, table
from tests.judge.vast import World

from atoll.bits.tape.opcodes import Op

TEMPLATES = 1
"""Of each operation that are tried; bench/judge.py tries more, and variants of the job."""


@pytest.fixture(scope="module")
def world() -> World:
    return world_of("llama-1b")


@pytest.fixture(scope="module")
def seat() -> Iterator[Table]:
    with table("SetGame") as made:
        yield made


def test_every_proof_fits(seat: Table, world: World) -> None:
    costs: dict[str, int] = {}
    for each in (world, world_of("llama-1b", "dct, fed back")):
        ops = [op for op in Op if op.name not in costs]
        found = {op: dearest(seat, each, op, TEMPLATES) for op in ops}
        costs |= {op.name: cost.gas for op, cost in found.items() if cost is not None}
    assert len(costs) > len(Op) * 3 // 4
    assert {"DCT", "INVERSE_DCT", "LEFT_FINE"} < costs.keys()
    assert {name: gas for name, gas in costs.items() if gas > MOST} == {}
    assert max(costs.values()) > MOST // 2


def test_what_the_preset_does_not_have_some_variant_does() -> None:
    used = {
        Op(template.op)
        for variant in VARIANTS
        for template in world_of("demo", variant).program.templates
    }
    assert {Op.SUM_I32, Op.ADD_BEFORE, Op.COPY} >= set(Op) - used  # the demo is too small for these


def test_whole_games_fit(seat: Table, world: World) -> None:
    for bill in (large_game(seat, 1, world), demo_game(seat, 2)):
        assert isinstance(bill, Bill)
        assert bill.transactions <= MOST_TRANSACTIONS
        assert bill.provider + bill.challenger <= MOST_OF_A_GAME
        assert bill.dearest <= MOST
