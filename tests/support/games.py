"""A job small enough to be judged in a test: a family of operations, a program, and runs of it.

Rule of this file: `contracts/test/support/ToySteps.sol` computes the same operations; every source
of inputs, the loop over micro-batches and every shape of tree that a game can meet are in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from tests.support.game_events import events_of
from tests.support.toys import ADD, COPY, COPY_WORDS, DIGEST, GATHER, RESULT, ROOTS, SUM, TOY

from atoll.protocol import events as ev
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.games.game_machine import Game, GamePhase, Outcome
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import (
    Claim,
    Move,
    Opening,
    ProgramPart,
)
from atoll.protocol.games.players import Knowledge, answered, attack, defend
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
from atoll.protocol.hashing import keccak256, update_root
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.played import rebuilt
from atoll.protocol.program import (
    Fragment,
    Input,
    Part,
    Source,
    TraceHeader,
    TraceTemplate,
    program_leaves,
    program_root,
)
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, Wei

HOLDER = Address("0x00000000000000000000000000000000000A11cE")
TOKENS = 600
TABLES = 1100
Tamper = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Shape:
    """How large a toy job is.

    Attributes:
        weights: uint32s of the state's one parameter.
        filler: nodes that only make the trace longer.
        zero_moments: whether the optimiser root is zero.
        dithered: whether the update proof reads the context.
        fragments: none, or how many a state's parameters are mixed in by.
        overlap: the step that takes one in; its trace has more filler, by fragment.
    """

    weights: int = 700
    micro_batches: int = 3
    segment: int = 3
    segments: int = 2
    filler: int = 5
    layer: int = 100
    zero_moments: bool = True
    dithered: bool = False
    fragments: int = 0
    overlap: int = 0
    seed: int = 1


@dataclass(frozen=True)
class Job:
    """A program, and the documents that its imports read."""

    shape: Shape

    @cached_property
    def documents(self) -> dict[str, bytes]:
        """Contents by name, fixed by the seed."""
        sizes = {"w": 4 * self.shape.weights, "m": 4 * self.shape.weights, "tokens": 4 * TOKENS}
        sizes |= {"tables": TABLES, "base": 9000, "model": 4 * self.shape.weights, "exponents": 301}
        draw = random.Random(self.shape.seed)
        return {name: draw.randbytes(size) for name, size in sizes.items()}

    @cache  # noqa: B019 -- a job lives as long as its test
    def chunks(self, *names: str) -> MemoryTree:
        """The SHA-256 tree over the chunks of these documents, as of a state's tensors."""
        leaves = []
        for name in names:
            data = self.documents[name]
            for i, start in enumerate(range(0, len(data), CHUNK)):
                prefix = name.encode() + i.to_bytes(8, "big")
                leaves.append(sha256_digest(prefix + data[start : start + CHUNK]))
        return MemoryTree(leaves, sha256_digest)

    @cached_property
    def roots(self) -> StateRoots:
        """Of the state that the round opens with."""
        moments = ZERO_DIGEST if self.shape.zero_moments else self._root("m")
        buffers, rng = keccak256(b"buffers"), keccak256(b"rng")
        return StateRoots(self._root("base", "w"), moments, buffers, rng)

    def _root(self, *names: str) -> Digest:
        return top(self.chunks(*names), sha256_digest)

    @cached_property
    def header(self) -> TraceHeader:
        count = self.shape.fragments
        nodes = [self._nodes(part) for part in range(2 + 2 * count)]
        pairs = zip(nodes[1 : 1 + count], nodes[1 + count :], strict=False)
        return TraceHeader(
            step_nodes=nodes[Part.STEP],
            update_proof_nodes=0 if count else nodes[Part.UPDATE_PROOF],
            steps=self.shape.segment * self.shape.segments,
            segment=self.shape.segment,
            micro_batches=self.shape.micro_batches,
            data_root=top(piece_tree(self.documents["tokens"])),
            train_tokens=TOKENS,
            token_bytes=4,
            masked=False,
            batch=1,
            seq=1,
            tables_root=top(piece_tree(self.documents["tables"])),
            tables_bytes=TABLES,
            base_root=self._root("base", "m"),
            reset_period=3 if count else 1,
            overlap=self.shape.overlap,
            fragments=tuple(Fragment(*pair) for pair in pairs),
        )

    def _nodes(self, part: int) -> int:
        return sum(t.count for t in self.templates if t.part == part)

    @cached_property
    def templates(self) -> tuple[TraceTemplate, ...]:
        """Of the step and the update proof; of fragments each one's link, and the step that takes
        it in."""
        filler, count = self.shape.filler, self.shape.fragments
        parts = [_step_templates(self, filler)]
        parts += [_update_proof_templates(self) for _ in range(max(1, count))]
        parts += [_step_templates(self, filler + 1 + fragment) for fragment in range(count)]
        return tuple(replace(t, part=part) for part, each in enumerate(parts) for t in each)

    def part(self, index: int) -> ProgramPart:
        """The header, or template index − 1, with its path."""
        leaves = MemoryTree(program_leaves(self.header, self.templates))
        data = [self.header.to_bytes(), *(t.to_bytes() for t in self.templates)][index]
        return ProgramPart(data, index, leaves.count, path_of(leaves, index))

    def played(self, claim: Claim, step: int) -> int:
        """Which part the trace of the claim's link is, or that of a step of its round."""
        header = self.header
        is_update_proof = claim.is_update_proof
        return (
            header.update_proof_part(claim.round)
            if is_update_proof
            else header.step_part(claim.round, step)
        )

    def template_of(self, part: int, node: int) -> int:
        """Number of the template of a node."""
        of_node = (t.part == part and t.iteration(node) is not None for t in self.templates)
        return list(of_node).index(True)

    def claim(self, **changes: object) -> Claim:
        """A claim about a segment of it; the honest digests are the caller's to fill in."""
        claim = Claim(
            holder=HOLDER,
            set=keccak256(b"set"),
            position=keccak256(b"place"),
            program=program_root(self.header, self.templates),
            is_update_proof=False,
            seat=3,
            round=2,
            segment=1,
            data_seed=keccak256(b"data"),
            initial_state=self.roots.digest(),
            model_params=self._root("base", "model"),
            model_exponents=sha256_digest(self.documents["exponents"]),
            window_end=1_000_000,
            lowest_bond=Wei(10**18),
            holder_seconds=3600,
            challenger_seconds=1800,
            move_seconds=60,
        )
        return replace(claim, **changes)  # type: ignore[arg-type]


