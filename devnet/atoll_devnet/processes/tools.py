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
GANACHE = "7.9.2"
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def find_anvil() -> Path:
    """Anvil's binary: `ATOLL_ANVIL`, then the checkout's own, then the one on the path.

    Raises:
        ConfigError: there is none.
    """
    named = os.environ.get("ATOLL_ANVIL")
    if named:
        return _executable(Path(named), "ATOLL_ANVIL")
    system = platform.system().lower()
    architecture = _ARCHITECTURES.get(platform.machine().lower(), platform.machine().lower())
    package = f"contracts/node_modules/@foundry-rs/anvil-{system}-{architecture}/bin/anvil"
    for root in (ROOT, Path.cwd()):
        if (root / package).is_file():
            return root / package
    on_path = shutil.which("anvil")
    if on_path is None:
        raise ConfigError(
            "Anvil, the local chain, was not found",
            next_step="run `make setup`, or set ATOLL_ANVIL=/path/to/anvil",
        )
    return Path(on_path)


def find_node() -> Path:
    """Node.js, for Ganache: on the path, or beside this Python where `make setup` puts it.

    Raises:
        ConfigError: there is none.
    """
    beside = Path(sys.executable).with_name("node")
    found = shutil.which("node") or (str(beside) if beside.exists() else None)
    if found is None:
        raise ConfigError(
            "Node.js, which runs Ganache, was not found", next_step="run `make setup`"
        )
    return Path(found)


def find_ganache() -> Path:
    """Ganache's start script; installed into `.atoll/tools` from npm where it is missing.

    Raises:
        ConfigError: it is missing and npm cannot install it.
    """
    script = Path("node_modules/ganache/dist/node/cli.js")
    home = (ROOT if (ROOT / "contracts").is_dir() else Path.cwd()) / ".atoll" / "tools"
    for folder in (ROOT / "contracts", home):
        if (folder / script).is_file():
            return folder / script
    _install(f"ganache@{GANACHE}", home)
    if not (home / script).is_file():
        raise ConfigError(
            f"ganache {GANACHE} has no {script}", next_step=f"remove {home} and try again"
        )
    return home / script


def _install(package: str, folder: Path) -> None:
    by_hand = f"npm install --prefix {folder} {package}"
    node, npm = find_node(), shutil.which("npm")
    cli = node.resolve().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    if npm is None and not cli.is_file():
        raise ConfigError("npm, which installs Ganache, was not found", next_step=by_hand)
    folder.mkdir(parents=True, exist_ok=True)
    program = [npm] if npm is not None else [str(node), str(cli)]
    done = subprocess.run(  # noqa: S603  (a fixed command)
        [*program, "install", "--prefix", str(folder), "--no-audit", "--no-fund", package],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ConfigError(f"npm could not install {package}: {reason}", next_step=by_hand)


def _executable(path: Path, origin: str) -> Path:
    if path.is_file() and os.access(path, os.X_OK):
        return path
    raise ConfigError(
        f"{origin} names {path}, which is not a program", next_step=f"correct or unset {origin}"
    )
