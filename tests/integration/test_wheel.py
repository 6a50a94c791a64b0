"""A built wheel, installed in an environment of its own: what a user has who has no checkout."""

from __future__ import annotations

import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from tests.support.installed import installed, run
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
    """Of an environment with the wheel."""
    return installed(wheel, tmp_path_factory.mktemp("user") / "environment")


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
    asked = {"_ATOLL_COMPLETE": "complete_bash", "COMP_WORDS": "atoll dev", "COMP_CWORD": "1"}
    assert run(script, folder=tmp_path, **asked).split() == ["devnet"]
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
