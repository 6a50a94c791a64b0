"""Games that go on in a token's own trace, and ids that earlier steps of a round sampled."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.support.games import flipped
from tests.unit.protocol.sampling_games import (
    CHAIN,
    COPIES,
    COPY,
    ID_ROOTS,
    IDS,
    PROGRAM,
    SIZE,
    STEP,
    TOKEN,
    TOKEN_NODES,
    TOKEN_PART,
    TOKENS,
    Side,
    context,
    played,
)

from atoll.protocol.games.game_machine import (
    MOST_BYTES,
    MOST_STEP_NODES,
    MOST_TOKEN_NODES,
    MOST_TOKENS_BYTES,
    Game,
    GamePhase,
    IllegalMove,
    Outcome,
)
from atoll.protocol.games.moves import (
    TOKEN_BYTES,
    Move,
    PickToken,
    PostTrace,
    Prove,
)
from atoll.protocol.games.players import NothingDiffers, answered, attack
from atoll.protocol.games.trees import CHUNK, PIECE, piece_tree, root_from, top
from atoll.protocol.program import MalformedProgram, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest

AT = TOKEN * TOKEN_BYTES + 3


def lying(data: bytes) -> bytes:
    """A wrong token, and others behind it."""
    return flipped(60 * PIECE)(flipped(AT)(data))


def wrong_holder(node: int, **token_tampers: Any) -> Side:
    tampers = {int(key[1:]): tamper for key, tamper in token_tampers.items()}
    return Side({node: lying}, {2: flipped(3)} | tampers)


@cache
def lost(node: int) -> list[tuple[Game, Move]]:
    return played(wrong_holder(node), Side())


def picked(node: int) -> tuple[Game, PickToken, Game]:
    """The game in which a token is picked, the move, and the game behind it."""
    moves = lost(node)
    (at,) = (at for at, (_, move) in enumerate(moves) if isinstance(move, PickToken))
    move = moves[at][1]
    assert isinstance(move, PickToken)
    return moves[at][0], move, moves[at + 1][0]


@pytest.mark.parametrize("node", [1, 3])
def test_who_posts_a_wrong_token_loses_in_its_own_trace(node: int) -> None:
    last = lost(node)[-1][0]
    assert last.outcome is Outcome.HOLDER_LOST
    assert (last.part, last.node, last.index) == (TOKEN_PART, 2, 0)
    assert last.outer is not None
    assert (last.outer.node, last.outer.index) == (node, 40)


@pytest.mark.parametrize("node", [1, 3])
def test_who_posts_a_right_token_stands(node: int) -> None:
    last = played(Side(), wrong_holder(node))[-1][0]
    assert (last.outcome, last.node) == (Outcome.CHALLENGER_LOST, 2)


@pytest.mark.parametrize(("node", "token"), [(1, TOKEN), (3, TOKENS + TOKEN)])
def test_both_run_the_token_by_its_number_in_the_steps_batch(node: int, token: int) -> None:
    holder, challenger = wrong_holder(node), Side()
    played(holder, challenger)
    assert set(holder.asked) == set(challenger.asked) == {token}


@pytest.mark.parametrize("node", [1, 3])
def test_the_search_goes_on_in_a_trace_that_ends_with_the_token(node: int) -> None:
    before, move, game = picked(node)
    posted = before.leaf[AT - 3 - 40 * PIECE :][:TOKEN_BYTES]
    assert posted == flipped(3)(bytes(range(TOKEN_BYTES)))
    assert game == replace(
        before,
        clock=game.clock,
        phase=GamePhase.POST_TRACE,
        result=top(piece_tree(posted)),
        generated=top(piece_tree(lying(bytes(range(TOKEN_BYTES)) * TOKENS))),
        token=TOKEN + (node // 2) * TOKENS,
        outer=before,
        part=TOKEN_PART,
        nodes=TOKEN_NODES,
        node=None,
        layers=(),
        tensor_layers=(),
        leaf=b"",
    )
    assert move.token == TOKEN


@pytest.mark.parametrize("at", [0, 3 * PIECE + 5, 39 * PIECE + 1023, 40 * PIECE, 40 * PIECE + 63])
@pytest.mark.parametrize("node", [1, 3])
def test_tokens_before_it_are_those_that_the_holder_posted(node: int, at: int) -> None:
    holder = wrong_holder(node, _0=flipped(at))
    last = played(holder, Side())[-1][0]
    assert (last.outcome, last.node, last.index) == (Outcome.HOLDER_LOST, 0, at // PIECE)
    challenger = Side({node: lying}, {2: flipped(3), 0: flipped(at)})
    last = played(Side(), challenger)[-1][0]
    assert (last.outcome, last.node) == (Outcome.CHALLENGER_LOST, 0)


@pytest.mark.parametrize("word", range(13))
def test_a_tokens_trace_knows_thirteen_words(word: int) -> None:
    tamper = flipped(32 * word + 31)
    last = played(wrong_holder(3, _1=tamper), Side())[-1][0]
    assert (last.outcome, last.node) == (Outcome.HOLDER_LOST, 1)
    challenger = Side({3: lying}, {2: flipped(3), 1: tamper})
    assert played(Side(), challenger)[-1][0].outcome is Outcome.CHALLENGER_LOST


def test_the_thirteenth_word_is_the_tokens_number() -> None:
    assert len(context(5)) == 416
    assert context(5)[:384] == context(6)[:384]
    assert context(5)[384:] == (5).to_bytes(32, "big")


# --- what of a pick is refused ---


def test_a_pick_has_to_be_what_the_holder_posted() -> None:
    game, move, _ = picked(3)
    for wrong, why in (
        (replace(move, header=move.header + b"\0"), "another header"),
        (replace(move, template=move.template + b"\0"), "another template"),
        (replace(move, digest=ZERO_DIGEST), "not of the trace"),
        (replace(move, path=(ZERO_DIGEST, *move.path[1:])), "not of the trace"),
        (replace(move, word=ZERO_DIGEST), "not a word of the leaf"),
        (replace(move, token=move.token + 2), "not a word of the leaf"),
        (replace(move, token=move.token + 64), "not in the leaf"),
        (replace(move, token=40 * 64 - 1), "not in the leaf"),
    ):
        with pytest.raises(IllegalMove, match=why):
            game.play(wrong, False, 1100, COPIES)


def test_a_node_with_a_formula_has_no_tokens_to_pick() -> None:
    game, move, _ = picked(1)
    template = replace(TraceTemplate.from_bytes(game.template), op=COPY).to_bytes()
    there = replace(game, template=template)
    with pytest.raises(IllegalMove, match="has a formula"):
        there.play(replace(move, template=template), False, 1100, COPIES)


@pytest.mark.parametrize("unknown", ["program", "node"])
def test_an_update_samples_nothing(unknown: str) -> None:
    game, move, _ = picked(1)
    with pytest.raises(IllegalMove, match="an update samples nothing"):
        replace(game, **{unknown: None}).play(move, False, 1100, COPIES)


def with_nodes(nodes: int) -> tuple[Game, PickToken]:
    game, move, _ = picked(1)
    path = (ZERO_DIGEST,) * (nodes - 1).bit_length()
    trace = root_from(move.digest, 1, nodes, path)
    return replace(game, nodes=nodes, trace=trace), replace(move, path=path)


def with_size(size: int) -> tuple[Game, PickToken]:
    game, move, _ = picked(1)
    template = replace(TraceTemplate.from_bytes(game.template), size=size).to_bytes()
    return replace(game, template=template), replace(move, template=template)


def with_token_nodes(nodes: int) -> tuple[Game, PickToken]:
    game, move, _ = picked(1)
    return replace(game, program=replace(PROGRAM, generation_nodes=(nodes,))), move


@pytest.mark.parametrize(
    ("there", "most", "why"),
    [
        (with_nodes, MOST_STEP_NODES, "too many nodes of a step"),
        (with_size, MOST_TOKENS_BYTES, "too many bytes of tokens"),
        (with_token_nodes, MOST_TOKEN_NODES, "too many nodes of a token"),
    ],
)
def test_tokens_of_what_is_too_large_are_not_picked(there: Any, most: int, why: str) -> None:
    game, move = there(most)
    assert game.play(move, False, 1100, COPIES).phase is GamePhase.POST_TRACE
    game, move = there(most + 1)
    with pytest.raises(IllegalMove, match=why):
        game.play(move, False, 1100, COPIES)


def test_what_a_nested_game_bears_is_fixed() -> None:
    assert (MOST_STEP_NODES, MOST_TOKENS_BYTES, MOST_TOKEN_NODES) == (2**30, 2**28, 2**24)
    assert MOST_BYTES == 2**40


def test_a_token_is_picked_where_a_proof_is_owed_and_nowhere_else() -> None:
    _, move, _ = picked(1)
    for game, _ in lost(1)[:-1]:
        if game.phase is not GamePhase.PROVE:
            with pytest.raises(IllegalMove, match=r"PickToken in|other side"):
                game.play(move, False, 1100, COPIES)


def test_a_tokens_own_trace_cannot_be_that_of_another_token() -> None:
    """The trace's last node is the token that was posted."""
    _, _, game = picked(1)
    (trace,) = (m for g, m in lost(1) if g.token is not None and isinstance(m, PostTrace))
    with pytest.raises(IllegalMove, match="the layer is of another trace"):
        replace(game, result=Digest(bytes(32))).play(trace, True, 1100, COPIES)


