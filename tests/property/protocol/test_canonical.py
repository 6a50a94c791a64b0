"""DAG-CBOR: written as libipld and the second client write it, read where it is canonical only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from libipld import decode_cid, decode_dag_cbor, encode_dag_cbor
from tests.property.border import VALUES, bent
from tests.second_client.words import decode_cbor, encode_cbor
from tests.support.identities import cid

from atoll.protocol.canonical import CidLink, decode, encode

LIMIT = 1 << 20
LONGER_SPELLINGS = {
    "an integer": "1817",
    "a length of bytes": "5801aa",
    "a length of text": "780161",
    "a length of a list": "980100",
    "a length of a map": "b801616100",
    "a tag": "d9002a4100",
    "a float of 32 bits": "fa3fc00000",
    "a float of 16 bits": "f93e00",
    "keys in another order": "a2616200616100",
    "a key twice": "a2616100616100",
    "a longer key first": "a262616100616200",
    "a list without an end": "9f00ff",
    "a link": "d82a582500" + cid("content").hex(),
    "undefined": "f7",
    "not a number": "fb7ff8000000000000",
    "infinity": "fb7ff0000000000000",
    "a key that is no text": "a10000",
    "another tag": "c000",
    "half a character": "61ff",
    "a second item": "0000",
    "nothing": "",
}


def parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(part for item in value.values() for part in parts(item))]
    if isinstance(value, list):
        return [value, *(part for item in value for part in parts(item))]
    return [value]


def reads_as_cid(data: bytes) -> bool:
    try:
        decode_cid(data)
    except ValueError:
        return False
    return True


@given(VALUES)
def test_it_is_what_libipld_writes_and_reads(value: Any) -> None:
    assume(not any(isinstance(each, bytes) and reads_as_cid(each) for each in parts(value)))
    data = encode(value)
    assert data == encode_dag_cbor(value)
    assert decode(data, LIMIT) == decode_dag_cbor(data) == value


@given(VALUES)
def test_it_is_what_the_second_client_writes(value: Any) -> None:
    assume(not any(isinstance(each, float) for each in parts(value)))
    data = encode(value)
    assert data == encode_cbor(value)
    assert decode_cbor(data) == value


@pytest.mark.parametrize("name", [cid("content"), b"\x12\x20" + bytes(32), b"\x01\x55\x00\x00"])
def test_bytes_that_read_as_a_cid_stay_bytes(name: bytes) -> None:
    """libipld would write a link, which whoever chooses such bytes could aim at anything."""
    assert reads_as_cid(name)
    assert encode_dag_cbor({"x": name}) == encode({"x": CidLink(name)}) != encode({"x": name})
    assert decode(encode({"x": name}), LIMIT) == {"x": name}
    with pytest.raises(ValueError, match="not the canonical encoding"):
        decode(encode({"x": CidLink(name)}), LIMIT)


@settings(max_examples=300)
@given(st.data())
def test_what_is_read_is_written_the_same_and_the_second_client_agrees(data: st.DataObject) -> None:
    bytes_ = data.draw(VALUES.map(encode).flatmap(bent))
    try:
        value = decode(bytes_, LIMIT)
    except ValueError:
        with pytest.raises(ValueError):
            decode_cbor(bytes_)
        return
    assert encode(value) == bytes_
    if not any(isinstance(each, float) for each in parts(value)):
        assert decode_cbor(bytes_) == value


@pytest.mark.parametrize("spelling", LONGER_SPELLINGS.values(), ids=list(LONGER_SPELLINGS))
def test_another_spelling_is_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match=r"not DAG-CBOR|not the canonical encoding"):
        decode(bytes.fromhex(spelling), LIMIT)


@pytest.mark.parametrize("number", [2**64, -(2**64) - 1])
def test_an_integer_has_64_bits(number: int) -> None:
    for most in (2**64 - 1, -(2**64)):
        assert decode(encode([most]), LIMIT) == [most]
    with pytest.raises(ValueError, match="64 bits"):
        encode([number])


@pytest.mark.parametrize("odd", [(1, 2), bytearray(b"a"), {1: 2}, object(), memoryview(b"a")])
def test_what_the_format_has_no_place_for_is_not_written(odd: Any) -> None:
    with pytest.raises(TypeError):
        encode([odd])
