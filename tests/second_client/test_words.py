"""Hashes, trees, documents and draws of the second client against the shared vectors and atoll."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
from pathlib import Path

import pytest
from eth_hash.auto import keccak as reference_keccak
from tests.second_client import words

from atoll.protocol import draws
from atoll.protocol.canonical import encode
from atoll.protocol.types import Digest, SeatIndex

VECTORS = Path(__file__).parents[1] / "vectors"
ROLL = random.Random(12)
CASES = 10_000


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _vectors(name: str) -> dict:
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize("size", [0, 1, 31, 32, 135, 136, 137, 271, 272, 1000])
def test_keccak_is_ethereums_alone_and_side_by_side(size: int) -> None:
    messages = [ROLL.randbytes(size) for _ in range(5)]
    expected = [bytes(reference_keccak(message)) for message in messages]
    assert [words.keccak(message) for message in messages] == expected
    assert words.keccak_each(messages) == expected


def test_trees_are_those_of_the_vectors() -> None:
    vectors = _vectors("merkle.json")
    leaves = [_unhex(leaf) for leaf in vectors["leaves"]]
    for size, (keccak_root, sha_root) in enumerate(
        zip(vectors["roots"], vectors["sha256Roots"], strict=True), start=1
    ):
        assert words.root(leaves[:size]) == _unhex(keccak_root)
        assert words.root(leaves[:size], words.sha256) == _unhex(sha_root)


def test_a_proof_holds_for_its_leaf_only() -> None:
    leaves = [ROLL.randbytes(32) for _ in range(12)]
    for size in (1, 2, 3, 7, 12):
        top = words.root(leaves[:size])
        for index in range(size):
            siblings = words.proof(leaves[:size], index)
            assert words.proves(leaves[index], index, size, top, siblings)
            assert not words.proves(leaves[index], index, size, top, [*siblings, bytes(32)])
            assert not words.proves(leaves[index], index, size + 1, top, siblings)
            assert not words.proves(bytes(32), index, size, top, siblings)


def _item(depth: int) -> object:
    kind = ROLL.randrange(7 if depth else 5)
    if kind == 0:
        return ROLL.choice([True, False, None])
    if kind in (1, 2):
        return ROLL.randrange(-(1 << ROLL.randrange(1, 64)), 1 << ROLL.randrange(1, 64))
    if kind == 3:
        return ROLL.randbytes(ROLL.choice([0, 5, 23, 24, 300]))
    if kind == 4:
        return "é" * ROLL.choice([0, 3, 12, 40])
    size = ROLL.randrange(5)
    if kind == 5:
        return [_item(depth - 1) for _ in range(size)]
    return {f"{ROLL.getrandbits(ROLL.choice([4, 40]))}": _item(depth - 1) for _ in range(size)}


def test_documents_are_written_and_read_as_dag_cbor() -> None:
    for _ in range(CASES):
        item = _item(3)
        data = encode(item)
        assert words.encode_cbor(item) == data
        assert words.decode_cbor(data) == item


@pytest.mark.parametrize(
    "data",
    [
        "1817",
        "f97c00",
        "a2616201616102",
        "9fff",
        "d82a4300",
        "61ff",
        "0000",
        "8201",
        "a10102",
        "fb",
    ],
)
def test_other_spellings_are_refused(data: str) -> None:
    with pytest.raises(ValueError):
        words.decode_cbor(bytes.fromhex(data))


def test_draws_are_those_of_the_vectors() -> None:
    vectors = _vectors("sampling.json")
    for case in vectors["draws"]:
        stream = words.Stream(case["tag"], _unhex(case["key"]))
        assert [str(stream.draw(int(case["n"]))) for _ in case["values"]] == case["values"]
    for case in vectors["batches"]:
        seed, limit = _unhex(case["dataSeed"]), int(case["limit"])
        offsets = words.step_draws(seed, case["seat"], case["step"], case["batch"], limit)
        assert [str(offset) for offset in offsets] == case["offsets"]
    for case in vectors["dropoutKeys"]:
        key = words.dropout_key(_unhex(case["dataSeed"]), case["seat"])
        assert list(key) == [int(word) for word in case["key"]]


def test_draws_are_atolls_for_any_seed() -> None:
    for _ in range(CASES):
        seed, seat, step = ROLL.randbytes(32), ROLL.randrange(1 << 16), ROLL.randrange(1 << 32)
        below = ROLL.randrange(1, 1 << ROLL.randrange(1, 64))
        assert words.step_draws(seed, seat, step, 3, below) == draws.batch_offsets(
            Digest(seed), SeatIndex(seat), step, 3, below
        )
        assert words.dropout_key(seed, seat) == draws.dropout_key(Digest(seed), SeatIndex(seat))


@pytest.mark.parametrize(
    "case",
    [case for case in _vectors("unixfs-js.json")["files"] if case["profile"] == "v1"],
    ids=lambda case: f"{case['bytes']} bytes, {case['chunk']} by {case['links']}",
)
def test_cids_of_files_are_those_of_other_implementations(
    case: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "LEAF_BYTES", case["chunk"])
    monkeypatch.setattr(words, "NODE_LINKS", case["links"])
    data = hashlib.shake_128(b"atoll").digest(case["bytes"])
    plain = base64.b32encode(words.file_cid(data)).decode().lower().rstrip("=")
    assert "b" + plain == case["cid"]


def test_keccak_of_ten_thousand_messages() -> None:
    for size in range(0, 500, 5):
        messages = [ROLL.randbytes(size) for _ in range(CASES // 100)]
        expected = [bytes(reference_keccak(message)) for message in messages]
        assert words.keccak_each(messages) == expected


def test_the_package_never_imports_atoll_or_torch() -> None:
    sources = [p for p in Path(__file__).parent.glob("*.py") if not p.name.startswith("test_")]
    assert sources
    for source in sources:
        for line in source.read_text().splitlines():
            imported = line.split()[1] if line.lstrip().startswith(("import ", "from ")) else ""
            package = imported.split(".")[0]
            allowed = {"", "tests", "numpy", "py_ecc", *sys.stdlib_module_names}
            assert package in allowed, line
