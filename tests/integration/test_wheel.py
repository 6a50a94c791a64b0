"""A built wheel, installed in an environment of its own: what a user has who has no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from tests.support.releases import ROOT, build_wheel

import atoll

BESIDE_PYTHON = {
    "atoll/py.typed",
    "atoll/__main__.py",
    "atoll/protocol/SPEC.md",
    "atoll/train/releases.json",
}
"""Some of what is no module, or is found by no import."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel; libraries are those of this one, so nothing is fetched."""
    folder = tmp_path_factory.mktemp("user") / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    # As a path, not as an environment: this one's link to the checkout is not followed.
    (own / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    return python


def run(*command: str | Path, folder: Path) -> str:
    """What it prints, in a folder, with nothing of this checkout on a path."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_runs_in_an_empty_folder(python: Path, tmp_path: Path) -> None:
    script = python.with_name("atoll")
    where = "import atoll, atoll_devnet; print(atoll.__file__, atoll_devnet.__file__)"
    for place in run(python, "-c", where, folder=tmp_path).split():
        assert python.parents[1] in Path(place).parents
    for command in ((python, "-m", "atoll"), (script,)):
        assert run(*command, "--version", folder=tmp_path) == f"atoll {atoll.__version__}\n"
        help_ = run(*command, "--help", folder=tmp_path)
        assert "devnet" in help_
        assert "_ATOLL_COMPLETE" in help_
    version = run(python, "-c", "import atoll; print(atoll.__version__)", folder=tmp_path)
    assert version.strip() == atoll.__version__
    assert 'kind = "' in run(script, "job", "new", folder=tmp_path)
    assert "poison-segment" in run(script, "devnet", "cheats", folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_wheel_has_what_is_read_and_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        says = Parser().parsestr(archive.read(metadata).decode())
    assert names >= BESIDE_PYTHON
    assert not [name for name in names if name.startswith(("tests", "contracts", "bench"))]
    assert says.get_all("Provides-Extra") and "train" in says.get_all("Provides-Extra", [])
    assert "Programming Language :: Python :: 3.13" in says.get_all("Classifier", [])
    assert says["Requires-Python"] == ">=3.11"
