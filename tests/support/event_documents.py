"""Events as the second client reads them: names of the text, bytes in hex."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any


def documents_of(events: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"name": type(event).__name__, "arguments": _plain(event)} for event in events]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {_name(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    return "0x" + value.hex() if isinstance(value, bytes) else value


def _name(field: str) -> str:
    head, *tail = field.split("_")
    return "from" if field == "start" else head + "".join(part.capitalize() for part in tail)
