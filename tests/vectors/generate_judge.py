"""Writes the vectors of the judge's arithmetic: `python tests/vectors/generate_judge.py`.

Rule of this file: operands follow from `tests/judge/operands.py` and keccak-256; `README.md` beside
it says what the file holds. The results are the reference step's, or numpy's of single operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from eth_hash.auto import keccak
from tests.judge.operands import BORDERS, border_rows, shaped
from tests.judge.operations import OPERATIONS, Operation, Words

HERE = Path(__file__).parent
ROW: Final = 64
RANDOM_ROWS: Final = 32


def digest(results: tuple[Words, Words]) -> str:
    """The first 8 bytes of keccak of the results, high word first."""
    return keccak(np.stack(results, axis=1).astype(">u8").tobytes()).hex()[:16]


def drawn(operation: int, count: int) -> Words:
    """[count, 4] words: keccak of operation and element, as the chain encodes them."""
    blocks = (keccak(operation.to_bytes(32) + i.to_bytes(32)) for i in range(count))
    return np.frombuffer(b"".join(blocks), ">u8").astype(np.uint64).reshape(count, 4)


def described(index: int, operation: Operation) -> dict[str, Any]:
    a, b = shaped(operation.kind, drawn(index, ROW * RANDOM_ROWS))
    high, word = operation.reference(a, b)
    rows = [slice(start, start + ROW) for start in range(0, len(a), ROW)]
    return {
        "borders": "0x"
        + "".join(digest(operation.reference(*row)) for row in border_rows(operation)),
        "kind": operation.kind,
        "name": operation.name,
        "operands": operation.operands,
        "random": "0x" + "".join(digest((high[row], word[row])) for row in rows),
    }


def judge() -> dict[str, Any]:
    return {
        "borders": {kind: [str(word) for word in words] for kind, words in sorted(BORDERS.items())},
        "operations": [described(i, operation) for i, operation in enumerate(OPERATIONS)],
    }


def render(make: Callable[[], dict[str, Any]]) -> str:
    """The file's text: keys in alphabetical order, as forge reads them."""
    return json.dumps(make(), indent=1, sort_keys=True) + "\n"


FILES: Final = {"judge.json": judge}

if __name__ == "__main__":
    for name, make in FILES.items():
        (HERE / name).write_text(render(make))
