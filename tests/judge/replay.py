"""The judge's steps in the EVM: elements of nodes, worked out as a game does it, against Python's.

The contracts are compiled with the settings of `contracts/foundry.toml`, put on a local chain by
their runtime code and asked with `eth_call`; nothing is sent, and gas is no limit.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from eth_abi.abi import decode, encode
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.judge import float_nodes, integer_nodes, state_nodes
from tests.judge.elements import Draw, Node, Operation, raw

from atoll.bits.tape import attention, floats, integers, optimisers
from atoll.bits.tape.opcodes import Op

CONTRACTS: Final = Path(__file__).resolve().parents[2] / "contracts"
FAMILIES: Final = {
    0: "ImportSteps",
    1: "IntegerSteps",
    2: "AttentionSteps",
    3: "FloatSteps",
    4: "OptimiserSteps",
    5: "StateSteps",
}
"""Contracts of `contracts/src/judge`."""
NODES: Final[Mapping[int, Draw]] = {
    **integer_nodes.NODES,
    **float_nodes.NODES,
    **state_nodes.NODES,
}
OPERATIONS: Final[Mapping[int, Operation]] = {
    **integers.OPERATIONS,
    **attention.OPERATIONS,
    **floats.OPERATIONS,
    **optimisers.OPERATIONS,
    **state_nodes.OPERATIONS,
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


@cache
def compiled(*sources: str) -> dict[str, str]:
    """Runtime code of the contracts in these files of `contracts`, by name."""
    settings = {
        "optimizer": {"enabled": True, "runs": 200},
        "evmVersion": "shanghai",
        "metadata": {"bytecodeHash": "none", "appendCBOR": False},
        "outputSelection": {"*": {"*": ["evm.deployedBytecode.object"]}},
    }
    texts = _with_imports(sources)
    request = {"language": "Solidity", "sources": texts, "settings": settings}
    ran = subprocess.run(
        [str(CONTRACTS / "tools" / "solc"), "--standard-json"],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=True,
    )
    answer = json.loads(ran.stdout)
    if answer.get("errors"):
        raise ValueError(answer["errors"][0]["formattedMessage"])
    return {
        name: contract["evm"]["deployedBytecode"]["object"]
        for source in sources
        for name, contract in answer["contracts"][source].items()
    }


def _with_imports(sources: tuple[str, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    waiting = list(sources)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        text = (CONTRACTS / name).read_text()
        found[name] = {"content": text}
        for relative in re.findall(r'(?:from|import) "([^"]+)"', text):
            imported = ((CONTRACTS / name).parent / relative).resolve()
            waiting.append(str(imported.relative_to(CONTRACTS)))
    return found


class Court:
    """The steps on a chain: what each of them makes of elements."""

    def __init__(self, anvil: Anvil, codes: Mapping[str, str]) -> None:
        self._anvil = anvil
        self._places = {name: f"0x{0x10000 + i:040x}" for i, name in enumerate(codes)}
        for name, code in codes.items():
            anvil.ask("anvil_setCode", self._places[name], f"0x{code}")

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
def court(*families: int) -> Iterator[Court]:
    """A chain with the contracts of these families, or of all."""
    names = [FAMILIES[family] for family in families or FAMILIES]
    sources = [f"src/judge/{name}.sol" for name in names]
    codes = compiled(*sources, "test/support/judge/Replay.sol")
    anvil = start_anvil("--gas-limit", str(_GAS_LIMIT))
    try:
        yield Court(anvil, codes)
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
