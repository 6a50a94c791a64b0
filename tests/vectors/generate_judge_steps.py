"""Writes nodes of the judge's operations: `python tests/vectors/generate_judge_steps.py`.

Rule of this file: a node has one element at least for every border of its numbers. The tests work
its output out again from its inputs, in both languages, so what drew the inputs may change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from eth_abi.abi import encode
from tests.judge.elements import Draw, Node, raw
from tests.judge.replay import NODES, OPERATIONS

from atoll.numerics.trace.opcodes import Op

HERE = Path(__file__).parent
SEED: Final = 14
ELEMENTS: Final = 280
"""About as many a node: enough for all borders. Where nodes are smaller there are more of them."""
LEAST: Final = 250
"""Elements of an operation."""
KINDS: Final = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.float64: "f64",
}


def described(node: Node) -> dict[str, Any]:
    """Its name, its inputs' types, and node and output as forge decodes them."""
    result = node.result(OPERATIONS[node.op])
    inputs = [raw(x) for x in node.inputs]
    fields = (int(node.op), result.element_size(), node.attributes, inputs)
    encoded = encode(["(uint16,uint256,bytes,bytes[])", "bytes"], [fields, raw(result)])
    kinds = " ".join(KINDS[x.dtype] for x in node.inputs)
    return {"kinds": kinds, "name": Op(node.op).name, "node": "0x" + encoded.hex()}


def nodes_of(op: int, draw: Draw) -> list[Node]:
    """Nodes of an operation, with `LEAST` elements together."""
    rng = np.random.default_rng((SEED, op))
    nodes: list[Node] = []
    while sum(node.result(OPERATIONS[op]).numel() for node in nodes) < LEAST:
        nodes.append(draw(rng, ELEMENTS))
    return nodes


def family(number: int) -> dict[str, Any]:
    """Nodes of each operation of a family, in their order."""
    draws = [(op, draw) for op, draw in sorted(NODES.items()) if op >> 8 == number]
    nodes = [described(node) for op, draw in draws for node in nodes_of(op, draw)]
    return {key: [node[key] for node in nodes] for key in ("kinds", "name", "node")}


if __name__ == "__main__":
    for family_number in (1, 2, 3, 4):  # of the others: generate_judge_states.py
        path = HERE / f"judge_family_{family_number}.json"
        path.write_text(json.dumps(family(family_number), indent=1) + "\n")
