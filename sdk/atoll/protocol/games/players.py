"""What each side plays: functions of the game as it stands and of what the player knows itself.

Rule of this file: a player asks its own run, never the other side; what it takes from the other
side are layers, and only of subtrees in which the dispute lies.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.game_machine import (
    WORD_BYTES,
    Game,
    GamePhase,
    steps_tree,
)
from atoll.protocol.games.judge import MAX_OPENINGS, Need, Operations
from atoll.protocol.games.moves import (
    GENERATED,
    TOKEN_BYTES,
    Move,
    Opening,
    OpenSteps,
    Pick,
    PickNode,
    PickStep,
    PickToken,
    PostLeaf,
    PostTrace,
    PostUpdateProof,
    ProgramPart,
    Proof,
    Prove,
    Reveal,
)
from atoll.protocol.games.trees import (
    CHUNK,
    LAYER_LEVELS,
    PIECE,
    MerkleLayer,
    Tree,
    fold,
    height,
    layer_levels,
    layer_of,
    path_of,
    pieces_of,
    siblings_of,
    width_at,
    words_tree,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import LEAF
from atoll.protocol.program import Input, Source, TraceHeader, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest

_UNITS = {
    Source.TOKENS: PIECE,
    Source.TABLES: PIECE,
    Source.GENERATED: PIECE,
    Source.EXPONENTS: 1 << 63,
}


class Trace(Protocol):
    """A player's own run of one step, or of an update proof."""

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

    def open(self, template: TraceTemplate, source: Input, need: Need) -> Opening:
        """Whole pieces or chunks of an input that is neither of the trace nor the context."""


class Knowledge(Protocol):
    """What a player knows of the claim from its own run of it."""

    @property
    def states(self) -> Sequence[Digest]:
        """The digest after each step of the segment; none of an update proof."""

    @property
    def works(self) -> bytes:
        """Norm and losses of each step (`protocol.checkpoint_commitments.work_tag` hashes them);
        none of an update proof."""

    @property
    def header(self) -> ProgramPart:
        """The program's, with its path."""

    def template(self, node: int) -> ProgramPart:
        """That of a node of the part that is played, with its path."""

    def trace(self, step: int) -> Trace:
        """The run of a step of the round, or of the update proof: it may take as long as a step."""

    def token_trace(self, step: int, token: int) -> Trace:
        """The run of a token that the step samples, by its number in the step's batch."""


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
        case GamePhase.OPEN_STEPS:
            return OpenSteps(own.header, tuple(own.states), own.works)
        case GamePhase.POST_TRACE:
            return PostTrace(*_first_layer(_played(game, own).tree))
        case GamePhase.POST_UPDATE_PROOF:
            return _update_proof(game.claim.round, own)
        case GamePhase.REVEAL:
            return Reveal(layer_of(_searched(game, _played(game, own)), game.level, game.index))
        case GamePhase.POST_LEAF:
            start = game.index * PIECE
            node = _node(game)
            return PostLeaf(_played(game, own).read(node, start, start + game.leaf_bytes))
    raise ValueError(f"the holder has no move in {game.phase.name}")


def attack(game: Game, own: Knowledge) -> Generator[Question, Need, Move]:
    """The challenger's next move, as a generator that asks what an operation needs to be shown.

    Only the last move asks. `answered` answers from Python; a chain's contract can, too.

    Raises:
        NothingDiffers: the holder's part that is to be searched equals the challenger's own.
        ValueError: it is not the challenger's turn.
    """
    match game.phase:
        case GamePhase.PICK_STEP:
            return _first_step(game, own)
        case GamePhase.PICK:
            return _first_child(game, own)
        case GamePhase.PROVE:
            return (yield from _last(game, own))
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


def _first_layer(tree: Tree) -> tuple[tuple[Digest, ...], tuple[Digest, ...]]:
    return path_of(tree, tree.count - 1), layer_of(tree, height(tree.count), 0)


def _update_proof(round: int, own: Knowledge) -> PostUpdateProof:
    trace = own.trace(0)
    header = TraceHeader.from_bytes(own.header.data)
    if header.nodes(header.update_proof_part(round)) == 0:  # it has no update proof to be wrong
        return PostUpdateProof(own.header, own.header, trace.roots, ZERO_DIGEST, (), ())
    last = trace.tree.count - 1
    top_layer = _first_layer(trace.tree)
    return PostUpdateProof(
        own.header, own.template(last), trace.roots, trace.tree.leaf(last), *top_layer
    )


def _played(game: Game, knowledge: Knowledge) -> Trace:
    """The run of what is searched: of the step, or of a token that it samples."""
    if game.token is None:
        return knowledge.trace(game.step)
    return knowledge.token_trace(game.step, game.token)


def _searched(game: Game, trace: Trace) -> Tree:
    return trace.tree if game.node is None else trace.tensor(game.node)


def _node(game: Game) -> int:
    if game.node is None:
        raise ValueError("no node is in dispute yet")
    return game.node


def _first_step(game: Game, own: Knowledge) -> PickStep:
    initial_state = game.claim.initial_state
    theirs, tree = steps_tree(initial_state, game.states, game.works)
    mine, _ = steps_tree(initial_state, own.states, own.works)
    for i, pair in enumerate(theirs):
        if pair != mine[i]:
            return PickStep(i, *pair, path_of(tree, i))
    raise NothingDiffers


def _first_child(game: Game, own: Knowledge) -> Pick | PickNode:
    mine = _searched(game, _played(game, own))
    layer = (game.layers if game.node is None else game.tensor_layers)[-1]
    levels = layer_levels(game.level)
    for child, theirs in enumerate(layer.nodes):
        index = layer.first + child
        own_node = mine.node(layer.level, index) if layer.level else mine.leaf(index)
        if theirs != own_node:
            path = siblings_of(
                lambda level, i: _in_layer(layer, level, i, game.count),
                index,
                1,
                width_at(game.count, layer.level),
                levels,
            )
            if game.node is None and game.level <= LAYER_LEVELS:
                return PickNode(child, theirs, path, own.template(index))
            return Pick(child, theirs, path)
    raise NothingDiffers


