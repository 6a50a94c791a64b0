"""Writes what a service and the worker of another release say to each other:
`python tests/vectors/generate_wire.py`.

Rule of this file: nothing changes under the same word. Where work, a class or its fields differ
from what the word stands for, it is refused: another word first, in `atoll.service.wire`.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Final

from atoll.service.wire import CLASSES, ERRORS, WORD, WORK, fields_of, named

PATH: Final = Path(__file__).parent / "wire.json"


class WireError(ValueError):
    """The same word for something else."""


def spoken() -> dict[str, Any]:
    """What this version says: parameters of work, fields of classes, and errors."""
    handles = {tag: named(place) for tag, place in WORK.items()}
    work = {tag: list(inspect.signature(handles[tag].resolve()).parameters) for tag in handles}
    classes = {tag: list(fields_of(named(place))) for tag, place in CLASSES.items()}
    return {"classes": classes, "errors": sorted(ERRORS), "word": WORD, "work": work}


def renewed(known: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What stands in the file from now on; raises WireError where the word has to change first."""
    if known.get("word") == now["word"] and known != now:
        raise WireError(f"{now['word']} stands for something else: choose another word")
    return now


def main() -> None:
    known = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    text = json.dumps(renewed(known, spoken()), indent=2, sort_keys=True)
    PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
