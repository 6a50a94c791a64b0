"""The wheel on every Python that it is for: `make test-wheels`.

    .venv/bin/python .ci/wheels.py                    Pythons that are here, else Debian's
    .venv/bin/python .ci/wheels.py /path/python3.12   these only

Each gets an environment of its own with the wheel and its `train` extra, as pip resolves them for
anybody, and in an empty folder runs `python -m atoll`, a completion and the demo. On Linux for
x86-64 pip finds torch with CUDA's libraries, some 2 GB to fetch and 5 GB unpacked, which go again;
where it is offered a build for CPUs it takes that. A Python that cannot be had is named, and no
failure; one on which something does not run is.
"""
# ruff: noqa: S603, T201 -- fixed commands; it prints

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FETCHED = ROOT / ".pythons"
TOOLS = FETCHED / "tools"
"""patchelf, and a pip that runs on every Python."""
CLASSIFIER = "Programming Language :: Python :: 3."
UNAVAILABLE = 3
"""Of `.ci/python`."""


class Failed(Exception):
    """Something does not run as it should."""


def main(named: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="atoll-wheel-") as folder:
        return _try_all(named, _wheel(Path(folder)))


def _try_all(named: list[str], wheel: Path) -> int:
    chosen = {_version(program): Path(program) for program in named}
    outcomes: dict[str, str] = {}
    for version in chosen or _versions():
        program = chosen.get(version) or _here(version) or _fetched(version)
        if program is None:
            outcomes[version] = "could not be had here, so nothing was tried on it"
            continue
        print(f"Python {version}: {program}", flush=True)
        started = time.monotonic()
        try:
            loss = _try(program, wheel)
            outcomes[version] = f"passed in {time.monotonic() - started:.0f} s; {loss}"
        except Failed as error:
            outcomes[version] = f"FAILED: {error}"
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    failed = sum(outcome.startswith("FAILED") for outcome in outcomes.values())
    passed = sum(outcome.startswith("passed") for outcome in outcomes.values())
    print(f"tests: {passed} passed, {failed} failed", flush=True)
    return int(failed > 0 or not passed)


def _versions() -> list[str]:
    """Those that the package says it runs on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [c.rpartition(" ")[2] for c in project["classifiers"] if c.startswith(CLASSIFIER)]


def _version(program: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return _run([program, "-c", code], Path.cwd()).strip()


def _here(version: str) -> Path | None:
    """On the path, or pyenv's."""
    name = f"python{version}"
    if on_path := shutil.which(name):
        return Path(on_path)
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/{name}"))
    return pyenv[-1] if pyenv else None


def _fetched(version: str) -> Path | None:
    folder = FETCHED / version
    program = folder / "usr" / "bin" / f"python{version}"
    if not program.exists():
        path = f"{_tools() / 'bin'}:{os.environ['PATH']}"
        command = [ROOT / ".ci" / "python", folder, version]
        done = subprocess.run(command, env=os.environ | {"PATH": path}, check=False)
        if done.returncode == UNAVAILABLE:
            return None
        done.check_returncode()
    return program


def _tools() -> Path:
    if not TOOLS.exists():
        new = TOOLS.with_name("tools.new")
        command = [ROOT / ".ci" / "pip", ROOT / ".venv", "wheels"]
        subprocess.run(command, env=os.environ | {"TARGET": str(new)}, check=True)
        new.rename(TOOLS)
    return TOOLS


def _wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    _run([*pip, "--no-build-isolation", "-w", folder, ROOT], folder)
    return next(folder.glob("*.whl"))


def _try(program: Path, wheel: Path) -> str:
    """What the demo reached. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="atoll-") as temporary:
        environment, empty = Path(temporary, "environment"), Path(temporary, "empty")
        empty.mkdir()
        _run([program, "-m", "venv", "--without-pip", environment], empty)
        python, atoll = environment / "bin" / "python", environment / "bin" / "atoll"
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, f"{wheel}[train]"], empty, PYTHONPATH=str(_tools()))
        number = wheel.name.split("-")[1]
        for command in ([python, "-m", "atoll"], [atoll]):
            _expect(_run([*command, "--version"], empty), f"atoll {number}\n")
        asked = {"_ATOLL_COMPLETE": "complete_bash", "COMP_WORDS": "atoll dev", "COMP_CWORD": "1"}
        _expect(_run([atoll], empty, **asked).strip(), "devnet")
        _expect("".join(str(path) for path in empty.iterdir()), "")
        _run([atoll, "devnet", "demo", "--report", "report.json"], empty)
        return _reached(json.loads((empty / "report.json").read_text("utf-8")))


def _reached(report: dict[str, Any]) -> str:
    """As tests/e2e/test_acceptance.py has it. Raises Failed."""
    loss = report["eval"]
    if report["job"]["status"] != "done" or not all(each["caught"] for each in report["cheats"]):
        raise Failed("the demo's job is not done, or a cheat was not caught")
    if loss["loss_end"] > 0.75 * loss["loss_start"]:
        raise Failed(f"the demo's loss went from {loss['loss_start']} to {loss['loss_end']}")
    return f"the demo's loss went from {loss['loss_start']:.3f} to {loss['loss_end']:.3f}"


def _run(command: list[Any], folder: Path, **variables: str) -> str:
    """What it prints, with nothing of this checkout on a path. Raises Failed."""
    kept = {k: v for k, v in os.environ.items() if not re.match(r"PYTHON|VIRTUAL_ENV|ATOLL_", k)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=kept | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = f"{done.stdout}\n{done.stderr}".strip()
        raise Failed(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{words[-4000:]}"
        )
    return done.stdout


def _expect(text: str, wanted: str) -> None:
    if text != wanted:
        raise Failed(f"{text!r} is not {wanted!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
