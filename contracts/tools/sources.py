"""What a compiler is given to make the deployed contracts again: their sources, and how it is set.

Rule of this file: of each contract only what it imports, as in the inputs that explorers take.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

CONTRACTS = Path(__file__).resolve().parent.parent
TARGET = CONTRACTS.parent / "sdk" / "atoll" / "chain" / "sources.json"
_IMPORT = re.compile(r'^import\s[^"]*"([^"]+)"', re.MULTILINE)
_VERSION = re.compile(r"^const VERSION = '([^']+)'", re.MULTILINE)


def sources_text(names: Iterable[str]) -> str:
    """The file that the package ships."""
    profile = tomllib.loads((CONTRACTS / "foundry.toml").read_text())["profile"]["default"]
    remappings = dict(entry.split("=") for entry in profile["remappings"])
    contracts, files = {}, dict[str, str]()
    for name in names:
        path, needed = _path_of(name), dict[str, str]()
        _take(path, needed, remappings)
        contracts[name] = {"path": path, "sources": sorted(needed)}
        files |= needed
    found = _VERSION.search((CONTRACTS / "tools" / "solc").read_text())
    if found is None:
        raise SystemExit("tools/solc names no version")
    settings = {
        "remappings": profile["remappings"],
        "optimizer": {"enabled": profile["optimizer"], "runs": profile["optimizer_runs"]},
        "metadata": {
            "bytecodeHash": profile["bytecode_hash"],
            "appendCBOR": profile["cbor_metadata"],
        },
        "evmVersion": profile["evm_version"],
    }
    document = {
        "compiler": found[1],
        "settings": settings,
        "contracts": contracts,
        "sources": dict(sorted(files.items())),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _path_of(name: str) -> str:
    (path,) = (CONTRACTS / "src").rglob(f"{name}.sol")
    return path.relative_to(CONTRACTS).as_posix()


def _take(path: str, files: dict[str, str], remappings: dict[str, str]) -> None:
    """A source, and all that it imports."""
    if path in files:
        return
    files[path] = (CONTRACTS / path).read_text()
    for named in _IMPORT.findall(files[path]):
        if named.startswith("."):
            parts: list[str] = list(PurePosixPath(path).parent.parts)
            for part in PurePosixPath(named).parts:
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            _take("/".join(parts), files, remappings)
            continue
        prefix = next(prefix for prefix in remappings if named.startswith(prefix))
        _take(remappings[prefix] + named.removeprefix(prefix), files, remappings)
