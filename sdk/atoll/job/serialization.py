"""Records as JSON has them.

Rule of this file: pure; wei are text, since they outgrow what other languages count exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from atoll.job.event_text import words

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def plain_of(record: DataclassInstance) -> dict[str, Any]:
    """A record's fields; members of enumerations in words, bytes in hex."""
    return {
        name: str(getattr(record, name)) if is_wei else _plain(getattr(record, name))
        for name, is_wei in _fields(type(record))
    }


@cache
def _fields(kind: type[DataclassInstance]) -> list[tuple[str, bool]]:
    names = (item.name for item in fields(kind))
    return [(name, name == "wei" or name.endswith("_wei")) for name in names]


def _plain(value: Any) -> Any:
    if value is None or type(value) in (int, str, bool):  # as most are
        return value
    if isinstance(value, IntEnum | bytes):
        return words(value) if isinstance(value, IntEnum) else value.hex()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    is_record = is_dataclass(value) and not isinstance(value, type)
    return plain_of(value) if is_record else str(value) if isinstance(value, str) else value
