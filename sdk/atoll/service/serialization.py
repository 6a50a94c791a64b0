"""Frozen dataclasses to JSON and back, by their type hints.

Rule of this file: a value read back equals the value written, or `JournalError` says which field
cannot be read. Bytes are hexadecimal, tuples are lists, integers have no limit.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

from atoll.errors import AtollError
from atoll.nested import loads

T = TypeVar("T")


class JournalError(AtollError):
    """A journal that cannot be read or written as it should."""

    exit_code = 4


def to_json(value: object) -> str:
    """Compact JSON of a dataclass."""
    return json.dumps(_json_value(value), separators=(",", ":"))


def from_json(cls: type[T], text: str) -> T:
    """The dataclass that `to_json` wrote; raises JournalError when the text does not fit it."""
    try:
        return cast(T, _build(cls, loads(text)))
    except (TypeError, ValueError, KeyError) as error:
        raise JournalError(f"cannot read a {cls.__name__}: {error}") from error


def _json_value(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _json_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form here")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(hint: Any, data: Any) -> Any:
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return None if data is None else _build(_only_option(hint), data)
    if typing.get_origin(hint) is tuple:
        return _build_tuple(typing.get_args(hint), data)
    if hint is bytes:
        return bytes.fromhex(data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if dataclasses.is_dataclass(hint):
        cls = cast(type, hint)
        fields = _hints(cls)
        return cls(**{f.name: _build(fields[f.name], data[f.name]) for f in _fields(cls)})
    if not isinstance(data, hint):
        raise TypeError(f"expected {hint.__name__}, got {type(data).__name__}")
    return data


def _build_tuple(args: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_build(args[0], item) for item in data)
    return tuple(_build(hint, item) for hint, item in zip(args, data, strict=True))


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(f for f in dataclasses.fields(cls) if f.init)


def _only_option(hint: Any) -> Any:
    options = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if len(options) != 1:
        raise TypeError(f"a union other than Optional has no JSON form here: {hint}")
    return options[0]
