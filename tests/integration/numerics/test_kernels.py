"""Builds of the compiled kernels: kept, made again, refused with the compiler's words."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.disk import Disk

from atoll.aggregation import merge_kernels as merging
from atoll.numerics.kernels import build
from atoll.numerics.kernels.acceptance import differences
from atoll.numerics.kernels.build import BuildFailed, load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.reference import TorchKernels


def small_source(folder: Path) -> Path:
    """A source that is compiled at once: how a build is kept does not depend on what it is of."""
    source = folder / "small.c"
    source.write_text("int one(void) { return 1; }\n")
    return source


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "kernels.c"
    broken.write_text("this is no C")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildFailed, match="error"):
        load_library(broken)


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


def test_what_a_step_leaves_free_goes_back_before_blocks_that_the_heap_has_no_place_for() -> None:
    """In a process of its own: blocks that lie between others that stay."""
    code = """
from pathlib import Path
import torch
from atoll.numerics.kernels.freed_memory import keep_freed_memory, make_room_for

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

assert keep_freed_memory()
small, large = torch.empty(1 << 20), torch.empty(1 << 24)
print(make_room_for([small, large]))
blocks = [torch.ones(1 << 20) for _ in range(160)]
kept = blocks[::2]
del blocks
before = resident()
print(make_room_for([small, small]), make_room_for([small, large]), before - resident() >= 300)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False", "True", "True"], done.stderr
