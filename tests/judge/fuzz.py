"""Many operands of an operation through the EVM, compared with the reference and Berkeley's.

Rule of this file: elements are told apart by their place only, and every place is compared.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from eth_utils.crypto import keccak
from tests.judge.berkeley import SECOND
from tests.judge.operands import border_rows, shaped
from tests.judge.operations import OPERATIONS, Operation, Words

from atoll_devnet.processes.evm import Evm

ARTEFACT: Final = Path(__file__).with_name("Arithmetic.json")
SELECTOR: Final = keccak(b"many(uint256,bytes)")[:4]
A_CALL: Final = 1 << 15
"""Elements of a call: a megabyte of hexadecimal digits."""
Pair = tuple[Words, Words]


@dataclass(slots=True)
class Comparison:
    """What came of the elements of one operation.

    Attributes:
        of_reference, of_second: how many results differ from either.
        examples: operands of the first that did.
        evm_seconds: in calls alone.
    """

    name: str
    elements: int = 0
    of_reference: int = 0
    of_second: int = 0
    evm_seconds: float = 0.0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def count(self, operands: Pair, wrong: np.ndarray) -> int:
        """How many are wrong; remembers some."""
        for place in np.flatnonzero(wrong)[: 5 - len(self.examples)]:
            self.examples.append((hex(operands[0][place]), hex(operands[1][place])))
        return int(wrong.sum())


def arithmetic() -> bytes:
    """Creation code of the contract of all operations."""
    return bytes.fromhex(json.loads(ARTEFACT.read_text())["bytecode"][2:])


async def compare(
    evm: Evm, contract: str, operation: Operation, elements: int, seed: int
) -> Comparison:
    """All pairs of borders, or as many of them as half of the elements, then random operands."""
    result = Comparison(operation.name)
    random = np.random.default_rng([seed, OPERATIONS.index(operation)])
    borders = np.concatenate([np.stack(row) for row in border_rows(operation)], axis=1)
    borders = random.permutation(borders, axis=1)[:, : elements // 2]
    started = 0
    while started < elements:
        size = min(A_CALL, elements - started)
        here = borders[:, started : started + size]
        drawn = random.integers(0, 1 << 64, (size - here.shape[1], 5), dtype=np.uint64)
        a, b = np.concatenate((here, _drawn(operation, drawn)), axis=1)
        await _compare_call(evm, contract, operation, (a, b), result)
        started += size
    return result


def _drawn(operation: Operation, drawn: Words) -> Words:
    """As `shaped`; every other row has few digits, so that results are exact or ties."""
    a, b = shaped(operation.kind, drawn[:, :4])
    if operation.kind != "integer":
        digits = np.uint64(23 if operation.kind == "32" else 52)
        few = np.arange(len(drawn)) % 2 == 1
        for word, bits in ((a, drawn[:, 4]), (b, drawn[:, 4] >> np.uint64(32))):
            cut = bits % (digits + np.uint64(1))
            word[:] = np.where(few, word >> cut << cut, word)
    return np.stack((a, b))


async def _compare_call(
    evm: Evm, contract: str, operation: Operation, operands: Pair, result: Comparison
) -> None:
    a, b = operands
    data = np.stack((a, b), axis=1).astype(">u8").tobytes()
    header = [OPERATIONS.index(operation), 64, len(data)]
    calldata = SELECTOR + b"".join(word.to_bytes(32) for word in header) + data
    began = time.perf_counter()
    answer = await evm.call(contract, calldata)
    result.evm_seconds += time.perf_counter() - began
    results = answer[64 : 64 + len(data)]  # as many bytes; behind them it is padded to a word
    got = np.frombuffer(results, ">u8").astype(np.uint64).reshape(-1, 2)
    high, low = operation.reference(a, b)
    result.elements += len(a)
    wrong = (got[:, 0] != high) | (got[:, 1] != low)
    result.of_reference += result.count(operands, wrong)
    second = SECOND.get(operation.name)
    if second is None:
        return
    other = np.array([second(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint64)
    result.of_second += result.count(operands, (got != other).any(axis=1))
