"""The numpy and the compiled passes give one set of bits, however the work is cut up."""

from pathlib import Path

import numpy as np
import pytest

from atoll.aggregation import chunks, passes
from atoll.aggregation import merge_kernels as native
from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.coordinatewise import trimmed_sums_numpy, weighted_sums_numpy
from atoll.aggregation.gram import gram_numpy
from atoll.errors import ConfigError

PLANS = [PassPlan(1 << 15, 1), PassPlan(77, 2), PassPlan(512, 3, native=False)]


@pytest.fixture(autouse=True)
def any_size_is_worth_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "WORTH_COMPILING", 0)
    monkeypatch.setattr(chunks, "MIN_SHARE", 100)


def some_rows(n: int, d: int, seed: int) -> list[np.ndarray]:
    limit = (1, 127)[seed % 2]
    rng = np.random.default_rng(seed)
    return list(rng.integers(-limit, limit + 1, (n, d), dtype=np.int8))


def some_mask(n: int, f: int, seed: int) -> np.ndarray:
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (n, 1)), axis=1)
    return order >= f


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("n", "f", "d"),
    [(1, 0, 1), (2, 0, 513), (3, 1, 511), (8, 3, 512), (16, 3, 1500), (64, 16, 700)],
)
def test_every_pass_gives_the_numpy_bits(n: int, f: int, d: int, plan: PassPlan):
    rows, mask_nn, plain = some_rows(n, d, n + f), some_mask(n, f, n), PassPlan(10**6, 1)
    weights = [(1 << 16) - 1 - i for i in range(n)]
    assert np.array_equal(passes.gram(rows, plan), gram_numpy(rows, plain))
    assert np.array_equal(
        passes.weighted_sums(rows, weights, plan), weighted_sums_numpy(rows, weights, plain)
    )
    for mask in (None, mask_nn):
        assert np.array_equal(
            passes.trimmed_sums(rows, f, mask, plan), trimmed_sums_numpy(rows, f, mask, plain)
        )


def test_the_largest_job_stays_in_range():
    rows = [np.full(600, 127, dtype=np.int8)] * 256
    everyone = np.ones((256, 256), dtype=np.bool_)
    for plan in PLANS:
        assert set(passes.trimmed_sums(rows, 0, everyone, plan)) == {127 * 256 * 256}
        assert set(passes.weighted_sums(rows, [1 << 16] * 256, plan)) == {127 << 24}


def test_memory_maps_are_read_in_place(tmp_path: Path):
    rows = some_rows(5, 3000, 1)
    mapped = []
    for i, row in enumerate(rows):
        row.tofile(tmp_path / f"{i}.bin")
        mapped.append(np.memmap(tmp_path / f"{i}.bin", dtype=np.int8, mode="r"))
    assert np.array_equal(passes.gram(mapped), passes.gram(rows))


def test_without_a_compiler_numpy_does_the_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    native.kernels.cache_clear()
    try:
        assert native.kernels() is None
        rows = some_rows(4, 100, 1)
        assert np.array_equal(passes.gram(rows), gram_numpy(rows, PassPlan()))
    finally:
        native.kernels.cache_clear()


JUNK = '#!/bin/sh\nfor word; do [ "$last" = -o ] && echo junk > "$word"; last=$word; done\n'


@pytest.mark.parametrize("compiler", ["#!/bin/sh\nexit 1\n", JUNK])
def test_a_broken_compiler_is_not_believed(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "cc").write_text(compiler)
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.kernels.cache_clear()
    try:
        assert native.kernels() is None
    finally:
        native.kernels.cache_clear()


def test_kernels_that_disagree_are_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "gram_numpy", lambda rows, plan: gram_numpy(rows, plan) + 1)
    native.kernels.cache_clear()
    try:
        assert native.kernels() is None
    finally:
        native.kernels.cache_clear()


@pytest.mark.parametrize(("chunk", "threads"), [(0, 1), (1, 0)])
def test_a_plan_has_chunks_and_threads(chunk: int, threads: int):
    with pytest.raises(ConfigError):
        PassPlan(chunk, threads)
