"""What is another in a document than in the one that a browser has; start.js applies it.

Rule of this file: a change is `{"is": value}`; of an object `{"set": {name: change}}`, whose
new names come last; of a list `{"length": how many, "set": {place: change}}`.
"""

from __future__ import annotations

from typing import Any

_UNSAFE = "__proto__"
"""A name that is none like others in JavaScript."""


def changes(before: Any, after: Any) -> dict[str, Any]:
    """What makes of the one document the other; both as JSON has them."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name, value in after.items() if _is_new(before, name, value)]
        if list(after)[: len(before)] == list(before) and _UNSAFE not in after:
            return {"set": {name: _part(before, name, after[name]) for name in names}}
    if isinstance(before, list) and isinstance(after, list):
        known = dict(enumerate(before))
        parts = {at: value for at, value in enumerate(after) if _is_new(known, at, value)}
        return {
            "length": len(after),
            "set": {str(at): _part(known, at, value) for at, value in parts.items()},
        }
    return {"is": after}


def _is_new(before: dict[Any, Any], name: object, value: object) -> bool:
    # Python takes 1 for True and for 1.0; JSON does not.
    return name not in before or repr(before[name]) != repr(value)


def _part(before: dict[Any, Any], name: object, value: object) -> dict[str, Any]:
    return changes(before[name], value) if name in before else {"is": value}
