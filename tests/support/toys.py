"""Operations on uint32 that a test can run: a program of them is small enough to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from atoll.protocol.games.judge import Need, Operations
from atoll.protocol.hashing import keccak256

COPY, ADD, GATHER, SUM, ROOTS, DIGEST, RESULT, COPY_WORDS = range(0x0701, 0x0709)


class Toy(Operations):
    """Operations on uint32, little-endian."""

    def need(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> Need:
        asked = len(opened)
        plan: list[Need] = []
        if op == COPY:
            plan = [Need(0, 4 * element, 4)]
        elif op == COPY_WORDS:
            plan = [Need(0, 32 * element, 32)]
        elif op == ADD:
            plan = [Need(0, 4 * element, 4), Need(1, 4 * element, 4)]
        elif op == GATHER:
            plan = [Need(0, 4 * element, 4)]
            if opened:
                plan.append(Need(1, 4 * (_u32(opened[0]) % _word(attributes, 0)), 4))
        elif op == SUM:
            width = 4 * _word(attributes, 0)
            plan = [Need(0, width * element, width)]
        elif op == ROOTS:
            plan = [Need(0, 32 * (6 + element), 32) if element < 2 else Need(1, 0, 4)]
        elif op == DIGEST:
            plan = [Need(0, 0, 128)]
        elif op == RESULT:
            plan = [Need(0, 4 * element, 4) if element < 8 else Need(1, 0, 4)]
        return plan[asked] if asked < len(plan) else Need(0, 0, 0)

    def run(self, op: int, attributes: bytes, element: int, opened: Sequence[bytes]) -> bytes:
        if op == ADD:
            return _le(_u32(opened[0]) + _u32(opened[1]))
        if op == GATHER:
            return opened[1]
        if op == SUM:
            return _le(sum(_u32(opened[0][i : i + 4]) for i in range(0, len(opened[0]), 4)))
        if op == DIGEST:
            return sha256(b"atoll.state.v1" + opened[0]).digest()
        mixed = keccak256(opened[0] + element.to_bytes(8, "big"))
        if op == ROOTS and element >= 2:
            return mixed
        if op == RESULT and element >= 8:
            return (int.from_bytes(mixed[:4], "big") & 0x3FFFFFFF).to_bytes(4, "big")
        return opened[0]


TOY = Toy()


def _word(attributes: bytes, number: int) -> int:
    return int.from_bytes(attributes[8 + 8 * number : 16 + 8 * number], "big")


def _u32(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _le(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")
