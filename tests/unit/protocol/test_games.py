"""Games from both sides: every position can be the wrong one, and every move has one right form."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.support.games import Job, Party, flipped, played
from tests.support.large_games import LARGE_NODES, LargeParty
from tests.support.toys import TOY
from tests.unit.protocol.small_games import JOB, opened, wrong_at
from tests.vectors import generate_games

from atoll.protocol.games.game_machine import Game, GamePhase, IllegalMove, Outcome
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import (
    Move,
    PostUpdateProof,
)
from atoll.protocol.games.players import NothingDiffers, _part, answered, attack, defend
from atoll.protocol.games.trees import CHUNK, PIECE
from atoll.protocol.hashing import keccak256
from atoll.protocol.program import Input, Source

VECTORS = Path(__file__).parents[2] / "vectors"
LAST = JOB.header.step_nodes - 1


def positions() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for node in range(LAST + 1):
        template = JOB.templates[JOB.template_of(JOB.templates[0].part, node)]
        elements = {0, template.size // template.width // 2, template.size // template.width - 1}
        found += [(node, element * template.width) for element in sorted(elements)]
    return found


@pytest.mark.parametrize(("node", "position"), positions())
def test_a_wrong_bit_at_the_first_a_middle_and_the_last_element_of_a_node_loses(
    node: int, position: int
) -> None:
    holder, challenger = wrong_at(node, position)
    moves = played(holder, challenger, holder.claim)
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST
    assert moves[-1][2].node == node


@pytest.mark.parametrize(("node", "position"), positions())
def test_a_right_holder_stands_wherever_a_challenger_says_otherwise(
    node: int, position: int
) -> None:
    wrong, right = wrong_at(node, position)
    claim = right.claimed
    moves = played(Party(JOB, claim), wrong, claim)
    assert moves[-1][2].outcome == Outcome.CHALLENGER_LOST


@pytest.mark.parametrize("step", [0, 1])
def test_the_first_wrong_step_is_the_one_that_is_picked(step: int) -> None:
    holder, challenger = wrong_at(9, 0, step)
    last = played(holder, challenger, holder.claim)[-1][2]
    assert last.step == JOB.shape.segment + step  # of the claim's segment 1
    assert last.outcome == Outcome.HOLDER_LOST


@pytest.mark.parametrize("node", range(JOB.header.update_proof_nodes))
def test_a_wrong_update_proof_loses_at_every_node(node: int) -> None:
    base = JOB.claim(is_update_proof=True)
    tampers = {0: {node: flipped(5), JOB.header.update_proof_nodes - 1: flipped(-1)}}
    claim = Party(JOB, base, tampers).claimed
    moves = played(Party(JOB, claim, tampers), Party(JOB, claim), claim)
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST
    right = Party(JOB, base).claimed
    moves = played(Party(JOB, right), Party(JOB, right, tampers), right)
    assert moves[-1][2].outcome == Outcome.CHALLENGER_LOST


@pytest.mark.parametrize("word", range(12))
def test_a_wrong_update_proof_loses_at_every_word_of_its_context(word: int) -> None:
    job = Job(replace(JOB.shape, dithered=True))
    base = job.claim(is_update_proof=True)
    tampers = {0: {2: flipped(32 * word + 31), job.header.update_proof_nodes - 1: flipped(-1)}}
    claim = Party(job, base, tampers).claimed
    last = played(Party(job, claim, tampers), Party(job, claim), claim)[-1][2]
    assert (last.node, last.outcome) == (2, Outcome.HOLDER_LOST)


def test_the_link_of_a_seat_that_ended_early_follows_from_its_own_last_segment() -> None:
    base = JOB.claim(is_update_proof=True, segment=0)
    tampers = {0: {2: flipped(700), JOB.header.update_proof_nodes - 1: flipped(-1)}}
    right, wrong = Party(JOB, base).claimed, Party(JOB, base, tampers).claimed
    moves = played(Party(JOB, right), Party(JOB, right, tampers), right)
    assert moves[0][2].step == JOB.shape.segment < JOB.header.steps
    assert moves[-1][2].outcome == Outcome.CHALLENGER_LOST
    moves = played(Party(JOB, wrong, tampers), Party(JOB, wrong), wrong)
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST
    late = replace(right, segment=JOB.shape.segments)
    game = Game.begin(late, 0)
    with pytest.raises(IllegalMove, match="no such segment"):
        game.play(defend(game, Party(JOB, late)), True, 1, TOY)


def test_a_right_trace_of_another_update_cannot_be_posted() -> None:
    claim = replace(
        Party(JOB, JOB.claim(is_update_proof=True)).claimed, update_root=keccak256(b"other")
    )
    game = Game.begin(claim, 0)
    with pytest.raises(IllegalMove, match="another update"):
        game.play(defend(game, Party(JOB, claim)), True, 1, TOY)


def test_a_link_cannot_be_posted_from_roots_of_another_state() -> None:
    claim = Party(JOB, JOB.claim(is_update_proof=True)).claimed
    game = Game.begin(claim, 0)
    move = defend(game, Party(JOB, claim))
    assert isinstance(move, PostUpdateProof)
    lying = replace(move, roots=move.roots._replace(optimiser_root=keccak256(b"moments")))
    with pytest.raises(IllegalMove, match="roots of another state"):
        game.play(lying, True, 1, TOY)


def test_a_claims_times_are_its_own() -> None:
    assert (JOB.claim().holder_seconds, JOB.claim().challenger_seconds) == (3600, 1800)


@pytest.mark.parametrize(
    ("norm", "loss", "is_opened"),
    [
        (0x7FEFFFFFFFFFFFFF, 0x7F7FFFFF, True),
        (0x7FF0000000000000, 0x3F800000, False),
        (0x3FF0000000000000, 0x7F800000, False),
        (0x7FF8000000000000, 0x7FC00000, False),
    ],
)
def test_only_what_is_finite_is_opened(norm: int, loss: int, is_opened: bool) -> None:
    honest = Party(JOB, JOB.claim())
    work = norm.to_bytes(8, "big") + loss.to_bytes(4, "big") * JOB.shape.micro_batches
    works = work * JOB.shape.segment
    claim = replace(honest.claimed, work_tag=keccak256(works))
    move = replace(defend(Game.begin(claim, 0), honest), works=works)
    if is_opened:
        assert Game.begin(claim, 0).play(move, True, 1, TOY).phase is GamePhase.PICK_STEP
    else:
        with pytest.raises(IllegalMove, match="is not finite"):
            Game.begin(claim, 0).play(move, True, 1, TOY)


@pytest.mark.parametrize(
    "change",
    [{"seat": 4}, {"round": 1}, {"data_seed": keccak256(b"another seed")}],
    ids=["seat", "round", "seed"],
)
def test_a_trace_of_another_seat_round_or_seed_falls(change: dict[str, object]) -> None:
    other = Party(JOB, JOB.claim(**change), {1: {LAST: flipped(-1)}})
    claim = replace(JOB.claim(), closing=other.claimed.closing, work_tag=other.claimed.work_tag)
    moves = played(other, Party(JOB, claim), claim)
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST
    assert moves[-1][2].node == 7  # what it imports of the context


def test_a_right_trace_of_another_opening_loses_or_cannot_be_opened() -> None:
    other = Job(replace(JOB.shape, zero_moments=False))
    holder = Party(other, other.claim())
    claim = replace(JOB.claim(), closing=holder.claimed.closing, work_tag=holder.claimed.work_tag)
    moves = played(holder, Party(JOB, claim), claim)
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST


@pytest.mark.parametrize("filler", [49, 50, 51, 114])
def test_inputs_are_opened_where_the_last_row_is_a_short_one(filler: int) -> None:
    job = Job(replace(JOB.shape, weights=40, micro_batches=1, segment=1, filler=filler))
    last = job.header.step_nodes - 1
    base = job.claim()
    for node in (9, last - 2, last):
        tampers = {0: {node: flipped(0), last: flipped(-1)}}
        claim = Party(job, base, tampers).claimed
        moves = played(Party(job, claim, tampers), Party(job, claim), claim)
        assert moves[-1][2].outcome == Outcome.HOLDER_LOST


def test_a_job_of_a_million_nodes_takes_22_transactions() -> None:
    holder = LargeParty((LARGE_NODES - 2, (1 << 19) - 1))
    moves = played(holder, LargeParty(), holder.claim())
    assert moves[-1][2].outcome == Outcome.HOLDER_LOST
    assert 1 + len(moves) + 1 == 22  # with `challenge` and `conclude`


def test_who_agrees_with_the_claim_has_nothing_to_pick() -> None:
    party = Party(JOB, Party(JOB, JOB.claim()).claimed)
    game = Game.begin(party.claim, 0)
    game = game.play(defend(game, party), True, 1, TOY)
    with pytest.raises(NothingDiffers):
        answered(attack(game, party), TOY)


def test_the_games_that_forge_plays_are_these() -> None:
    for name, build in generate_games.FILES.items():
        assert generate_games.render(build) == (VECTORS / name).read_text(), name


# --- clocks ---


def boundary_moves() -> tuple[Game, Move]:
    game, party, _ = opened()
    return game, defend(game, party)


def test_the_last_second_of_a_clock() -> None:
    game, move = boundary_moves()
    deadline = game.clock.deadline(True)
    assert deadline == 60 + 3600
    played_ = game.play(move, True, deadline - 1, TOY)
    assert (played_.clock.holder, played_.clock.challenger) == (1, 1800)
    with pytest.raises(IllegalMove, match="no time"):
        game.play(move, True, deadline, TOY)
    with pytest.raises(IllegalMove, match="has time"):
        game.timeout(deadline - 1)
    assert game.timeout(deadline).outcome == Outcome.HOLDER_LOST
    late = played_.clock.deadline(False)
    assert late == deadline - 1 + 60 + 1800
    assert played_.timeout(late).outcome == Outcome.CHALLENGER_LOST


def test_a_moves_own_minutes_are_not_charged() -> None:
    game, move = boundary_moves()
    assert game.play(move, True, 60, TOY).clock.holder == 3600
    assert game.play(move, True, 61, TOY).clock.holder == 3599


def test_who_moves_is_charged_and_nobody_gains_by_haste() -> None:
    holder, challenger = wrong_at(9, 0)
    game = Game.begin(holder.claim, 0).play(
        defend(Game.begin(holder.claim, 0), holder), True, 1, TOY
    )
    assert (game.clock.since, game.clock.holder, game.clock.challenger) == (1, 3600, 1800)
    pick = answered(attack(game, challenger), TOY)
    clocks = [game.play(pick, False, 1 + seconds, TOY).clock for seconds in (59, 60, 67)]
    assert [clock.challenger for clock in clocks] == [1800, 1800, 1793]
    assert [clock.holder for clock in clocks] == [3600, 3600, 3600]


def test_a_game_begins_with_nothing_shown() -> None:
    for claim, phase in (
        (JOB.claim(), GamePhase.OPEN_STEPS),
        (JOB.claim(is_update_proof=True), GamePhase.POST_UPDATE_PROOF),
    ):
        game = Game.begin(claim, 5)
        assert (game.claim, game.phase, game.clock.since) == (claim, phase, 5)
        known = {f.name: getattr(game, f.name) for f in fields(game)}
        shown = {n for n, v in known.items() if (any(v) if isinstance(v, bytes) else v)}
        assert shown == {"claim", "clock", "phase"}


def test_nobody_is_to_move_after_the_end() -> None:
    game, move = boundary_moves()
    over = game.timeout(10_000)
    assert over.phase == GamePhase.OVER
    for act in (lambda: over.timeout(20_000), lambda: over.play(move, True, 10_001, TOY)):
        with pytest.raises(IllegalMove, match="nobody"):
            act()


def test_nobody_moves_in_the_others_turn() -> None:
    claim = JOB.claim()
    party = Party(JOB, claim)
    turns = played(*wrong_at(9, 0), wrong_at(9, 0)[0].claim)
    after = {game.phase: game for _, _, game in turns}
    assert {GamePhase.PICK_STEP, GamePhase.PICK, GamePhase.PROVE} <= after.keys()
    for phase, game in after.items():
        if phase in {GamePhase.PICK_STEP, GamePhase.PICK, GamePhase.PROVE, GamePhase.OVER}:
            with pytest.raises(ValueError, match=f"the holder has no move in {phase.name}"):
                defend(game, party)
        if phase not in {GamePhase.PICK_STEP, GamePhase.PICK, GamePhase.PROVE}:
            with pytest.raises(ValueError, match=f"the challenger has no move in {phase.name}"):
                answered(attack(game, party), TOY)


@pytest.mark.parametrize("source", [Source.TOKENS, Source.TABLES, Source.EXPONENTS, Source.STATE])
def test_of_whole_pieces_and_chunks_only_what_is_needed_is_read(source: Source) -> None:
    """A document's bytes are counted from its beginning, the others' from their unit's."""
    unit = {Source.TOKENS: PIECE, Source.TABLES: PIECE, Source.STATE: CHUNK}.get(source)
    need = Need(0, (2 * unit if unit else 0) + 5, 7)
    data = bytes(i % 251 for i in range(64))
    assert _part(data, Input(source, 0, 0, len(data)), need) == data[5:12]
    assert _part(b"", Input(source, 0, 0, len(data)), need) == bytes(
        7
    )  # moments that nobody has moved yet
