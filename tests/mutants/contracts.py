"""Samples mutants of the contracts; fails where forge's tests kill too few of them.

    python -m tests.mutants.contracts                       some, chosen by the newest commit
    python -m tests.mutants.contracts --seed 7 --count 50   the same ones again
    python -m tests.mutants.contracts --only Jobs           of files with this in their path

Survivors are printed with their change. The last line is JSON. Only contracts that hold a mutant
are compiled; the tests create them from artifacts (`contracts/test/support/Deployed.sol`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutants.__main__ import newest_commit
from tests.mutants.solidity import Mutant, difference, mutants_of

CONTRACTS: Final = Path(__file__).resolve().parents[2] / "contracts"
ROUNDS: Final = ("Rounds", "RoundsSettlement", "RoundsMembership")
HELD_BY: Final = {
    "src/Rounds.sol": ("Rounds",),
    "src/rounds/RoundsBase.sol": ROUNDS,
    "src/rounds/RoundsMembership.sol": ("RoundsMembership",),
    "src/rounds/RoundsSettlement.sol": ("RoundsSettlement",),
    "src/Audits.sol": ("Audits",),
    "src/LateVotes.sol": ("LateVotes",),
    "src/Members.sol": ("Members",),
    "src/Jobs.sol": ("Jobs",),
    "src/Owners.sol": ("Jobs",),
    "src/Stakes.sol": ("Stakes",),
    "src/judge/Claims.sol": ("Claims",),
    "src/judge/Game.sol": ("Game",),
    "src/judge/GameQueue.sol": ("Game",),
    "src/judge/MoveChecks.sol": ("Judge",),
    "src/Strikes.sol": ("Strikes",),
    "src/strikes/DerivedStrikes.sol": ("DerivedStrikes",),
    "src/strikes/StrikesBase.sol": ("Strikes", "DerivedStrikes"),
    "src/DrandBeacon.sol": ("DrandBeacon",),
    "src/HistoryBeacon.sol": ("HistoryBeacon",),
    "src/libraries/Reveals.sol": ("Audits", "LateVotes", "Claims"),
    "src/libraries/Rows.sol": ROUNDS,
    "src/libraries/Tally.sol": ("RoundsSettlement",),
    "src/libraries/TermsCheck.sol": ("Config",),
}
"""The game's rules, and who has their code. Libraries whose own tests have their code in them are
excluded, and so is what steps compute, which is compared with a reference."""
EXCLUDED: Final = "Gas|Steps|SoftFloat|BlsTest"
"""Tests that count gas, and those of what has no mutants: steps, keys."""
BRIEF: Final = {
    "FOUNDRY_FUZZ_RUNS": "8",
    "FOUNDRY_INVARIANT_RUNS": "1",
    "FOUNDRY_INVARIANT_DEPTH": "60",
    "FOUNDRY_FUZZ_SEED": "0x1",
}
COUNT: Final = 10
LEAST_SCORE: Final = 40.0
LONGEST_TIMES: Final = 5.0
"""As long as all tests took without a mutant. A loop without end takes until its gas is gone."""


class Compiler:
    """The pinned compiler, started once: its first answer takes three core seconds, others one."""

    def __init__(self) -> None:
        command = [str(CONTRACTS / "tools/solc"), "--standard-json", "--lines"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What it says of one input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self._process.communicate()


def _copy_for_tests(source: str, target: str) -> None:
    """What forge built but for what tests do not need, since each of its starts reads all of it."""
    file = Path(source)
    info = {"id": file.stem, "source_id_to_path": {}, "language": "Solidity"}
    if file.parent.name != "build-info":
        info = json.loads(file.read_bytes())
        info.pop("ast", None)
    Path(target).write_text(json.dumps(info))


class Bench:
    """A copy of the built contracts, in which some are replaced."""

    def __init__(self, folder: Path) -> None:
        self._at = folder / "contracts"
        self._at.mkdir()
        # Where a library is a link, forge finds it elsewhere than when it built, and builds anew.
        for name in ("src", "test", "cache", "node_modules/@openzeppelin"):
            shutil.copytree(CONTRACTS / name, self._at / name)
        shutil.copytree(
            CONTRACTS / "out",
            self._at / "out",
            ignore=shutil.ignore_patterns("slither"),
            copy_function=_copy_for_tests,
        )
        for name in ("foundry.toml", "tools"):
            (self._at / name).symlink_to(CONTRACTS / name)
        (folder / "tests").symlink_to(CONTRACTS.parent / "tests")
        self.longest_seconds: float | None = None
        self._compiler = Compiler()
        self._forge = next((CONTRACTS / "node_modules/@foundry-rs").glob("forge-*/bin/forge"))

    def artifact(self, contract: str) -> Path:
        """What forge keeps of a contract that it compiled."""
        return self._at / "out" / f"{contract}.sol" / f"{contract}.json"

    def population(self, only: str) -> list[Mutant]:
        """Every mutant of the files with that in their path."""
        found: list[Mutant] = []
        for file in HELD_BY:
            if only in file:
                name = Path(file).stem
                artifact = CONTRACTS / "out" / f"{name}.sol" / f"{name}.json"
                tree = json.loads(artifact.read_bytes())["ast"]
                found += mutants_of(file, tree, (CONTRACTS / file).read_bytes())
        return found

    def fate(self, mutant: Mutant) -> str:
        """What became of it: `killed`, `survived` or, where the compiler refuses it, `refused`."""
        codes = self._compile(mutant)
        if not all(codes.values()):
            return "refused"
        before = {name: self.artifact(name).read_bytes() for name in codes}
        for name, code in codes.items():
            changed = json.loads(before[name])
            changed["bytecode"]["object"] = f"0x{code}"
            self.artifact(name).write_text(json.dumps(changed))
        try:
            return "survived" if self.passes() else "killed"
        finally:
            for name, data in before.items():
                self.artifact(name).write_bytes(data)

    def end(self) -> None:
        self._compiler.end()

    def _compile(self, mutant: Mutant) -> dict[str, str]:
        """Code with the mutant of who holds it, in hexadecimal; empty where there is none."""
        held_by = HELD_BY[mutant.file]
        about = [json.loads(self.artifact(name).read_bytes())["metadata"] for name in held_by]
        files = [next(iter(one["settings"]["compilationTarget"])) for one in about]
        settings = {k: v for k, v in about[0]["settings"].items() if k != "compilationTarget"}
        wanted = {f: {n: ["evm.bytecode.object"]} for f, n in zip(files, held_by, strict=True)}
        texts = {
            source: (CONTRACTS / source).read_bytes() for one in about for source in one["sources"]
        }
        texts[mutant.file] = mutant.of(texts[mutant.file])
        asked = {
            "language": "Solidity",
            "sources": {source: {"content": text.decode()} for source, text in texts.items()},
            "settings": settings | {"outputSelection": wanted},
        }
        made = self._compiler.answer(asked).get("contracts", {})
        found = [made.get(f, {}).get(n, {}) for f, n in zip(files, held_by, strict=True)]
        codes = [one.get("evm", {}).get("bytecode", {}).get("object", "") for one in found]
        return dict(zip(held_by, codes, strict=True))

    def passes(self) -> bool:
        """Whether all tests pass, in time where it is known how long they take."""
        command = [str(self._forge), "test", "--fail-fast", "--no-match-contract", EXCLUDED]
        environment = {**os.environ, **BRIEF}
        try:
            done = subprocess.run(
                command,
                cwd=self._at,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=self.longest_seconds,
            )
        except subprocess.TimeoutExpired:
            return False
        if "No files changed, compilation skipped" not in done.stdout:
            raise RuntimeError(f"forge compiles anew: {done.stdout[:500]} {done.stderr[:500]}")
        return done.returncode == 0


def judge(bench: Bench, population: Sequence[Mutant], count: int) -> Counter[str]:
    """How many of each fate, until so many were put to the tests; prints who survived."""
    fates = Counter[str]()
    for mutant in population:
        if fates["killed"] + fates["survived"] == count:
            break
        fate = bench.fate(mutant)
        fates[fate] += 1
        if fate == "survived":
            print(difference(mutant, (CONTRACTS / mutant.file).read_bytes()), flush=True)
    return fates


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    started = time.monotonic()
    subprocess.run([str(CONTRACTS / "tools/forge"), "build"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        population = bench.population(options.only)
        print(f"mutants: {options.count} of {len(population)}, --seed {options.seed}", flush=True)
        began = time.monotonic()
        if not bench.passes():
            print("mutants: the tests do not pass without any")
            return 2
        bench.longest_seconds = LONGEST_TIMES * (time.monotonic() - began)
        random.Random(options.seed).shuffle(population)
        fates = judge(bench, population, options.count)
        bench.end()
    count = fates["killed"] + fates["survived"]
    summary = {
        "bench": "mutants of contracts",
        "seed": options.seed,
        "population": len(population),
        "count": count,
        **{fate: fates[fate] for fate in ("killed", "survived", "refused")},
        "score": round(100 * fates["killed"] / max(count, 1), 1),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    return int(100 * fates["killed"] < LEAST_SCORE * count)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.mutants.contracts", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", default=newest_commit(), help="any text; default: the commit")
    parser.add_argument("--only", default="", help="only files with this in their path")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
