"""The judge's bars at the size of a billion parameters: its dearest moves, and a whole game."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.judge.costs import (
    MOST,
    MOST_OF_A_GAME,
    MOST_OF_A_PICK,
    MOST_TRANSACTIONS,
    VARIANTS,
    dearest,
    demo_game,
    large_game,
    world_of,
)
from tests.judge.table import Bill, Table, table
from tests.judge.vast import World
from tests.judge.vast_tokens import pick_gas

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.program import Part

TEMPLATES = 1
"""Of each operation that are tried; bench/judge.py tries more, and variants of the job."""
UPDATE_PROOFS, ROLLOUTS = 6, 7
"""The families of an update's operations, and of what is sampled."""


@pytest.fixture(scope="module")
def world() -> World:
    return world_of("llama-1b")


@pytest.fixture(scope="module")
def seat() -> Iterator[Table]:
    with table("SetGame") as made:
        yield made


def costs_of(seat: Table, world: World, ops: Iterable[Op]) -> dict[str, int]:
    found = {op: dearest(seat, world, op, TEMPLATES) for op in ops}
    return {op.name: cost.gas for op, cost in found.items() if cost is not None}


def test_every_proof_fits(seat: Table, world: World) -> None:
    costs = costs_of(seat, world, Op)
    assert len(costs) > sum(op.family != ROLLOUTS for op in Op) * 7 // 10
    assert {name: gas for name, gas in costs.items() if gas > MOST} == {}
    assert max(costs.values()) > MOST // 2


@pytest.mark.parametrize(
    ("codec", "own"), [("sparse", {"RESIDUAL"}), ("dct", {"DCT", "INVERSE_DCT", "RESIDUAL_FINE"})]
)
def test_every_proof_about_a_sparse_update_fits(seat: Table, codec: str, own: set[str]) -> None:
    """Of which a rank is the dearest: a quarter of a chunk is opened beside the value itself."""
    world = world_of("llama-1b", f"{codec}, fed back")
    costs = costs_of(seat, world, (op for op in Op if op.family == UPDATE_PROOFS))
    assert own | {"KEPT", "CHOSEN", "LOWER_BITS", "COUNTS", "SPREAD"} < set(costs)
    assert MOST // 2 < max(costs.values()) == costs["COUNT_BEFORE"] <= MOST


def test_every_proof_about_rewards_fits(seat: Table) -> None:
    """Of what a step's own trace has."""
    world = world_of("gpt2-small", "rewards")
    step = {template.op for template in world.program.templates if template.part == Part.STEP}
    sampled = {Op.SAMPLED_DIGEST, Op.SAMPLED_RESULT, Op.POLICY_DLOGITS}
    sampled |= {op for op in Op if op.family == ROLLOUTS} & step - {Op.GENERATED}
    costs = costs_of(seat, world, sorted(sampled))
    assert len(costs) == len(sampled) == 11
    assert {name: gas for name, gas in costs.items() if gas > MOST} == {}


def test_a_token_is_picked_and_proved_within_the_bar(seat: Table) -> None:
    """Of a billion parameters, in the last micro-batch's last sequence."""
    world = world_of("llama-1b", "rewards")
    part = world.program.header.generation_part(Part.STEP)
    own = {template.op for template in world.program.templates if template.part == part}
    costs = costs_of(seat, world, sorted(op for op in Op if op.family == ROLLOUTS and op in own))
    assert set(costs) == {"PROMPT", "SEQUENCE", "ROW", "DRAWN", "SAMPLE", "TOKEN"}
    assert MOST // 2 < max(costs.values()) == costs["SAMPLE"] <= MOST
    assert MOST_OF_A_PICK * 3 // 4 < pick_gas(seat, world) <= MOST_OF_A_PICK


def test_what_the_preset_does_not_have_some_variant_does() -> None:
    used = {
        Op(template.op)
        for variant in VARIANTS
        for template in world_of("demo", variant).program.templates
    }
    assert {Op.SUM_I32, Op.ADD_BEFORE, Op.COPY} >= set(Op) - used  # the demo is too small for these


def test_a_game_that_is_set_makes_no_challenge_dearer(seat: Table, world: World) -> None:
    with seat.undone():
        assert costs_of(seat, world, [Op.DOT_I8])
        demo_game(seat, 3)


def test_whole_games_fit(seat: Table, world: World) -> None:
    for bill in (large_game(seat, 1, world), demo_game(seat, 2)):
        assert isinstance(bill, Bill)
        assert bill.transactions <= MOST_TRANSACTIONS
        assert bill.provider + bill.challenger <= MOST_OF_A_GAME
        assert bill.dearest <= MOST
