"""Writes the list of the tags that journals know entries and commands by, and workers their work:
`python tests/vectors/generate_tags.py`.

Rule of this file: the list only grows. A tag that no class has any more goes to `retired`, so that
no other one ever takes it; an entry whose fields differ from what its tag stands for is refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final

import atoll.service
import atoll_node
import atoll_verifier
from atoll.service.entries import Entry, Named
from atoll.service.task import Task, declared

PATH: Final = Path(__file__).parent / "tags.json"
PRODUCT: Final = ("atoll.", "atoll_node.", "atoll_verifier.")


class TagError(ValueError):
    """A tag that would mean something else than it did."""


def load_all() -> None:
    """Imports every module of the services, so that each of their classes is known."""
    for package in (atoll.service, atoll_node, atoll_verifier):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def entries() -> list[type[Entry]]:
    """The product's entries, by their tags."""
    load_all()
    return [cls for _, cls in sorted(Entry.kinds.items()) if cls.__module__.startswith(PRODUCT)]


def commands() -> list[type[Named[Any]]]:
    """The product's commands, by their tags."""
    load_all()
    return [cls for _, cls in sorted(Named.kinds.items()) if cls.__module__.startswith(PRODUCT)]


def work() -> list[Task[..., Any]]:
    """What the product's services have other processes do, by their tags."""
    load_all()
    return [task for task in declared().values() if task.module.startswith(PRODUCT)]


def shape(hint: Any) -> Any:
    """What `to_json` writes of such a value: names of fields, and plain types. No class has a name
    here.
    """
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    args = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return {"or null": [shape(arg) for arg in args if arg is not type(None)]}
    if typing.get_origin(hint) is tuple:
        return ["..." if arg is Ellipsis else shape(arg) for arg in args]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"one of": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint):
        known = typing.get_type_hints(hint)
        return {f.name: shape(known[f.name]) for f in dataclasses.fields(hint) if f.init}
    return hint.__name__


def grown(
    known: dict[str, Any],
    entries: Iterable[type[Entry]],
    commands: Iterable[type[Named[Any]]],
    work: Iterable[Task[..., Any]],
) -> dict[str, Any]:
    """The list with what these classes and handles add to it.

    Raises:
        TagError: a tag was taken before, by an entry of other fields or by one that is gone.
    """
    found: dict[str, Any] = {
        "commands": sorted(cls.kind for cls in commands),
        "entries": {cls.kind: shape(cls) for cls in entries},
        "work": sorted(task.kind for task in work),
    }
    for tag, fields in found["entries"].items():
        if known["entries"].get(tag, fields) != fields:
            raise TagError(f"{tag} had other fields: give the entry a tag of its own")
    before, now = ({*tags["commands"], *tags["entries"], *tags["work"]} for tags in (known, found))
    if taken := now & set(known["retired"]):
        raise TagError(f"{sorted(taken)} meant something else once: choose other tags")
    return found | {"retired": sorted({*known["retired"], *before - now})}


def main() -> None:
    known = json.loads(PATH.read_text(encoding="utf-8"))
    text = json.dumps(grown(known, entries(), commands(), work()), indent=2, sort_keys=True)
    PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