def _op(
    part: Part, op: int, size: int, first: int, *inputs: Input, **more: object
) -> TraceTemplate:
    """A template with one node; `more` are its other fields."""
    width = 32 if op in {ROOTS, DIGEST, COPY_WORDS} else 4
    return replace(
        TraceTemplate(part, op, width, size, first, 1, 0, inputs, ()),
        **more,  # type: ignore[arg-type]
    )


def _trace(node: int, size: int, stride: int = 0) -> Input:
    return Input(Source.TRACE, node, stride, size)


def _imports(job: Job) -> list[TraceTemplate]:
    """Nodes 0 to 7: one of every source but the trace."""
    sizes = {name: len(data) for name, data in job.documents.items()}
    base, weights = job.chunks("base").count, job.chunks("base", "w").count
    moments, model = job.chunks("m").count, job.chunks("base", "model").count
    frozen = job.chunks("base", "m").count
    found = []
    for node, (source, name, words) in enumerate(
        (
            (Source.STATE, "w", (base, weights, 0)),
            (Source.STATE, "m", (0, moments, 1)),
            (Source.TOKENS, "tokens", ()),
            (Source.TABLES, "tables", ()),
            (Source.BASE, "m", (base, frozen, 0)),
            (Source.MODEL, "model", (base, model, 0)),
            (Source.EXPONENTS, "exponents", ()),
        )
    ):
        size = sizes[name] // 4 * 4
        read = Input(source, 0, 0, sizes[name])
        tail = name.encode()
        found.append(_op(Part.STEP, COPY, size, node, read, words=words, tail=tail))
    context = Input(Source.CONTEXT, 0, 0, 384)
    return [*found, _op(Part.STEP, COPY_WORDS, 384, 7, context)]


