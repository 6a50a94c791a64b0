"""The judge on a chain without the opcodes that came after Shanghai."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.judge.table import CODE_LIMIT, Table, ganache_table
from tests.judge.trials import positions, refute, survive

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome


@pytest.fixture(scope="module")
def seat() -> Iterator[Table]:
    with ganache_table() as made:
        yield made


@pytest.mark.parametrize("op", [Op.STATE, Op.SWIGLU, Op.CHUNKS], ids=lambda op: op.name)
def test_games_end_as_on_other_chains(seat: Table, op: Op) -> None:
    place = list(positions(op))[4]
    lied = refute(seat, 2 * op, place)
    assert lied is not None
    assert lied.outcome is Outcome.HOLDER_LOST
    assert survive(seat, 2 * op + 1, place).outcome is Outcome.CHALLENGER_LOST


def test_every_contract_has_code_that_fits(seat: Table) -> None:
    sizes = seat.code_sizes()
    assert {n: size for n, size in sizes.items() if not 0 < size <= CODE_LIMIT} == {}
