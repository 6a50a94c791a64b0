"""Records as JSON has them.

Rule of this file: pure; wei are text, since they outgrow what other languages count exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from atoll.job.event_text import words

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def plain_of(record: DataclassInstance) -> dict[str, Any]:
    """A record's fields; members of enumerations in words, bytes in hex."""
    return {item.name: _plain(item.name, getattr(record, item.name)) for item in fields(record)}


def _plain(name: str, value: Any) -> Any:
    match value:
        case IntEnum():
            plain: Any = words(value)
        case StrEnum():
            plain = value.value
        case bytes():
            plain = value.hex()
        case tuple():
            plain = [_plain("", each) for each in value]
        case Mapping():
            plain = dict(value)
        case _ if name == "wei" or name.endswith("_wei"):
            plain = str(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            plain = plain_of(value)
        case _:
            plain = value
    return plain
