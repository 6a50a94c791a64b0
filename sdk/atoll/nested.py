"""JSON of strangers: how deeply it nests is known before anything is called once a bracket.

Rule of this file: what Python's recursion limit is decides nothing here. A parser goes one call
deeper for each bracket, and whichever library lifts the limit, at whatever time, makes a hundred
thousand brackets a segmentation fault, where they were a RecursionError before.
"""

from __future__ import annotations

import json
from typing import Any, Final

MOST_DEEP: Final = 100
"""Containers in one another. What a node, a tokenizer or a checkpoint says has ten."""
_REST: Final = bytes(set(range(256)) - set(b'"[]{}'))
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")


def loads(text: str | bytes, **options: Any) -> Any:
    """As `json.loads`.

    Raises:
        ValueError: it is no JSON, or nests deeper than `MOST_DEEP`.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    check_depth(text)
    try:
        return json.loads(text, **options)
    except RecursionError as error:  # whoever asks is deep itself
        raise ValueError("it nests too deeply to be read") from error


def check_depth(text: str) -> None:
    """Raises ValueError where it nests deeper than `MOST_DEEP`, in time linear in its length.

    Pairs of brackets with nothing between them go, again and again: each time the depth is one
    less. What is left then is closed by nothing, so all of it may be open at once.
    """
    if text.count("[") + text.count("{") <= MOST_DEEP:
        return
    brackets, peeled = _brackets_of(text), 0
    while peeled < MOST_DEEP:
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            break
        brackets, peeled = left, peeled + 1
    if peeled + brackets.count(b"[") > MOST_DEEP:
        raise ValueError(f"it nests deeper than {MOST_DEEP}")


def _brackets_of(text: str) -> bytes:
    """Those outside of strings, braces as brackets; of what is no JSON, up to where a parser
    stops.
    """
    plain = text.encode("utf-8", "surrogatepass").replace(rb"\\", b"").replace(rb"\"", b"")
    outside = plain.translate(_ALIKE, _REST).split(b'"')[::2]
    return b"".join(outside)
