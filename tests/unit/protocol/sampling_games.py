"""A small job whose steps sample: a step's trace with nodes of tokens, and a token's own trace.

A token's formula is that it is a copy of its node's first one, so that whoever posts another is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from tests.support.games import Tamper
from tests.support.identities import digest
from tests.unit.protocol.models import HEADER
from tests.unit.protocol.small_games import JOB

from atoll.protocol.checkpoint_commitments import StateRoots, rollouts_digest
from atoll.protocol.games.game_machine import Game, GamePhase
from atoll.protocol.games.judge import Need, Operations
from atoll.protocol.games.moves import GENERATED, TOKEN_BYTES, Claim, Move, Opening, ProgramPart
from atoll.protocol.games.players import answered, attack, defend
from atoll.protocol.games.trees import (
    CHUNK,
    PIECE,
    MemoryTree,
    height,
    path_of,
    piece_tree,
    siblings_of,
    top,
)
from atoll.protocol.hashing import sha256
from atoll.protocol.program import (
    Input,
    Part,
    Source,
    TraceHeader,
    TraceTemplate,
    program_leaves,
    program_root,
)
from atoll.protocol.types import Digest

COPY = 0x0800
TOKENS = 4219
SIZE = TOKENS * TOKEN_BYTES
"""Of a node of tokens: 66 pieces, the last of them short, so that its tree has two layers."""
TOKEN = 40 * PIECE // TOKEN_BYTES + 6
READ = 40 * PIECE + 64
"""So many bytes before the token that is disputed are read by its trace."""
STEP = 2
IDS = CHUNK + 200
"""Of a step."""
TOKEN_PART = 2
TOKEN_NODES = 3


class Copies(Operations):
    """One operation: a copy of its input, four bytes an element."""

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        assert op == COPY
        return Need(0, 0, 0) if opened else Need(0, 4 * element, 4)

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        return opened[0]


COPIES = Copies()


def copies(
    part: int, node: int, size: int, source: Input, words: tuple[int, ...] = ()
) -> TraceTemplate:
    return TraceTemplate(part, COPY, 4, size, node, 1, 0, (source,), words, b"ids")


TEMPLATES = (
    copies(Part.STEP, 0, 2 * IDS, Input(Source.SAMPLED, 0, 0, 2 * IDS), (IDS,)),
    TraceTemplate(Part.STEP, GENERATED, TOKEN_BYTES, SIZE, 1, 2, 2, (), ()),
    copies(Part.STEP, 2, 16, Input(Source.TRACE, 1, 0, SIZE)),
    copies(Part.STEP, 4, 16, Input(Source.TRACE, 3, 0, SIZE)),
    copies(TOKEN_PART, 0, READ, Input(Source.GENERATED, 0, 0, SIZE)),
    copies(TOKEN_PART, 1, 416, Input(Source.CONTEXT, 0, 0, 416)),
    copies(TOKEN_PART, 2, 16, Input(Source.TRACE, 0, 0, READ)),
)
PROGRAM: TraceHeader = replace(HEADER, step_nodes=5, generation_nodes=(TOKEN_NODES,))


def ids_tree(data: bytes) -> MemoryTree:
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    hashes = [sha256(b"ids" + at.to_bytes(8, "big") + chunk) for at, chunk in enumerate(chunks)]
    return MemoryTree(hashes, sha256)


ID_BYTES = [bytes((31 * at + step) % 251 for at in range(IDS)) for step in range(STEP)]
ID_TREES = [ids_tree(data) for data in ID_BYTES]
ID_ROOTS = [top(tree, sha256) for tree in ID_TREES]
CHAIN = list(accumulate(ID_ROOTS, rollouts_digest, initial=digest("before")))
"""The buffers root before each step."""
ROOTS = StateRoots(digest("params"), digest("optimiser"), CHAIN[STEP], digest("rng"))
CLAIM: Claim = JOB.claim(program=program_root(PROGRAM, TEMPLATES))


def context(token: int) -> bytes:
    """The thirteen words of a token's trace."""
    numbers = (CLAIM.seat, CLAIM.round, STEP, CLAIM.round * PROGRAM.steps + STEP)
    ends = (ROOTS.digest(), *ROOTS, CLAIM.model_params, CLAIM.model_exponents)
    words = (CLAIM.data_seed, *(number.to_bytes(32, "big") for number in numbers), *ends)
    return b"".join(words) + token.to_bytes(32, "big")


