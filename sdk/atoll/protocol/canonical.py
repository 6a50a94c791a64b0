"""One value, one encoding: DAG-CBOR whose bytes a reader can insist on.

Rule of this file: `decode` refuses bytes that `encode` would not have written, so a content
identifier names a value and not one of its spellings. Source: the IPLD DAG-CBOR specification.
"""

from __future__ import annotations

import dag_cbor
from dag_cbor.encoding.err import CBORError
from dag_cbor.ipld import IPLDKind
from multiformats import CID

CID_BYTES = 36
"""Length of a binary CIDv1 with a SHA-256 multihash and a codec below 128."""
MAX_DEPTH = 32
"""Containers within each other; what this protocol writes stays below ten."""
_BYTES, _TEXT, _LIST, _MAP, _TAG = 2, 3, 4, 5, 6
_RAW, _DAG_PB, _DAG_CBOR = 0x55, 0x70, 0x71
_CODECS = frozenset({_RAW, _DAG_PB, _DAG_CBOR})
_SHA2_256 = b"\x12\x20"


def encode(value: IPLDKind) -> bytes:
    """Canonical DAG-CBOR of integers, strings, bytes, booleans, lists and string-keyed dicts."""
    return dag_cbor.encode(value)


def decode(data: bytes, max_bytes: int) -> IPLDKind:
    """The value of canonical bytes. Raises ValueError on anything else, and above `max_bytes`."""
    if len(data) > max_bytes:
        raise ValueError(f"{len(data)} bytes, at most {max_bytes} are allowed")
    _check_depth(data)
    try:
        value = dag_cbor.decode(data)
        canonical = encode(value)
    except CBORError as error:
        first_line = str(error).partition("\n")[0]
        raise ValueError(f"not DAG-CBOR: {first_line}") from error
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"not DAG-CBOR: {type(error).__name__}") from error
    if _holds_link(value) or canonical != data:
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


def _holds_link(value: IPLDKind) -> bool:
    """Links are written as bytes here: a tag 42 would be a second spelling of the same CID."""
    if isinstance(value, dict):
        return any(_holds_link(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_link(item) for item in value)
    return isinstance(value, CID)


def is_cid(data: bytes) -> bool:
    """True iff `data` is a binary CIDv1, SHA-256, of codec raw, dag-pb or dag-cbor."""
    return len(data) == CID_BYTES and data[0] == 1 and data[1] in _CODECS and data[2:4] == _SHA2_256


def dag_cbor_cid(digest: bytes) -> bytes:
    """The binary CIDv1 of a DAG-CBOR block with this SHA-256 digest."""
    return bytes((1, _DAG_CBOR)) + _SHA2_256 + digest
