"""A program's run of the link is the link: the update's bytes, for every codec that has a judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.unit.bits.tape.jobs import DATA_SEED, JOBS, SEAT, Small, make_small

from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import seat_codec
from atoll.bits.layout import optimiser_of
from atoll.bits.link import close_round
from atoll.bits.state import GlobalState, SeatState, exponent_bytes
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


def last_of(job: Small, seed: int, count: int) -> SeatState:
    """A last state that moved by sizes on both sides of every limit of a grid, and by −0."""
    generator = torch.Generator().manual_seed(seed)

    def sizes(p: torch.Tensor) -> torch.Tensor:
        return torch.exp2(torch.randint(-24, 8, p.shape, generator=generator).float())

    def drawn(p: torch.Tensor) -> torch.Tensor:
        found = torch.randn(p.shape, generator=generator) * sizes(p)
        return found.masked_fill(torch.rand(p.shape, generator=generator) < 0.1, 0.0)

    opening = job.opening
    params = {name: p + drawn(p) for name, p in opening.params.items()}
    next(iter(params.values())).view(-1)[0] = 1e19  # in steps of a grid it may be infinite
    m = {name: drawn(p) for name, p in opening.m.items()}
    v = {name: drawn(p).square() for name, p in opening.v.items()}
    for name in list(v)[:1]:
        v[name] *= 2.0**-95  # below the floor of its grid
    return replace(opening, params=params, m=m, v=v, count=count, batches=4)


def link_sources(job: Small, model: GlobalState, last: SeatState) -> Sources:
    found = job.sources(last, job.manifest.inner.steps)
    return replace(found, model=model.params, exponents=exponents_of(job, model))


def exponents_of(job: Small, model: GlobalState) -> bytes:
    moments = {name: model.exponents[name] + 2 for name in job.opening.m}
    return exponent_bytes(model.exponents) + exponent_bytes(moments)


def update_of(job: Small, last: SeatState) -> bytes:
    """The last node of the link's tape."""
    assert job.course.model is not None
    for _, tensor in run(job.program, Part.LINK, link_sources(job, job.course.model, last)):
        found = tensor
    return found.numpy().tobytes()


def sent_by(job: Small, last: SeatState) -> bytes:
    model, codec = job.course.model, job.manifest.codec
    assert model is not None
    sections = [close_round(model, last, codec, DitherKey(DATA_SEED, SEAT))[0]]
    adam = {n for n, p in last.m.items() if optimiser_of(n, p.shape, job.manifest.inner) == "adamw"}
    first, second = job.course.recipe.schedule.correction(last.count) if adam else (1.0, 1.0)
    if last.m:
        m = {n: t * np.float32(first) if n in adam else t for n, t in last.m.items()}
        step = {n: model.exponents[n] + 2 for n in m}
        sections.append(seat_codec(codec, DitherKey(DATA_SEED, SEAT, 1)).encode(m, step))
    if last.v:
        v = {n: (t * np.float32(second)).numpy() for n, t in sorted(last.v.items())}
        layout = Layout.of({n: t.shape for n, t in v.items()})
        head = b"ATSM\x01\x00" + len(v).to_bytes(2, "big") + layout.digest
        sections.append(head + b"".join(exact_sums(t) for t in v.values()))
    for at in range(len(sections) - 1):
        sections[at] += bytes(-len(sections[at]) % 1024)
    return b"".join(sections)


def exact_sums(v: npt.NDArray[np.float32]) -> bytes:
    """A5 of a tensor, in rational numbers."""
    if v.ndim == 1:
        return v.astype("<f4").tobytes()
    _, e = math.frexp(max(float(v.max()), 2.0**-80))
    unit = Fraction(2) ** (e - 1 - 39)
    whole = [[round(Fraction(float(x)) / unit) for x in row] for row in v]
    lines = [*whole, *zip(*whole, strict=True)]
    return b"".join(np.float32(float(sum(line)) * float(unit)).tobytes() for line in lines)


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("name", ["plain", "lora", "sgd", "sgd with momentum", "muon", "masked"])
def test_a_program_gives_what_a_seat_sends(kind: str, name: str) -> None:
    job = make_small({**JOBS[name], **CODECS[kind]})
    for seed, count in enumerate((4, 9, 12)):
        last = last_of(job, seed, count)
        sent = sent_by(job, last)
        assert update_of(job, last) == sent
        assert job.program.templates[-1].size == len(sent)


@pytest.mark.parametrize("kind", CODECS)
def test_sums_of_many_rows_and_columns_are_made_of_parts(kind: str) -> None:
    job = make_small({**JOBS["wide"], **CODECS[kind]})
    last = last_of(job, 1, 4)
    assert update_of(job, last) == sent_by(job, last)
