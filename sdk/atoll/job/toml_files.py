"""Job files: TOML in and out, and what to say where one cannot be used.

Rule of this file: every refusal names the key, and what would be right.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from atoll.errors import ConfigError
from atoll.job.groups import Bare, Whole, canonical_number
from atoll.service.messages import models_in

_WIDTH = 98


def read_toml(path: Path) -> dict[str, Any]:
    """A file's tables; numbers with a point or an exponent as canonical decimal text, others as
    `Whole`.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the job {path}: {error.strerror}",
            next_step="write one with `atoll job new > job.toml`",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}", next_step=f"correct {path}") from error
    return parse_toml(text, str(path))


def parse_toml(text: str, source: str = "the job") -> dict[str, Any]:
    """As `read_toml`, of text. Raises ConfigError."""
    try:
        document: dict[str, Any] = _marked(tomllib.loads(text, parse_float=_number))
    except (ValueError, RecursionError) as error:  # beside TOML's own: too many digits, too deep
        raise ConfigError(
            f"{source} is not TOML: {error}", next_step=f"correct {source}"
        ) from error
    return document


def _marked(value: Any) -> Any:
    """A value with its whole numbers as `Whole`."""
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return Whole(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _number(literal: str) -> Any:
    try:
        return canonical_number(literal.replace("_", ""))
    except ValueError:
        return literal  # inf and nan, which no field takes


def parse_setting(text: str) -> tuple[str, Any]:
    """`inner.lr=0.01` as its key path and value; a value that is not TOML is text.

    Raises:
        ConfigError: there is no "=".
    """
    path, separator, value = text.partition("=")
    if not separator or not path.strip():
        raise ConfigError(f"{text!r} is not KEY=VALUE", next_step="write --set inner.lr=0.01")
    try:
        return path.strip(), parse_toml(f"value = {value}")["value"]
    except ConfigError:
        return path.strip(), value


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    """Sets a value by its key path; groups on the way become plain mappings."""
    *groups, last = path.split(".")
    for name in groups:
        inside = document.get(name)
        if not isinstance(inside, Mapping | BaseModel | None):
            raise ConfigError(f"there is no {path}: {name} has no keys of its own")
        document[name] = {} if inside is None else dict(inside)
        document = document[name]
    document[last] = value


def to_toml(spec: BaseModel, head: str = "") -> str:
    """A commented file that reads back to the same spec; what is None is a comment.

    Args:
        head: lines of comment at the top.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()] + [""] * bool(head)
    _write(spec, "", lines)
    return "\n".join(lines).strip("\n") + "\n"


def _write(spec: BaseModel, path: str, lines: list[str]) -> None:
    plain = spec.model_dump()
    fields = type(spec).model_fields
    groups = {name for name in fields if isinstance(getattr(spec, name), BaseModel)}
    for name, field in fields.items():
        if name in groups or (plain[name] is None and models_in(field.annotation)):
            continue
        comment = f"  # {field.description}" if field.description else ""
        value = "" if plain[name] is None else " " + _value(plain[name])
        line = f"{'# ' if plain[name] is None else ''}{name} ={value}{comment}"
        fits = len(line) <= _WIDTH or not comment
        above = [f"# {part}" for part in wrap(field.description or "", _WIDTH - 2)]
        lines += [line] if fits else [*above, line.removesuffix(comment)]
    for name in fields:
        if name in groups:
            group = getattr(spec, name)
            inner = f"{path}.{name}".lstrip(".")
            words = (type(group).__doc__ or "").strip().splitlines()[:1]
            lines += ["", *(f"# {word}" for word in words), f"[{inner}]"]
            _write(group, inner, lines)


def _value(value: Any) -> str:
    if isinstance(value, Bare):
        return value if "." in value else f"{value}.0"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(_value(item) for item in value) + "]"
