"""What `make test-riscv64` carries elsewhere: acceptance's calls, made again by a program in C."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EMULATED = Path(__file__).parents[2] / "emulated"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    subprocess.run([sys.executable, str(EMULATED / "record.py"), str(folder), "1"], check=True)
    return folder


def replayed(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc")
    assert compiler is not None
    program = folder / "replay"
    build = [compiler, "-O2", *flags, f"-I{folder}", str(EMULATED / "replay.c"), "-o", str(program)]
    subprocess.run([*build, "-lm"], check=True)
    command = [str(program), str(folder / "calls.bin")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_plain_build_makes_every_call_again(recording: Path) -> None:
    done = replayed(recording, "-ffp-contract=off")
    assert (done.returncode, done.stdout.split()[1:]) == (0, ["calls,", "0", "differ"])
    assert int(done.stdout.split()[0]) > 500


def test_a_build_that_changes_values_differs(recording: Path) -> None:
    done = replayed(recording, "-ffast-math")
    assert done.returncode == 1
    assert "rms_norm differs" in done.stdout
