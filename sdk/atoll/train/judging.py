"""What a player of a game knows: its own run of the segment, step by step and node by node.

Rule of this file: everything follows from the manifest, the data and the states that the claim is
about, so that whoever was killed in the middle of a game knows the same when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

import dag_cbor
from torch import Tensor

from atoll.numerics.kernels.interface import CPU
from atoll.numerics.pieces import SHARD_BYTES, ByteSlices, shard_node
from atoll.numerics.segment import Course
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import StepResult, inner_step, state_roots
from atoll.numerics.tables import table_parts
from atoll.numerics.tensors import chunk_leaves, raw_bytes
from atoll.numerics.tokens import TokenSource
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.imports import Context, Sources
from atoll.numerics.trace.program import Program
from atoll.numerics.trace.run import node_digest, run
from atoll.protocol.claims import ModelRoots, ProgramHeader
from atoll.protocol.draws import dropout_key
from atoll.protocol.games.claims import Opening, ProgramPart
from atoll.protocol.games.judge import Need
from atoll.protocol.games.trees import (
    CHUNK,
    PIECE,
    MemoryTree,
    Tree,
    fold,
    height,
    piece_tree,
    pieces_of,
    siblings_of,
)
from atoll.protocol.hashing import keccak256
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.leaves import StateRoots, float_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import Input, Part, Source, Template
from atoll.protocol.words import ZERO_DIGEST, Digest, Slot
from atoll.storage.local import LocalStore
from atoll.train.base import read_weights
from atoll.train.checkpoints import DISPUTED
from atoll.train.course import open_course
from atoll.train.data import NODE_BYTES, TokenFile
from atoll.train.judged import JudgeTask
from atoll.train.resume import checkpoints_of, state_after
from atoll.train.seat_task import NO_DOMAIN, TrainTask
from atoll.train.stored_states import read_global_state

_SHARD_LEVELS: Final = height(SHARD_BYTES // PIECE)
OpenCourse: TypeAlias = Callable[..., Course]
"""With the arguments of `open_course`."""


def model_roots(model: GlobalState) -> ModelRoots:
    """What the state's digest is made of."""
    return ModelRoots(*model.roots())


def program_header(manifest: Manifest, initial: Digest) -> ProgramHeader:
    """The header of the job's program with what opens it. Raises as `program_of`."""
    program = _program(manifest.to_bytes(), initial)
    tree = program.tree
    return ProgramHeader(program.header, len(tree.levels[0]), tuple(tree.path(0)))


@lru_cache(maxsize=2)
def _program(manifest: bytes, initial: Digest) -> Program:
    return program_of(Manifest.from_bytes(manifest), initial)


class _Begun(NamedTuple):
    """What a run needs memory for: the model, and the state that the claim begins with."""

    course: Course
    model: GlobalState
    opening: SeatState


