"""The judge's steps in an EVM: elements of nodes, worked out as a game does it, against Python's.

Rule of this file: contracts are their artefacts, as they are shipped; `differences` is what tests
and benches call, for any operation of the families here.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak
from tests.judge import float_nodes, integer_nodes, link_nodes, state_nodes
from tests.judge.elements import Draw, Node, Operation, raw
from torch import Tensor

from atoll.bits.tape import attention, floats, integers, optimisers
from atoll.bits.tape.opcodes import Op
from atoll.chain.abi import load_artifact
from atoll_devnet.processes.evm import Evm

REPLAY: Final = Path(__file__).with_name("Replay.json")
FAMILIES: Final = {
    0: "ImportSteps",
    1: "IntegerSteps",
    2: "AttentionSteps",
    3: "FloatSteps",
    4: "OptimiserSteps",
    5: "StateSteps",
    6: "LinkSteps",
}
"""Contracts of `contracts/src/judge`."""
NODES: Final[Mapping[int, Draw]] = {
    **integer_nodes.NODES,
    **float_nodes.NODES,
    **state_nodes.NODES,
    **link_nodes.NODES,
}
OPERATIONS: Final[Mapping[int, Operation]] = {
    **integers.OPERATIONS,
    **attention.OPERATIONS,
    **floats.OPERATIONS,
    **optimisers.OPERATIONS,
    **state_nodes.OPERATIONS,
    **link_nodes.OPERATIONS,
}

_NODE = "(uint16,uint256,bytes,bytes[])"
_MANY = keccak(f"many(address,{_NODE},uint256[])".encode())[:4]
_GAS = keccak(f"gasOf(address,{_NODE},uint256[])".encode())[:4]
_MOST_AT_ONCE: Final = 512
_LEAST_AT_ONCE: Final = 64
_NODES: Final = 8
"""An operation has as many nodes at least, since each has words of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of elements of one operation.

    Attributes:
        different: of the elements that ran; `first` describes one of them.
        seconds: in the EVM.
    """

    op: int
    elements: int
    different: int
    seconds: float
    first: str = ""


class Court:
    """The steps in an EVM: what each of them makes of elements."""

    def __init__(self, evm: Evm, loop: asyncio.Runner, families: tuple[int, ...]) -> None:
        self._evm, self._loop = evm, loop
        self._replay = self._placed(json.loads(REPLAY.read_text()))
        self._steps = {each: self._placed(load_artifact(FAMILIES[each])) for each in families}

    def _placed(self, artefact: Mapping[str, Any]) -> str:
        return self._loop.run(self._evm.place(bytes.fromhex(artefact["bytecode"][2:])))

    def elements(self, node: Node, width: int, numbers: list[int]) -> bytes:
        """The elements of these numbers, each of `width` bytes."""
        (output,) = decode(["bytes"], self._ask(_MANY, node, width, numbers))
        return bytes(output)

    def gas(self, node: Node, width: int, numbers: list[int]) -> tuple[int, int]:
        """The gas of `run` for these elements: of all, of the dearest."""
        total, most = decode(["uint256", "uint256"], self._ask(_GAS, node, width, numbers))
        return int(total), int(most)

    def _ask(self, selector: bytes, node: Node, width: int, numbers: list[int]) -> bytes:
        described = (int(node.op), width, node.attributes, [raw(x) for x in node.inputs])
        step = self._steps[node.op >> 8]
        data = encode(["address", _NODE, "uint256[]"], [step, described, numbers])
        return self._loop.run(self._evm.call(self._replay, selector + data))


@contextmanager
def court(*families: int) -> Iterator[Court]:
    """An EVM with the contracts of these families, or of all."""
    with asyncio.Runner() as loop, tempfile.TemporaryDirectory() as folder:
        evm = loop.run(Evm(Path(folder)).__aenter__())
        try:
            yield Court(evm, loop, families or tuple(FAMILIES))
        finally:
            loop.run(evm.__aexit__(None, None, None))


def differences(judges: Court, op: int, count: int, seed: int) -> Finding:
    """At least `count` elements of an operation, on nodes drawn with this seed."""
    rng = np.random.default_rng((seed, op))
    elements, different, seconds, first = 0, 0, 0.0, ""
    while elements < count:
        node = NODES[op](rng, min(_MOST_AT_ONCE, max(_LEAST_AT_ONCE, count // _NODES)))
        result = node.result(OPERATIONS[op])
        width, expected = result.element_size(), raw(result)
        started = time.perf_counter()
        found = judges.elements(node, width, list(range(result.numel())))
        seconds += time.perf_counter() - started
        for at in range(0, len(expected), width):
            elements += 1
            if found[at : at + width] != expected[at : at + width]:
                different += 1
                first = first or describe(node, at // width, found[at : at + width], result)
    return Finding(op, elements, different, seconds, first)


def describe(node: Node, element: int, found: bytes, result: Tensor) -> str:
    """One line on an element that differs."""
    width = len(found)
    expected = raw(result)[element * width :][:width]
    return (
        f"{Op(node.op).name}{[hex(word) for word in node.words]} element {element}: "
        f"{found[::-1].hex()}, not {expected[::-1].hex()}"
    )
