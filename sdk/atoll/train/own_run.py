"""What a player of a game knows: its own run of the segment, step by step and node by node.

A game is a bisection, as of Truebit (Teutsch and Reitwießner 2017) or Arbitrum. Two players come to
different states, and find where they part: first at a step (`OwnRun.states`), then at an operation
of its trace (`OwnTrace.tree`), then at a piece of what that gives (`OwnTrace.tensor`). The contract
computes one element of it.

Rule of this file: everything follows from the manifest, the data and the states that the claim is
about, so that whoever was killed in the middle of a game knows the same when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.kernels.interface import CPU
from atoll.numerics.schedule_tables import table_parts
from atoll.numerics.segment import Course
from atoll.numerics.state import GlobalState, SeatState, in_this_process
from atoll.numerics.step import StepResult, state_roots, step_in_place
from atoll.numerics.tensors import raw_bytes
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.imports import ImportContext, TraceSources, nothing_sampled
from atoll.numerics.trace.program_tree import Program
from atoll.numerics.trace.rollout_operations import tokens_of
from atoll.numerics.trace.run import node_digest, run
from atoll.protocol.checkpoint_commitments import StateRoots, step_bytes
from atoll.protocol.claims import ModelRoots, ProgramHeader
from atoll.protocol.games.judge import Need
from atoll.protocol.games.moves import Opening, ProgramPart
from atoll.protocol.games.trees import MemoryTree, Tree, piece_tree
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.program import Input, Part, Source, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Digest, RoundId
from atoll.storage.local import LocalStore
from atoll.train.checkpoints import DISPUTED
from atoll.train.course import open_course
from atoll.train.input_proofs import prove_input
from atoll.train.island import again_where_ranks_end
from atoll.train.judge_task import JudgeTask
from atoll.train.open_base import read_weights
from atoll.train.resume import Resumed, checkpoints_of, reached_after
from atoll.train.seat_task import NO_DOMAIN, TrainTask
from atoll.train.stored_states import read_global_state

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


@dataclass(frozen=True, slots=True)
class _ClaimStart:
    """What a run needs memory for.

    Attributes:
        model: of the round's start, without the outer optimiser's slots and moments.
    """

    course: Course
    model: GlobalState


@dataclass(frozen=True, slots=True)
class _StepRecord:
    """What is kept of a step: its state's digest, its norm and losses as the work tag has them."""

    state: Digest
    work: bytes


@dataclass(frozen=True, slots=True)
class _NodeTree:
    """The tree over the pieces of the node that was searched in last."""

    node: int
    tree: Tree


