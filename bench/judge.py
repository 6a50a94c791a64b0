"""The judge's arithmetic in an EVM against the reference step and Berkeley SoftFloat.

    python bench/judge.py [--elements N] [--seed S] [--only NAME ...] [--json]

A line an operation: how many elements, how many results differ from either, and how many the EVM
works out a second of its own time. Elements are all pairs of the formats' borders, then random
words.
The last line of --json is the whole document; the exit code is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.judge.berkeley import SECOND
from tests.judge.fuzz import Comparison, arithmetic, compare
from tests.judge.operations import OPERATIONS

from atoll_devnet.processes.evm import Evm

ELEMENTS = 1_000_000


def main() -> int:
    options = _options()
    document = {"seed": options.seed, "operations": asyncio.run(_operations(options))}
    if options.json:
        print(json.dumps(document))
    parts = document["operations"].values()
    return int(any(part["differences"] or part["differences_second"] for part in parts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of each operation")
    parser.add_argument("--seed", type=int, default=14)
    names = [operation.name for operation in OPERATIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


async def _operations(options: argparse.Namespace) -> dict[str, Any]:
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Evm(Path(folder)) as evm:
            contract = await evm.place(arithmetic())
            for operation in OPERATIONS:
                if operation.name not in options.only:
                    continue
                found = await compare(evm, contract, operation, options.elements, options.seed)
                made[operation.name] = _figures(found)
                print(operation.name, json.dumps(made[operation.name]), flush=True)
    return made


def _figures(found: Comparison) -> dict[str, Any]:
    return {
        "elements": found.elements,
        "differences": found.of_reference,
        "differences_second": found.of_second if found.name in SECOND else None,
        "per_second": round(found.elements / found.evm_seconds),
        "examples": found.examples,
    }


if __name__ == "__main__":
    sys.exit(main())
