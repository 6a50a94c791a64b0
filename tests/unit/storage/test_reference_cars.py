"""CARs that @ipld/car wrote are read here, and the same blocks give the same CAR.

`car-js.json` comes from tests/integration/storage/node/cars.mjs. As the bytes are equal, what that
library reads in a CAR of ours is what it read in its own, which the vector lists.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import CorruptBlock
from atoll.storage import Cid
from atoll.storage.block_links import links_of
from atoll.storage.car import CarReader, encode_car

VECTORS = Path(__file__).parents[2] / "vectors" / "car-js.json"
CASES = [pytest.param(case, id=case["name"]) for case in json.loads(VECTORS.read_text())["cars"]]


def read(car: bytes, piece_bytes: int) -> tuple[list[Cid] | None, list[tuple[Cid, bytes]]]:
    reader = CarReader(len(car))
    blocks = []
    for start in range(0, len(car), piece_bytes):
        blocks += reader.feed(car[start : start + piece_bytes])
    reader.finish()
    return reader.roots, blocks


@pytest.mark.parametrize("case", CASES)
def test_the_same_car(case: dict[str, Any]) -> None:
    car = base64.b64decode(case["car"])
    roots, blocks = read(car, len(car))
    assert read(car, 61) == (roots, blocks)
    assert roots == [Cid.parse(root) for root in case["roots"]]
    listed = [{"cid": str(cid), "bytes": len(block)} for cid, block in blocks]
    assert listed == case["blocks"]
    assert b"".join(encode_car(roots, blocks)) == car


@pytest.mark.parametrize("case", [case for case in CASES if str(case.id).startswith("a ")])
def test_its_links_are_understood(case: dict[str, Any]) -> None:
    _, blocks = read(base64.b64decode(case["car"]), 1 << 16)
    linked = {below for cid, block in blocks for below in links_of(cid, block)}
    assert {cid for cid, _ in blocks[1:]} <= linked


@pytest.mark.parametrize("case", CASES)
def test_a_changed_byte_is_noticed(case: dict[str, Any]) -> None:
    car = bytearray(base64.b64decode(case["car"]))
    car[-1] ^= 1
    with pytest.raises(CorruptBlock):
        read(bytes(car), len(car))