class OwnRun:
    """`protocol.games.players.Knowledge` from a run of one's own.

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
        self._part = (
            self._program.header.update_proof_part(task.round)
            if task.is_update_proof
            else int(Part.STEP)
        )
        self._held: _ClaimStart | None = None
        self._records: tuple[_StepRecord, ...] | None = None
        self._traces: dict[tuple[int, int | None], OwnTrace] = {}

    # --- memory ---

    @property
    def holds_states(self) -> bool:
        """Whether it has what it needs memory for."""
        return self._held is not None

    def let_go(self) -> None:
        """Keeps nothing but digests."""
        self._held = None
        for trace in self._traces.values():
            trace.let_go()

    def _start(self) -> _ClaimStart:
        if self._held is None:
            task, manifest = self._task, self._manifest
            model = read_global_state(manifest, task.model, self._store, outer=False, moments=False)
            course = self._open(
                manifest,
                store=self._store,
                data_seed=task.data_seed,
                seat=task.seat,
                round=task.round,
            )
            self._held = _ClaimStart(replace(course, model=model), model)
        return self._held

    def _reached(self) -> Resumed:
        """What the claim begins with; of an update proof the last state.

        It is made anew for each use, as steps are in place: `reached_after` reads what it kept. It
        is run, and never asked of the other player, who has it and may withhold it. That both
        players come to the same one is agreed: what came before is as it has to be.
        """
        task = self._task
        seat_task = TrainTask(
            manifest=self._manifest,
            # What the seat itself keeps of the round is left alone.
            round_id=RoundId(NO_DOMAIN, task.job, task.round),
            seat=task.seat,
            data_seed=task.data_seed,
            global_state_cid=task.model,
            earlier=task.earlier,
        )
        kept = checkpoints_of(seat_task, self._store, last_part=DISPUTED)
        segments = task.segment + task.is_update_proof

        def reached() -> Resumed:
            there = reached_after(seat_task, segments, self._store, kept)
            # A game's steps and traces are this process's alone.
            return replace(there, states=[there.states.pop().held_by(in_this_process)])

        return again_where_ranks_end(reached)

    # --- the steps ---

    @property
    def states(self) -> Sequence[Digest]:
        """The digest after each step of the segment; none of an update proof."""
        return tuple(record.state for record in self._steps())

    @property
    def works(self) -> bytes:
        """Norm and losses of each step; none of an update proof."""
        return b"".join(record.work for record in self._steps())

    def _steps(self) -> tuple[_StepRecord, ...]:
        if self._records is None:
            self._records = () if self._task.is_update_proof else tuple(self._run_steps())
        return self._records

    def _run_steps(self) -> Iterator[_StepRecord]:
        """After a step that is not finite there is nothing, written as zeros."""
        inner = self._manifest.inner
        header = self._program.header
        silent = _StepRecord(ZERO_DIGEST, bytes(8 + header.loss_bytes * header.micro_batches))
        state, end = self._reached().states.pop(), self._first + inner.segment
        for step in range(self._first, end):
            result = self._step(state, step)
            if result.diverged:
                yield _StepRecord(ZERO_DIGEST, step_bytes(result.work))
                yield from [silent] * (end - 1 - step)
                return
            state = result.state
            yield _StepRecord(state_roots(state).digest(), step_bytes(result.work))

    def _step(self, state: SeatState, step: int) -> StepResult:
        course = self._start().course
        state = course.begin(state, step)
        result = step_in_place(state, course.input_of(step, state), course.recipe)
        # What the trace and the update proof read lies on the CPU.
        state = result.state.on(CPU)
        return replace(result, state=state if result.diverged else course.end(state))

    @property
    def _first(self) -> int:
        """The segment's first step in the round."""
        return self._task.segment * self._manifest.inner.segment

    # --- the program, and the trace of one of its parts ---

    @property
    def header(self) -> ProgramPart:
        """The program's, with its path."""
        return self._part_of_program(0, self._program.header.to_bytes())

    def template(self, node: int) -> ProgramPart:
        """That of a node of the part that is played, with its path."""
        index, _ = self._program.at(self._part, node)
        return self._part_of_program(1 + index, self._program.templates[index].to_bytes())

    def _part_of_program(self, index: int, data: bytes) -> ProgramPart:
        tree = self._program.tree
        return ProgramPart(data, index, len(tree.levels[0]), tuple(tree.path(index)))

    def trace(self, step: int) -> OwnTrace:
        """The run of a step of the round, or of the update proof, which comes after the last."""
        task = self._task
        if task.is_update_proof:
            step = self._first + self._manifest.inner.segment
        else:
            self._part = self._program.header.step_part(task.round, step)
        return self._traced(step)

    def token_trace(self, step: int, token: int) -> OwnTrace:
        """The run of a token that a step of the round samples."""
        header = self._program.header
        self._part = header.generation_part(header.step_part(self._task.round, step))
        return self._traced(step, token)

    def _traced(self, step: int, token: int | None = None) -> OwnTrace:
        for other in self._traces:
            if other[0] != step:
                self._traces[other].let_go()
        key = (step, token)
        if key not in self._traces:
            self._traces[key] = self._trace_of(step, token)
            self._traces[key].again = partial(self._sources, step, token)
        return self._traces[key]

    def _trace_of(self, step: int, token: int | None) -> OwnTrace:
        return OwnTrace(self._program, self._part, self._sources(step, token))

    def _sources(self, step: int, token: int | None = None) -> TraceSources:
        """What the trace of a step, of a token of it, or of the update proof reads."""
        of_step = self._traces.get((step, None))
        if token is not None and of_step is not None and of_step.sources is not None:
            # What the step's own trace reads, so that nothing is run and sampled once more.
            context = replace(of_step.sources.context, token=token)
            return replace(of_step.sources, context=context)
        start, reached = self._start(), self._reached()
        course, model, state = start.course, start.model, reached.states.pop()
        # An update proof begins with the last state itself. The states between are made again, each
        # in the memory of the one before it.
        for before in range(self._first, self._first if self._task.is_update_proof else step):
            state = self._step(state, before).state
        exponents = model.exponent_bytes()
        context = ImportContext(
            data_seed=course.data_seed,
            seat=course.seat,
            round=course.round,
            step=step,
            global_step=course.global_step0 + step,
            roots=state_roots(state),
            model=model.params_root(),
            exponents=sha256(exponents),
            token=token,
        )
        return TraceSources(
            context=context,
            state=state,
            tokens=course.tokens,
            tables=self._tables(),
            base=dict(self._weights()) if self._manifest.lora is not None else {},
            model=model.params,
            exponents=exponents,
            generated=self._generated(state, step),
            sampled=torch.frombuffer(bytearray(reached.progress.sampled), dtype=torch.int32)
            if reached.progress.sampled
            else nothing_sampled(),
        )

    def _generated(self, state: SeatState, step: int) -> Tensor:
        """What a step samples, where it does."""
        if self._task.is_update_proof or self._manifest.task is None:
            return nothing_sampled()
        course = self._start().course
        rollouts = course.input_of(step, course.begin(state, step)).rollouts
        assert rollouts is not None  # a job with a task samples
        return tokens_of(rollouts.signed, rollouts.below).flatten()

    def _tables(self) -> bytes:
        manifest = self._manifest
        total = manifest.terms.rounds * manifest.inner.steps
        return b"".join(table_parts(manifest.model, manifest.inner, total))

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        return read_weights(self._manifest.init, self._manifest.model, self._store)


