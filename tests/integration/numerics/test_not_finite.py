"""Builds that are no IEEE 754 are found and refused, whatever is not finite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.numerics.test_not_finite import PLAIN

from atoll.numerics.kernels import build
from atoll.numerics.kernels.acceptance import differences
from atoll.numerics.kernels.build import load_library
from atoll.numerics.kernels.compiled import CompiledKernels


def _variant(
    monkeypatch: pytest.MonkeyPatch, folder: Path, source: str, *flags: str
) -> CompiledKernels:
    """kernels.c built otherwise."""
    changed = folder / "kernels.c"
    changed.write_text(source)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, *flags))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return CompiledKernels(load_library(changed))


def test_a_contracted_quantiser_is_found_in_every_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The product is made whole without having been rounded, as a fused multiply-add would do."""
    source = build.SOURCE.read_text()
    fused = (
        "static inline float fused(float a, float b) {"
        " double p = (double)a * (double)b; return p == p ? (float)rint(p) + 0.0f : 0.0f; }\n"
    )
    place = source.index("/* grid.steps */")
    source = source[:place] + fused + source[place:]
    variant, count = re.subn(
        r"\bwhole\((.+) \* (\(?by\b.*|line\[j\])\);", r"fused(\1, \2);", source
    )
    assert count == 9
    found = differences(_variant(monkeypatch, tmp_path, variant), PLAIN)
    halves = {entry.removesuffix(" on half input") for entry in found if "half" in entry}
    assert halves == {
        "quantise_rows", "quantise_gradient", "rms_norm", "rms_norm_gradient",
        "embedding_gradient", "row_dot", "square_sums", "quantise_levels", "quantise_mixture",
        "attention_gradient", "quintic",
    }  # fmt: skip


def test_a_contracted_build_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = build.SOURCE.read_text()
    assert differences(_variant(monkeypatch, tmp_path, source, "-ffp-contract=fast"), PLAIN)


FAST_MATH = """
from atoll.numerics.kernels import build
from atoll.numerics.kernels.acceptance import differences
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.engine import make_engine
from atoll.numerics.kernels.reference import TorchKernels
from atoll.errors import NumericsMismatch

build.FLAGS = (*build.FLAGS, "-ffast-math")
assert differences(CompiledKernels(build.load_library()), TorchKernels())
try:
    make_engine("auto", "eager")
except NumericsMismatch as refused:
    print(refused)
"""


def test_fast_math_is_refused_and_so_is_a_process_that_loaded_it(tmp_path: Path) -> None:
    """Loading such a library makes the whole process flush subnormals: hence a process of its own.

    https://simonbyrne.github.io/notes/fastmath/
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", FAST_MATH]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "start-up step's subnormals" in done.stdout
