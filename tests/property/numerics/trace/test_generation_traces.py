"""The trace of a token ends with what was generated there; nodes of a reward are what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.unit.numerics.trace.jobs import JOBS, Small, make_small, small

from atoll.numerics.rollouts import Rollouts
from atoll.numerics.state import SeatState
from atoll.numerics.trace.imports import TraceSources
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.run import run
from atoll.protocol.program import Part

SAMPLED = [name for name, changes in JOBS.items() if "task" in changes]


def token_sources(sources: TraceSources, token: int) -> TraceSources:
    return replace(sources, context=replace(sources.context, token=token))


def generated_by_trace(job: Small, sources: TraceSources, token: int) -> torch.Tensor:
    part = job.program.header.generation_part(Part.STEP)
    for _, tensor in run(job.program, part, token_sources(sources, token)):
        last = tensor
    return last


def rollouts_of(job: Small, state: SeatState, step: int) -> Rollouts:
    rollouts = job.course.input_of(step, state).rollouts
    assert rollouts is not None
    return rollouts


@pytest.mark.parametrize("name", SAMPLED)
def test_every_token_is_what_its_trace_ends_with(name: str) -> None:
    job = small(name)
    sources = job.sources(job.initial_state, 1)
    tokens = sources.generated.view(-1, 4)
    lengths = set()
    for number, token in enumerate(tokens):
        assert generated_by_trace(job, sources, number).tolist() == token.tolist(), number
    for row in tokens.view(job.manifest.inner.batch, -1, 4):
        lengths.add(int((row[:, 0] >= 0).sum()))
    assert len(lengths) > (name == "rl")  # of that, some end before the others


def test_a_token_after_a_wrong_one_follows_from_that() -> None:
    """Each token is judged by what is before it: only the first that differs is wrong."""
    job = small("rl")
    sources = job.sources(job.initial_state, 1)
    tokens = sources.generated.view(-1, 4).clone()
    first = int((tokens[:, 0] >= 0).nonzero()[0])
    tokens[first, 0] = (tokens[first, 0] + 1) % job.manifest.model.vocab
    edited = replace(sources, generated=tokens.flatten())
    assert generated_by_trace(job, edited, first).tolist() != tokens[first].tolist()
    after = generated_by_trace(job, edited, first + 1).tolist()
    assert after != tokens[first + 1].tolist()  # other logits: other weights below


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_row_that_is_not_finite_has_the_first_token_and_leaves_no_state(value: float) -> None:
    job = small("rl")
    params = {name: p.clone() for name, p in job.initial_state.params.items()}
    params["model.norm.weight"][1] = value
    state = replace(job.initial_state, params=params)
    sources = job.sources(state, 0)
    tokens = sources.generated.view(-1, 4)
    below = tokens[:, 2:].contiguous().view(torch.int64).flatten()
    assert not rollouts_of(job, state, 0).is_finite and bool((below == -1).any())
    for number in range(0, len(tokens), 7):
        assert generated_by_trace(job, sources, number).tolist() == tokens[number].tolist()
    for _, tensor in run(job.program, Part.STEP, sources):
        last = tensor
    assert not last[:8].any()


def test_a_job_of_two_fragments_has_tokens_of_its_mixing_steps() -> None:
    changes = {
        **JOBS["rl"],
        "codec": {"kind": "grid4", "fragments": 2, "overlap": 1, "mixing": "0.3"},
    }
    job = make_small(changes)
    header = job.program.header
    parts = [header.generation_part(header.step_part(round_, 1)) for round_ in (0, 1, 2)]
    assert parts == [5, 6, 7]
    assert {template.part for template in job.program.templates} == set(range(8))
    assert type(header).from_bytes(header.to_bytes()) == header
    for part in parts:
        counted = sum(t.count for t in job.program.templates if t.part == part)
        assert counted == header.nodes(part) > 0
    assert header.nodes(6) > header.nodes(5)


@pytest.mark.parametrize("name", SAMPLED)
def test_rewards_and_weights_of_the_trace_are_those_of_the_step(name: str) -> None:
    job = small(name)
    seen: dict[int, list[torch.Tensor]] = {}
    spread = False
    for step in range(3):
        sources = job.sources(job.initial_state, step)
        for number, tensor in run(job.program, Part.STEP, sources):
            index, _ = job.program.at(Part.STEP, number)
            seen.setdefault(job.program.templates[index].op, []).append(tensor)
        rollouts = rollouts_of(job, job.initial_state, step)
        rewards = torch.cat(
            seen[Op.REWARD][len(job.manifest.task.rewards) - 1 :: len(job.manifest.task.rewards)]
        )
        size = job.manifest.inner.batch
        assert tuple(rewards[-size:].tolist()) == rollouts.rewards
        spread = spread or len(set(rollouts.rewards)) > 1
        a = torch.cat(seen[Op.ADVANTAGE])[-size:]
        first = [
            row[row.nonzero()[0]] if bool(row.any()) else torch.zeros(1) for row in rollouts.weights
        ]
        assert torch.equal(a + 0.0, torch.cat(first))
    assert spread


def test_text_of_a_job_has_no_token_traces() -> None:
    header = small("plain").program.header
    assert not header.is_sampled and header.loss_bytes == 4
    with pytest.raises(IndexError):
        header.nodes(header.generation_part(Part.STEP))
    assert small("rl").program.header.loss_bytes == 12
