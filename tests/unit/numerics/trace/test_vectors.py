"""The nodes that forge works out element by element are what the operations make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from eth_abi.abi import decode
from tests.judge.elements import raw
from tests.judge.replay import OPERATIONS
from tests.vectors.generate_judge_steps import KINDS

from atoll.numerics.trace.opcodes import Op

VECTORS = Path(__file__).parents[3] / "vectors"
FILES = sorted(path.name for path in VECTORS.glob("judge_family_*.json"))
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}


def nodes(name: str) -> list[tuple[str, str, Any]]:
    file = json.loads((VECTORS / name).read_text())
    return list(zip(file["name"], file["kinds"], file["node"], strict=True))


@pytest.mark.parametrize("file", FILES)
def test_every_node_is_what_its_operation_makes(file: str) -> None:
    for name, kinds, encoded in nodes(file):
        described, output = decode(
            ["(uint16,uint256,bytes,bytes[])", "bytes"], bytes.fromhex(encoded[2:])
        )
        op, width, attributes, inputs = described
        numbers = [
            int.from_bytes(attributes[i : i + 8], "big") for i in range(0, len(attributes), 8)
        ]
        tensors = [
            torch.frombuffer(bytearray(data), dtype=DTYPES[kind])
            for data, kind in zip(inputs, kinds.split(), strict=True)
        ]
        result = OPERATIONS[op](numbers[1:], tensors, numbers[0])
        assert (Op(op).name, width) == (name, result.element_size())
        assert raw(result) == output


def test_every_operation_has_nodes() -> None:
    named = {name for file in FILES for name, _, _ in nodes(file)}
    families = range(1, 1 + len(FILES))  # the others' nodes read sources: see test_state_vectors.py
    assert named == {Op(op).name for op in OPERATIONS if op >> 8 in families}
