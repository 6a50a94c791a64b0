"""What shows that a deployment's code is made of its sources: a request of Sourcify's a contract.

Rule of this file: files and no connection; whoever wants to sends them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast

from atoll.chain.deployment import Deployment
from atoll.nested import loads

OUTPUTS: Final = ("abi", "metadata", "evm.bytecode", "evm.deployedBytecode")


@cache
def _shipped() -> dict[str, Any]:
    """How the contracts of this version are compiled, and of what."""
    path = resources.files("atoll.chain") / "sources.json"
    return cast(dict[str, Any], loads(path.read_text(encoding="utf-8")))


def standard_input(name: str) -> dict[str, Any]:
    """The compiler's standard JSON input for one contract: what it imports, and nothing else."""
    shipped = _shipped()
    paths = shipped["contracts"][name]["sources"]
    return {
        "language": "Solidity",
        "sources": {path: {"content": shipped["sources"][path]} for path in paths},
        "settings": {**shipped["settings"], "outputSelection": {"*": {"*": list(OUTPUTS)}}},
    }


def request_of(name: str) -> dict[str, Any]:
    """What Sourcify's `POST /v2/verify/{chainId}/{address}` takes."""
    shipped = _shipped()
    return {
        "stdJsonInput": standard_input(name),
        "compilerVersion": shipped["compiler"],
        "contractIdentifier": f"{shipped['contracts'][name]['path']}:{name}",
    }


def folder_beside(deployment: Path) -> Path:
    """Where the requests of a deployment file are."""
    return deployment.with_name(f"{deployment.stem}.sources")


def write_requests(made: Deployment, folder: Path, *, is_new_token: bool = True) -> list[Path]:
    """A file for each contract of the deployment, in a new folder.

    `Jobs.0x….json` is what that address is made of.

    Args:
        is_new_token: whether the token was made with it, and is no other author's.
    """
    folder.mkdir()
    ours = made.addresses.keys() & _shipped()["contracts"].keys()
    written = []
    for name in sorted(ours if is_new_token else ours - {"AtollToken"}):
        path = folder / f"{name}.{made.addresses[name]}.json"
        path.write_text(json.dumps(request_of(name), indent=1) + "\n", encoding="utf-8")
        written.append(path)
    return written
