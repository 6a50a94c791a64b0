#!/usr/bin/env python3
"""Builds the contracts and writes what the Python package ships of them.

That is `sdk/atoll/chain/artifacts/{Name}.json`, and typed events, calls and views (`generated.py`);
artefacts in `tests/judge` are for tests and benches. Run it after every change of a contract;
`--check` fails where the committed files differ from the sources.
"""
# ruff: noqa: S603, T201 -- a command-line tool: it runs fixed commands and prints

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from generated import generated, interface_text
from interface import read_interface
from sources import TARGET as SOURCES
from sources import sources_text

CONTRACTS = Path(__file__).resolve().parent.parent
TARGET = CONTRACTS.parent / "sdk" / "atoll" / "chain" / "artifacts"
TESTED = tuple(
    Path("test/support") / path
    for path in ("judge/Arithmetic.sol", "judge/Replays.sol", "judge/SetGame.sol", "ToyClaims.sol")
)
TESTED_TARGET = CONTRACTS.parent / "tests" / "judge"
INTERFACE = CONTRACTS / "interface.json"
DEPLOYED = (
    "AtollToken",
    "EcdsaPolicy",
    "BlsPolicy",
    "HistoryBeacon",
    "DrandBeacon",
    "Config",
    "Stakes",
    "Jobs",
    "RoundsSettlement",
    "RoundsMembership",
    "Rounds",
    "Members",
    "Audits",
    "LateVotes",
    "DerivedStrikes",
    "Strikes",
    "ImportSteps",
    "IntegerSteps",
    "AttentionSteps",
    "FloatSteps",
    "OptimiserSteps",
    "StateSteps",
    "UpdateProofSteps",
    "RolloutSteps",
    "Judge",
    "Game",
    "Claims",
)
MOST_BYTES = 24_576 - 1_024
"""Of a contract's code: EIP-170's limit, less the room for a mend."""
SOLC = "0.8.37"
EVM = "shanghai"

Abi = list[dict[str, Any]]


def built(name: str) -> tuple[Abi, str, dict[str, Any]]:
    """ABI, creation bytecode and `runtime` of a contract as forge left them under `out/`."""
    artifact = json.loads((CONTRACTS / "out" / f"{name}.sol" / f"{name}.json").read_text())
    bytecode = artifact["bytecode"]
    if bytecode["linkReferences"]:
        raise SystemExit(f"{name} needs linking, which the deployer does not do")
    code = runtime(artifact["deployedBytecode"])
    if name in DEPLOYED and code["bytes"] > MOST_BYTES:
        raise SystemExit(f"{name} has {code['bytes']} bytes of code, of at most {MOST_BYTES}")
    return artifact["abi"], bytecode["object"], code


def runtime(deployed: dict[str, Any]) -> dict[str, Any]:
    """What a chain's code has to be: its length, its SHA-256 with zeros for immutables, and where
    those are.

    The compiler leaves zeros where a constructor writes immutables, 32 bytes each.
    """
    code = bytes.fromhex(deployed["object"].removeprefix("0x"))
    places = [
        place for found in deployed.get("immutableReferences", {}).values() for place in found
    ]
    if any(place["length"] != 32 for place in places):
        raise SystemExit("an immutable that is no word")
    return {
        "bytes": len(code),
        "sha256": hashlib.sha256(code).hexdigest(),
        "immutables": sorted(place["start"] for place in places),
    }


def with_errors(abi: Abi, errors: Abi) -> Abi:
    """The ABI, with every error that may come up through it from another contract."""
    own = [entry for entry in abi if entry["type"] != "error"]
    return own + errors


def all_errors(abis: list[Abi]) -> Abi:
    """Errors of all contracts, each signature once, sorted by it."""
    found = {
        (entry["name"], tuple(field["type"] for field in entry["inputs"])): entry
        for abi in abis
        for entry in abi
        if entry["type"] == "error"
    }
    return [found[key] for key in sorted(found)]


def artifacts() -> dict[Path, str]:
    """File → text, for every contract that gets deployed, and those of the tests."""
    parts = {name: built(name) for name in DEPLOYED}
    errors = all_errors([abi for abi, _, _ in parts.values()])
    texts = {
        TARGET / f"{name}.json": text(with_errors(abi, errors), bytecode, runtime)
        for name, (abi, bytecode, runtime) in parts.items()
    }
    names = [path.stem for path in TESTED]
    return texts | {TESTED_TARGET / f"{name}.json": text(*built(name)) for name in names}


def text(abi: Abi, bytecode: str, runtime: dict[str, Any]) -> str:
    parts = {"abi": abi, "bytecode": bytecode, "solc": SOLC, "evm": EVM, "runtime": runtime}
    return json.dumps(parts, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the contracts' artefacts.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    subprocess.run([CONTRACTS / "tools" / "forge", "build", "--silent"], check=True)
    interface = read_interface()
    wanted = artifacts() | {INTERFACE: interface_text(interface)} | generated(interface)
    wanted[SOURCES] = sources_text(DEPLOYED)
    if arguments.check:
        stale = [path.name for path, wants in wanted.items() if not same(path, wants)]
        if stale:
            names = ", ".join(stale)
            print(f"stale: {names}; run: contracts/tools/export_artifacts.py", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for path, wants in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(wants)
    print(f"wrote {len(wanted)} files, among them {TARGET.relative_to(CONTRACTS.parent)}")
    return 0


def same(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text() == wanted


if __name__ == "__main__":
    raise SystemExit(main())
