"""Games and openings over random sizes, errors and lies."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.games import Job, Party, Shape, Tamper
from tests.support.toys import TOY

from atoll.numerics.pieces import piece_root
from atoll.protocol.games.game_machine import Game, GamePhase, IllegalMove, Outcome
from atoll.protocol.games.moves import Claim, Move, Pick, PickNode, PostLeaf, PostTrace, Reveal
from atoll.protocol.games.players import NothingDiffers, answered, attack, defend
from atoll.protocol.games.trees import (
    MemoryTree,
    WrongOpening,
    fold,
    height,
    layer_levels,
    layer_of,
    piece_tree,
    root_from,
    siblings_of,
    top,
    width_at,
)
from atoll.protocol.games.trees import piece_root as shown_root
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import merkle_proof, merkle_root
from atoll.protocol.program import MalformedProgram, TraceHeader, TraceTemplate
from atoll.protocol.types import Digest

shapes = st.builds(
    Shape,
    weights=st.integers(40, 300),
    micro_batches=st.integers(1, 3),
    segment=st.integers(1, 3),
    segments=st.just(2),
    filler=st.integers(0, 80),
    layer=st.integers(1, 40),
    zero_moments=st.booleans(),
    seed=st.integers(0, 5),
)


def noise(draw: random.Random) -> Tamper:
    """Other bytes in a few places; a result's stay finite."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(6)
        return bytes(changed) if bytes(changed) != data else noise(draw)(data)

    return change


def wrong_party(job: Job, claim: Claim, draw: random.Random) -> Party:
    """Whose run is wrong at random nodes of a random step, and so is its result."""
    last = job.header.step_nodes - 1
    nodes = {last, *(draw.randrange(last + 1) for _ in range(draw.randint(0, 2)))}
    step = draw.randrange(job.shape.segment)
    run = Party(job, claim, {step: {node: noise(draw) for node in nodes}})
    assert run.runs  # what was drawn is drawn once
    return run


def outcome_of(holder: Party, challenger: Party, claim: Claim) -> Outcome:
    game, now = Game.begin(claim, 0), 0
    while game.phase != GamePhase.DECIDED:
        by_holder = game.phase.is_holders
        move = defend(game, holder) if by_holder else answered(attack(game, challenger), TOY)
        game = game.play(move, by_holder, now, TOY)
    return game.outcome


@settings(max_examples=6)
@given(shapes, st.integers(0, 2**32))
def test_an_honest_challenger_always_wins(shape: Shape, seed: int) -> None:
    job = Job(shape)
    holder = wrong_party(job, job.claim(), random.Random(seed))
    claim = holder.claimed
    assert outcome_of(holder, Party(job, claim), claim) == Outcome.HOLDER_LOST


@settings(max_examples=6)
@given(shapes, st.integers(0, 2**32))
def test_an_honest_holder_never_loses(shape: Shape, seed: int) -> None:
    job = Job(shape)
    challenger = wrong_party(job, job.claim(), random.Random(seed))
    holder = Party(job, job.claim())
    assert outcome_of(holder, challenger, holder.claimed) == Outcome.CHALLENGER_LOST


class Liar:
    """A holder with several runs of its own that mixes them, and makes nodes up, as it likes."""

    def __init__(self, runs: list[Party], draw: random.Random) -> None:
        self.runs, self.draw = runs, draw

    def moves(self, game: Game) -> list[Move]:
        """What it tries, in order; none of it need be legal."""
        tries: list[Move] = []
        for run in self.draw.sample(self.runs, len(self.runs)):
            try:
                tries.append(defend(game, run))
            except (IndexError, ValueError):
                continue
        lies = [lie for move in tries if (lie := self.lie(move)) is not None]
        return lies + tries

    def lie(self, move: Move) -> Move | None:
        made_up = keccak256(self.draw.randbytes(8))
        if isinstance(move, Reveal | PostTrace):
            layer = list(move.layer)
            layer[self.draw.randrange(len(layer))] = made_up
            return replace(move, layer=tuple(layer))
        if isinstance(move, PostLeaf):
            return PostLeaf(self.draw.randbytes(len(move.leaf)))
        return None


@settings(max_examples=6)
@given(shapes, st.integers(0, 2**32))
def test_a_holder_that_mixes_runs_and_makes_nodes_up_loses(shape: Shape, seed: int) -> None:
    draw = random.Random(seed)
    job = Job(shape)
    first = wrong_party(job, job.claim(), draw)
    claim = first.claimed
    assume(claim != Party(job, job.claim()).claimed)  # a state between two steps is not claimed
    liar = Liar([first, wrong_party(job, claim, draw), Party(job, claim)], draw)
    challenger = Party(job, claim)
    game = Game.begin(claim, 0)
    while game.phase < GamePhase.DECIDED:
        if not game.phase.is_holders:
            game = game.play(answered(attack(game, challenger), TOY), False, 0, TOY)
            continue
        for move in liar.moves(game):
            try:
                game = game.play(move, True, 0, TOY)
                break
            except IllegalMove:
                continue
        else:
            game = game.timeout(game.clock.deadline(True))
    assert game.outcome == Outcome.HOLDER_LOST


