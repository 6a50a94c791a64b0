"""A program's run of a step is the step: state, norm and losses, to the bit."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.judge.finished import FinishedStep
from tests.support.manifests import model_spec
from tests.unit.numerics.trace.jobs import JOBS, SOURCES, Small, make_small, small

from atoll.job.methods import SPARSE_RULE
from atoll.numerics import update_proof
from atoll.numerics.segment import run_segment
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.step import StepResult, inner_step, state_roots
from atoll.numerics.tensors import raw_bytes
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.run import node_digest, run, tensors, trace_of
from atoll.protocol.checkpoint_commitments import float_bytes
from atoll.protocol.codecs import CODECS
from atoll.protocol.merkle import merkle_root
from atoll.protocol.program import Part
from atoll.protocol.types import ZERO_DIGEST


def outcome(job: Small, state: SeatState, step: int) -> FinishedStep:
    """What the program's run of a step says."""
    for _, tensor in run(job.program, Part.STEP, job.sources(state, step)):
        last = tensor
    return FinishedStep.of(bytes(raw_bytes(last)), is_sampled=job.manifest.task is not None)


def reference(job: Small, state: SeatState, step: int) -> StepResult:
    """The step itself."""
    done = inner_step(state, job.course.input_of(step, state), job.course.recipe)
    return replace(done, state=job.course.end(done.state))


def same_work(found: FinishedStep, done: StepResult) -> bool:
    """Whether norm and losses have the same bits; one NaN is as good as another."""
    losses = [float_bytes(">f", loss) for loss in found.losses]
    expected = [float_bytes(">f", loss) for loss in done.work.losses]
    if found.drawn != done.work.drawn:
        return False
    return losses == expected and float_bytes(">d", found.norm) == float_bytes(">d", done.work.norm)


DEMO = {"model": model_spec().model_dump(), "inner": {"batch": 8, "micro_batch": 8}}


@pytest.mark.parametrize("name", [*JOBS, "the demo's model"])
def test_a_program_gives_what_a_segment_gives(name: str) -> None:
    job = small(name) if name in JOBS else make_small(DEMO)
    state = job.initial_state
    for step in range(2):
        found, done = outcome(job, state, step), reference(job, state, step)
        assert same_work(found, done)
        assert found.is_finite
        assert found.digest == state_roots(done.state).digest()
        state = done.state
    assert run_segment(job.initial_state, 0, job.course).roots.digest() == found.digest


def test_what_an_update_leaves_out_is_found_when_the_state_before_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a round with feedback would hold both states beside all that its update takes."""
    changes = JOBS["cosines fed back"]
    job = make_small({**changes, "inner": {**changes["inner"], "segment": 1}})
    gone = list[bool]()
    states = [
        replace(
            job.initial_state, params={n: p.clone() for n, p in job.initial_state.params.items()}
        )
    ]
    before = weakref.ref(states[0].params["model.norm.weight"])

    def with_residual(*given: Any) -> SeatState:
        gone.append(before() is None)
        return update_proof.with_residual(*given)

    monkeypatch.setattr("atoll.numerics.segment.with_residual", with_residual)
    done = run_segment(states.pop(), 0, job.course)
    assert done.is_finite and gone == [True]


def test_a_loss_that_is_not_finite_leaves_no_state() -> None:
    job = small("plain")
    gain = job.initial_state.params["model.norm.weight"].clone()
    gain[1] = torch.inf
    state = replace(
        job.initial_state, params=job.initial_state.params | {"model.norm.weight": gain}
    )
    found, done = outcome(job, state, 0), reference(job, state, 0)
    assert done.diverged
    assert same_work(found, done)
    assert found.digest == ZERO_DIGEST


def test_a_parameter_beyond_all_bounds_leaves_no_state() -> None:
    """The norm is finite: it is the rate that throws the parameters out."""
    job = make_small({"inner": {"lr": "10000", "weight_decay": "1000", "warmup_steps": 0}})
    state, kinds = job.initial_state, []
    for step in range(4):
        found, done = outcome(job, state, step), reference(job, state, step)
        assert same_work(found, done)
        assert found.is_finite is not done.diverged
        if done.diverged:
            kinds.append(np.isfinite(done.work.norm))
            break
        state = done.state
    assert kinds == [True]
    assert found.digest == ZERO_DIGEST
    assert not run_segment(state, 0, job.course).is_finite


@pytest.mark.parametrize("stride", [0, 1, 2])
def test_the_bytes_of_a_single_element_do_not_depend_on_its_stride(stride: int) -> None:
    one = torch.arange(8, dtype=torch.float32).as_strided((1,), (stride,), 5)
    assert bytes(raw_bytes(one)) == float_bytes("<f", 5.0)


def test_a_step_of_adapters_of_rank_one_has_a_trace() -> None:
    lora = {"rank": 1, "alpha": "3", "targets": ["q", "down"]}
    job = make_small({"lora": lora, "inner": {"optimizer": "muon", "momentum": "0.95"}})
    trace, _ = trace_of(job.program, Part.STEP, job.sources(job.initial_state, 0))
    assert len(trace.levels[0]) == job.program.nodes(Part.STEP)


@pytest.mark.parametrize("name", ["plain", "one micro-batch", *SOURCES])
def test_a_trace_reads_the_micro_batches_that_a_step_reads(name: str) -> None:
    job, read = small(name), dict[int, list[list[int]]]({Op.IDS: [], Op.TARGETS: []})
    for number, tensor in run(job.program, Part.STEP, job.sources(job.initial_state, 1)):
        index, _ = job.program.at(Part.STEP, number)
        if (op := job.program.templates[index].op) in read:
            read[op].append(tensor.flatten().tolist())
    batch = job.course.batch(1)
    assert read[Op.IDS] == [m.ids.flatten().tolist() for m in batch]
    signed = [torch.where(m.weights == 0, ~m.targets, m.targets) for m in batch]
    assert read[Op.TARGETS] == [targets.flatten().tolist() for targets in signed]
    assert any((m.weights == 0).any() for m in batch) == job.manifest.data.masked


def test_single_nodes_are_those_of_the_run() -> None:
    job = small("masked")
    sources = job.sources(job.initial_state, 0)
    everything = dict(run(job.program, Part.STEP, sources))
    assert sorted(everything) == list(range(job.program.nodes(Part.STEP)))
    wanted = frozenset(range(3, len(everything), 97))
    for node, tensor in tensors(job.program, Part.STEP, sources, wanted).items():
        assert torch.equal(tensor.view(torch.uint8), everything[node].view(torch.uint8))


def test_templates_say_how_large_their_tensors_are() -> None:
    job = small("lora")
    for node, tensor in run(job.program, Part.STEP, job.sources(job.initial_state, 0)):
        template = job.program.templates[job.program.at(Part.STEP, node)[0]]
        assert (template.size, template.width) == (tensor.nbytes, tensor.element_size())
        assert tensor.dim() == 1


def test_the_trace_is_the_tree_over_all_digests() -> None:
    job = small("lora of one")
    sources = job.sources(job.initial_state, 0)
    digests = [node_digest(tensor) for _, tensor in run(job.program, Part.STEP, sources)]
    trace, result = trace_of(job.program, Part.STEP, sources)
    assert trace.root == merkle_root(digests)
    assert FinishedStep.of(result) == outcome(job, job.initial_state, 0)


STREAMING = {
    "codec": {"kind": "grid4", "fragments": 2, "overlap": 1, "mixing": "0.3"},
    "model": {"layers": 3},
}


@pytest.mark.parametrize("round", [1, 2])
def test_the_step_that_mixes_in_is_a_part_of_its_own(round: int) -> None:
    """Of what the round before merged, mixed with the seat's own; the other steps are plain."""
    first = make_small(STREAMING)
    course, segment = replace(first.course, round=round), first.manifest.inner.segment
    job = replace(first, course=replace(course, model=moved(first.course.model, round)))
    header, state = job.program.header, replace(job.initial_state, batches=job.manifest.inner.steps)
    assert [header.step_part(round, step) for step in range(segment)] == [0, 2 + round]
    for step in range(segment):
        found = stepped(job, state, step)
        state = job.course.begin(state, step)
        done = inner_step(state, job.course.input(step), job.course.recipe)
        assert same_work(found, done)
        state = done.state
        assert found.digest == state_roots(state).digest()
    assert run_segment(job.initial_state, 0, job.course).roots.digest() == found.digest


