"""The judge's steps in the EVM: elements of nodes, worked out as a game does it, against Python's.

The contracts are those of the artefacts, put on a local chain by their runtime code and asked with
`eth_call`; nothing is sent, and gas is no limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.judge import float_nodes, integer_nodes, rollout_nodes, state_nodes, update_proof_nodes
from tests.judge.elements import Draw, Node, Operation, raw
from tests.judge.table import creation_code
from torch import Tensor

from atoll.chain.deploy import FAMILIES
from atoll.numerics.trace import attention_operations, elementwise, floats, integers
from atoll.numerics.trace.opcodes import Op

NODES: Final[Mapping[int, Draw]] = {
    **integer_nodes.NODES,
    **float_nodes.NODES,
    **state_nodes.NODES,
    **update_proof_nodes.NODES,
    **rollout_nodes.NODES,
}
"""How nodes of each operation are drawn, of all families."""
OPERATIONS: Final[Mapping[int, Operation]] = {
    **integers.OPERATIONS,
    **attention_operations.OPERATIONS,
    **floats.OPERATIONS,
    **elementwise.OPERATIONS,
    **state_nodes.OPERATIONS,
    **update_proof_nodes.OPERATIONS,
    **rollout_nodes.OPERATIONS,
}

_NODE: Final = "(uint16,uint256,bytes,bytes[])"
_WHOLE: Final = keccak(f"whole(address,{_NODE}[],uint256[][])".encode())[:4]
_GAS_LIMIT: Final = 10**13
_MOST_AT_ONCE: Final = 512
_LEAST_AT_ONCE: Final = 64
_NODES: Final = 8
"""An operation has as many nodes at least, since each has words of its own."""
_CALL_BYTES: Final = 1 << 18
"""Of the inputs of a call, about, …"""
_CALL_ELEMENTS: Final = 4096
"""… and what it asks for, about: a call costs more than many an element."""


@dataclass(slots=True)
class Finding:
    """What came of elements of one operation.

    Attributes:
        different: of the elements that ran; `first` describes one of them.
        seconds: in the EVM.
    """

    op: int
    elements: int = 0
    different: int = 0
    seconds: float = 0.0
    first: str = ""

    def compare(self, node: Node, result: Tensor, found: bytes) -> None:
        """Counts a node's elements, and those that are not the EVM's."""
        width, expected = result.element_size(), raw(result)
        assert len(found) == len(expected)
        self.elements += result.numel()
        for at in range(0, len(expected) if found != expected else 0, width):
            if found[at : at + width] != expected[at : at + width]:
                self.different += 1
                self.first = self.first or describe(
                    node, at // width, found[at : at + width], result
                )


class Court:
    """The steps on a chain: what each of them makes of elements."""

    def __init__(self, anvil: Anvil) -> None:
        self._anvil = anvil
        names = (*FAMILIES, "Replays")
        self._places = {name: f"0x{0x10000 + i:040x}" for i, name in enumerate(names)}
        for name, place in self._places.items():
            creation = {"data": "0x" + creation_code(name).hex(), "gas": hex(_GAS_LIMIT)}
            anvil.ask("anvil_setCode", place, anvil.ask("eth_call", creation, "latest"))

    def elements(self, node: Node, width: int, numbers: list[int]) -> bytes:
        """The elements of these numbers, each of `width` bytes."""
        return self.whole([node], [width], [numbers])[0]

    def whole(
        self, nodes: Sequence[Node], widths: Sequence[int], numbers: Sequence[list[int]]
    ) -> list[bytes]:
        """Of nodes of one operation the elements of these numbers, in one call."""
        described = [_described(*node) for node in zip(nodes, widths, strict=True)]
        types = ["address", f"{_NODE}[]", "uint256[][]"]
        data = encode(types, [self._step(nodes[0]), described, numbers])
        (outputs,) = decode(["bytes[]"], self._ask(_WHOLE + data))
        return list(outputs)

    def _step(self, node: Node) -> str:
        return self._places[FAMILIES[node.op >> 8]]

    def _ask(self, data: bytes) -> bytes:
        to = self._places["Replays"]
        call = {"to": to, "data": "0x" + data.hex(), "gas": hex(_GAS_LIMIT)}
        return bytes.fromhex(str(self._anvil.ask("eth_call", call, "latest"))[2:])


def _described(node: Node, width: int) -> tuple[int, int, bytes, list[bytes]]:
    """The contract's `Node`."""
    return int(node.op), width, node.attributes, [raw(x) for x in node.inputs]


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
    finding = Finding(op)
    while finding.elements < count:
        played = _played(rng, op, count, count - finding.elements)
        nodes, results = zip(*played, strict=True)
        widths = [result.element_size() for result in results]
        numbers = [list(range(result.numel())) for result in results]
        started = time.perf_counter()
        outputs = judges.whole(nodes, widths, numbers)
        finding.seconds += time.perf_counter() - started
        for node, result, output in zip(nodes, results, outputs, strict=True):
            finding.compare(node, result, output)
    return finding


def _played(
    rng: np.random.Generator, op: int, count: int, missing: int
) -> list[tuple[Node, Tensor]]:
    """Nodes for one call and what Python makes of them: all that are missing, if they fit."""
    played: list[tuple[Node, Tensor]] = []
    size, elements = 0, 0
    while size < _CALL_BYTES and elements < min(_CALL_ELEMENTS, missing):
        node = NODES[op](rng, min(_MOST_AT_ONCE, max(_LEAST_AT_ONCE, count // _NODES)))
        played.append((node, node.result(OPERATIONS[op])))
        size += sum(x.nbytes for x in node.inputs)
        elements += played[-1][1].numel()
    return played


def describe(node: Node, element: int, found: bytes, result: Tensor) -> str:
    """One line on an element that differs."""
    width = len(found)
    expected = raw(result)[element * width :][:width]
    return (
        f"{Op(node.op).name}{[hex(word) for word in node.words]} element {element}: "
        f"{found[::-1].hex()}, not {expected[::-1].hex()}"
    )