class OwnTrace:
    """`protocol.games.players.Trace`: one run of a step, or of the update proof.

    Its nodes' bytes are not kept, as a step has many times its state of them: the first run leaves
    a digest a node, and for a node that is asked for the step is run once more.

    Attributes:
        again: makes its sources anew, where it let go of them.
    """

    again: Callable[[], TraceSources]
    _sources: TraceSources | None
    _searched: _NodeTree | None = None

    def __init__(self, program: Program, part: int, sources: TraceSources) -> None:
        self._program, self._part, self._sources = program, part, sources
        digests = [node_digest(tensor) for _, tensor in run(program, part, sources)]
        self._tree = MemoryTree(digests)
        self._bytes: dict[int, bytes] = {}

    def let_go(self) -> None:
        """Keeps nothing but digests: of the nodes, and of the last one that was searched in."""
        self._sources = None
        self._bytes.clear()

    @property
    def sources(self) -> TraceSources | None:
        """What it reads, unless it let go of that."""
        return self._sources

    def _read(self) -> TraceSources:
        if self._sources is None:
            self._sources = self.again()
        return self._sources

    @property
    def roots(self) -> StateRoots:
        """Of the state that it opens with."""
        return self._read().context.roots

    @property
    def context(self) -> bytes:
        """The words that the game knows of it."""
        return self._read().context.to_bytes()

    @property
    def tree(self) -> Tree:
        """Over the digests of the nodes."""
        return self._tree

    def tensor(self, node: int) -> Tree:
        """Over the pieces of a node's bytes."""
        if self._searched is None or self._searched.node != node:
            self._searched = _NodeTree(node, piece_tree(self._node(node)))
        return self._searched.tree

    def read(self, node: int, start: int, end: int) -> bytes:
        """Bytes of a node."""
        return self._node(node)[start:end]

    def open(self, template: TraceTemplate, source: Input, need: Need) -> Opening:
        """Whole pieces or chunks of an input that is neither of the trace nor the context."""
        return prove_input(self._read(), template, source.source, need)

    def _node(self, node: int) -> bytes:
        """A node's bytes; with them those of all that it reads, which a proof asks for next."""
        if node not in self._bytes:
            wanted = self._with_inputs(node)
            for number, tensor in run(self._program, self._part, self._read()):
                if number in wanted:
                    self._bytes[number] = bytes(raw_bytes(tensor))
                if number == max(wanted):
                    break
        return self._bytes[node]

    def _with_inputs(self, node: int) -> set[int]:
        index, iteration = self._program.at(self._part, node)
        reads = (r for r in self._program.templates[index].inputs if r.source is Source.TRACE)
        return {node, *(read.node + iteration * read.stride for read in reads)}
