"""Compiled kernels equal the plain reference bit for bit, or are not used."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.disk import Disk
from tests.engines import exact_ops

from atoll.aggregation import compiled as merging
from atoll.errors import ConfigError
from atoll.numerics.kernels import build, linear, reference
from atoll.numerics.kernels.acceptance import KINDS, differences, sample
from atoll.numerics.kernels.build import BuildFailed, load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.engine import choose_kernels, default_engine, make_engine
from atoll.numerics.kernels.interface import AdamFactors
from atoll.numerics.kernels.reference import TorchKernels


def small_source(folder: Path) -> Path:
    """A source that is compiled at once: how a build is kept does not depend on what it is of."""
    source = folder / "small.c"
    source.write_text("int one(void) { return 1; }\n")
    return source


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
    source = small_source(tmp_path)
    load_library(source)
    (built,) = build.cache_folder().glob("*.so")
    stamp = built.stat().st_mtime_ns
    assert load_library(source).one() == 1
    assert built.stat().st_mtime_ns == stamp


def test_the_build_is_there_after_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    disk = Disk(monkeypatch)
    load_library(small_source(tmp_path))
    (built,) = build.cache_folder().glob("*.so")
    assert disk.after_a_power_cut(built) == built.read_bytes()


@pytest.mark.parametrize("kept_bytes", [0, 4096])
def test_a_build_that_is_not_whole_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept_bytes: int
) -> None:
    """Before it is loaded: reading what is missing of it would kill the process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = small_source(tmp_path)
    load_library(source)
    (built,) = build.cache_folder().glob("*.so")
    whole = built.read_bytes()
    assert len(whole) > 4096
    torn = tmp_path / "torn"
    torn.write_bytes(whole[:kept_bytes])
    torn.replace(built)  # what this process has loaded stays whole
    load_library(source)
    assert built.read_bytes() == whole
    assert list(build.cache_folder().glob("*.so")) == [built]


def test_flags_that_a_compiler_refuses_are_excluded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "MACHINE_FLAGS", {platform.machine(): ("-march=no-such-machine",)})
    assert differences(CompiledKernels(load_library()), TorchKernels()) == []


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


def test_the_merges_passes_are_built_by_the_same_means(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    merging.kernels.cache_clear()
    try:
        assert merging.kernels() is not None
        assert len(list(build.cache_folder().glob("*.so"))) == 1
        merging.kernels.cache_clear()
        build.cache_folder().chmod(0o777)
        assert merging.kernels() is None
    finally:
        merging.kernels.cache_clear()


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


def test_what_a_large_step_leaves_free_goes_back() -> None:
    """In a process of its own: blocks that lie between others that stay."""
    code = """
from pathlib import Path
import torch
from atoll.numerics.kernels.memory import give_back_freed_memory, keep_freed_memory

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

assert keep_freed_memory()
print(give_back_freed_memory())
blocks = [torch.ones(1 << 20) for _ in range(160)]
kept = blocks[::2]
del blocks
before = resident()
print(give_back_freed_memory(), before - resident() >= 300)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True", "True"], done.stderr
