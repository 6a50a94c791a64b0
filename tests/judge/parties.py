"""Players about real steps of small jobs: honest ones, liars and those who accuse the honest.

Rule of this file: a liar's trace is wrong at one element and consistent behind it: every node that
depends on the element is computed again from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Final

import torch
from tests.judge.finished import FinishedStep
from tests.unit.numerics.trace.jobs import Small
from torch import Tensor

from atoll.numerics.moments import Moments
from atoll.numerics.rollouts import IDS
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import inner_step
from atoll.numerics.tensors import raw_bytes, tree_root
from atoll.numerics.trace.imports import TraceSources, nothing_sampled
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.run import evaluate, node_digest, run
from atoll.protocol.checkpoint_commitments import rollouts_digest
from atoll.protocol.games.moves import Claim, ProgramPart
from atoll.protocol.games.trees import MemoryTree, piece_tree, top
from atoll.protocol.hashing import keccak256, sha256, update_root
from atoll.protocol.program import Part, Source
from atoll.protocol.types import ZERO_DIGEST, Address, Digest
from atoll.train.own_run import OwnTrace

POSITION: Final = Digest(b"\x77" * 32)


class NothingToLieAbout(Exception):
    """No bit of that element leads to a step that a holder could claim."""


@dataclass(frozen=True)
class Trial:
    """The first step of a segment, whose other steps are nobody's run, or an update proof.

    Attributes:
        sources: what it reads.
        outer: of a token's trace, the step that samples it.
    """

    job: Small
    part: int
    sources: TraceSources
    outer: Trial | None = None

    @classmethod
    def of_step(cls, job: Small, step: int) -> Trial:
        """A step of round 0, with which a segment begins, after those before it."""
        sources = job.sources(_after(job, step), step)
        return cls(job, Part.STEP, _with_model(sources, _model(job)))

    @classmethod
    def of_update_proof(cls, job: Small, *, warm: bool = False) -> Trial:
        """The update proof of a round, from a state with moments, which moved by itself.

        Args:
            warm: whether the round began with moments.
        """
        state, model, steps = _after(job, 1), _model(job), job.manifest.inner.steps
        params = {n: 1.5 * p for n, p in job.initial_state.params.items()}
        last = replace(state, params=params, count=2 * steps if warm else steps)
        sampled = _sampled(job)
        last = replace(last, rollouts=reduce(rollouts_digest, map(_ids_root, sampled), ZERO_DIGEST))
        if warm:
            merged = {name: exponent - 1 for name, exponent in model.moment_exponents.items()}
            model = replace(model, moments=Moments(count=steps, m_exponents=merged))
        sources = _with_model(job.sources(last, steps), model)
        flat = torch.cat([nothing_sampled(), *(ids.flatten() for ids in sampled)])
        return cls(job, Part.UPDATE_PROOF, replace(sources, sampled=flat))

    @classmethod
    def of_token(cls, job: Small, step: int) -> Trial:
        """A token of a step of round 0: the second that a sequence samples."""
        outer = cls.of_step(job, step)
        signed = outer.sources.generated.view(job.manifest.inner.batch, -1, 4)[..., 0]
        sampled = [row.nonzero().flatten().tolist() for row in signed >= 0]
        row, places = max(enumerate(sampled), key=lambda each: len(each[1]))
        return outer.token(row * signed.shape[1] + places[1])

    def token(self, number: int) -> Trial:
        """The trace of a token that the step samples."""
        sources, header = self.sources, self.job.program.header
        context = replace(sources.context, token=number)
        part = header.generation_part(self.part)
        return Trial(self.job, part, replace(sources, context=context), self)

    @cached_property
    def values(self) -> dict[int, Tensor]:
        """Every node of the honest run."""
        return dict(run(self.job.program, self.part, self.sources))

    @cached_property
    def digests(self) -> list[Digest]:
        """Of every node."""
        return [node_digest(tensor) for _, tensor in sorted(self.values.items())]

    @cached_property
    def parts(self) -> Sequence[tuple[Digest, ...]]:
        """The paths of header and templates in the program's tree."""
        tree = self.job.program.tree
        return [tuple(tree.path(i)) for i in range(len(tree.levels[0]))]

    def positions(self, op: int) -> list[int]:
        """The nodes of an operation."""
        program = self.job.program
        found = (t for t in program.templates if t.op == op and t.part == self.part)
        return sorted(t.first + i * t.stride for t in found for i in range(t.count))

    def claim(self, holder: Address) -> Claim:
        """About it, but for what a holder says of its result."""
        context, inner = self.sources.context, self.job.manifest.inner
        is_update_proof = self.part == Part.UPDATE_PROOF
        return Claim(
            holder=holder,
            set=POSITION,
            position=POSITION,
            program=self.job.program.root,
            is_update_proof=is_update_proof,
            seat=context.seat,
            round=context.round,
            segment=(inner.steps - 1 if is_update_proof else context.step) // inner.segment,
            data_seed=context.data_seed,
            initial_state=context.roots.digest(),
            model_params=context.model,
            model_exponents=context.exponents,
        )