def _in_layer(layer: MerkleLayer, level: int, index: int, leaves: int) -> Digest:
    """The node `level` levels above a layer of a tree of so many leaves, which lies above it."""
    first = (index << level) - layer.first
    nodes = layer.nodes[first : first + (1 << level)]
    if layer.level == 0:
        nodes = tuple(keccak256(LEAF + leaf) for leaf in nodes)
    return fold(nodes, layer.first + first, width_at(leaves, layer.level), level)


def _last(game: Game, knowledge: Knowledge) -> Generator[Question, Need, Prove | PickToken]:
    """What is said of the leaf's first element that differs: its proof, or that it is a token."""
    trace, part = _played(game, knowledge), knowledge.template(_node(game))
    template = TraceTemplate.from_bytes(part.data)
    start = game.index * PIECE
    mine = trace.read(_node(game), start, start + game.leaf_bytes)
    differ = [i for i, (a, b) in enumerate(zip(mine, game.leaf, strict=True)) if a != b]
    if not differ:
        raise NothingDiffers
    header = knowledge.header.data
    is_token = template.op == GENERATED and TraceHeader.from_bytes(header).is_sampled
    width = TOKEN_BYTES if is_token else template.width
    element = (start + differ[0]) // width
    words = words_tree(game.leaf)
    position = (element * width - start) // WORD_BYTES
    shown = (element, words.leaf(position), path_of(words, position))
    if is_token:
        return PickToken(header, part.data, *shown, *_in_trace(game, trace, _node(game)))
    proof = Proof(*shown, trace.roots, header, part.data, ())
    openings = yield from _openings(game, knowledge, template, element)
    return Prove(replace(proof, openings=tuple(openings)))


def _in_trace(game: Game, trace: Trace, node: int) -> tuple[Digest, tuple[Digest, ...]]:
    """The digest of the node in dispute as the holder has it, and its path."""

    def read(level: int, index: int) -> Digest:
        return _in_their_trace(game, trace.tree, level, index)

    layer = game.layers[-1]
    digest = layer.nodes[node - layer.first]
    return digest, siblings_of(read, node, 1, game.nodes, height(game.nodes))


def _openings(
    game: Game, knowledge: Knowledge, template: TraceTemplate, element: int
) -> Generator[Question, Need, list[Opening]]:
    trace = _played(game, knowledge)
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
            case Source.GENERATED:
                openings.append(_open_generated(game, knowledge, source.size, need))
                opened.append(_part(openings[-1].data, source, need))
            case Source.CONTEXT:
                openings.append(Opening())
                opened.append(trace.context[need.offset : end])
            case _:
                openings.append(trace.open(template, source, need))
                step = template.words[0] if source.source is Source.SAMPLED else 1 << 63
                opened.append(_part(openings[-1].data, source, need, step))
    raise ValueError(f"operation {template.op:#06x} asks for more than {MAX_OPENINGS} openings")


def _part(data: bytes, source: Input, need: Need, step: int = 1 << 63) -> bytes:
    """What is needed of pieces, chunks or a document that `Trace.open` gave.

    Args:
        step: so many bytes of the source are a tree each.
    """
    if not data:  # moments that nobody has moved yet
        return bytes(need.length)
    offset = need.offset % step
    inside = offset % _UNITS.get(source.source, CHUNK)
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


def _open_generated(game: Game, knowledge: Knowledge, size: int, need: Need) -> Opening:
    """Pieces of the node that the token in dispute is of, as the holder has it.

    Nothing behind the piece in dispute is needed; before it the holder's is one's own, and it was
    posted itself.
    """
    outer = game.outer
    assert outer is not None  # only a token's trace reads it
    trace, node = knowledge.trace(outer.step), _node(outer)
    tree = trace.tensor(node)
    first, last = need.offset // PIECE, (need.offset + need.length - 1) // PIECE
    data = b"".join(
        outer.leaf
        if piece == outer.index
        else trace.read(node, piece * PIECE, min((piece + 1) * PIECE, size))
        for piece in range(first, last + 1)
    )
    search = _Search(outer.tensor_layers, pieces_of(size), outer.index)
    width = pieces_of(size)

    def read(level: int, index: int) -> Digest:
        return _theirs(search, tree, level, index)

    return Opening(data, siblings_of(read, first, last - first + 1, width, height(width)))


@dataclass(frozen=True, slots=True)
class _Search:
    """What was revealed of a tree of so many leaves, and which of them is in dispute."""

    layers: Sequence[MerkleLayer]
    leaves: int
    disputed: int


def _in_their_trace(game: Game, mine: Tree, level: int, index: int) -> Digest:
    """A node of the holder's trace."""
    return _theirs(_Search(game.layers, game.nodes, _node(game)), mine, level, index)


def _theirs(search: _Search, mine: Tree, level: int, index: int) -> Digest:
    """A node of the holder's tree: left of the dispute it is one's own, else it was revealed."""
    if (index + 1) << level <= search.disputed:
        return mine.node(level, index)
    above = [height(search.leaves), *(layer.level for layer in search.layers)]
    for layer, highest in zip(search.layers, above, strict=False):
        inside = (index << max(level - layer.level, 0)) - layer.first
        if layer.level <= level <= highest and 0 <= inside < len(layer.nodes):
            return _in_layer(layer, level - layer.level, index, search.leaves)
    raise ValueError(f"node {index} of level {level} was never revealed")
