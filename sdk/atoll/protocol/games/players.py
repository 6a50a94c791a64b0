"""What each side plays: functions of the game as it stands and of what the player knows itself.

Rule of this file: a player asks its own run, never the other side; what it takes from the other
side are rows, and only of subtrees in which the dispute lies.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from atoll.protocol.games.claims import (
    Move,
    Opening,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PostLeaf,
    PostLink,
    PostTrace,
    ProgramPart,
    Proof,
    Prove,
    Reveal,
)
from atoll.protocol.games.judge import MAX_OPENINGS, Need, Operations
from atoll.protocol.games.machine import WORD_BYTES, Game, Phase, Row, steps_tree
from atoll.protocol.games.trees import (
    CHUNK,
    PIECE,
    ROW_LEVELS,
    Tree,
    fold,
    height,
    path_of,
    pieces_of,
    row_levels,
    row_of,
    siblings_of,
    width_at,
    words_tree,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.leaves import StateRoots
from atoll.protocol.merkle import LEAF
from atoll.protocol.program import Header, Input, Source, Template
from atoll.protocol.words import ZERO_DIGEST, Digest

_UNITS = {Source.TOKENS: PIECE, Source.TABLES: PIECE, Source.EXPONENTS: 1 << 63}


class Trace(Protocol):
    """A player's own run of one step, or of a link."""

    @property
    def roots(self) -> StateRoots:
        """Of the state that it opens with."""

    @property
    def context(self) -> bytes:
        """The twelve words that the game knows of it (`context_of`)."""

    @property
    def tree(self) -> Tree:
        """Over the digests of the nodes."""

    def tensor(self, node: int) -> Tree:
        """Over the pieces of a node's bytes."""

    def read(self, node: int, start: int, end: int) -> bytes:
        """Bytes of a node."""

    def open(self, template: Template, source: Input, need: Need) -> Opening:
        """Whole pieces or chunks of an input that is neither of the trace nor the context."""


class Knowledge(Protocol):
    """What a player knows of the claim from its own run of it."""

    @property
    def states(self) -> Sequence[Digest]:
        """The digest after each step of the segment; none of a link."""

    @property
    def works(self) -> bytes:
        """Norm and losses of each step (`law.leaves.work_tag` hashes them); none of a link."""

    @property
    def header(self) -> ProgramPart:
        """The program's, with its path."""

    def template(self, node: int) -> ProgramPart:
        """That of a node of the part that is played, with its path."""

    def trace(self, step: int) -> Trace:
        """The run of a step of the round, or of the link: it may take as long as a step."""


class NothingDiffers(Exception):
    """The challenger's own run gives what the holder shows: there is nothing to challenge."""


class Question(NamedTuple):
    """What a family's contract has to be asked: `need` with these arguments."""

    op: int
    attributes: bytes
    element: int
    opened: tuple[bytes, ...]


def defend(game: Game, own: Knowledge) -> Move:
    """The holder's next move. Raises ValueError where it is not the holder's turn."""
    match game.phase:
        case Phase.OPEN_STEPS:
            return OpenSteps(own.header, tuple(own.states), own.works)
        case Phase.POST_TRACE:
            return PostTrace(*_first_row(own.trace(game.step).tree))
        case Phase.POST_LINK:
            return _link(game.claim.round, own)
        case Phase.REVEAL:
            return Reveal(row_of(_searched(game, own.trace(game.step)), game.level, game.index))
        case Phase.POST_LEAF:
            start = game.index * PIECE
            node = _node(game)
            return PostLeaf(own.trace(game.step).read(node, start, start + game.leaf_bytes))
    raise ValueError(f"the holder has no move in {game.phase.name}")


def attack(game: Game, own: Knowledge) -> Generator[Question, Need, Move]:
    """The challenger's next move, as a generator that asks what an operation needs to be shown.

    Only the last move asks. `answered` answers from Python; a chain's contract can, too.

    Raises:
        NothingDiffers: the holder's part that is to be searched equals the challenger's own.
        ValueError: it is not the challenger's turn.
    """
    match game.phase:
        case Phase.PICK_STEP:
            return _first_step(game, own)
        case Phase.PICK:
            return _first_child(game, own)
        case Phase.PROVE:
            return (yield from _proof(game, own))
    raise ValueError(f"the challenger has no move in {game.phase.name}")


def answered(moves: Generator[Question, Need, Move], operations: Operations) -> Move:
    """The move, its questions answered by these operations."""
    try:
        question = next(moves)
        while True:
            question = moves.send(operations.need(*question))
    except StopIteration as stop:
        move: Move = stop.value
        return move


def _first_row(tree: Tree) -> tuple[tuple[Digest, ...], tuple[Digest, ...]]:
    return path_of(tree, tree.count - 1), row_of(tree, height(tree.count), 0)


def _link(round: int, own: Knowledge) -> PostLink:
    trace = own.trace(0)
    header = Header.from_bytes(own.header.data)
    if header.nodes(header.link_part(round)) == 0:  # it has no link to be wrong
        return PostLink(own.header, own.header, trace.roots, ZERO_DIGEST, (), ())
    last = trace.tree.count - 1
    top_row = _first_row(trace.tree)
    return PostLink(own.header, own.template(last), trace.roots, trace.tree.leaf(last), *top_row)


