"""What the machine of a game refuses, move by move and part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import pairwise, permutations, product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.games import Job, Party, Shape, flipped, played
from tests.support.large_games import LARGE_NODES, LargeParty
from tests.support.toys import TOY, Toy
from tests.unit.protocol.small_games import JOB, opened, wrong_at

from atoll.protocol.games.explanations import explain
from atoll.protocol.games.game_machine import Game, GamePhase, IllegalMove, Outcome
from atoll.protocol.games.judge import MAX_OPENINGS, Need
from atoll.protocol.games.moves import (
    Claim,
    Move,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PostLeaf,
    PostTrace,
    PostUpdateProof,
    ProgramPart,
    Prove,
    Reveal,
)
from atoll.protocol.games.players import NothingDiffers, answered, attack, defend
from atoll.protocol.games.trees import PIECE
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import merkle_root
from atoll.protocol.program import Fragment, Part
from atoll.protocol.types import ZERO_DIGEST


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"closing": keccak256(b"x")}, "another closing"),
        ({"work_tag": keccak256(b"x")}, "another work"),
        ({"program": keccak256(b"x")}, "not of the program"),
        ({"segment": 2}, "no such segment"),
    ],
)
def test_steps_that_are_not_the_claims_are_not_opened(
    change: dict[str, object], message: str
) -> None:
    game, party, claim = opened()
    game = replace(game, claim=replace(claim, **change))  # type: ignore[arg-type]
    with pytest.raises(IllegalMove, match=message):
        game.play(defend(game, party), True, 1, TOY)


@pytest.mark.parametrize("word", ["7ff0000000000000", "fff8000000000000"])
def test_a_step_that_is_not_finite_is_not_opened(word: str) -> None:
    game, party, claim = opened()
    works = bytes.fromhex(word) + party.works[8:]
    game = replace(game, claim=replace(claim, work_tag=keccak256(works)))
    move = OpenSteps(party.header, tuple(party.states), works)
    with pytest.raises(IllegalMove, match="not finite"):
        game.play(move, True, 1, TOY)


@pytest.mark.parametrize("step", [0, 1])
def test_each_step_s_own_work_is_looked_at(step: int) -> None:
    game, party, claim = opened()
    size = len(party.works) // 2
    works = bytearray(party.works)
    works[step * size : step * size + 8] = bytes.fromhex("7ff0000000000000")
    game = replace(game, claim=replace(claim, work_tag=keccak256(bytes(works))))
    with pytest.raises(IllegalMove, match=f"step {step} is not finite"):
        game.play(OpenSteps(party.header, tuple(party.states), bytes(works)), True, 1, TOY)


def test_every_loss_is_looked_at_by_itself() -> None:
    """Bytes of two neighbours may look like what is not finite."""
    game, party, claim = opened()
    works = (bytes(8) + bytes.fromhex("3f80007f80000000")) * 2
    game = replace(game, claim=replace(claim, work_tag=keccak256(works)))
    move = OpenSteps(party.header, tuple(party.states), works)
    assert game.play(move, True, 1, TOY).phase is GamePhase.PICK_STEP


def test_segments_without_a_step_are_not_opened() -> None:
    data = replace(JOB.header, segment=0).to_bytes()
    claim = JOB.claim(program=merkle_root([keccak256(data)]), segment=0)
    move = OpenSteps(ProgramPart(data, 0, 1, ()), (), b"")
    with pytest.raises(IllegalMove, match="no such segment"):
        Game.begin(claim, 0).play(move, True, 1, TOY)


@pytest.mark.parametrize("step", [0, 1])
def test_a_step_without_a_state_after_it_is_not_opened(step: int) -> None:
    """Nobody knows roots whose digest is zero, so that the step behind it could not be proved."""
    game, party, claim = opened()
    states = list(party.states)
    states[step] = ZERO_DIGEST
    game = replace(game, claim=replace(claim, closing=states[-1]))
    with pytest.raises(IllegalMove, match=f"step {step} is not finite"):
        game.play(OpenSteps(party.header, tuple(states), party.works), True, 1, TOY)


def test_moves_of_the_other_side_or_of_another_phase_are_refused() -> None:
    game, party, _ = opened()
    move = defend(game, party)
    with pytest.raises(IllegalMove, match="other side"):
        game.play(move, False, 1, TOY)
    with pytest.raises(IllegalMove, match="PostTrace in OPEN_STEPS"):
        game.play(PostTrace((), ()), True, 1, TOY)
    with pytest.raises(ValueError, match="no move"):
        answered(attack(game, party), TOY)


def test_each_opening_is_needed_and_no_more() -> None:
    holder, challenger = wrong_at(9, 20)
    *before, (_, prove, _) = played(holder, challenger, holder.claim)
    game = before[-1][2]
    assert isinstance(prove, Prove)
    proof = prove.proof
    whole = proof.openings
    for openings, why in (
        (whole[:-1], "is missing"),
        ((*whole, whole[0]), "openings where"),
        (whole * 5, "too much is opened"),
    ):
        with pytest.raises(IllegalMove, match=why):
            game.play(Prove(replace(proof, openings=openings)), False, 1020, TOY)
    assert game.play(prove, False, 1020, TOY).outcome == Outcome.HOLDER_LOST


@pytest.mark.parametrize("node", range(7))
def test_what_is_opened_of_any_source_is_what_the_claim_is_about(node: int) -> None:
    holder, challenger = wrong_at(node, 0)
    *before, (_, prove, _) = played(holder, challenger, holder.claim)
    game = before[-1][2]
    assert isinstance(prove, Prove)
    (opening,) = prove.proof.openings
    odd = [("data", other) for _, other in variants(opening.data)]
    odd += [("siblings", opening.siblings[1:])] if opening.siblings else []
    odd += [("data", opening.data[:-1])] if opening.data else []
    assert odd or node == 1  # moments that nobody has moved yet are opened by nothing
    for name, other in odd:
        wrong = replace(prove.proof, openings=(replace(opening, **{name: other}),))
        with pytest.raises(IllegalMove):
            game.play(Prove(wrong), False, 1020, TOY)
    assert game.play(prove, False, 1020, TOY).outcome == Outcome.HOLDER_LOST


def test_a_chunk_is_opened_behind_the_first_of_its_tensor() -> None:
    wide = Job(Shape(weights=1100, micro_batches=1, segment=1, layer=550, filler=0))
    holder, challenger = wrong_at(0, 4 * 1050, 0, wide)
    last = played(holder, challenger, holder.claim)[-1][2]
    assert (last.node, last.index, last.outcome) == (0, 4, Outcome.HOLDER_LOST)


@pytest.mark.parametrize("zero_moments", [True, False])
def test_moments_are_those_of_the_opening_state(zero_moments: bool) -> None:
    """Zeros where nobody has moved them yet, and nowhere else."""
    job = Job(replace(JOB.shape, zero_moments=zero_moments))
    holder, challenger = wrong_at(1, 8, job=job)
    assert played(holder, challenger, holder.claim)[-1][2].outcome == Outcome.HOLDER_LOST
    right = Party(job, challenger.claimed)
    moves = played(right, Party(job, right.claim, holder.tampers), right.claim)
    assert moves[-1][2].outcome == Outcome.CHALLENGER_LOST


class Asking(Toy):
    """Operations that need this, and nothing else."""

    def __init__(self, *needs: Need) -> None:
        self.needs = needs

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        return self.needs[len(opened)] if len(opened) < len(self.needs) else Need(0, 0, 0)


def test_an_operation_reads_its_own_inputs_and_no_more_than_there_is_of_them() -> None:
    holder, challenger = wrong_at(9, 20)
    *before, (_, prove, _) = played(holder, challenger, holder.claim)
    game, size = before[-1][2], 4 * JOB.shape.weights
    for need, why in ((Need(2, 0, 4), "is missing"), (Need(0, size - 3, 4), f"of {size}")):
        with pytest.raises(IllegalMove, match=why):
            game.play(prove, False, 1020, Asking(need))


def test_a_challenger_opens_no_more_than_a_proof_may_have() -> None:
    holder, challenger = wrong_at(9, 20)
    game = played(holder, challenger, holder.claim)[-2][2]
    for count in (MAX_OPENINGS, MAX_OPENINGS + 1):
        moves, operations = attack(game, challenger), Asking(*[Need(0, 0, 4)] * count)
        if count == MAX_OPENINGS:
            move = answered(moves, operations)
            assert isinstance(move, Prove) and len(move.proof.openings) == count
            assert game.play(move, False, 1020, operations).phase == GamePhase.DECIDED
        else:
            with pytest.raises(ValueError, match="asks for more than 8 openings"):
                answered(moves, operations)


def test_a_job_without_links_has_none_that_is_wrong() -> None:
    data = replace(JOB.header, update_proof_nodes=0).to_bytes()
    claim = JOB.claim(is_update_proof=True, program=merkle_root([keccak256(data)]))
    traces = {0: Party(JOB, claim).trace(0)}  # of an update proof there is one
    own = SimpleNamespace(header=ProgramPart(data, 0, 1, ()), trace=traces.__getitem__)
    game = Game.begin(claim, 0)
    over = game.play(defend(game, cast("Any", own)), True, 1, TOY)
    assert (over.phase, over.outcome) == (GamePhase.DECIDED, Outcome.CHALLENGER_LOST)


# --- what a move says, one thing changed ---


def variants(value: object) -> Iterator[tuple[str, object]]:
    """A value with one thing in it changed, and which."""
    if isinstance(value, bytes):
        if value:
            yield "", type(value)(value[:-1] + bytes([value[-1] ^ 1]))
    elif isinstance(value, int):
        yield "", value + 1
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for where, other in variants(getattr(value, field.name)):
                yield f".{field.name}{where}", replace(value, **{field.name: other})
    elif isinstance(value, tuple):
        make = getattr(type(value), "_make", tuple)
        for index, item in enumerate(value):
            for where, other in variants(item):
                yield f"[]{where}", make((*value[:index], other, *value[index + 1 :]))


@cache
def whole_games() -> tuple[tuple[Party | LargeParty, Party | LargeParty, Claim], ...]:
    holder, challenger = wrong_at(9, 20)
    base = JOB.claim(is_update_proof=True)
    tampers = {0: {2: flipped(5), JOB.header.update_proof_nodes - 1: flipped(-1)}}
    claim = Party(JOB, base, tampers).claimed
    large = LargeParty((LARGE_NODES - 2, (1 << 19) - 1))
    return (
        (holder, challenger, holder.claim),
        (Party(JOB, claim, tampers), Party(JOB, claim), claim),
        (large, LargeParty(), large.claim()),
    )


def test_nothing_in_a_move_can_be_otherwise() -> None:
    """But what is said for the first time: states between steps, and where the header stands."""
    taken = set[str]()
    for holder, challenger, claim in whole_games():
        game = Game.begin(claim, 1000)
        for now, (by_holder, move, after) in enumerate(played(holder, challenger, claim), 1001):
            for where, other in variants(move):
                with suppress(IllegalMove):
                    game.play(cast("Move", other), by_holder, now, TOY)
                    taken.add(f"{type(move).__name__}{where}")
            game = after
    said = {"OpenSteps.states[]", "OpenSteps.header.index", "PostUpdateProof.header.index"}
    assert taken == said | {"Prove.proof.element"}  # another element, which shows another outcome


def test_parts_are_the_step_an_update_proof_a_fragment_and_a_step_that_mixes_each_in() -> None:
    fragments = (Fragment(5, 20), Fragment(6, 21), Fragment(7, 22))
    header = replace(JOB.header, fragments=fragments, overlap=1)
    assert header.nodes(Part.STEP) == JOB.header.step_nodes
    assert [header.nodes(part) for part in range(1, 7)] == [5, 6, 7, 20, 21, 22]
    with pytest.raises(IndexError):
        header.nodes(7)
    assert [header.update_proof_part(round) for round in range(4)] == [1, 2, 3, 1]
    assert [header.step_part(round, 1) for round in range(5)] == [Part.STEP, 4, 5, 6, 4]
    assert header.step_part(3, 0) == header.step_part(3, 2) == Part.STEP


def moves_by_kind(
    moves: list[tuple[bool, Move, Game]], claim: Claim
) -> dict[type, tuple[Game, bool, Any]]:
    """The last move of every kind, with the game before it and whose it was."""
    game = Game.begin(claim, 1000)
    found: dict[type, tuple[Game, bool, Any]] = {}
    for by_holder, move, after in moves:
        found[type(move)] = (game, by_holder, move)
        game = after
    return found


def test_every_refusal_of_a_move_says_what_is_wrong_with_it() -> None:
    holder, challenger = wrong_at(9, 20)
    kinds = moves_by_kind(played(holder, challenger, holder.claim), holder.claim)

    def is_refused(kind: type, why: str, **changes: object) -> None:
        game, by_holder, move = kinds[kind]
        with pytest.raises(IllegalMove, match=why):
            game.play(replace(move, **changes), by_holder, 1001, TOY)

    states = kinds[OpenSteps][2].states
    is_refused(OpenSteps, "not a state for each step", states=states[1:])
    is_refused(OpenSteps, "not a state for each step", states=(states[0], *states))
    game, _, move = kinds[OpenSteps]
    any_work = replace(game, claim=replace(game.claim, work_tag=ZERO_DIGEST))
    with pytest.raises(IllegalMove, match="works of another length"):
        any_work.play(replace(move, works=holder.works[:-1]), True, 1001, TOY)
    is_refused(PickNode, "child 64", child=64)
    is_refused(PickNode, "child -1", child=-1)
    template = kinds[PickNode][2].template
    update_proofs = JOB.part(1 + JOB.template_of(Part.UPDATE_PROOF, 0))
    is_refused(PickNode, "the header is no template", template=JOB.part(0))
    is_refused(PickNode, "not of the program", template=replace(template, index=template.index + 1))
    is_refused(PickNode, "of another part", template=update_proofs)
    is_refused(PickNode, "not that of node 9", template=JOB.part(template.index - 1))
    game, by_holder, move = kinds[PickNode]
    with pytest.raises(IllegalMove, match="that is a node of the trace"):
        game.play(Pick(move.child, move.digest, move.path), by_holder, 1001, TOY)
    is_refused(PostTrace, "the layer is of another trace", layer=kinds[PostTrace][2].layer[::-1])
    is_refused(Reveal, "not of the node in dispute", layer=kinds[Reveal][2].layer[::-1])
    is_refused(PostLeaf, "a leaf of another length", leaf=kinds[PostLeaf][2].leaf[:-1])
    is_refused(PostLeaf, "another leaf", leaf=bytes(len(kinds[PostLeaf][2].leaf)))
    proof = kinds[Prove][2].proof
    is_refused(Prove, "another header", proof=replace(proof, header=b""))
    is_refused(Prove, "another template", proof=replace(proof, template=update_proofs.data))
    is_refused(Prove, "not a word of the leaf", proof=replace(proof, word=ZERO_DIGEST))
    is_refused(Prove, "not in the leaf", proof=replace(proof, element=PIECE // 4))
    is_refused(Prove, "not in the leaf", proof=replace(proof, element=-1))
    # Once a node is found, no other one is picked.
    game, by_holder, move = kinds[PickNode]
    picked = game.play(move, by_holder, 1001, TOY)
    again = replace(picked, phase=GamePhase.PICK)
    with pytest.raises(IllegalMove, match="not a node of the trace"):
        again.play(move, by_holder, 1002, TOY)


def test_what_a_challenger_shows_of_one_trace_is_refused_of_another() -> None:
    """A reorganisation may let the holder of one claim post other traces."""
    games = []
    for node, position in ((7, 4), (2, 4), (2, 8), (2, 1200), (8, 0)):
        holder, challenger = wrong_at(node, position)
        moves = played(holder, challenger, holder.claim)
        befores = [Game.begin(holder.claim, 1000), *(after for _, _, after in moves)]
        games.append(
            [(g, m) for g, (is_its, m, _) in zip(befores, moves, strict=False) if not is_its]
        )
    assert len({game[0][0].claim for game in games}) == 1
    refused = set[type]()
    for one, other in permutations(games, 2):
        for (there, _), (here, move) in product(one, other):
            if there.phase is here.phase and there.tree != here.tree:
                with pytest.raises(IllegalMove):
                    there.play(move, False, 1500, TOY)
                refused.add(type(move))
    assert refused == {PickNode, Pick, Prove}


def test_who_sees_what_it_computed_itself_picks_nothing_at_any_level() -> None:
    for holder, challenger, claim in whole_games():
        moves, seen = played(holder, challenger, claim), set[type]()
        for (_, _, before), (by_holder, move, _) in pairwise(moves):
            if not by_holder:
                with pytest.raises(NothingDiffers):
                    answered(attack(before, holder), TOY)
                seen.add(type(move))
        assert seen >= {PickNode, Prove}


def test_a_proof_needs_a_node_in_dispute() -> None:
    holder, challenger = wrong_at(9, 20)
    kinds = moves_by_kind(played(holder, challenger, holder.claim), holder.claim)
    game, _, _ = kinds[PickNode]
    with pytest.raises(ValueError, match="no node is in dispute yet"):
        answered(attack(replace(game, phase=GamePhase.PROVE), challenger), TOY)


def test_every_move_is_told_in_a_line() -> None:
    told: dict[type, str] = {}
    for holder, challenger, claim in whole_games():
        for _, move, _ in played(holder, challenger, claim):
            told.setdefault(type(move), explain(claim, move))
    assert told[OpenSteps] == "shows what each of the 2 steps of segment 1 resulted in"
    assert told[PickStep] == "step 1 of the segment is the first that it computed otherwise"
    assert (
        told[PostUpdateProof]
        == "shows the top of the update proof's trace: 3 nodes over all that it computed"
    )
    assert "nodes over all that it computed" in told[PostTrace]
    assert told[Reveal].endswith("nodes below the one in dispute")
    assert told[Pick].endswith("is the first that differs")
    assert "is the first tensor that differs" in told[PickNode]
    assert told[PostLeaf].endswith("bytes in dispute")
    assert told[Prove].endswith("the contract computes it")
    assert len(told) == len(set(told.values())) == 9
    with pytest.raises(ValueError, match="is no move"):
        explain(JOB.claim(), cast("Move", None))
