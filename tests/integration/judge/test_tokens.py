"""Games that go on in a token's own trace, on a chain: what of `pickToken` is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.judge.playing import NOW, Turn
from tests.judge.table import Refused, Table, table
from tests.judge.trials import positions, refute, survive

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.game_machine import IllegalMove, Outcome
from atoll.protocol.games.moves import Move, PickToken, Proof, Prove
from atoll.protocol.types import ZERO_DIGEST


@pytest.fixture(scope="module")
def judges() -> Iterator[Table]:
    with table() as made:
        yield made


def wrong(move: PickToken) -> list[Move]:
    """What a challenger might show in its place."""
    roots = StateRoots(*[ZERO_DIGEST] * 4)
    proof = Proof(4 * move.token, move.word, move.word_path, roots, move.header, move.template, ())
    return [
        replace(move, header=move.header + b"\0"),
        replace(move, template=move.template + b"\0"),
        replace(move, token=move.token + 64),
        replace(move, word=ZERO_DIGEST),
        replace(move, digest=ZERO_DIGEST),
        replace(move, path=move.path[1:]),
        Prove(proof),
    ]


@pytest.mark.parametrize("is_honest", [False, True])
def test_only_a_token_that_the_holder_posted_is_picked(judges: Table, is_honest: bool) -> None:
    """The chain refuses what the pure machine refuses."""
    tries = []

    def before(turn: Turn) -> None:
        if not isinstance(turn.move, PickToken):
            return
        for move in wrong(turn.move):
            tries.append(move)
            with pytest.raises(Refused):
                turn.tried(judges, move)
            with pytest.raises(IllegalMove):
                turn.game.play(move, False, NOW, judges.operations)

    place = next(positions(Op.SAMPLE))
    play = survive if is_honest else refute
    played = play(judges, 1 + is_honest, place, before)
    assert len(tries) == 7
    assert played is not None
    assert played.outcome is (Outcome.CHALLENGER_LOST if is_honest else Outcome.HOLDER_LOST)
