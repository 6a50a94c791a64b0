"""Values as the vectors write them."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any


def text(data: bytes) -> str:
    return "0x" + data.hex()


def plain(value: object) -> Json:
    """Bytes as hex, integers beyond 32 bits as decimal strings, the rest as it is."""
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, int) and value >= 1 << 32:
        return str(value)
    return value


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