def _step_templates(job: Job, filler: int) -> list[TraceTemplate]:
    """The imports; per micro-batch an ADD, a GATHER, a SUM and its total; filler; the result."""
    shape, step = job.shape, Part.STEP
    size = 4 * shape.weights
    layers = 4 * (shape.weights // shape.layer)
    loop: dict[str, object] = {"count": shape.micro_batches, "stride": 4}
    found = [
        *_imports(job),
        _op(step, ADD, size, 8, _trace(0, size), _trace(5, size), **loop),
        _op(
            step,
            GATHER,
            size,
            9,
            _trace(8, size, 4),
            _trace(1, size),
            words=(shape.weights,),
            **loop,
        ),
        _op(step, SUM, layers, 10, _trace(9, size, 4), words=(shape.layer,), **loop),
        _op(step, COPY, layers, 11, _trace(10, layers)),
    ]
    if shape.micro_batches > 1:
        more: dict[str, object] = {"count": shape.micro_batches - 1, "stride": 4}
        sums = (_trace(14, layers, 4), _trace(11, layers, 4))
        found.append(_op(step, ADD, layers, 15, *sums, **more))
    node = 8 + 4 * shape.micro_batches
    total = _trace(node - 1, layers)
    if filler:
        every: dict[str, object] = {"count": filler, "stride": 1}
        found.append(_op(step, COPY, 4, node, _trace(2, 4 * TOKENS), **every))
    node += filler
    found.append(_op(step, ROOTS, 128, node, _trace(7, 384), total))
    found.append(_op(step, DIGEST, 32, node + 1, _trace(node, 128)))
    result = 40 + 4 * shape.micro_batches
    return [*found, _op(step, RESULT, result, node + 2, _trace(node + 1, 32), total)]


def _update_proof_templates(job: Job) -> list[TraceTemplate]:
    size = 4 * job.shape.weights
    base, weights = job.chunks("base").count, job.chunks("base", "w").count
    state, model = Input(Source.STATE, 0, 0, size), Input(Source.MODEL, 0, 0, size)
    words = (base, weights, 0)
    found = [
        _op(Part.UPDATE_PROOF, COPY, size, 0, state, words=words, tail=b"w"),
        _op(Part.UPDATE_PROOF, COPY, size, 1, model, words=words, tail=b"model"),
    ]
    if job.shape.dithered:
        found.append(_op(Part.UPDATE_PROOF, COPY, 384, 2, Input(Source.CONTEXT, 0, 0, 384)))
    return [*found, _op(Part.UPDATE_PROOF, ADD, size, len(found), _trace(0, size), _trace(1, size))]


@dataclass
class Run:
    """A run of one step or of the update proof: an honest one, or with nodes that somebody changed.

    Attributes:
        tamper: by node, what is done to its bytes; later nodes are computed from what it gives.
    """

    job: Job
    claim: Claim
    roots: StateRoots
    step: int
    tamper: Mapping[int, Tamper] = field(default_factory=dict)

    @cached_property
    def context(self) -> bytes:
        numbers = (self.claim.seat, self.claim.round, self.step)
        step = self.claim.round * self.job.header.steps + self.step
        words = (
            self.claim.data_seed,
            *(number.to_bytes(32, "big") for number in (*numbers, step)),
            self.roots.digest(),
            *self.roots,
            self.claim.model_params,
            self.claim.model_exponents,
        )
        return b"".join(words)

    @cached_property
    def outputs(self) -> list[bytes]:
        """Every node's bytes."""
        part = self.job.played(self.claim, self.step)
        found: list[bytes] = []
        for node in range(self.job.header.nodes(part)):
            template = self.job.templates[self.job.template_of(part, node)]
            data = self._evaluated(template, template.iteration(node) or 0, found)
            found.append(self.tamper.get(node, bytes)(data))
        return found

    def _evaluated(self, template: TraceTemplate, iteration: int, before: Sequence[bytes]) -> bytes:
        inputs = [self._input(i, template, iteration, before) for i in template.inputs]
        if template.op in {COPY, COPY_WORDS}:
            return inputs[0][: template.size]
        attributes = template.attributes(iteration)
        elements = []
        for element in range(template.size // template.width):
            opened: list[bytes] = []
            while (need := TOY.need(template.op, attributes, element, opened)).length:
                opened.append(inputs[need.input][need.offset :][: need.length])
            elements.append(TOY.run(template.op, attributes, element, opened))
        return b"".join(elements)

    def _input(
        self, source: Input, template: TraceTemplate, iteration: int, before: Sequence[bytes]
    ) -> bytes:
        if source.source == Source.TRACE:
            return before[source.node + iteration * source.stride]
        if source.source == Source.CONTEXT:
            return self.context
        data = self.job.documents[self._name(source.source, template)]
        moments = source.source == Source.STATE and template.words[2] == 1
        return bytes(len(data)) if moments and self.roots.optimiser_root == ZERO_DIGEST else data

    def _name(self, source: Source, template: TraceTemplate) -> str:
        return template.tail.decode() if template.tail else source.name.lower()

    # --- what `players.Trace` asks ---

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
        data = self.job.documents[self._name(source.source, template)]
        if source.source == Source.EXPONENTS:
            return Opening(data)
        if source.source in {Source.TOKENS, Source.TABLES}:
            return _opened(piece_tree(data), data, need, PIECE, 0)
        if source.source == Source.STATE and template.words[2] == 1:
            if self.roots.optimiser_root == ZERO_DIGEST:
                return Opening()
            return _opened(self.job.chunks("m"), data, need, CHUNK, 0)
        tree = self.job.chunks("base", template.tail.decode())
        return _opened(tree, data, need, CHUNK, template.words[0])


def _opened(tree: MemoryTree, data: bytes, need: Need, unit: int, base: int) -> Opening:
    first, last = need.offset // unit, (need.offset + need.length - 1) // unit
    levels = height(tree.count)
    siblings = siblings_of(tree.node, base + first, last - first + 1, tree.count, levels)
    return Opening(data[first * unit : (last + 1) * unit], siblings)


@dataclass
class Party:
    """One side's knowledge of a claim: its own run of every step.

    Attributes:
        tampers: by step of the segment (of an update proof: 0), what it does to nodes of that step.
    """

    job: Job
    claim: Claim
    tampers: Mapping[int, Mapping[int, Tamper]] = field(default_factory=dict)
    _part: int = 0  # of the trace asked for last

    @cached_property
    def runs(self) -> list[Run]:
        """One a step of the segment."""
        if self.claim.is_update_proof:
            steps = (self.claim.segment + 1) * self.job.shape.segment
            return [Run(self.job, self.claim, self.job.roots, steps, self.tampers.get(0, {}))]
        runs: list[Run] = []
        first = self.claim.segment * self.job.shape.segment
        roots = self.job.roots
        for i in range(self.job.shape.segment):
            runs.append(Run(self.job, self.claim, roots, first + i, self.tampers.get(i, {})))
            after = runs[-1].outputs[-3]
            parts = [Digest(after[j : j + 32]) for j in range(0, 128, 32)]
            roots = StateRoots(*parts)
        return runs

    @cached_property
    def states(self) -> list[Digest]:
        return [Digest(run.outputs[-1][:32]) for run in self.runs]

    @cached_property
    def works(self) -> bytes:
        return b"".join(run.outputs[-1][32:] for run in self.runs)

    @cached_property
    def header(self) -> ProgramPart:
        return self.job.part(0)

    def template(self, node: int) -> ProgramPart:
        return self.job.part(1 + self.job.template_of(self._part, node))

    def trace(self, step: int) -> Run:
        self._part = self.job.played(self.claim, step)
        return self.runs[0 if self.claim.is_update_proof else step % self.job.shape.segment]

    @property
    def claimed(self) -> Claim:
        """The claim with what this party would have committed."""
        if self.claim.is_update_proof:
            update = self.runs[0].outputs[-1]
            root = update_root(len(update), top(piece_tree(update)))
            return replace(self.claim, update_root=root)
        closing, work = self.states[-1], keccak256(self.works)
        return replace(self.claim, closing=closing, work_tag=work)


def played(holder: Knowledge, challenger: Knowledge, claim: Claim) -> list[tuple[bool, Move, Game]]:
    """A whole game, a second a move: whose each move was, the move, and the game after it.

    Both know only what they ran, and what the chain says. Who has no legal move loses by its clock,
    which ends the list.
    """
    game, now, moves = Game.begin(claim, 1000), 1000, []
    said: list[ev.ContractEvent] = []
    while game.phase != GamePhase.DECIDED:
        now += 1
        by_holder, known = game.phase.is_holders, rebuilt(claim, 1000, said)
        move = defend(known, holder) if by_holder else answered(attack(known, challenger), TOY)
        game = game.play(move, by_holder, now, TOY)
        moves.append((by_holder, move, game))
        said += events_of(move, game)
    assert game.outcome in {Outcome.HOLDER_LOST, Outcome.CHALLENGER_LOST}
    return moves


def flipped(at: int) -> Tamper:
    """One bit of one byte, counted from the end where `at` is negative."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return change