class OwnRun:
    """`law.games.players.Knowledge` from a run of one's own.

    Digests stay when it lets go of models and states, and those are made again where a move needs
    them: however many games take turns, each has them made four times at most, for the steps, for
    the trace, for the node in dispute and for what is shown of it. Games about one claim may be
    about several of its steps.

    Args:
        task: what the game is about.
        store: holds the data and the model; the states before the segment are run again, from the
            last that was kept of an earlier run, and are kept until the round is final.
        open_: how the course of what is played is opened.

    Raises:
        NotFound, CorruptBlock, MalformedState, MalformedDataset: something is missing or damaged;
            every use of it, too.
        ManifestError: the job's operations cannot be judged.
    """

    def __init__(self, task: JudgeTask, store: LocalStore, open_: OpenCourse = open_course) -> None:
        self._task, self._store, self._open = task, store, open_
        self._manifest = Manifest.from_bytes(task.manifest)
        self._program = _program(task.manifest, task.initial)
        self._part = self._program.header.link_part(task.round) if task.is_link else int(Part.STEP)
        self._held: _Begun | None = None
        self._states: tuple[Digest, ...] | None = None
        self._works = b""
        self._traces: dict[int, OwnTrace] = {}

    @property
    def holds_states(self) -> bool:
        """Whether it has what it needs memory for."""
        return self._held is not None

    def let_go(self) -> None:
        """Keeps nothing but digests."""
        self._held = None
        for trace in self._traces.values():
            trace.let_go()

    def _begun(self) -> _Begun:
        if self._held is None:
            task, manifest = self._task, self._manifest
            model = read_global_state(manifest, task.model, self._store)
            course = self._open(manifest, task.data_seed, task.seat, task.round, self._store)
            self._held = _Begun(replace(course, model=model), model, self._reached())
        return self._held

    def _reached(self) -> SeatState:
        """What the claim begins with; of a link the last state."""
        task = self._task
        # What came before is as it has to be.
        slot = Slot(NO_DOMAIN, task.job, task.round)  # what the seat itself keeps is left alone
        ours = TrainTask(
            self._manifest, slot, task.seat, task.data_seed, task.model, earlier=task.earlier
        )
        kept = checkpoints_of(ours, self._store, last_part=DISPUTED)
        return state_after(ours, task.segment + task.is_link, self._store, kept)

    @property
    def states(self) -> Sequence[Digest]:
        """The digest after each step of the segment; none of a link."""
        return self._stepped()[0]

    @property
    def works(self) -> bytes:
        """Norm and losses of each step; none of a link."""
        return self._stepped()[1]

    @property
    def header(self) -> ProgramPart:
        """The program's, with its path."""
        return self._opened(0, self._program.header.to_bytes())

    def template(self, node: int) -> ProgramPart:
        """That of a node of the part that is played, with its path."""
        index, _ = self._program.at(self._part, node)
        return self._opened(1 + index, self._program.templates[index].to_bytes())

    def trace(self, step: int) -> OwnTrace:
        """The run of a step of the round, or of the link, which comes after the last."""
        task = self._task
        step = self._first + self._manifest.inner.segment if task.is_link else step
        if not task.is_link:
            self._part = self._program.header.step_part(task.round, step)
        for other in self._traces.keys() - {step}:
            self._traces[other].let_go()
        if step not in self._traces:
            self._traces[step] = self._trace_of(step)
            self._traces[step].again = partial(self._sources, step)
        return self._traces[step]

    def _trace_of(self, step: int) -> OwnTrace:
        return OwnTrace(self._program, self._part, self._sources(step))

    def _opened(self, index: int, data: bytes) -> ProgramPart:
        tree = self._program.tree
        return ProgramPart(data, index, len(tree.levels[0]), tuple(tree.path(index)))

    def _stepped(self) -> tuple[tuple[Digest, ...], bytes]:
        if self._states is None:
            run = [] if self._task.is_link else list(self._results(self._manifest.inner.segment))
            self._states = tuple(state for state, _ in run)
            self._works = b"".join(work for _, work in run)
        return self._states, self._works

    def _results(self, count: int) -> Iterator[tuple[Digest, bytes]]:
        """Of each step; after one that is not finite there is nothing, written as zeros."""
        state, silent = self._begun().opening, bytes(8 + 4 * self._micro_batches)
        for step in range(self._first, self._first + count):
            done = self._step(state, step)
            losses = b"".join(float_bytes(">f", loss) for loss in done.work.losses)
            if done.diverged:
                yield ZERO_DIGEST, float_bytes(">d", done.work.norm) + losses
                yield from [(ZERO_DIGEST, silent)] * (self._first + count - 1 - step)
                return
            state = done.state
            yield state_roots(state).digest(), float_bytes(">d", done.work.norm) + losses

    def _step(self, state: SeatState, step: int) -> StepResult:
        course = self._begun().course
        key = dropout_key(course.data_seed, course.seat)
        batch, state = course.batch(course.offsets(step)), course.begin(state, step)
        done = inner_step(state, batch, course.global_step0 + step, course.recipe, key)
        # What the trace and the link read lies on the CPU.
        state = done.state.on(CPU)
        return replace(done, state=state if done.diverged else course.end(state))

    @property
    def _first(self) -> int:
        """The segment's first step in the round."""
        return self._task.segment * self._manifest.inner.segment

    @property
    def _micro_batches(self) -> int:
        return self._manifest.inner.batch // self._manifest.inner.micro_batch

    def _sources(self, step: int) -> Sources:
        manifest, (course, model, state) = self._manifest, self._begun()
        for done in range(self._first, step if not self._task.is_link else self._first):
            state = self._step(state, done).state
        exponents = model.exponent_bytes()
        context = Context(
            course.data_seed,
            course.seat,
            course.round,
            step,
            course.global_step0 + step,
            state_roots(state),
            model.params_root(),
            sha256_digest(exponents),
        )
        total = manifest.terms.rounds * manifest.inner.steps
        tables = b"".join(table_parts(manifest.model, manifest.inner, total))
        base = dict(self._weights()) if manifest.lora is not None else {}
        return Sources(context, state, course.tokens, tables, base, model.params, exponents)

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        return read_weights(self._manifest.init, self._manifest.model, self._store)


