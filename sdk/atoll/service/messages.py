"""What to say of a document that cannot be used: the key, its value, and what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from atoll.errors import ConfigError

_SHOWN: Final = 61
"""Letters of a wrong value that are shown."""
_WANTED: Final = {
    "bool_type": "it should be true or false",
    "int_from_float": "it should be a whole number",
    "int_type": "it should be a whole number",
    "string_pattern_mismatch": "it should be a number of 0 or more, without an exponent, of at "
    "most 10 digits before the point and 18 behind it",
    "string_type": "it should be text, in quotes",
    "tuple_type": "it should be a list, in brackets",
}
"""By pydantic's name of what is wrong, where its own words are a programmer's. The one pattern that
a document's values have is that of numbers (`DecimalText`)."""


def explain(error: ValidationError, root: type[BaseModel], source: str) -> ConfigError:
    """Every wrong value of a document as one error: key path, value, and what would be right."""
    return ConfigError(f"{source}: {sentences(error, root)}", next_step=f"correct {source}")


def sentences(error: ValidationError, root: type[BaseModel]) -> str:
    """What is wrong, one part for each key."""
    return "; ".join(_sentence(item, root) for item in error.errors())


def _sentence(item: Any, root: type[BaseModel]) -> str:
    parts = [str(part) for part in item["loc"]]
    path = ".".join(part or "''" for part in parts) or "the file"
    if item["type"] == "extra_forbidden":
        return f"there is no {path}: {_nearest(parts, root)}"
    if item["type"] == "missing":
        return f"{path} is missing"
    message = _wanted(item, path)
    if item["type"] == "value_error" and _is_group(item["input"]):
        # A group's values do not go together: the message says which.
        return f"{path}: {message.removeprefix(f'{path}: ')}" if parts else message
    return f"{path} is {_shown(item['input'])}: {message}"


def _wanted(item: Any, path: str) -> str:
    """What a value should be."""
    if item["type"] in ("model_type", "dataclass_type"):
        return f"it should be a table of keys, [{path}]"
    message: str = item["msg"].removeprefix("Value error, ")
    for subject in ("Input", "String", "Tuple", "List", "Value"):
        message = message.replace(f"{subject} should", "it should")
    return _WANTED.get(item["type"], message)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _is_group(value: Any) -> bool:
    return isinstance(value, Mapping) or is_dataclass(value)


def _nearest(parts: list[str], root: type[BaseModel]) -> str:
    """The known key next to an unknown one: of its group, else of any."""
    group, paths = ".".join(parts[:-1]), key_paths(root)
    inside = [path.rpartition(".")[2] for path in paths if path.rpartition(".")[0] == group]
    near = get_close_matches(parts[-1], inside, 1)
    if near:
        return f"did you mean {'.'.join([*parts[:-1], near[0]])}?"
    elsewhere = [path for path in paths if path.rpartition(".")[2] == parts[-1]]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return f"known there are {', '.join(inside)}"


def key_paths(root: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key path that a document may have; groups too."""
    paths = []
    for name, field in root.model_fields.items():
        paths.append(prefix + name)
        for inner in models_in(field.annotation):
            paths += key_paths(inner, f"{prefix}{name}.")
    return paths


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a field may hold."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in getattr(annotation, "__args__", ()) for model in models_in(part)]
