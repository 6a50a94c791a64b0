"""A program's run of the link is the link: the update's bytes, for every codec that has a judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.bits.tape.jobs import DATA_SEED, JOBS, SEAT, Changes, Small, make_small

from atoll.bits.codec.dither import DitherKey
from atoll.bits.link import close_round
from atoll.bits.state import GlobalState, SeatState
from atoll.bits.tape.imports import Sources
from atoll.bits.tape.run import run
from atoll.law.program import Part

EXPONENTS = {"embedding": -10, "matrix": -13, "vector": -9}
CODECS: Mapping[str, Mapping[str, Any]] = {
    "grid8": {"codec": {"exponents": EXPONENTS}},
    "grid4": {"codec": {"kind": "grid4", "exponents": EXPONENTS}},
    "two_bit": {"codec": {"kind": "two_bit", "exponents": EXPONENTS}},
    "sign": {"codec": {"kind": "sign", "exponents": EXPONENTS}},
    "fp32": {
        "codec": {
            "kind": "fp32",
            "exponents": dict.fromkeys(EXPONENTS, -40),
            "min_exponent": -40,
            "max_exponent": -40,
        },
        "robust": {"rule": "mean"},
    },
}


def last_of(job: Small, seed: int) -> SeatState:
    """A last state that moved by sizes on both sides of every limit of a grid, and by −0."""
    generator = torch.Generator().manual_seed(seed)

    def moved(p: torch.Tensor) -> torch.Tensor:
        sizes = torch.exp2(torch.randint(-24, 8, p.shape, generator=generator).float())
        change = torch.randn(p.shape, generator=generator) * sizes
        return p + change.masked_fill(torch.rand(p.shape, generator=generator) < 0.1, 0.0)

    params = {name: moved(p) for name, p in job.opening.params.items()}
    next(iter(params.values())).view(-1)[0] = 1e19  # in steps of a grid it may be infinite
    return replace(job.opening, params=params, count=4, batches=4)


def link_sources(job: Small, model: GlobalState, last: SeatState) -> Sources:
    found = job.sources(last, job.manifest.inner.steps)
    return replace(found, model=model.params, exponents=model.exponents)


def update_of(job: Small, last: SeatState) -> bytes:
    """The last node of the link's tape."""
    assert job.course.model is not None
    for _, tensor in run(job.program, Part.LINK, link_sources(job, job.course.model, last)):
        found = tensor
    return found.numpy().tobytes()


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("name", ["plain", "lora", "wide"])
def test_a_program_gives_what_a_seat_sends(kind: str, name: str) -> None:
    changes: Changes = {**JOBS[name], **CODECS[kind]}
    job = make_small(changes)
    assert job.course.model is not None
    for seed in range(3):
        last = last_of(job, seed)
        dither = DitherKey(DATA_SEED, SEAT)
        sent, _ = close_round(job.manifest, job.course.model, last, dither)
        assert update_of(job, last) == sent
        assert job.program.templates[-1].size == len(sent)
