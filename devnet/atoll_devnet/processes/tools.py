"""Where the local chains' programs are, and how to get them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from atoll.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
"""The checkout, where this package runs from one."""
ANVIL, GANACHE = "1.7.1", "7.9.2"
"""As contracts/package.json pins them; tests/unit/devnet/test_tools.py compares."""
QUIETLY = ("--ignore-scripts", "--no-audit", "--no-fund")
"""A package's scripts are not run, as by `make setup`."""
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def find_anvil() -> Path:
    """Anvil's binary: `ATOLL_ANVIL`, then the checkout's own, then the one on the path; installed
    into `.atoll/tools` from npm where there is none.

    Raises:
        ConfigError: there is none, and npm cannot install it.
    """
    named = os.environ.get("ATOLL_ANVIL")
    if named:
        return _executable(Path(named), "ATOLL_ANVIL")
    system = platform.system().lower()
    architecture = _ARCHITECTURES.get(platform.machine().lower(), platform.machine().lower())
    # The package of this platform alone: what `@foundry-rs/anvil` adds is a script that picks it.
    package = f"@foundry-rs/anvil-{system}-{architecture}"
    binary, home = Path("node_modules", package, "bin", "anvil"), _tools()
    for folder in (ROOT / "contracts", Path.cwd() / "contracts", home):
        if (folder / binary).is_file():
            return folder / binary
    on_path = shutil.which("anvil")
    if on_path is not None:
        return Path(on_path)
    return _installed("Anvil", f"{package}@{ANVIL}", home, binary)


def find_node() -> Path:
    """Node.js, for Ganache and npm: on the path, or beside this Python where `make setup` puts it.

    Raises:
        ConfigError: there is none.
    """
    beside = Path(sys.executable).with_name("node")
    program = shutil.which("node") or (str(beside) if beside.exists() else None)
    if program is None:
        raise ConfigError(
            "Node.js, which runs Ganache and npm, was not found",
            next_step="install Node.js 20 or later (in a checkout `make setup` does), or set "
            "ATOLL_ANVIL=/path/to/anvil",
        )
    return Path(program)


def find_ganache() -> Path:
    """Ganache's start script; installed into `.atoll/tools` from npm where it is missing.

    Raises:
        ConfigError: it is missing and npm cannot install it.
    """
    script, home = Path("node_modules/ganache/dist/node/cli.js"), _tools()
    for folder in (ROOT / "contracts", home):
        if (folder / script).is_file():
            return folder / script
    return _installed("Ganache", f"ganache@{GANACHE}", home, script)


def _tools() -> Path:
    """Where what is missing goes: the checkout's folder, or that of this one."""
    return (ROOT if (ROOT / "contracts").is_dir() else Path.cwd()) / ".atoll" / "tools"


def _installed(name: str, package: str, home: Path, program: Path) -> Path:
    """A package's program, fetched."""
    sys.stderr.write(f"fetches {package} into {home}, once\n")
    _install(name, package, home)
    if not (home / program).is_file():
        raise ConfigError(f"{package} has no {program}", next_step=f"remove {home} and try again")
    return home / program


def _install(name: str, package: str, folder: Path) -> None:
    by_hand = f"npm install --prefix {folder} {package}"
    node, npm = find_node(), shutil.which("npm")
    cli = node.resolve().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    if npm is None and not cli.is_file():
        raise ConfigError(f"npm, which installs {name}, was not found", next_step=by_hand)
    folder.mkdir(parents=True, exist_ok=True)
    program = [npm] if npm is not None else [str(node), str(cli)]
    installed = subprocess.run(  # noqa: S603  (a fixed command)
        [*program, "install", "--prefix", str(folder), *QUIETLY, package],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode != 0:
        reason = (installed.stderr.strip().splitlines() or ["no output"])[-1]
        raise ConfigError(f"npm could not install {package}: {reason}", next_step=by_hand)


def _executable(path: Path, origin: str) -> Path:
    if path.is_file() and os.access(path, os.X_OK):
        return path
    raise ConfigError(
        f"{origin} names {path}, which is not a program", next_step=f"correct or unset {origin}"
    )