def test_who_computed_the_same_token_picks_none() -> None:
    holder = wrong_holder(1)
    for there in (picked(1)[0], lost(1)[-2][0]):
        with pytest.raises(NothingDiffers):
            answered(attack(there, holder), COPIES)


# --- ids of earlier steps ---


IDS_AT = [0, CHUNK - 4, CHUNK, IDS - 1, IDS, IDS + CHUNK, 2 * IDS - 1]


@pytest.mark.parametrize("at", IDS_AT)
def test_ids_are_opened_in_the_step_that_sampled_them(at: int) -> None:
    moves = played(Side({0: flipped(at)}), Side())
    assert (moves[-1][0].outcome, moves[-1][0].node) == (Outcome.HOLDER_LOST, 0)
    moves = played(Side(), Side({0: flipped(at)}))
    assert moves[-1][0].outcome is Outcome.CHALLENGER_LOST
    game, move = moves[-2]
    assert isinstance(move, Prove)
    (opening,) = move.proof.openings
    for wrong, why in (
        ({"path": ()}, "of another step"),
        ({"path": (*opening.path, ID_ROOTS[0])}, "of another step"),
        ({"path": (*opening.path[:-1], ZERO_DIGEST)}, "of another state"),
        ({"path": (CHAIN[-1], *opening.path[1:])}, "of another state"),
        ({"data": flipped(-1)(opening.data)}, "of another state"),
        ({"siblings": (ZERO_DIGEST,)}, "of another state"),
    ):
        proof = replace(move.proof, openings=(replace(opening, **wrong),))
        with pytest.raises(IllegalMove, match=why):
            game.play(Prove(proof), False, 1100, COPIES)


def test_a_step_that_samples_has_three_numbers_of_a_micro_batch() -> None:
    assert PROGRAM.is_sampled and not replace(PROGRAM, generation_nodes=()).is_sampled
    assert PROGRAM.loss_bytes == 12
    assert SIZE % PIECE != 0 and STEP == 2
    with pytest.raises((IndexError, MalformedProgram)):
        PROGRAM.nodes(TOKEN_PART + 1)
