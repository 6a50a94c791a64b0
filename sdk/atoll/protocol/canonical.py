"""One value, one encoding: DAG-CBOR whose bytes a reader can insist on.

Rule of this file: `decode` refuses bytes that `encode` would not have written, so a content
identifier names a value and not one of its spellings. Source: the IPLD DAG-CBOR specification.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from libipld import decode_dag_cbor

CID_BYTES = 36
"""Length of a binary CIDv1 with a SHA-256 multihash and a codec below 128."""
MAX_DEPTH = 32
"""Containers within each other; what this protocol writes stays below ten."""
_UINT, _NINT, _BYTES, _TEXT, _LIST, _MAP, _TAG = range(7)
_LINK_TAG: Final = 42
_SIMPLE: Final = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}
_FLOAT64: Final = b"\xfb"
_SAID_FIRST: Final = "Failed to decode DAG-CBOR. "
_RAW, _DAG_PB, _DAG_CBOR = 0x55, 0x70, 0x71
_CODECS = frozenset({_RAW, _DAG_PB, _DAG_CBOR})
_SHA2_256 = b"\x12\x20"


@dataclass(frozen=True, slots=True)
class CidLink:
    """A binary CID as IPLD's link, which no document of the protocol has: there it is bytes."""

    cid: bytes


Ipld: TypeAlias = "bool | int | float | str | bytes | CidLink | list[Ipld] | dict[str, Ipld] | None"


def encode(value: Ipld) -> bytes:
    """Canonical DAG-CBOR of integers, strings, bytes, booleans, lists and string-keyed dicts.

    Our own, since libipld's encoder makes a link of any bytes that read as a CID, and the bytes of
    a document are whatever a stranger chose.

    Raises:
        ValueError: an integer of more than 64 bits, a float that is no number.
        TypeError: what the format has no place for.
    """
    out = bytearray()
    _write(value, out)
    return bytes(out)


def _write(value: Ipld, out: bytearray) -> None:
    if isinstance(value, list):
        out += _head(_LIST, len(value))
        for item in value:
            _write(item, out)
    elif isinstance(value, dict):
        out += _head(_MAP, len(value))
        for key in sorted(value, key=_order):
            _write(key, out)
            _write(value[key], out)
    else:
        out += _scalar(value)


def _scalar(value: bool | int | float | str | bytes | CidLink | None) -> bytes:
    if value is None or isinstance(value, bool):
        return _SIMPLE[value]
    match value:
        case int():
            return _head(_UINT, value) if value >= 0 else _head(_NINT, -1 - value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} is not a number that DAG-CBOR has")
            return _FLOAT64 + struct.pack(">d", value)
        case bytes():
            return _head(_BYTES, len(value)) + value
        case str():
            text = value.encode()
            return _head(_TEXT, len(text)) + text
        case CidLink():
            return _head(_TAG, _LINK_TAG) + _head(_BYTES, 1 + len(value.cid)) + b"\0" + value.cid
    raise TypeError(f"DAG-CBOR has no {type(value).__name__}")


def _order(key: str) -> tuple[int, bytes]:
    """Shorter keys first, then bytewise."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a string and no {type(key).__name__}")
    text = key.encode()
    return len(text), text


def _head(major: int, argument: int) -> bytes:
    """A major type and its argument, in as few bytes as hold it (RFC 8949, 4.2.1)."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    for code in range(4):
        if argument < 1 << (8 << code):
            return bytes((major << 5 | 24 + code,)) + argument.to_bytes(1 << code, "big")
    raise ValueError("an integer of more than 64 bits")


def decode(data: bytes, max_bytes: int) -> Ipld:
    """The value of canonical bytes. Raises ValueError on anything else, and above `max_bytes`."""
    if len(data) > max_bytes:
        raise ValueError(f"{len(data)} bytes, at most {max_bytes} are allowed")
    _check_depth(data)
    try:
        value: Ipld = decode_dag_cbor(data)
    except (ValueError, OverflowError, RecursionError) as error:
        first_line = str(error).removeprefix(_SAID_FIRST).partition("\n")[0]
        raise ValueError(f"not DAG-CBOR: {first_line or type(error).__name__}") from error
    # libipld takes longer spellings of numbers and floats, and gives links as bytes.
    if encode(value) != data:
        raise ValueError("not the canonical encoding")
    return value


def _check_depth(data: bytes) -> None:
    """Walks the items' heads without recursion; ValueError below `MAX_DEPTH` containers.

    The decoder recurses, and describes an error once more at every level: a few kilobytes of
    opening brackets would cost it gigabytes.
    """
    position, open_items = 0, [1]
    while open_items:
        if open_items[-1] == 0:
            open_items.pop()
            continue
        open_items[-1] -= 1
        major, size, position = _read_head(data, position)
        if major in {_BYTES, _TEXT}:
            position += size
        elif major in {_LIST, _MAP, _TAG}:
            open_items.append(1 if major == _TAG else size * (2 if major == _MAP else 1))
            if len(open_items) > MAX_DEPTH + 1:  # the first is the document itself
                raise ValueError(f"not DAG-CBOR: nested deeper than {MAX_DEPTH}")


def _read_head(data: bytes, position: int) -> tuple[int, int, int]:
    """(major type, argument, where the head ends) of the item at a position (RFC 8949, 3)."""
    if position >= len(data):
        raise ValueError("not DAG-CBOR: it ends inside an item")
    major, argument = data[position] >> 5, data[position] & 0x1F
    position += 1
    if argument < 24:
        return major, argument, position
    if argument > 27:
        raise ValueError("not DAG-CBOR: a length that is not definite")
    end = position + (1 << (argument - 24))
    return major, int.from_bytes(data[position:end], "big"), end


def is_cid(data: bytes) -> bool:
    """True iff `data` is a binary CIDv1, SHA-256, of codec raw, dag-pb or dag-cbor."""
    return len(data) == CID_BYTES and data[0] == 1 and data[1] in _CODECS and data[2:4] == _SHA2_256


def dag_cbor_cid(digest: bytes) -> bytes:
    """The binary CIDv1 of a DAG-CBOR block with this SHA-256 digest."""
    return bytes((1, _DAG_CBOR)) + _SHA2_256 + digest
