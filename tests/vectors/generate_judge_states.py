"""Writes nodes of families 0 and 5 to 7: `python tests/vectors/generate_judge_states.py`.

Rule of this file: as `generate_judge_steps.py`, but with several nodes an operation, since most of
these have one element or sizes of their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from eth_abi.abi import encode
from tests.judge import rollout_nodes, state_nodes, update_proof_nodes
from tests.judge.elements import raw
from tests.unit.numerics.trace.jobs import JOBS, small

from atoll.numerics.trace.opcodes import Op
from atoll.protocol.draws import DrawStream

HERE = Path(__file__).parent
SEED: Final = 14
NODES_EACH: Final = 6
ELEMENTS: Final = 60
LIMIT: Final = (1 << 63) + 1
"""Of draws nearly half of whose words are rejected."""
FAMILIES: Final = {0: "imports", 5: "states", 6: "update_proofs", 7: "rollouts"}
NODES: Final = {**state_nodes.NODES, **update_proof_nodes.NODES, **rollout_nodes.NODES}
OPERATIONS: Final = {
    **state_nodes.OPERATIONS,
    **update_proof_nodes.OPERATIONS,
    **rollout_nodes.OPERATIONS,
}


def described(op: int, number: int) -> tuple[str, bytes]:
    """Its name, and node and output as forge decodes them."""
    node = NODES[op](np.random.default_rng((SEED, op, number)), ELEMENTS)
    result = node.result(OPERATIONS[op])
    inputs = [raw(x) for x in node.inputs]
    fields = (int(op), result.element_size(), node.attributes, inputs)
    encoded = encode(["(uint16,uint256,bytes,bytes[])", "bytes"], [fields, raw(result)])
    return Op(op).name, encoded


def family(number: int) -> dict[str, Any]:
    """Nodes of each operation of a family."""
    ops = [op for op in sorted(NODES) if op >> 8 == number]
    nodes = [described(op, at) for op in ops for at in range(NODES_EACH)]
    return {
        "name": [name for name, _ in nodes],
        "node": ["0x" + node.hex() for _, node in nodes],
    }


def draws() -> dict[str, Any]:
    """Draws of a stream whose words are rejected, and its key: tag and all but the counter."""
    seed, seat, step = bytes(range(32)), 300, 70_000
    key = seed + seat.to_bytes(2, "big") + step.to_bytes(4, "big")
    stream = DrawStream("atoll.batch.v1", key)
    words = [word.to_bytes(32, "big") for word in (seat, 0, step)]
    drawn = [hex(stream.draw(LIMIT)) for _ in range(40)]
    return {"context": "0x" + (seed + b"".join(words)).hex(), "limit": hex(LIMIT), "drawn": drawn}


def program_roots() -> dict[str, str]:
    """Programs' roots of the small jobs of the trace's tests."""
    return {name: "0x" + small(name).program.root.hex() for name in JOBS}


def rendered() -> dict[str, str]:
    """Every file by its name."""
    files = {f"judge_{name}.json": family(number) for number, name in FAMILIES.items()}
    files["judge_draws.json"], files["judge_programs.json"] = draws(), program_roots()
    return {name: json.dumps(value, indent=1) + "\n" for name, value in files.items()}


if __name__ == "__main__":
    for file, text in rendered().items():
        (HERE / file).write_text(text)
