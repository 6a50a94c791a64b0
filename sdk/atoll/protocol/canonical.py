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
