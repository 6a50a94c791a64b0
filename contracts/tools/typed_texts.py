"""The rows of `contracts/EVENTS.md` and of SPEC-ROUNDS.md, 13, between markers.

Rule of this file: what stands between two markers is replaced whole, and nothing else is touched.
"""

from __future__ import annotations

import re
from typing import Final

from interface import Interface, Item

BEGIN: Final = "<!-- made by contracts/tools/export_artifacts.py: {} -->"
END: Final = "<!-- end -->"
IN_SPEC: Final = ("Rounds", "Members", "Audits", "LateVotes", "Jobs")
"""Contracts whose events are of a job."""
FOLDED: Final = ("Jobs", "Members", "Rounds")
"""In the order in which a job meets them."""
ALWAYS: Final = ("i uint256 jobId", "i address account")
"""Fields that nearly every event has: the text says once what their names alone mean."""
MOST_SPELLED: Final = 6
"""A struct of more fields has a place of its own in the text."""


def replaced(text: str, name: str, made: str) -> str:
    """The text with what was made between its markers."""
    begin = BEGIN.format(name)
    pattern = re.compile(rf"{re.escape(begin)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"the markers {begin} … {END} are not there once")
    return pattern.sub(lambda _: f"{begin}\n{made}\n{END}", text)


def state_rows(interface: Interface) -> str:
    """What each event does to a job's state: its `@custom:state`."""
    rows = [
        f"| `{event['name']}` | {event['state']} |"
        for contract in FOLDED
        for event in interface[contract]["events"]
        if event.get("state")
    ]
    return "\n".join(["", "| event | fields it sets |", "| --- | --- |", *rows, ""])


def event_blocks(interface: Interface) -> str:
    """Every event of a job in Solidity, a block for each contract."""
    blocks = []
    for contract in IN_SPEC:
        rows = "\n".join(_row(event) for event in interface[contract]["events"])
        blocks.append(f"`{contract}`:\n\n```\n{rows}\n```\n")
    return "\n" + "\n".join(blocks)


def _row(event: Item) -> str:
    fields = ", ".join(map(_field, event["inputs"]))
    spelled = [
        _spelled(field)
        for field in event["inputs"]
        if field["type"] == "tuple" and len(field["components"]) <= MOST_SPELLED
    ]
    notes = "; ".join([*spelled, *([event["dev"]] if "dev" in event else [])])
    return f"{event['name']}({fields})" + (f"   // {notes}" if notes else "")


def _field(field: Item) -> str:
    text = f"{'i ' if field['indexed'] else ''}{_type(field)} {field['name']}"
    return str(field["name"]) if text in ALWAYS else text


def _type(field: Item) -> str:
    """A struct is called by its name."""
    if not field["type"].startswith("tuple"):
        return str(field["type"])
    return str(field["internalType"]).removeprefix("struct ")


def _spelled(struct: Item) -> str:
    parts = ", ".join(f"{_type(part)} {part['name']}" for part in struct["components"])
    return f"{_type(struct)}({parts})"
