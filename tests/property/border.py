"""What a stranger can make of a valid document: the bytes that every border has to bear.

Rule of this file: start from something valid and bend it, since noise ends at the first check.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from libipld import decode_dag_cbor

from atoll.protocol.canonical import encode

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)
ALIKE = st.sampled_from([b"", b"\0", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xf6"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([2**31, 2**32 - 1, 2**53, 2**63 - 1, -(2**63)])
    | st.text(max_size=8)
    | st.binary(max_size=40)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Of any type that DAG-CBOR has."""


@st.composite
def bent(draw: st.DrawFn, valid: bytes) -> bytes:
    """A few edits of valid bytes: a bit, an extreme byte, a cut, an insertion, a part repeated."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        end = min(at + draw(st.integers(1, 16)), len(data))
        match draw(st.sampled_from(["bit", "byte", "cut", "insert", "repeat", "end"])):
            case "bit" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "byte" if data:
                data[at] = draw(st.sampled_from(EXTREMES))
            case "cut":
                del data[at:end]
            case "insert":
                data[at:at] = draw(ALIKE | st.binary(min_size=1, max_size=8))
            case "repeat":
                data[at:at] = data[at:end]
            case "end":
                del data[at:]
    return bytes(data)


def replaced(document: bytes) -> st.SearchStrategy[bytes]:
    """Valid DAG-CBOR with any value at any one place."""
    places = st.sampled_from(paths(decode_dag_cbor(document)))
    return st.builds(lambda path, value: put(document, path, value), places, VALUES)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, containers included."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [(k, v) for k, v in items] if isinstance(value, (dict, list)) else []
    found = [path] if path else []
    for key, item in inner:
        found += paths(item, (*path, key)) if isinstance(item, (dict, list)) else [(*path, key)]
    return found


def put(data: bytes, path: tuple[Any, ...], value: Any) -> bytes:
    """The document with `value` at the place."""
    plain: Any = decode_dag_cbor(data)
    target = plain
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return encode(plain)
