"""A game about a claim as a pure machine: what is known, whose move it is, which moves are legal.

Rule of this file: it refuses what `contracts/src/judge/Game.sol` refuses and ends as that does; the
queue and the bonds are the contract's alone. SPEC-GAME.md is the rule of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from atoll.protocol.games.judge import Disputed, Operations, compute
from atoll.protocol.games.moves import (
    GENERATED,
    TOKEN_BYTES,
    Claim,
    Move,
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
    LAYER_LEVELS,
    PIECE,
    MemoryTree,
    MerkleLayer,
    WrongOpening,
    fold,
    height,
    layer_levels,
    piece_tree,
    pieces_of,
    root_from,
    top,
    width_at,
    words_tree,
)
from atoll.protocol.hashing import keccak256, update_root
from atoll.protocol.merkle import LEAF, seal
from atoll.protocol.program import MalformedProgram, TraceHeader, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest

WORD_BYTES: Final = 32
MOST_BYTES: Final = 1 << 40
"""Of a node: this and the three below bound how many moves a game has."""
MOST_STEP_NODES: Final = 1 << 30
MOST_TOKENS_BYTES: Final = 1 << 28
MOST_TOKEN_NODES: Final = 1 << 24


class IllegalMove(ValueError):
    """A move that the contract refuses."""


class GamePhase(IntEnum):
    """As in `GameQueue.sol`."""

    NONE = 0
    WAITING = 1
    OPEN_STEPS = 2
    PICK_STEP = 3
    POST_TRACE = 4
    POST_UPDATE_PROOF = 5
    PICK = 6
    REVEAL = 7
    POST_LEAF = 8
    PROVE = 9
    DECIDED = 10
    OVER = 11

    @property
    def is_holders(self) -> bool:
        """Whether the holder is to move; else the challenger is, or nobody."""
        return self in _HOLDERS


_HOLDERS: Final = frozenset(
    {
        GamePhase.OPEN_STEPS,
        GamePhase.POST_TRACE,
        GamePhase.POST_UPDATE_PROOF,
        GamePhase.REVEAL,
        GamePhase.POST_LEAF,
    }
)


class Outcome(IntEnum):
    """As in `GameQueue.sol`."""

    NONE = 0
    HOLDER_LOST = 1
    CHALLENGER_LOST = 2
    SENT_HOME = 3


@dataclass(frozen=True, slots=True)
class Clock:
    """Time that is left, and since when the next move is owed; seconds.

    Attributes:
        move: of each response, not charged.
        stands: where a holder's runs in another game about the same bond.
    """

    since: int
    move: int
    holder: int
    challenger: int
    stands: bool = False

    def deadline(self, is_holders: bool) -> int:
        """From then on who is to move has lost."""
        return self.since + self.move + (self.holder if is_holders else self.challenger)

    def moved(self, is_holders: bool, now: int) -> Clock:
        """After a move at `now`, before the deadline."""
        charged = 0 if self.stands else max(0, now - self.since - self.move)
        holder, challenger = charged * is_holders, charged * (not is_holders)
        return Clock(now, self.move, self.holder - holder, self.challenger - challenger)


@dataclass(frozen=True, slots=True)
class Game:
    """A game as both sides see it; all but `claim` and `clock` is of the part played so far.

    Attributes:
        states, works: as the holder opened them.
        start: state digest that the disputed step opens with.
        result: piece root of the trace's last node.
        step: of the disputed step, in the round.
        part: of the program; the whole header is `program`.
        trace: root; it has so many `nodes`.
        tree: the tree node in dispute, the sealed root where it is at the top; in the last move
            the root over the words of the leaf.
        level, index: where it lies.
        node: in dispute, of `size` bytes; None while the search is in the trace.
        generated: in a token's trace the digest of the node that the token is of; else zero.
        token: its number in the step's batch; None in every other trace.
        outer: in a token's trace the game as it stood when the token was picked.
        layers: of the trace, from above; `tensor_layers` those of the node.
        leaf: the bytes that the holder posted.
    """

    claim: Claim
    clock: Clock
    phase: GamePhase
    outcome: Outcome = Outcome.NONE
    states: tuple[Digest, ...] = ()
    works: bytes = b""
    start: Digest = ZERO_DIGEST
    result: Digest = ZERO_DIGEST
    step: int = 0
    header: bytes = field(default=b"", repr=False)
    template: bytes = field(default=b"", repr=False)
    program: TraceHeader | None = field(default=None, repr=False)
    part: int = 0
    nodes: int = 0
    trace: Digest = ZERO_DIGEST
    tree: Digest = ZERO_DIGEST
    level: int = 0
    index: int = 0
    node: int | None = None
    size: int = 0
    generated: Digest = ZERO_DIGEST
    token: int | None = None
    outer: Game | None = field(default=None, repr=False)
    layers: tuple[MerkleLayer, ...] = ()
    tensor_layers: tuple[MerkleLayer, ...] = ()
    leaf: bytes = field(default=b"", repr=False)

    @classmethod
    def begin(cls, claim: Claim, now: int) -> Game:
        """A game whose turn in the queue has come."""
        clock = Clock(now, claim.move_seconds, claim.holder_seconds, claim.challenger_seconds)
        return cls(
            claim,
            clock,
            GamePhase.POST_UPDATE_PROOF if claim.is_update_proof else GamePhase.OPEN_STEPS,
        )

    @property
    def count(self) -> int:
        """Leaves of the tree that is searched."""
        return self.nodes if self.node is None else pieces_of(self.size)

    @property
    def leaf_bytes(self) -> int:
        """How long the leaf in dispute is."""
        return min(PIECE, self.size - self.index * PIECE)

    @property
    def disputed(self) -> Disputed:
        """What the proof is checked against."""
        node = 0 if self.node is None else self.node
        token = (self.generated, self.token or 0)
        return Disputed(self.start, self.trace, self.nodes, node, self.step, *token)

    def timeout(self, now: int) -> Game:
        """Raises IllegalMove while who is to move has time, and where nobody is to move."""
        if not GamePhase.WAITING < self.phase < GamePhase.DECIDED:
            raise IllegalMove("nobody is to move")
        if now < self.clock.deadline(self.phase.is_holders):
            raise IllegalMove("who is to move has time left")
        outcome = Outcome.HOLDER_LOST if self.phase.is_holders else Outcome.CHALLENGER_LOST
        return replace(self, phase=GamePhase.OVER, outcome=outcome)

    def play(self, move: Move, by_holder: bool, now: int, operations: Operations) -> Game:
        """The game after this move of one side. Raises IllegalMove where the contract would."""
        if not GamePhase.WAITING < self.phase < GamePhase.DECIDED:
            raise IllegalMove("nobody is to move")
        if by_holder != self.phase.is_holders:
            raise IllegalMove("the other side is to move")
        if now >= self.clock.deadline(by_holder):
            raise IllegalMove("no time is left")
        try:
            played = self._played(move, operations)
        except (WrongOpening, MalformedProgram) as error:
            raise IllegalMove(str(error)) from error
        return replace(played, clock=self.clock.moved(by_holder, now))

    def _played(self, move: Move, operations: Operations) -> Game:
        match self.phase, move:
            case GamePhase.PICK_STEP, PickStep():
                return _pick_step(self, move)
            case GamePhase.PICK, Pick():
                return _pick(self, move)
            case GamePhase.PICK, PickNode():
                return _pick_node(self, move)
            case GamePhase.PROVE, PickToken():
                return _pick_token(self, move)
            case GamePhase.PROVE, Prove():
                return _prove(self, move.proof, operations)
        return self._defended(move)

    def _defended(self, move: Move) -> Game:
        match self.phase, move:
            case GamePhase.OPEN_STEPS, OpenSteps():
                return _open_steps(self, move)
            case GamePhase.POST_TRACE, PostTrace():
                return _take_trace(self, move.path, move.layer)
            case GamePhase.POST_UPDATE_PROOF, PostUpdateProof():
                return _post_update_proof(self, move)
            case GamePhase.REVEAL, Reveal():
                return _reveal(self, move)
            case GamePhase.POST_LEAF, PostLeaf():
                return _post_leaf(self, move)
        raise IllegalMove(f"{type(move).__name__} in {self.phase.name}")


def result_of(state: Digest, work: bytes) -> Digest:
    """Piece root of a step's last node: state after it, norm, losses."""
    return top(piece_tree(state + work))


