"""The judge's steps in the EVM: elements of nodes, worked out as a game does it, against Python's.

The contracts are those of the artefacts, put on a local chain by their runtime code and asked with
`eth_call`; nothing is sent, and gas is no limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.judge import float_nodes, integer_nodes, link_nodes, state_nodes
from tests.judge.elements import Draw, Node, Operation, raw
from tests.judge.table import creation_code

from atoll.bits.tape import attention, floats, integers, optimisers
from atoll.bits.tape.opcodes import Op
from atoll.chain.deploy import FAMILIES

NODES: Final[Mapping[int, Draw]] = {
    **integer_nodes.NODES,
    **float_nodes.NODES,
    **state_nodes.NODES,
    **link_nodes.NODES,
}
"""How nodes of each operation are drawn, of all families."""
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
_GAS_LIMIT: Final = 10**13
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
    """The steps on a chain: what each of them makes of elements."""

    def __init__(self, anvil: Anvil) -> None:
        self._anvil = anvil
        names = (*FAMILIES, "Replay")
        self._places = {name: f"0x{0x10000 + i:040x}" for i, name in enumerate(names)}
        for name, place in self._places.items():
            creation = {"data": "0x" + creation_code(name).hex(), "gas": hex(_GAS_LIMIT)}
            anvil.ask("anvil_setCode", place, anvil.ask("eth_call", creation, "latest"))

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
        step = self._places[FAMILIES[node.op >> 8]]
        data = encode(["address", _NODE, "uint256[]"], [step, described, numbers])
        call = {
            "to": self._places["Replay"],
            "data": "0x" + (selector + data).hex(),
            "gas": hex(_GAS_LIMIT),
        }
        return bytes.fromhex(str(self._anvil.ask("eth_call", call, "latest"))[2:])


@contextmanager
def court() -> Iterator[Court]:
    """A chain with the contracts of all families."""
    anvil = start_anvil("--gas-limit", str(_GAS_LIMIT), "--no-request-size-limit")
    try:
        yield Court(anvil)
    finally:
        stop(anvil)


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


def describe(node: Node, element: int, found: bytes, result: Any) -> str:
    """One line on an element that differs."""
    width = len(found)
    expected = raw(result)[element * width :][:width]
    return (
        f"{Op(node.op).name}{[hex(word) for word in node.words]} element {element}: "
        f"{found[::-1].hex()}, not {expected[::-1].hex()}"
    )
