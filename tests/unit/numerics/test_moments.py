"""Merged moments, what opens with them, and their bytes, against lines in unbounded integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.support.moments import sum_of, to_binary32, warm
from tests.unit.train.factories import Job, make_job

from atoll.numerics.errors import MalformedState
from atoll.numerics.initial_state import open_round
from atoll.numerics.moments import COLD, Moments
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import moment_layout, seat_layout
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import ZERO_DIGEST


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"))


SGD = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0"}


def of_two_tensors(rows: list[float], columns: list[float], m: list[list[int]]) -> Moments:
    return Moments(
        8,
        {"a": torch.tensor(m, dtype=torch.int8), "b": torch.tensor([3, -4], dtype=torch.int8)},
        {"a": -3, "b": -2},
        {"a": torch.tensor(rows)},
        {"a": torch.tensor(columns)},
        {"b": torch.tensor([0.5, 6.0])},
    )


def test_golden_opening() -> None:
    """m in eighths; v is a quarter of row · column / (sum of rows), or m² where that is more.

    Rows 1 and 3 add to 4: (1·2, 1·2; 3·2, 3·2) / 4 / 4 = (1/8, 1/8; 3/8, 3/8). Of m = (1, −4; 0,
    16)/8 the squares are (1/64, 1/4; 0, 4). Of b: quarters 1/8 and 3/2, m = (3/4, −1), squares
    9/16 and 1.
    """
    found = of_two_tensors([1.0, 3.0], [2.0, 2.0], [[1, -4], [0, 16]])
    assert found.first("a").tolist() == [[0.125, -0.5], [0.0, 2.0]]
    assert found.second("a").tolist() == [[0.125, 0.25], [0.375, 4.0]]
    assert found.first("b").tolist() == [0.75, -1.0]
    assert found.second("b").tolist() == [9 / 16, 1.5]


def test_where_all_rows_are_zero_a_second_moment_is_the_firsts_square() -> None:
    found = of_two_tensors([0.0, 0.0], [2.0, 2.0], [[1, -4], [0, 16]])
    assert found.second("a").tolist() == [[1 / 64, 0.25], [0.0, 4.0]]


def test_a_total_beyond_all_floats_leaves_the_firsts_square() -> None:
    most = float(np.finfo(np.float32).max)
    found = of_two_tensors([most, most], [most, 1.0], [[1, -4], [0, 16]])
    assert found.second("a").tolist() == [[1 / 64, 0.25], [0.0, 4.0]]


@pytest.mark.parametrize("seed", range(6))
def test_a_second_moment_is_the_line_in_unbounded_integers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
    spread = 10.0 ** rng.uniform(-30, 6, shape[0])
    rows = (rng.random(shape[0]) * spread).astype(np.float32)
    columns = (rng.random(shape[1]) * 10.0 ** rng.uniform(-20, 4)).astype(np.float32)
    m = rng.integers(-127, 128, shape).astype(np.int8)
    exponent = int(rng.integers(-30, -4))
    found = Moments(
        1,
        {"a": torch.from_numpy(m)},
        {"a": exponent},
        {"a": torch.from_numpy(rows)},
        {"a": torch.from_numpy(columns)},
    ).second("a")
    total = Fraction(sum_of(rows))
    for i in range(shape[0]):
        for j in range(shape[1]):
            product = Fraction(float(rows[i])) * Fraction(float(columns[j]))
            factored = to_binary32(product / total) if total else 0.0
            factored = to_binary32(Fraction(factored) / 4)
            square = to_binary32((Fraction(int(m[i, j])) * Fraction(2) ** exponent) ** 2)
            assert found[i, j].item() == max(factored, square)


def test_the_bits_do_not_depend_on_threads(job: Job) -> None:
    roots, threads = set(), torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            roots.add(warm(job.model, job.manifest).moments.initial_root)
    finally:
        torch.set_num_threads(threads)
    assert len(roots) == 1


CHOICES: dict[str, Callable[[Job], Manifest]] = {
    "adamw": lambda job: job.manifest,
    "muon": lambda job: job.with_inner(optimizer="muon", momentum="0.95").manifest,
    "sgd with momentum": lambda job: job.with_inner(**SGD, momentum="0.9").manifest,
    "untied": lambda job: job.manifest.model_copy(
        update={"model": job.manifest.model.model_copy(update={"tied": False, "qkv_bias": True})}
    ),
    "fp32": lambda job: job.with_codec(kind="fp32").manifest,
}


@pytest.mark.parametrize("choice", CHOICES)
def test_everybody_opens_with_the_root_that_the_state_names(job: Job, choice: str) -> None:
    chosen = job.of(CHOICES[choice](job))
    state = warm(chosen.model, chosen.manifest)
    initial_state = open_round(chosen.manifest, state, None)
    assert initial_state.optimiser_root() == state.moments.initial_root != ZERO_DIGEST
    assert initial_state.count == chosen.manifest.inner.steps
    layout, shared = seat_layout(chosen.manifest), moment_layout(chosen.manifest)
    assert (set(initial_state.m), set(initial_state.v)) == (set(layout.m), set(layout.v))
    assert (shared.m, shared.v) == (layout.m, layout.v)
    assert not initial_state.feedback
    again = GlobalState.from_bytes(state.to_bytes(), state.shapes)
    assert again.digest() == state.digest()
    assert again.to_bytes() == state.to_bytes()


def test_a_cold_state_opens_with_zeros(job: Job) -> None:
    initial_state = open_round(job.manifest, job.model, None)
    assert initial_state.optimiser_root() == COLD.initial_root == ZERO_DIGEST
    assert initial_state.count == 0
    assert not any(t.any() for t in (*initial_state.m.values(), *initial_state.v.values()))


@pytest.mark.parametrize(
    "change", [{"feedback": "0.5"}, {"fragments": 2}, {"mixing": "0.5"}, {"overlap": 1}]
)
def test_seats_that_carry_something_share_no_moments(job: Job, change: dict[str, object]) -> None:
    other = job.with_codec(**change)
    assert other.manifest.reset_period == other.manifest.terms.rounds > 1
    assert moment_layout(other.manifest).m == other.model.moment_exponents == {}
    assert [r for r in range(4) if other.manifest.opens_publicly(r)] == [0]


def test_sgd_without_momentum_shares_none(job: Job) -> None:
    plain = job.of(job.with_inner(**SGD).manifest)
    assert plain.manifest.reset_period == 1
    assert moment_layout(plain.manifest).m == plain.model.moment_exponents == {}


def test_every_moment_is_in_the_digest(job: Job) -> None:
    state = warm(job.model, job.manifest)
    moments, name = state.moments, next(iter(state.moments.rows))
    vector = next(iter(moments.whole))
    changed = [
        replace(moments, count=moments.count + 1),
        replace(moments, m=moments.m | {name: -moments.m[name]}),
        replace(moments, m_exponents=moments.m_exponents | {name: -13}),
        replace(moments, rows=moments.rows | {name: moments.rows[name] * 2}),
        replace(moments, columns=moments.columns | {name: moments.columns[name] * 2}),
        replace(moments, whole=moments.whole | {vector: moments.whole[vector] * 2}),
        COLD,
    ]
    digests = {replace(state, moments=each).digest() for each in changed}
    moved = replace(state, moment_exponents=state.moment_exponents | {name: -9})
    assert len(digests | {state.digest(), moved.digest()}) == len(changed) + 2


BROKEN: dict[str, Callable[[Moments, str, str], Moments]] = {
    "no count": lambda m, a, v: replace(m, count=0),
    "no first moments": lambda m, a, v: replace(m, m={}, m_exponents={}),
    "an exponent too few": lambda m, a, v: replace(
        m, m_exponents={n: e for n, e in m.m_exponents.items() if n != a}
    ),
    "rows of another size": lambda m, a, v: replace(m, rows=m.rows | {a: m.rows[a][1:]}),
    "no columns": lambda m, a, v: replace(
        m, columns={n: t for n, t in m.columns.items() if n != a}
    ),
    "a negative sum": lambda m, a, v: replace(m, rows=m.rows | {a: -m.rows[a]}),
    "minus zero": lambda m, a, v: replace(m, whole=m.whole | {v: m.whole[v] * -0.0}),
    "infinity": lambda m, a, v: replace(m, columns=m.columns | {a: m.columns[a] / 0}),
    "no number": lambda m, a, v: replace(m, rows=m.rows | {a: m.rows[a] * torch.nan}),
    "both kinds": lambda m, a, v: replace(m, m=m.m | {a: m.m[a].float()}),
    "whole numbers of eight bytes": lambda m, a, v: replace(
        m, m={n: t.long() for n, t in m.m.items()}
    ),
    "of nothing": lambda m, a, v: replace(m, rows=m.rows | {"x": m.rows[a]}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_state_with_other_moments_is_refused(job: Job, broken: str) -> None:
    state = warm(job.model, job.manifest)
    matrix, vector = next(iter(state.moments.rows)), next(iter(state.moments.whole))
    wrong = replace(state, moments=BROKEN[broken](state.moments, matrix, vector))
    with pytest.raises(MalformedState):
        GlobalState.from_bytes(wrong.to_bytes(), state.shapes)


def test_a_job_takes_only_moments_of_its_own_kind(job: Job) -> None:
    state, shared = warm(job.model, job.manifest), moment_layout(job.manifest)
    state.check_moments(shared)
    job.model.check_moments(shared)
    muon = job.with_inner(optimizer="muon", momentum="0.95")
    for other in (warm(job.model, muon.manifest), replace(job.model, moment_exponents={})):
        with pytest.raises(MalformedState, match="the job shares"):
            other.check_moments(shared)


def test_without_moments_they_are_skipped(job: Job) -> None:
    state = warm(job.model, job.manifest)
    read = GlobalState.from_bytes(state.to_bytes(), state.shapes, moments=False)
    assert not read.moments.tensors()
    assert read.params_root() == state.params_root()
    assert (read.moments.count, read.exponent_bytes()) == (8, state.exponent_bytes())


@pytest.mark.parametrize("part", ["outer", "moments"])
def test_a_state_that_was_read_in_part_has_no_digest_and_opens_nothing(job: Job, part: str) -> None:
    slots = {"momentum": {n: torch.zeros(p.shape).long() for n, p in job.model.params.items()}}
    state = replace(warm(job.model, job.manifest), outer=slots)
    read = GlobalState.from_bytes(state.to_bytes(), **{part: False})
    with pytest.raises(ValueError, match="read in part"):
        read.digest()
    assert GlobalState.from_bytes(state.to_bytes()).digest() == state.digest()
    if part == "moments":
        with pytest.raises(KeyError):
            open_round(job.manifest, read, None)