def _model(job: Small) -> GlobalState:
    assert job.course.model is not None
    return job.course.model


def _after(job: Small, steps: int) -> SeatState:
    """The state after so many steps of round 0."""
    state = job.initial_state
    for done in range(steps):
        result = inner_step(state, job.course.input(done), job.course.recipe)
        state = job.course.end(result.state)
    return state


def _sampled(job: Small) -> list[Tensor]:
    """Some ids for each step of a round, of a job that samples."""
    if job.manifest.task is None:
        return []
    inner, columns = job.manifest.inner, job.manifest.model.seq + 1
    count = inner.batch * columns
    return [
        torch.arange(-count // 2 + step, count - count // 2 + step, dtype=torch.int32)
        .view(inner.batch, columns)
        .clone()
        for step in range(inner.steps)
    ]


def _ids_root(ids: Tensor) -> Digest:
    return tree_root({IDS: ids})


def _with_model(sources: TraceSources, model: GlobalState) -> TraceSources:
    params, exponents = model.params_root(), model.exponent_bytes()
    context = replace(sources.context, model=params, exponents=sha256(exponents))
    return replace(sources, context=context, model=model.params, exponents=exponents)


class Party(OwnTrace):
    """What one side knows: the honest run, with other tensors at some nodes.

    Args:
        others: the nodes that are not the honest run's.
        pretends: whether it says that its result is another, so that the search goes on.
        nested: the same as `others`, of the trace of a token.
    """

    _played: Party

    def __init__(
        self,
        trial: Trial,
        others: Mapping[int, Tensor] | None = None,
        *,
        pretends: bool = False,
        nested: Mapping[int, Tensor] | None = None,
    ) -> None:
        self._trial, self._others, self._pretends = trial, dict(others or {}), pretends
        self._nested, self._played = dict(nested or {}), self
        self._program, self._part = trial.job.program, trial.part
        self._sources = trial.sources
        digests = list(trial.digests)
        for node, tensor in self._others.items():
            digests[node] = node_digest(tensor)
        self._tree = MemoryTree(digests)

    # --- players.Knowledge ---

    @property
    def states(self) -> tuple[Digest, ...]:
        result = self.result()
        first = keccak256(result) if self._pretends else Digest(result[:32])
        return (first, *(keccak256(b"state %d" % i) for i in range(1, self._steps)))

    @property
    def works(self) -> bytes:
        return self.result()[32:] * self._steps

    @property
    def _steps(self) -> int:
        return self._program.header.segment

    @cached_property
    def header(self) -> ProgramPart:
        return self._opened(0, self._program.header.to_bytes())

    def template(self, node: int) -> ProgramPart:
        index, _ = self._program.at(self._played._part, node)
        return self._opened(1 + index, self._program.templates[index].to_bytes())

    def trace(self, step: int) -> Party:
        self._played = self
        return self

    def token_trace(self, step: int, token: int) -> Party:
        """It ends with what the party says of the token."""
        trial, words = self._trial.token(token), self.token(token)
        last = len(trial.digests) - 1
        others = dict(self._nested)
        if not torch.equal(words, trial.values[last]):
            others[last] = words
        self._played = Party(trial, others)
        return self._played

    def token(self, number: int) -> Tensor:
        """A token's words."""
        nodes = self._trial.positions(Op.GENERATED)
        raw = b"".join(self._node(node) for node in nodes)
        return torch.frombuffer(bytearray(raw), dtype=torch.int32)[4 * number :][:4]

    def size_of(self, node: int) -> int:
        """Bytes of a node."""
        return self._program.templates[self._program.at(self._part, node)[0]].size

    def claimed(self, claim: Claim) -> Claim:
        """The claim, with what this party says of the result."""
        result = self.result()
        if self._part == Part.UPDATE_PROOF:
            root = update_root(len(result), top(piece_tree(result)))
            return replace(claim, update_root=root)
        return replace(claim, closing=self.states[-1], work_tag=keccak256(self.works))

    def result(self) -> bytes:
        """The bytes of the last node."""
        return self._node(len(self._trial.digests) - 1)

    def _opened(self, index: int, data: bytes) -> ProgramPart:
        return ProgramPart(data, index, len(self._trial.parts), self._trial.parts[index])

    def _node(self, node: int) -> bytes:
        tensor = self._others.get(node)
        return bytes(raw_bytes(self._trial.values[node] if tensor is None else tensor))


def flipped(trial: Trial, node: int, element: int, bit: int) -> Tensor:
    """The node's honest tensor but for one bit of one element, counted from its lowest."""
    tensor = trial.values[node].clone()
    bytes_ = tensor.view(torch.uint8)
    bytes_[element * tensor.element_size() + bit // 8] ^= 1 << bit % 8
    return tensor


def sham(trial: Trial, node: int, element: int) -> Party:
    """Who says that an honest element is wrong."""
    return Party(trial, {node: flipped(trial, node, element, 0)}, pretends=True)


def liar(trial: Trial, node: int, element: int) -> Party:
    """Who has a wrong bit in an element, and computed on from it.

    Raises:
        NothingToLieAbout: no bit that is tried can be carried to a result.
    """
    bits = 8 * trial.values[node].element_size()
    for bit in (bits * 11 // 16, 0, 1, 2, bits - 1):  # the first of a number of some weight
        try:
            others = rerun(trial, {node: flipped(trial, node, element, bit)})
        except (ArithmeticError, AssertionError, IndexError, RuntimeError, ValueError):
            continue  # an id that is none, or a key of nothing: nobody could have computed on
        party = Party(trial, others)
        if trial.part == Part.UPDATE_PROOF or _is_claimable(party):
            return party
    raise NothingToLieAbout(f"node {node}, element {element}")


def rerun(trial: Trial, wrong: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """The nodes that change with these, in the order of the trace; honest where nothing changes."""
    program, changed = trial.job.program, dict(wrong)
    for node in range(min(wrong), len(trial.digests)):
        index, iteration = program.at(trial.part, node)
        template = program.templates[index]
        reads = (r for r in template.inputs if r.source is Source.TRACE)
        if node in wrong or not _touches(changed, (r.node + iteration * r.stride for r in reads)):
            continue
        values = _Overlaid(trial.values, changed)
        tensor = evaluate(template, iteration, values, trial.sources)
        if bytes(raw_bytes(tensor)) != bytes(raw_bytes(trial.values[node])):
            changed[node] = tensor
    return changed


def _touches(changed: Mapping[int, Tensor], nodes: Iterable[int]) -> bool:
    return any(node in changed for node in nodes)


def _is_claimable(party: Party) -> bool:
    """Whether the step's work is finite, so that it can be opened, and its state is one."""
    outcome = FinishedStep.of(party.result())
    values = (outcome.norm, *outcome.losses)
    return outcome.digest != ZERO_DIGEST and all(abs(v) < float("inf") for v in values)


class _Overlaid(dict[int, Tensor]):
    """The honest values under those that changed."""

    def __init__(self, honest: Mapping[int, Tensor], changed: Mapping[int, Tensor]) -> None:
        super().__init__(changed)
        self._honest = honest

    def __missing__(self, node: int) -> Tensor:
        return self._honest[node]


def node_with(trial: Trial, node: int, numbers: Sequence[int | float]) -> Tensor:
    """The node's honest tensor but for its first elements; integers are their bits."""
    tensor = trial.values[node].clone()
    for place, number in enumerate(numbers):
        if isinstance(number, int):
            tensor.view(torch.int32)[place] = number - (number >> 31 << 32)
        else:
            tensor[place] = number
    return tensor


def run_of(trial: Trial, node: int, others: Mapping[int, Tensor]) -> Tensor:
    """The node's tensor, computed from these tensors and from honest ones."""
    index, iteration = trial.job.program.at(trial.part, node)
    template = trial.job.program.templates[index]
    return evaluate(template, iteration, _Overlaid(trial.values, others), trial.sources)
