"""A chain that stops before any move of a game, for less than an allowance, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.judge.playing import Before, Played, Turn
from tests.judge.table import Refused, Table, table
from tests.judge.trials import Position, positions, refute, survive

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome

ALLOWANCE = 10_000
"""Of either side at this table, seconds; a move has a hundred more."""
PLACE = next(positions(Op.DOT_F32, "plain"))
NUMBERS = count(1)
Game = Callable[[Table, int, Position, Before | None], Played | None]


@pytest.fixture(scope="module")
def judges() -> Iterator[Table]:
    with table() as made:
        yield made


def stopping(judges: Table, at: int, seconds: int) -> tuple[Before, list[Turn]]:
    """A chain that stops once, before this move; the moves that came."""
    turns = list[Turn]()

    def before(turn: Turn) -> None:
        if len(turns) == at:
            judges.node.ask("evm_increaseTime", seconds)
        turns.append(turn)

    return before, turns


@pytest.mark.parametrize("seconds", [40 * 60, 2 * 3_600])
@pytest.mark.parametrize(
    ("game", "outcome"), [(refute, Outcome.HOLDER_LOST), (survive, Outcome.CHALLENGER_LOST)]
)
def test_who_is_right_wins_whenever_the_chain_stops(
    judges: Table, game: Game, outcome: Outcome, seconds: int
) -> None:
    before, turns = stopping(judges, -1, seconds)
    assert game(judges, next(NUMBERS), PLACE, before) is not None
    assert len(turns) > 5  # and a stop before each of them is tried
    for at in range(len(turns)):
        before, _ = stopping(judges, at, seconds)
        played = game(judges, next(NUMBERS), PLACE, before)
        assert played is not None and played.outcome is outcome


@pytest.mark.parametrize("game", [refute, survive])
def test_a_chain_that_stops_for_longer_than_an_allowance_decides_a_game(
    judges: Table, game: Game
) -> None:
    """What `minPunishable` is a floor of: so nobody may take a network's for less than it is."""
    before, _ = stopping(judges, 1, ALLOWANCE + 101)
    with pytest.raises(Refused):
        game(judges, next(NUMBERS), PLACE, before)