FED_BACK = {
    "two bits": {"kind": "two_bit", "feedback": "0.9"},
    "signs, mixed": {"kind": "sign", "feedback": "1", "mixing": "0.25"},
    "int4": {"kind": "grid4", "feedback": "0.5"},
    "int8": {"kind": "grid8", "feedback": "0.999"},
    "the largest": {"kind": "sparse", "feedback": "0.95"},
    "the largest cosines": {"kind": "dct", "feedback": "0.999"},
}
LISTED = {codec["kind"] for codec in FED_BACK.values()}
FED_BACK |= {
    name: {"kind": name, "feedback": "0.9"}
    for name, kind in CODECS.items()
    if kind.may_feed_back and name not in LISTED
}


@pytest.mark.parametrize("name", FED_BACK)
@pytest.mark.parametrize("round", [0, 1])
def test_a_step_says_what_its_update_would_leave_out(name: str, round: int) -> None:
    """And the first of a later round feeds back what the round before excluded."""
    rule = {"rule": SPARSE_RULE} if CODECS[FED_BACK[name]["kind"]].is_sparse else {}
    first = make_small({"codec": FED_BACK[name], "robust": rule, "inner": {"segment": 4}})
    model = moved(first.course.model, round) if round else first.course.model
    job = replace(first, course=replace(first.course, round=round, model=model))
    state, before = job.initial_state, job.initial_state
    if round:
        residual = {
            n: 2.0**-12 * torch.arange(p.numel()).view(p.shape) for n, p in state.residual.items()
        }
        state = before = replace(state, residual=residual, count=4, batches=4)
    for step in range(4):
        found = stepped(job, state, step)
        begun = job.course.begin(state, step)
        assert all(torch.equal(begun.feedback[n], x) for n, x in before.residual.items())
        done = inner_step(begun, job.course.input(step), job.course.recipe)
        state = job.course.end(done.state)
        assert same_work(found, done)
        assert found.digest == state_roots(state).digest()
        assert any(x.any() for x in state.residual.values())
    assert run_segment(before, 0, job.course).roots.digest() == found.digest


def moved(model: GlobalState | None, round: int) -> GlobalState:
    assert model is not None
    params = {name: p + 0.01 * (1 + p.abs()) for name, p in model.params.items()}
    return replace(model, round=round, params=params)


def stepped(job: Small, state: SeatState, step: int) -> FinishedStep:
    """What the program's run of a step says, by the part that it is."""
    sources = job.sources(state, step)
    part = job.program.header.step_part(job.course.round, step)
    for _, tensor in run(job.program, part, sources):
        last = tensor
    return FinishedStep.of(bytes(raw_bytes(last)))