def steps_tree(
    initial_state: Digest, states: Sequence[Digest], works: bytes
) -> tuple[list[tuple[Digest, Digest]], MemoryTree]:
    """For each step the state that it opens with and its result, and the tree over both."""
    size = len(works) // len(states)
    pairs = []
    for i, state in enumerate(states):
        start = states[i - 1] if i else initial_state
        pairs.append((start, result_of(state, works[i * size : (i + 1) * size])))
    return pairs, MemoryTree([keccak256(start + result) for start, result in pairs])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IllegalMove(message)


def _take_header(game: Game, part: ProgramPart) -> TraceHeader:
    root = root_from(keccak256(part.data), 0, part.count, part.path)
    _require(root == game.claim.program, "the header is not of the program")
    return TraceHeader.from_bytes(part.data)


def _take_template(game: Game, part: ProgramPart, node: int) -> TraceTemplate:
    _require(part.index > 0, "the header is no template")
    root = root_from(keccak256(part.data), part.index, part.count, part.path)
    _require(root == game.claim.program, "the template is not of the program")
    template = TraceTemplate.from_bytes(part.data)
    _require(template.part == game.part, "the template is of another part")
    _require(template.iteration(node) is not None, f"the template is not that of node {node}")
    return template


def _open_steps(game: Game, move: OpenSteps) -> Game:
    claim, header = game.claim, _take_header(game, move.header)
    count = header.segment
    _require(count > 0 and (claim.segment + 1) * count <= header.steps, "no such segment")
    _require(len(move.states) == count, "not a state for each step")
    _require(move.states[-1] == claim.closing, "another closing state")
    is_as_said = claim.work_tag in {ZERO_DIGEST, keccak256(move.works)}
    _require(is_as_said, "another work tag")
    size = 8 + header.loss_bytes * header.micro_batches
    _require(len(move.works) == count * size, "works of another length")
    for i in range(count):
        is_finite = move.states[i] != ZERO_DIGEST and _is_finite(
            move.works[i * size :][:size], header.loss_bytes
        )
        _require(is_finite, f"step {i} is not finite")
    return replace(
        game,
        phase=GamePhase.PICK_STEP,
        header=move.header.data,
        states=move.states,
        works=move.works,
        nodes=header.step_nodes,
        step=claim.segment * count,
        program=header,
    )


