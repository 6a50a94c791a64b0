"""A program's run of the update proof is the update proof: the update's bytes, for every codec that
has a judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.numerics.trace.jobs import COARSE, CODECS, DATA_SEED, JOBS, SEAT, Small, make_small

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.moments import Moments
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.trace.run import run
from atoll.numerics.update_proof import close_round
from atoll.protocol.codecs import CODECS as KINDS
from atoll.protocol.program import Part


def last_of(job: Small, seed: int, count: int) -> SeatState:
    """A last state that moved by sizes on both sides of every limit of a grid, and by −0."""
    generator = torch.Generator().manual_seed(seed)

    def sizes(p: torch.Tensor) -> torch.Tensor:
        return torch.exp2(torch.randint(-24, 8, p.shape, generator=generator).float())

    def drawn(p: torch.Tensor) -> torch.Tensor:
        found = torch.randn(p.shape, generator=generator) * sizes(p)
        return found.masked_fill(torch.rand(p.shape, generator=generator) < 0.1, 0.0)

    initial_state = job.initial_state
    params = {name: p + drawn(p) for name, p in initial_state.params.items()}
    next(iter(params.values())).view(-1)[0] = 1e19  # in steps of a grid it may be infinite
    m = {name: drawn(p) for name, p in initial_state.m.items()}
    for p in m.values():
        p.view(-1)[-1] = -0.0
    v = {name: drawn(p).square() for name, p in initial_state.v.items()}
    for name in list(v)[:1]:
        v[name] *= 2.0**-95  # below the floor of its grid
    return replace(initial_state, params=params, m=m, v=v, count=count, batches=4)


def update_of(job: Small, model: GlobalState, last: SeatState) -> bytes:
    """The last node of the update proof's trace."""
    sources = job.sources(last, job.manifest.inner.steps)
    sources = replace(sources, model=model.params, exponents=model.exponent_bytes())
    for _, tensor in run(job.program, Part.UPDATE_PROOF, sources):
        found = tensor
    return found.numpy().tobytes()


def sent_by(job: Small, model: GlobalState, last: SeatState) -> bytes:
    return close_round(job.manifest, model, last, DitherKey(DATA_SEED, SEAT))[0]


def models_of(job: Small) -> dict[int, GlobalState]:
    """A cold round's and a warm one's, by the count with which its last state ends."""
    cold, steps = job.course.model, job.manifest.inner.steps
    assert cold is not None
    first = {name: exponent + 2 for name, exponent in cold.moment_exponents.items()}
    warm = Moments(count=steps, m_exponents={name: e - 1 for name, e in first.items()})
    return {steps: cold, 2 * steps: replace(cold, moment_exponents=first, moments=warm)}


NAMES = ("plain", "untied", "lora", "masked", "sgd", "sgd with momentum", "muon", "wide")
FEW = ("plain", "untied", "wide")
"""Of sparse updates: the last has more values than a chunk, and others are no other to them."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in CODECS for name in (FEW if KINDS[kind].is_sparse else NAMES)],
)
def test_a_program_gives_what_a_seat_sends(kind: str, name: str) -> None:
    job = make_small({**JOBS[name], **CODECS[kind]})
    for seed, (count, model) in enumerate(models_of(job).items()):
        last = last_of(job, seed, count)
        sent = sent_by(job, model, last)
        assert update_of(job, model, last) == sent
        assert job.program.templates[-1].size == len(sent)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.may_feed_back])
def test_a_link_sends_what_was_excluded_before(kind: str) -> None:
    """At the end of a round and of a part of one alike, whatever the steps said is left now."""
    plain: Mapping[str, Any] = CODECS[kind]["codec"]
    job = make_small({**CODECS[kind], "codec": {**plain, "feedback": "0.7"}})
    model = job.course.model
    assert model is not None
    for seed, count in enumerate((2, 4)):
        last = last_of(job, seed, count)
        before = last_of(job, seed + 7, count).m
        fed = {name: before[name] for name in last.feedback}
        sent = sent_by(job, model, replace(last, feedback=fed))
        assert update_of(job, model, replace(last, feedback=fed)) == sent
        assert update_of(job, model, replace(last, feedback=fed, residual=fed)) == sent
        assert sent_by(job, model, last) != sent


def test_a_table_of_many_rows_is_summed_in_parts() -> None:
    """Of 133,200 rows and 8 columns: a column is 521 sums of 256, these are two of 512."""
    job = make_small({**JOBS["vast"], **CODECS["grid8"]})
    (count, model), *_ = models_of(job).items()
    last = last_of(job, 0, count)
    assert update_of(job, model, last) == sent_by(job, model, last)


def test_where_no_second_moment_is_there_are_two_sections() -> None:
    job = make_small({**JOBS["lora of two"], "inner": JOBS["muon"]["inner"], **CODECS["two_bit"]})
    for count, model in models_of(job).items():
        last = last_of(job, 2, count)
        assert last.m
        assert not last.v
        assert update_of(job, model, last) == sent_by(job, model, last)


def test_of_second_moments_that_are_negative_the_largest_magnitude_decides() -> None:
    """Which no run has, but a forged state may: seat and trace must not part there."""
    job = make_small({**JOBS["plain"], **CODECS["grid8"]})
    (count, model), *_ = models_of(job).items()
    last = last_of(job, 3, count)
    forged = replace(last, v={name: -v for name, v in last.v.items()})
    assert update_of(job, model, forged) == sent_by(job, model, forged)


@pytest.mark.parametrize("round", [0, 1, 2])
def test_a_fragments_link_speaks_of_it_alone(round: int) -> None:
    """Fragment 0 has the embedding, layers 0 and 2 and the last norm: three runs of exponents."""
    grid4 = {"kind": "grid4", "exponents": COARSE, "fragments": 2, "mixing": "0.5"}
    job = make_small({"codec": grid4, "model": {"layers": 3}})
    model = job.course.model
    assert model is not None
    exponents = {name: -8 - position for position, name in enumerate(model.exponents)}
    model = replace(model, round=round, exponents=exponents)
    last = last_of(job, round, 4)
    sources = job.sources(last, job.manifest.inner.steps)
    sources = replace(sources, model=model.params, exponents=model.exponent_bytes())
    for _, tensor in run(job.program, job.program.header.update_proof_part(round), sources):
        found = tensor
    assert found.numpy().tobytes() == sent_by(job, model, last)