class OwnTrace:
    """`law.games.players.Trace`: one run of a step, or of the link.

    Attributes:
        again: makes its sources anew, where it let go of them.
    """

    again: Callable[[], Sources]
    _sources: Sources | None
    _searched: tuple[int, Tree] | None = None

    def __init__(self, program: Program, part: int, sources: Sources) -> None:
        self._program, self._part, self._sources = program, part, sources
        digests = [node_digest(tensor) for _, tensor in run(program, part, sources)]
        self._tree = MemoryTree(digests)
        self._bytes: dict[int, bytes] = {}

    def let_go(self) -> None:
        """Keeps nothing but digests: of the nodes, and of the last one that was searched in."""
        self._sources = None
        self._bytes.clear()

    def _read(self) -> Sources:
        if self._sources is None:
            self._sources = self.again()
        return self._sources

    @property
    def roots(self) -> StateRoots:
        """Of the state that it opens with."""
        return self._read().context.roots

    @property
    def context(self) -> bytes:
        """The twelve words that the game knows of it."""
        return self._read().context.to_bytes()

    @property
    def tree(self) -> Tree:
        """Over the digests of the nodes."""
        return self._tree

    def tensor(self, node: int) -> Tree:
        """Over the pieces of a node's bytes."""
        if self._searched is None or self._searched[0] != node:
            self._searched = (node, piece_tree(self._node(node)))
        return self._searched[1]

    def read(self, node: int, start: int, end: int) -> bytes:
        """Bytes of a node."""
        return self._node(node)[start:end]

    def open(self, template: Template, source: Input, need: Need) -> Opening:
        """Whole pieces or chunks of an input that is neither of the trace nor the context."""
        found = self._read()
        match source.source:
            case Source.TOKENS:
                return _pieces_of_tokens(found.tokens, need)
            case Source.TABLES:
                return _part_of(MemoryTree(_digests(found.tables)), found.tables, PIECE, need)
            case Source.EXPONENTS:
                return Opening(found.exponents)
            case Source.MODEL:
                return _chunks_of(found.model, template, need)
            case Source.BASE:
                return _chunks_of(found.base, template, need)
            case Source.STATE:
                return _chunks_of(_rooted(found.state, template.words[2]), template, need)
        raise ValueError(f"{source.source.name} is not opened here")

    def _node(self, node: int) -> bytes:
        """A node's bytes; with them those of all that it reads, which a proof asks for next."""
        if node not in self._bytes:
            wanted = self._around(node)
            made = run(self._program, self._part, self._read())
            for number, tensor in made:
                if number in wanted:
                    self._bytes[number] = bytes(raw_bytes(tensor))
                if number == max(wanted):
                    break
        return self._bytes[node]

    def _around(self, node: int) -> set[int]:
        index, iteration = self._program.at(self._part, node)
        reads = (r for r in self._program.templates[index].inputs if r.source is Source.TRACE)
        return {node, *(read.node + iteration * read.stride for read in reads)}


