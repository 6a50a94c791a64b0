"""Compiled kernels equal the plain reference bit for bit, or are not used."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from tests.support.engines import exact_ops

from atoll.errors import ConfigError
from atoll.numerics.kernels import build, linear, reference
from atoll.numerics.kernels.acceptance import KINDS, differences, sample
from atoll.numerics.kernels.build import BuildFailed, load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.engine import choose_kernels, default_engine, make_engine
from atoll.numerics.kernels.interface import AdamFactors
from atoll.numerics.kernels.reference import TorchKernels


class Rounder(TorchKernels):
    """A kernel that is off in the last bit, as a contracted multiply-add would be."""

    def swiglu(self, gate_NO: torch.Tensor, up_NO: torch.Tensor) -> torch.Tensor:
        result = super().swiglu(gate_NO, up_NO)
        result[0, 0] = torch.nextafter(result[0, 0], torch.tensor(torch.inf))
        return result


@pytest.mark.parametrize("seed", range(6))
def test_compiled_kernels_equal_the_reference(seed: int) -> None:
    compiled = CompiledKernels(load_library())
    assert differences(compiled, TorchKernels(), seed=seed, rows=1 + 30 * seed) == []


def test_one_wrong_bit_is_found() -> None:
    kinds = (*KINDS, "gate")
    assert differences(Rounder(), TorchKernels()) == [f"swiglu on {kind} input" for kind in kinds]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_repeat_and_are_what_their_kind_says(kind: str) -> None:
    first, second = (sample(kind, (30, 40), torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first.view(torch.int32), second.view(torch.int32))
    assert first.isinf().any() == (kind == "infinite")
    assert first.isnan().any() == (kind == "not a number")


def test_what_is_not_fp32_on_the_cpu_is_refused() -> None:
    compiled = CompiledKernels(load_library())
    with pytest.raises(ValueError, match="float64"):
        compiled.quantise_rows(torch.zeros(2, 2, dtype=torch.float64), split=False)


def test_without_a_compiler_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert choose_kernels("auto").name == "eager"
    with pytest.raises(ConfigError, match="no C compiler"):
        choose_kernels("compiled")


def test_a_cache_that_others_can_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.cache_folder().chmod(0o777)
    with pytest.raises(BuildFailed, match="written by others"):
        load_library()


def test_other_machines_get_flags_that_their_compilers_know(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """-mprefer-vector-width is of x86 alone: elsewhere it had every other flag refused with it."""
    used: list[tuple[str, ...]] = []

    def refused(source: Path, compiler: str, flags: tuple[str, ...]) -> Path:
        used.append(flags)
        raise BuildFailed("not built")

    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(build, "_built", refused)
    with pytest.raises(BuildFailed, match="not built"):
        load_library()
    assert used == [(*build.FLAGS, "-march=native"), build.FLAGS]


def test_engines_are_named() -> None:
    assert default_engine() is default_engine()
    eager = make_engine(route="fp64", kernels="eager")
    assert (eager.route.name, eager.kernels.name) == ("fp64", "eager")
    with pytest.raises(ConfigError, match="unknown route"):
        make_engine(route="int4")
    with pytest.raises(ConfigError, match="unknown kernels"):
        make_engine(kernels="quick")


@pytest.mark.parametrize("at_once", [1, 7, 105])
def test_large_tensors_move_as_small_ones_do(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """The reference works on a part at a time, so that it fits beside two states."""
    factors = AdamFactors(0.5, 0.9, 0.99, 1.7, 2.3, 1e-8, 0.1, 3e-3)
    random = torch.Generator().manual_seed(3)
    p, m, v, g = (torch.randn(15, 7, generator=random) for _ in range(4))
    arguments = (p, m, v.abs(), g.t().contiguous().t(), factors)
    whole = TorchKernels().adamw(*arguments)
    ids = torch.tensor([3, 0, 3, *range(12)])
    summed = TorchKernels().embedding_gradient(g, ids, 40)
    monkeypatch.setattr(reference, "_AT_ONCE", at_once)
    for expected, found in zip(whole, TorchKernels().adamw(*arguments), strict=True):
        assert torch.equal(expected, found)
    assert torch.equal(TorchKernels().embedding_gradient(g, ids, 40), summed)


def test_matrices_in_parts_have_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of matrices as large as logits the reference works on some rows or columns at a time."""
    monkeypatch.setattr(reference, "_AT_ONCE", 70)
    assert differences(CompiledKernels(load_library()), TorchKernels(), seed=11, rows=9) == []


@pytest.mark.parametrize("at_once", [1, 50, 1 << 24])
@pytest.mark.parametrize("name", ["compiled", "eager"])
def test_a_head_in_parts_has_the_bits_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, name: str, at_once: int
) -> None:
    random = torch.Generator().manual_seed(4)
    x, weight, g = (torch.randn(shape, generator=random) for shape in ((9, 6), (23, 6), (9, 23)))

    def computed(parts: int) -> list[torch.Tensor]:
        monkeypatch.setattr(linear, "_SUMS_AT_ONCE", parts)
        ops = exact_ops(kernels=name)
        leaves = [t.clone().requires_grad_() for t in (x[None], weight)]
        logits = ops.head(*leaves)
        return [logits, *torch.autograd.grad(logits, leaves, g[None])]

    for found, expected in zip(computed(at_once), computed(9 * 23), strict=True):
        assert torch.equal(found, expected)