def random_move(game: Game, own: Party, right: Party, draw: random.Random) -> Move | None:
    """A challenger's legal or illegal move: any child of the row, else what its own run says."""
    if game.phase == GamePhase.PICK:
        layers = game.layers if game.node is None else game.tensor_layers
        layer = layers[-1]
        child = draw.randrange(len(layer.nodes))
        level_node = layer.nodes[child]
        tree = right.trace(game.step).tree if game.node is None else None
        tensor = right.trace(game.step).tensor(game.node) if game.node is not None else tree
        assert tensor is not None
        shifted = layer.level
        path = siblings_of(
            lambda level, i: tensor.node(level + shifted, i),
            layer.first + child,
            1,
            width_at(game.count, layer.level),
            layer_levels(game.level),
        )
        if game.node is None and layer.level == 0:
            template = right.template(layer.first + child)
            return PickNode(child, level_node, path, template)
        return Pick(child, level_node, path)
    try:
        return answered(attack(game, own), TOY)
    except (NothingDiffers, ValueError, IndexError):
        return None


@settings(max_examples=6)
@given(shapes, st.integers(0, 2**32))
def test_a_challenger_that_picks_at_random_loses(shape: Shape, seed: int) -> None:
    draw = random.Random(seed)
    job = Job(shape)
    holder = Party(job, Party(job, job.claim()).claimed)
    own = wrong_party(job, holder.claim, draw)
    game = Game.begin(holder.claim, 0)
    while game.phase < GamePhase.DECIDED:
        if game.phase.is_holders:
            game = game.play(defend(game, holder), True, 0, TOY)
            continue
        move = random_move(game, own, holder, draw)
        try:
            if move is None:
                raise IllegalMove("it has none")
            game = game.play(move, False, 0, TOY)
        except IllegalMove:
            game = game.timeout(game.clock.deadline(False))
    assert game.outcome == Outcome.CHALLENGER_LOST


def leaves(count: int) -> list[Digest]:
    return [keccak256(i.to_bytes(4, "big")) for i in range(count)]


@settings(max_examples=40)
@given(st.integers(1, 140), st.data())
def test_ranges_paths_and_rows_lead_to_the_root_and_nothing_else_does(
    count: int, data: st.DataObject
) -> None:
    tree = MemoryTree(leaves(count))
    assert top(tree) == merkle_root(leaves(count))
    first = data.draw(st.integers(0, count - 1))
    length = data.draw(st.integers(1, count - first))
    nodes = [tree.node(0, i) for i in range(first, first + length)]
    levels = height(count)
    siblings = siblings_of(tree.node, first, length, count, levels)
    assert fold(nodes, first, count, levels, siblings) == tree.node(levels, 0)
    path = merkle_proof(leaves(count), first)
    assert root_from(tree.leaf(first), first, count, path) == top(tree)
    for wrong in (siblings[:-1] if siblings else (keccak256(b""),), (*siblings, keccak256(b""))):
        with pytest.raises(WrongOpening):
            fold(nodes, first, count, levels, wrong)
    changed = [keccak256(b"other"), *nodes[1:]]
    assert fold(changed, first, count, levels, siblings) != tree.node(levels, 0)
    layer = layer_of(tree, levels, 0)
    below = levels - layer_levels(levels)
    hashed = layer if below else tuple(tree.node(0, i) for i in range(len(layer)))
    assert fold(hashed, 0, width_at(count, below), levels - below) == tree.node(levels, 0)


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=9000), st.data())
def test_pieces_are_those_of_the_piece_root(content: bytes, data: st.DataObject) -> None:
    tree = piece_tree(content)
    assert top(tree) == piece_root(content)
    first = data.draw(st.integers(0, tree.count - 1))
    length = data.draw(st.integers(1, tree.count - first))
    shown = content[first * 1024 : (first + length) * 1024]
    siblings = siblings_of(tree.node, first, length, tree.count, height(tree.count))
    assert shown_root(shown, first, len(content), siblings) == piece_root(content)
    for wrong in (shown[:-1], shown + b"\0"):
        try:
            assert shown_root(wrong, first, len(content), siblings) != piece_root(content)
        except WrongOpening:
            continue


@settings(max_examples=15)
@given(shapes)
def test_programs_have_one_encoding(shape: Shape) -> None:
    job = Job(shape)
    assert TraceHeader.from_bytes(job.header.to_bytes()) == job.header
    for template in job.templates:
        assert TraceTemplate.from_bytes(template.to_bytes()) == template
    covered = [
        t.iteration(n) is not None
        for n in range(job.header.step_nodes)
        for t in job.templates
        if t.part == 0
    ]
    assert sum(covered) == job.header.step_nodes


@given(st.binary(max_size=200))
def test_bytes_that_are_no_program_are_refused(data: bytes) -> None:
    for parse in (TraceHeader.from_bytes, TraceTemplate.from_bytes):
        try:
            assert parse(data).to_bytes() == data
        except MalformedProgram:
            continue
