"""The judge: does the EVM compute what the step computes, and what do its games cost?

    python bench/judge.py [--parts NAME ...] [--only OPERATION ...] [--elements N] [--seed S]
        [--json]

Parts, each of which prints a line for each of its items; all but the last run where none is named:

arithmetic  functions of the judge's soft-float against the reference step and Berkeley SoftFloat
operations  elements of every operation of a program: the EVM against Python
proofs      the dearest last move of every operation at the sizes of GPT-2 small and Llama 1B, and
            the pick of a sampled token
game        a whole game about the demo's model, really played; one of either size, with trees made
            as they are read
trials      fifteen hundred games: a wrong bit in every operation, at its ends and in its middle,
            must lose; an honest provider must win

The last line of --json is the whole document. The exit code is 1 where anything differs, costs more
than its bar, or is decided wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.judge import costs, trials
from tests.judge.berkeley import SECOND
from tests.judge.costs import dearest, demo_game, large_game, world_of
from tests.judge.fuzz import Comparison, arithmetic, compare
from tests.judge.operations import OPERATIONS
from tests.judge.replay import NODES, court, differences
from tests.judge.table import CODE_LIMIT, Bill, Table, table
from tests.judge.vast_tokens import pick_gas

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.game_machine import Outcome
from atoll_devnet.processes.evm import Evm

ELEMENTS = 1_000_000
PARTS = ("arithmetic", "operations", "proofs", "game")
PRESETS = {"124M": "gpt2-small", "1B": "llama-1b"}
Document = dict[str, Any]


def main() -> int:
    options = _options()
    document: Document = {"seed": options.seed, "operations": {}}
    for name in options.parts:
        found = _RUN[name](options)
        for op, figures in found.pop("operations", {}).items():
            document["operations"].setdefault(op, {}).update(figures)
        document |= found
    if options.json:
        print(json.dumps(document))
    return int(any(_failures(document)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--elements", type=int, default=ELEMENTS, help="of each function and operation"
    )
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--parts", nargs="+", choices=tuple(_RUN), default=PARTS)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=Op.__members__,
        default=Op.__members__,
        metavar="OPERATION",
        help="of `operations`, `proofs` and `trials`; all by default",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.only = [Op[name] for name in options.only]
    return options


def _failures(document: Mapping[str, Any]) -> list[str]:
    """What is not as it must be."""
    arithmetic_, operations = document.get("arithmetic", {}), document.get("operations", {})
    found = [n for n, part in arithmetic_.items() if part["differences"]]
    found += [n for n, part in arithmetic_.items() if part["differences_second"]]
    found += [n for n, part in operations.items() if part.get("differences")]
    found += [n for n, part in operations.items() if part.get("prove_gas", 0) > costs.MOST]
    picks = document.get("pick_token_gas", {})
    found += [f"pickToken {n}" for n, gas in picks.items() if gas > costs.MOST_OF_A_PICK]
    games = document.get("game", {})
    found += [n for n, part in games.items() if part["transactions"] > costs.MOST_TRANSACTIONS]
    found += [n for n, part in games.items() if part["gas"] > costs.MOST_OF_A_GAME]
    found += [n for n, size in document.get("code_bytes", {}).items() if size > CODE_LIMIT]
    return found + document.get("trials", {}).get("wrong", [])


def _said(name: str, found: Any) -> Any:
    print(name, json.dumps(found), flush=True)
    return found


def _arithmetic(options: argparse.Namespace) -> Document:
    return {"arithmetic": asyncio.run(_functions(options))}


async def _functions(options: argparse.Namespace) -> Document:
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Evm(Path(folder)) as evm:
            contract = await evm.place(arithmetic())
            for operation in OPERATIONS:
                found = await compare(evm, contract, operation, options.elements, options.seed)
                made[operation.name] = _said(operation.name, _figures(found))
    return made


def _figures(found: Comparison) -> Document:
    return {
        "elements": found.elements,
        "differences": found.of_reference,
        "differences_second": found.of_second if found.name in SECOND else None,
        "per_second": round(found.elements / found.evm_seconds),
        "examples": found.examples,
    }


def _operations(options: argparse.Namespace) -> Document:
    made: Document = {}
    with court() as judges:
        for op in sorted(NODES.keys() & options.only):
            found = differences(judges, op, options.elements, options.seed)
            figures = {"elements": found.elements, "differences": found.different}
            figures |= {"per_second": round(found.elements / found.seconds), "first": found.first}
            made[Op(op).name] = _said(Op(op).name, figures)
    return {"operations": made}


def _proofs(options: argparse.Namespace) -> Document:
    """`prove_gas` is the dearest of the presets; variants are tried for what these do not have."""
    made: Document = {}
    picks: Document = {}
    with table("SetGame") as seat:
        for label, preset in PRESETS.items():
            for op, gas in _dearest_of(seat, preset, options.only).items():
                made.setdefault(op, {})[label] = gas
            # Behind them, since a deployment's first event costs 0.02M more.
            picks[label] = pick_gas(seat, world_of(preset, "rewards"))
    with table() as seat:
        sizes = dict(seat.code_sizes())
    operations = {
        op: _said(op, {"prove_gas": max(by_size.values()), "prove_gas_at": by_size})
        for op, by_size in made.items()
    }
    found = _said("pickToken", picks)
    return {"operations": operations, "code_bytes": sizes, "pick_token_gas": found}


def _dearest_of(seat: Table, preset: str, operations: Sequence[Op]) -> dict[str, int]:
    found: dict[str, int] = {}
    for variant in costs.VARIANTS:
        world = world_of(preset, variant)
        for op in operations:
            cost = dearest(seat, world, op) if op.name not in found else None
            if cost is not None:
                found[op.name] = cost.gas
    return found


def _games(options: argparse.Namespace) -> Document:
    made: Document = {}
    with table() as seat:
        made["demo"] = _said("demo", _bill(demo_game(seat, 1)))
        for number, (label, preset) in enumerate(PRESETS.items(), 2):
            made[label] = _said(label, _bill(large_game(seat, number, world_of(preset))))
    return {"game": made}


def _bill(bill: Bill) -> Document:
    return {
        "transactions": bill.transactions,
        "gas_provider": bill.provider,
        "gas_challenger": bill.challenger,
        "gas": bill.provider + bill.challenger,
        "dearest": bill.dearest,
    }


def _trials(options: argparse.Namespace) -> Document:
    played, nowhere, wrong, numbers = 0, 0, [], itertools.count(1)
    with table() as seat:
        for op in options.only:
            for place in trials.lies(op):
                lied = trials.refute(seat, next(numbers), place)
                played, nowhere = played + 1, nowhere + (lied is None)
                if trials.outcome(lied) is not Outcome.HOLDER_LOST:
                    wrong.append(f"a wrong bit stood: {place}")
            for place in trials.positions(op):
                kept = trials.survive(seat, next(numbers), place)
                if kept.outcome is not Outcome.CHALLENGER_LOST:
                    wrong.append(f"a right element lost: {place}")
            _said(op.name, {"places": played, "not_claimable": nowhere, "wrong": wrong})
    return {"trials": {"places": played, "not_claimable": nowhere, "wrong": wrong}}


_RUN: Mapping[str, Callable[[argparse.Namespace], Document]] = {
    "arithmetic": _arithmetic,
    "operations": _operations,
    "proofs": _proofs,
    "game": _games,
    "trials": _trials,
}


if __name__ == "__main__":
    sys.exit(main())