def _digests(data: bytes) -> list[Digest]:
    return [keccak256(data[at : at + PIECE]) for at in range(0, len(data), PIECE)]


def _part_of(tree: Tree, data: ByteSlices, unit: int, need: Need, *, begin: int = 0) -> Opening:
    """The whole units of some bytes that hold what is needed; they begin at leaf `begin`."""
    first, last = need.offset // unit, (need.offset + need.length - 1) // unit
    span = (begin + first, last - first + 1)
    siblings = siblings_of(tree.node, *span, tree.count, height(tree.count))
    return Opening(data[first * unit : (last + 1) * unit], siblings)


def _rooted(state: SeatState, which: int) -> Mapping[str, Tensor]:
    """The tensors under one of a state's roots; none where the root is zero."""
    return state.params if which == 0 else state.under_optimiser_root()


def _chunks_of(tensors: Mapping[str, Tensor], template: Template, need: Need) -> Opening:
    if not tensors:
        return Opening()  # moments that nobody has moved yet
    name = str(cast(list[Any], dag_cbor.decode(template.tail))[1])
    tree = MemoryTree(chunk_leaves(tensors), hash=sha256_digest)
    return _part_of(tree, bytes(raw_bytes(tensors[name])), CHUNK, need, begin=template.words[0])


def _pieces_of_tokens(tokens: TokenSource, need: Need) -> Opening:
    data = _TokenBytes(tokens)
    nodes = tokens.nodes if isinstance(tokens, TokenFile) else None
    if nodes is None:
        spans = range(0, len(data), SHARD_BYTES)
        nodes = b"".join(shard_node(data[at : at + SHARD_BYTES]) for at in spans)
    return _part_of(_TokenTree(data, nodes), data, PIECE, need)


class _TokenBytes:
    """`ByteSlices` of tokens, at borders between words."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens, self._width = tokens, tokens[0:0].itemsize

    def __len__(self) -> int:
        return len(self._tokens) * self._width

    def __getitem__(self, span: slice, /) -> bytes:
        begin, end, _ = span.indices(len(self))
        return self._tokens[begin // self._width : end // self._width].tobytes()


class _TokenTree:
    """The tree over the pieces of tokens, which reads no MiB but those that a path begins in.

    Args:
        nodes: of each MiB, one after another.
    """

    def __init__(self, data: _TokenBytes, nodes: bytes) -> None:
        self._data = data
        self._nodes = [
            Digest(nodes[at : at + NODE_BYTES]) for at in range(0, len(nodes), NODE_BYTES)
        ]
        self._shards: dict[int, Tree] = {}

    @property
    def count(self) -> int:
        return pieces_of(len(self._data))

    def leaf(self, index: int) -> Digest:
        shard, inside = divmod(index, 1 << _SHARD_LEVELS)
        return self._shard(shard).leaf(inside)

    def node(self, level: int, index: int) -> Digest:
        above = level - _SHARD_LEVELS
        if above >= 0:
            first = index << above
            nodes = self._nodes[first : first + (1 << above)]
            return fold(nodes, first, len(self._nodes), above)
        shard, inside = divmod(index, 1 << -above)
        tree = self._shard(shard)
        return tree.node(min(level, height(tree.count)), inside)  # the last may be a short one

    def _shard(self, shard: int) -> Tree:
        if shard not in self._shards:
            at = shard * SHARD_BYTES
            self._shards[shard] = piece_tree(self._data[at : at + SHARD_BYTES])
        return self._shards[shard]
