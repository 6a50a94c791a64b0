"""Whose Python `make setup` takes for .venv, and when it makes that anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin
    [ -L .venv/bin/python ] || {{ ln -s "$0" .venv/bin/python; echo {tag} > .venv/packages; }}
    printf '#!/bin/sh\\n' > .venv/bin/pip; chmod +x .venv/bin/pip ;;
  *"import pip"*) grep -qx {tag} .venv/packages && echo {tag} ;;
  *cache_tag*) echo {tag} ;;
  *) exec {python} "$@" ;;
esac
"""
"""As Python's own: its venv leaves the links that are there, and it finds its own packages only."""


class Checkout:
    """A folder to set up, and Pythons to do so with; what is installed is only counted."""

    def __init__(self, folder: Path) -> None:
        self.root, self.programs = folder / "atoll", folder / "bin"
        for name in ("pyproject.toml", ".ci/setup", "contracts/package.json", "locks"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copied(ROOT / name, self.root / name)
        shutil.copy2(ROOT / "contracts" / "package-lock.json", self.root / "contracts")
        self._program(self.root / ".ci" / "pip", "#!/bin/sh\necho $* >> installed\n")
        self._program(self.programs / "npm", "#!/bin/sh\nmkdir -p node_modules\n")

    def python(self, tag: str, name: str = "python3") -> Path:
        """A program of that name, of a version: whoever calls it again changes it."""
        text = PYTHON.format(tag=tag, python=sys.executable)
        return self._program(self.programs / name, text)

    def setup(self, python: Path | None = None) -> bool:
        """Whether anything was installed."""
        path = f"{self.programs}:{os.environ['PATH']}"
        named = {} if python is None else {"PYTHON": str(python)}
        others = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        log = self.root / "installed"
        log.unlink(missing_ok=True)
        command = [self.root / ".ci" / "setup"]
        subprocess.run(command, env=others | {"PATH": path} | named, check=True)
        return log.is_file()

    @property
    def version(self) -> str:
        """What the environment's Python says that it is."""
        command = [".venv/bin/python", "-c", "import pip; cache_tag"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def _program(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    made.python("cpython-311")
    assert made.setup()
    return made


def test_what_is_set_up_is_left_alone(checkout: Checkout) -> None:
    assert not checkout.setup()
    assert not checkout.setup(checkout.programs / "python3")
    assert checkout.version == "cpython-311"


def test_a_python_that_is_named_is_the_environments_and_stays_so(checkout: Checkout) -> None:
    assert checkout.setup(checkout.python("cpython-313", "other"))
    assert checkout.version == "cpython-313"
    assert not checkout.setup()


def test_another_lock_is_installed_into_the_environment_that_is_there(checkout: Checkout) -> None:
    checkout.setup(checkout.python("cpython-313", "other"))
    with (checkout.root / "locks" / "python.txt").open("a") as lock:
        lock.write("\n")
    assert checkout.setup()
    assert checkout.version == "cpython-313"


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    """A version manager removed it: every command of .venv is a link to nothing."""
    kept = checkout.setup(checkout.python("cpython-312", "other"))
    (checkout.programs / "other").unlink()
    assert kept and checkout.setup()
    assert checkout.version == "cpython-311"


def test_an_environment_whose_python_was_upgraded_is_made_anew(checkout: Checkout) -> None:
    """The system's `python3` became another version, which looks for packages elsewhere."""
    made_with_it = checkout.root / ".kubo" / "package"
    made_with_it.mkdir(parents=True)
    checkout.python("cpython-313")
    assert checkout.setup()
    assert checkout.version == "cpython-313"
    assert not made_with_it.exists()


def test_a_python_that_makes_no_environment_costs_nobody_theirs(checkout: Checkout) -> None:
    """Debian's has its `ensurepip` in a package of its own."""
    poor = checkout.python("cpython-313", "poor")
    poor.write_text(poor.read_text().replace('case "$*" in', 'case "$*" in *venv*) exit 1 ;;', 1))
    with pytest.raises(subprocess.CalledProcessError):
        checkout.setup(poor)
    assert checkout.version == "cpython-311"
    assert not checkout.setup()
