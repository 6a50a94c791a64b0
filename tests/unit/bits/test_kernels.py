"""Compiled kernels equal the plain reference bit for bit, or are not used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from atoll.bits.kernels import build
from atoll.bits.kernels.acceptance import KINDS, differences, sample
from atoll.bits.kernels.build import BuildFailed, load_library
from atoll.bits.kernels.compiled import CompiledKernels
from atoll.bits.kernels.engine import choose_kernels, default_engine, make_engine
from atoll.bits.kernels.reference import TorchKernels
from atoll.errors import ConfigError


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
    assert differences(Rounder(), TorchKernels()) == [f"swiglu on {kind} input" for kind in KINDS]


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


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "kernels.c"
    broken.write_text("this is no C")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildFailed, match="error"):
        load_library(broken)


def test_a_cache_that_others_can_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.cache_folder().chmod(0o777)
    with pytest.raises(BuildFailed, match="written by others"):
        load_library()


def test_the_build_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_library()
    (built,) = build.cache_folder().glob("*.so")
    stamp = built.stat().st_mtime_ns
    load_library()
    assert built.stat().st_mtime_ns == stamp


def test_engines_are_named() -> None:
    assert default_engine() is default_engine()
    eager = make_engine(route="fp64", kernels="eager")
    assert (eager.route.name, eager.kernels.name) == ("fp64", "eager")
    with pytest.raises(ConfigError, match="unknown route"):
        make_engine(route="int4")
    with pytest.raises(ConfigError, match="unknown kernels"):
        make_engine(kernels="quick")