def _is_finite(work: bytes, loss_bytes: int) -> bool:
    if int.from_bytes(work[:8], "big") >> 52 & 0x7FF == 0x7FF:
        return False
    losses = (work[i : i + 4] for i in range(8, len(work), loss_bytes))
    return all(int.from_bytes(loss, "big") >> 23 & 0xFF != 0xFF for loss in losses)


def _pick_step(game: Game, move: PickStep) -> Game:
    _, tree = steps_tree(game.claim.initial_state, game.states, game.works)
    leaf = keccak256(move.start + move.result)
    _require(root_from(leaf, move.step, tree.count, move.path) == top(tree), "not of the steps")
    step, header = game.step + move.step, game.program
    assert header is not None  # it was shown with the steps
    part = header.step_part(game.claim.round, step)
    picked = replace(game, part=part, nodes=header.nodes(part), step=step)
    return replace(picked, phase=GamePhase.POST_TRACE, start=move.start, result=move.result)


def _post_update_proof(game: Game, move: PostUpdateProof) -> Game:
    claim, header = game.claim, _take_header(game, move.header)
    _require(move.roots.digest() == claim.initial_state, "roots of another state")
    steps = (claim.segment + 1) * header.segment  # fewer than H where the seat ended early
    _require(steps <= header.steps, "no such segment")
    part = header.update_proof_part(claim.round)
    nodes, game = header.nodes(part), replace(game, part=part)
    if nodes == 0:
        return replace(game, phase=GamePhase.DECIDED, outcome=Outcome.CHALLENGER_LOST)
    template = _take_template(game, move.template, nodes - 1)
    _require(update_root(template.size, move.pieces) == claim.update_root, "another update")
    linked = replace(
        game,
        header=move.header.data,
        nodes=nodes,
        start=claim.initial_state,
        result=move.pieces,
        step=steps,
    )
    return _take_trace(linked, move.path, move.layer)


def _take_trace(game: Game, path: Sequence[Digest], layer: tuple[Digest, ...]) -> Game:
    root = root_from(game.result, game.nodes - 1, game.nodes, path)
    level = height(game.nodes)
    posted = replace(game, trace=root, tree=root, level=level, index=0)
    _require(_above(posted, layer, 0) == root, "the layer is of another trace")
    return replace(_with_layer(posted, layer), phase=GamePhase.PICK)


def _above(
    game: Game, nodes: Sequence[Digest], first: int, siblings: Sequence[Digest] = ()
) -> Digest:
    """The node in dispute, from some of the layer below it."""
    levels, count = layer_levels(game.level), game.count
    below = game.level - levels
    if below == 0:
        nodes = [keccak256(LEAF + leaf) for leaf in nodes]
    node = fold(nodes, first, width_at(count, below), levels, siblings)
    return seal(count, node) if game.level == height(count) else node


def _with_layer(game: Game, nodes: tuple[Digest, ...]) -> Game:
    levels = layer_levels(game.level)
    layer = MerkleLayer(game.level - levels, game.index << levels, nodes)
    if game.node is None:
        return replace(game, layers=(*game.layers, layer))
    return replace(game, tensor_layers=(*game.tensor_layers, layer))


