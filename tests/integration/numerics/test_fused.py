"""The GPU's kernels: the reference's bits, without a GPU. `make .triton` installs Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from atoll.errors import ConfigError
from atoll.numerics.kernels import engine
from atoll.numerics.kernels.engine import choose_kernels

ROOT = Path(__file__).parents[3]


def apart(what: str, **environment: str) -> list[str]:
    """What `fused_apart` finds wrong, in a process that finds Triton."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.integration.numerics.fused_apart", what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".triton"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run `make .triton` if it is missing: {done.stderr[-2000:]}"
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_programs_give_the_references_bits() -> None:
    assert apart("bits", TRITON_INTERPRET="1") == []


def test_every_operator_of_a_compiled_program_is_one_rounding(tmp_path: Path) -> None:
    assert apart("code", TRITON_CACHE_DIR=str(tmp_path)) == []


def test_each_device_has_kernels_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="fused kernels are a GPU's"):
        choose_kernels("fused", "cpu")
    with pytest.raises(ConfigError, match="compiled kernels are the CPU's"):
        choose_kernels("compiled", "cuda")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "atoll.numerics.kernels.fused", raising=False)
    assert choose_kernels("auto", "cuda").name == "eager"
    with pytest.raises(ConfigError, match=r"fused kernels cannot be used: Triton is missing"):
        choose_kernels("fused", "cuda")


def test_what_triton_keeps_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # restored after what follows
    monkeypatch.delenv("TRITON_CACHE_DIR")
    folder = tmp_path / "atoll" / "kernels"

    def no_gpu(*_: object) -> NoReturn:  # as torch says it, by whether it was built for one
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(engine, "moved", no_gpu)
    assert choose_kernels("auto", "cuda").name == "eager"
    assert os.environ["TRITON_CACHE_DIR"] == str(folder / "triton")
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        choose_kernels("fused", "cuda")


def test_what_triton_cannot_compile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "fused"

        def __getattr__(self, name: str) -> object:
            raise TypeError("no compiler for this GPU")

    monkeypatch.setattr(engine, "_load_fused", Broken)
    with pytest.raises(ConfigError, match="no compiler for this GPU"):
        choose_kernels("fused", "cuda")
