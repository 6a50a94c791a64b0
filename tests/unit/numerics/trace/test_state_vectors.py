"""Nodes of families 0 and 5 to 7 in `tests/vectors`, which forge reads too, are Python's."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from eth_abi.abi import decode
from tests.judge.elements import raw
from tests.judge.state_nodes import Given
from tests.vectors.generate_judge_states import NODES, NODES_EACH, OPERATIONS, draws

from atoll.numerics.trace.opcodes import Op

VECTORS = Path(__file__).parents[3] / "vectors"
_TYPES = {
    "norm": torch.float64,
    "f32": torch.float32,
    "i32": torch.int32,
    "i64": torch.int64,
    "i8": torch.int8,
    "u16": torch.uint16,
}
INPUTS = {
    Op.STATE: ["f32"], Op.BASE: ["f32"], Op.MODEL: ["f32"], Op.COUNT: ["i64"], Op.IDS: ["i32"],
    Op.TARGETS: ["i32"], Op.CORRECTIONS: ["", "i64"], Op.CHUNKS: ["f32"],
    Op.RESULT: ["", "norm", "f32", "f32"], Op.SCALED: ["f32", "i32"],
    Op.DIFFERENCE: ["f32", "f32"], Op.FP32: ["f32"], Op.GRID8: ["f32"], Op.GRID4: ["f32"],
    Op.BLOCK_STEPS: ["f32"], Op.CODES: ["f32"], Op.UPDATE_HEADER: ["i32"],
    Op.SAID: ["", "", ""], Op.RESIDUAL: ["f32", "i8", "i32"], Op.KEPT: ["u16"],
    Op.CHOSEN: ["", "f32"], Op.SPREAD: ["", "i8"], Op.COUNT_BEFORE: ["f32"],
    Op.DCT: ["f32"], Op.INVERSE_DCT: ["i8"], Op.RESIDUAL_FINE: ["f32", "i32", "i32"],
    Op.SAMPLED_RESULT: ["", "norm", "f32", "f32", "i64", "i64"], Op.SEQUENCE: ["i32"],
    Op.ROW: ["f32"], Op.DRAWN: ["i64"], Op.SAMPLE: ["i64", "f32", *["i64"] * 5],
    Op.TOKEN: ["i32", "i64", "i32"], Op.SUM_BELOW: ["i32"], Op.COUNT_INFINITE: ["i32"],
    Op.CELLS: ["i32"], Op.REWARD: ["i64", "i64"], Op.ADVANTAGE: ["i64", "i64"],
    Op.SAMPLED_IDS: ["i32"],
}  # fmt: skip
"""Types of inputs that are not bytes."""
WORDS = {
    Op.MATCH: 3,
    Op.STATE: 3,
    Op.BASE: 3,
    Op.MODEL: 3,
    Op.COUNT: 3,
    Op.CHUNKS: 2,
    Op.UPDATE_HEADER: 0,
}
"""How many words those have that have a tail."""


def read(encoded: str) -> tuple[Given, int, bytes]:
    """A node, the width of its elements, and its output."""
    fields, output = decode(["(uint16,uint256,bytes,bytes[])", "bytes"], bytes.fromhex(encoded[2:]))
    op, width, attributes, inputs = fields
    words = WORDS.get(Op(op), len(attributes) // 8 - 1)
    iteration, *said = struct.unpack_from(f">{words + 1}Q", attributes)
    kinds = INPUTS.get(Op(op), []) + [""] * len(inputs)
    tensors = [
        torch.from_numpy(np.frombuffer(data, np.uint8).copy()).view(_TYPES.get(kind, torch.uint8))
        for data, kind in zip(inputs, kinds, strict=False)
    ]
    tail = attributes[8 * (words + 1) :]
    return Given(op, tuple(said), tuple(tensors), iteration, tail), width, output


@pytest.mark.parametrize(
    ("file", "family"),
    [("judge_imports", 0), ("judge_states", 5), ("judge_update_proofs", 6), ("judge_rollouts", 7)],
)
def test_vectors_are_what_python_makes_of_them(file: str, family: int) -> None:
    nodes = [read(text) for text in json.loads((VECTORS / f"{file}.json").read_text())["node"]]
    for node, width, output in nodes:
        result = node.result(OPERATIONS[node.op])
        assert raw(result) == output
        assert result.element_size() == width
    ops = [op for op in NODES if op >> 8 == family]
    assert sorted(node.op for node, _, _ in nodes) == sorted(ops * NODES_EACH)


def test_every_operation_of_these_families_has_nodes() -> None:
    """All but GENERATED, which has no formula."""
    ops = {op for op in Op if op.family in {0, 5, 6, 7}}
    assert sorted(NODES) == sorted(ops - {Op.GENERATED})


def test_draws_are_the_laws() -> None:
    assert json.loads((VECTORS / "judge_draws.json").read_text()) == draws()