def _searched(game: Game, trace: Trace) -> Tree:
    return trace.tree if game.node is None else trace.tensor(game.node)


def _node(game: Game) -> int:
    if game.node is None:
        raise ValueError("no node is in dispute yet")
    return game.node


def _first_step(game: Game, own: Knowledge) -> PickStep:
    opening = game.claim.opening
    theirs, tree = steps_tree(opening, game.states, game.works)
    mine, _ = steps_tree(opening, own.states, own.works)
    for i, pair in enumerate(theirs):
        if pair != mine[i]:
            return PickStep(i, *pair, path_of(tree, i))
    raise NothingDiffers


def _first_child(game: Game, own: Knowledge) -> Pick | PickNode:
    mine = _searched(game, own.trace(game.step))
    row = (game.rows if game.node is None else game.tensor_rows)[-1]
    levels = row_levels(game.level)
    for child, theirs in enumerate(row.nodes):
        index = row.first + child
        own_node = mine.node(row.level, index) if row.level else mine.leaf(index)
        if theirs != own_node:
            path = siblings_of(
                lambda level, i: _in_row(row, level, i, game.count),
                index,
                1,
                width_at(game.count, row.level),
                levels,
            )
            if game.node is None and game.level <= ROW_LEVELS:
                return PickNode(child, theirs, path, own.template(index))
            return Pick(child, theirs, path)
    raise NothingDiffers


def _in_row(row: Row, level: int, index: int, leaves: int) -> Digest:
    """The node `level` levels above a row of a tree of so many leaves, which lies above it."""
    first = (index << level) - row.first
    nodes = row.nodes[first : first + (1 << level)]
    if row.level == 0:
        nodes = tuple(keccak256(LEAF + leaf) for leaf in nodes)
    return fold(nodes, row.first + first, width_at(leaves, row.level), level)


def _proof(game: Game, own: Knowledge) -> Generator[Question, Need, Prove]:
    trace, part = own.trace(game.step), own.template(_node(game))
    template = Template.from_bytes(part.data)
    start = game.index * PIECE
    mine = trace.read(_node(game), start, start + game.leaf_bytes)
    differ = [i for i, (a, b) in enumerate(zip(mine, game.leaf, strict=True)) if a != b]
    if not differ:
        raise NothingDiffers
    element = (start + differ[0]) // template.width
    words = words_tree(game.leaf)
    place = (element * template.width - start) // WORD_BYTES
    path = path_of(words, place)
    proof = Proof(element, words.leaf(place), path, trace.roots, own.header.data, part.data, ())
    openings = yield from _openings(game, trace, template, element)
    return Prove(replace(proof, openings=tuple(openings)))


def _openings(
    game: Game, trace: Trace, template: Template, element: int
) -> Generator[Question, Need, list[Opening]]:
    iteration = template.iteration(_node(game)) or 0
    attributes = template.attributes(iteration)
    openings: list[Opening] = []
    opened: list[bytes] = []
    while len(opened) <= MAX_OPENINGS:
        need = yield Question(template.op, attributes, element, tuple(opened))
        if need.length == 0:
            return openings
        source = template.inputs[need.input]
        end = need.offset + need.length
        match source.source:
            case Source.TRACE:
                input_ = source.node + iteration * source.stride
                openings.append(_open_node(game, trace, input_, source.size, need))
                opened.append(trace.read(input_, need.offset, end))
            case Source.CONTEXT:
                openings.append(Opening())
                opened.append(trace.context[need.offset : end])
            case _:
                openings.append(trace.open(template, source, need))
                opened.append(_part(openings[-1].data, source, need))
    raise ValueError(f"operation {template.op:#06x} asks for more than {MAX_OPENINGS} openings")


def _part(data: bytes, source: Input, need: Need) -> bytes:
    """What is needed of pieces, chunks or a document that `Trace.open` gave."""
    if not data:  # moments that nobody has moved yet
        return bytes(need.length)
    inside = need.offset % _UNITS.get(source.source, CHUNK)
    return data[inside : inside + need.length]


def _open_node(game: Game, trace: Trace, node: int, size: int, need: Need) -> Opening:
    tree = trace.tensor(node)
    first, last = need.offset // PIECE, (need.offset + need.length - 1) // PIECE
    data = trace.read(node, first * PIECE, min((last + 1) * PIECE, size))
    width = pieces_of(size)
    siblings = siblings_of(tree.node, first, last - first + 1, width, height(width))

    def read(level: int, index: int) -> Digest:
        return _in_their_trace(game, trace.tree, level, index)

    return Opening(data, siblings, siblings_of(read, node, 1, game.nodes, height(game.nodes)))


def _in_their_trace(game: Game, mine: Tree, level: int, index: int) -> Digest:
    """A node of the holder's trace: left of the dispute it is one's own, else it was revealed."""
    if (index + 1) << level <= _node(game):
        return mine.node(level, index)
    above = [height(game.nodes), *(row.level for row in game.rows)]
    for row, highest in zip(game.rows, above, strict=False):
        inside = (index << max(level - row.level, 0)) - row.first
        if row.level <= level <= highest and 0 <= inside < len(row.nodes):
            return _in_row(row, level - row.level, index, game.nodes)
    raise ValueError(f"node {index} of level {level} was never revealed")