@dataclass
class Run:
    """A trace whose nodes are these."""

    outputs: list[bytes]
    context: bytes
    roots: StateRoots = ROOTS

    @cached_property
    def _tensors(self) -> list[MemoryTree]:
        return [piece_tree(data) for data in self.outputs]

    @cached_property
    def tree(self) -> MemoryTree:
        return MemoryTree([top(tensor) for tensor in self._tensors])

    def tensor(self, node: int) -> MemoryTree:
        return self._tensors[node]

    def read(self, node: int, start: int, end: int) -> bytes:
        return self.outputs[node][start:end]

    def open(self, template: TraceTemplate, source: Input, need: Need) -> Opening:
        """Ids of an earlier step."""
        assert source.source is Source.SAMPLED
        step, inside = divmod(need.offset, IDS)
        first, tree = inside // CHUNK, ID_TREES[step]
        siblings = siblings_of(tree.node, first, 1, tree.count, height(tree.count))
        data = ID_BYTES[step][first * CHUNK :][:CHUNK]
        return Opening(data, siblings, (CHAIN[step], *ID_ROOTS[step + 1 :]))


@dataclass
class Side:
    """What one side knows: a run, and what it does to nodes of the step and of tokens."""

    tampers: Mapping[int, Tamper] = field(default_factory=dict)
    token_tampers: Mapping[int, Tamper] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    states: Sequence[Digest] = ()
    works: bytes = b""
    _part: int = Part.STEP

    @cached_property
    def step(self) -> Run:
        first = bytes(range(TOKEN_BYTES))
        honest = (b"".join(ID_BYTES), first * TOKENS, first, first * TOKENS, first)
        outputs = [self.tampers.get(node, bytes)(data) for node, data in enumerate(honest)]
        return Run(outputs, context(0)[:-32])

    @property
    def header(self) -> ProgramPart:
        return part(0)

    def template(self, node: int) -> ProgramPart:
        fits = (t.part == self._part and t.iteration(node) is not None for t in TEMPLATES)
        return part(1 + list(fits).index(True))

    def trace(self, step: int) -> Run:
        assert step == STEP
        self._part = Part.STEP
        return self.step

    def token_trace(self, step: int, token: int) -> Run:
        assert step == STEP
        self._part = TOKEN_PART
        self.asked.append(token)
        tokens = self.step.outputs[1 + 2 * (token // TOKENS)]
        outputs = [tokens[:READ], context(token), tokens[:TOKEN_BYTES]]
        changed = [self.token_tampers.get(i, bytes)(data) for i, data in enumerate(outputs)]
        return Run(changed, context(token))


def part(index: int) -> ProgramPart:
    leaves = MemoryTree(program_leaves(PROGRAM, TEMPLATES))
    data = [PROGRAM.to_bytes(), *(each.to_bytes() for each in TEMPLATES)][index]
    return ProgramPart(data, index, leaves.count, path_of(leaves, index))


def begun(holder: Side) -> Game:
    """A game whose step has been picked."""
    return replace(
        Game.begin(CLAIM, 1000),
        phase=GamePhase.POST_TRACE,
        start=ROOTS.digest(),
        result=top(piece_tree(holder.step.outputs[-1])),
        step=STEP,
        header=PROGRAM.to_bytes(),
        program=PROGRAM,
        nodes=PROGRAM.step_nodes,
    )


def played(holder: Side, challenger: Side) -> list[tuple[Game, Move]]:
    """Every game with the move that is played in it; the last one is decided."""
    game, now = begun(holder), 1000
    moves: list[tuple[Game, Move]] = []
    while game.phase is not GamePhase.DECIDED:
        now += 1
        is_holders = game.phase.is_holders
        move = defend(game, holder) if is_holders else answered(attack(game, challenger), COPIES)
        moves.append((game, move))
        game = game.play(move, is_holders, now, COPIES)
    return [*moves, (game, moves[-1][1])]