def _reveal(game: Game, move: Reveal) -> Game:
    above = _above(game, move.layer, game.index << layer_levels(game.level))
    _require(above == game.tree, "the layer is not of the node in dispute")
    return replace(_with_layer(game, move.layer), phase=GamePhase.PICK)


def _pick(game: Game, move: Pick) -> Game:
    _require(game.level > LAYER_LEVELS or game.node is not None, "that is a node of the trace")
    picked = _take_child(game, move.child, move.node, move.path)
    return replace(picked, phase=GamePhase.REVEAL if picked.level else GamePhase.POST_LEAF)


def _take_child(game: Game, child: int, node: Digest, path: Sequence[Digest]) -> Game:
    levels = layer_levels(game.level)
    _require(0 <= child < 1 << levels, f"child {child}")
    index = (game.index << levels) + child
    _require(_above(game, [node], index, path) == game.tree, "not of the node in dispute")
    return replace(game, tree=node, index=index, level=game.level - levels)


def _pick_node(game: Game, move: PickNode) -> Game:
    _require(game.level <= LAYER_LEVELS and game.node is None, "not a node of the trace")
    picked = _take_child(game, move.child, move.digest, move.path)
    template = _take_template(game, move.template, picked.index)
    _require(template.size <= MOST_BYTES, "too many bytes of a node")
    level = height(pieces_of(template.size))
    return replace(
        picked,
        phase=GamePhase.REVEAL if level else GamePhase.POST_LEAF,
        template=move.template.data,
        node=picked.index,
        size=template.size,
        index=0,
        level=level,
    )


def _post_leaf(game: Game, move: PostLeaf) -> Game:
    _require(len(move.leaf) == game.leaf_bytes, "a leaf of another length")
    digest = keccak256(move.leaf)
    if game.count == 1:
        digest = seal(1, keccak256(LEAF + digest))
    _require(digest == game.tree, "another leaf")
    return replace(game, phase=GamePhase.PROVE, leaf=move.leaf, tree=top(words_tree(move.leaf)))


def _pick_token(game: Game, move: PickToken) -> Game:
    """The search goes on in the trace of the token, which ends with it."""
    _require(move.header == game.header, "another header")
    _require(move.template == game.template, "another template")
    template, header = TraceTemplate.from_bytes(move.template), game.program
    _require(template.op == GENERATED, "the node has a formula")
    node = game.node
    if header is None or node is None:
        raise IllegalMove("an update samples nothing")
    trace = root_from(move.digest, node, game.nodes, move.path)
    _require(trace == game.trace, "the digest is not of the trace")
    offset = _posted_at(game, move.token * TOKEN_BYTES, move.word, move.word_path)
    token = move.word[offset : offset + TOKEN_BYTES]
    before = (template.iteration(node) or 0) * (template.size // TOKEN_BYTES)
    part = header.generation_part(game.part)
    nodes = header.nodes(part)
    _require(game.nodes <= MOST_STEP_NODES, "too many nodes of a step")
    _require(template.size <= MOST_TOKENS_BYTES, "too many bytes of tokens")
    _require(nodes <= MOST_TOKEN_NODES, "too many nodes of a token")
    return replace(
        game,
        phase=GamePhase.POST_TRACE,
        result=top(piece_tree(token)),
        generated=move.digest,
        token=before + move.token,
        outer=game,
        part=part,
        nodes=nodes,
        node=None,
        layers=(),
        tensor_layers=(),
        leaf=b"",
    )


def _posted_at(game: Game, start: int, word: Digest, path: Sequence[Digest]) -> int:
    """Where in the word of the leaf the bytes of the node begin that are `start` bytes in."""
    offset = start - game.index * PIECE
    _require(0 <= offset < len(game.leaf), "the element is not in the leaf")
    words = -(-len(game.leaf) // WORD_BYTES)
    root = root_from(word, offset // WORD_BYTES, words, path)
    _require(root == game.tree, "not a word of the leaf")
    return offset % WORD_BYTES


def _prove(game: Game, proof: Proof, operations: Operations) -> Game:
    _require(proof.header == game.header, "another header")
    _require(proof.template == game.template, "another template")
    width = TraceTemplate.from_bytes(proof.template).width
    offset = _posted_at(game, proof.element * width, proof.word, proof.word_path)
    try:
        computed = compute(game.disputed, game.claim, proof, operations)
    except ValueError as error:
        raise IllegalMove(str(error)) from error
    is_right = computed == proof.word[offset:][:width]
    outcome = Outcome.CHALLENGER_LOST if is_right else Outcome.HOLDER_LOST
    return replace(game, phase=GamePhase.DECIDED, outcome=outcome)
