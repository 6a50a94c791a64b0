"""JSON of files that somebody else wrote, in which nothing may be said twice.

Rule of this file: readers differ in which of two values under one key they take, so neither is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.nested import loads


def parse(text: str | bytes) -> Any:
    """The value of a JSON document.

    Raises:
        ValueError: it is none, says one key of an object twice, or nests too deeply.
    """
    return loads(text, object_pairs_hook=_once)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:80]!r} is said twice in one object")
        found[key] = value
    return found
