"""Every file that is made from the contracts' interface, with its text.

Rule of this file: `contracts/interface.json` has all that the texts are made from, so that a test
compares them without a compiler; `export_artifacts.py` alone makes it anew.
"""
# ruff: noqa: S603 -- it runs the linter of this environment, on its own text

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from interface import Interface
from typed_python import calls, events, structs, views
from typed_texts import event_blocks, replaced, state_rows

ROOT: Final = Path(__file__).resolve().parents[2]
PROTOCOL: Final = ROOT / "sdk" / "atoll" / "protocol"
CHAIN: Final = ROOT / "sdk" / "atoll" / "chain"
EVENTS_PAGE: Final = ROOT / "contracts" / "EVENTS.md"
SPEC: Final = PROTOCOL / "SPEC-ROUNDS.md"
RUFF: Final = Path(sys.executable).with_name("ruff")


def interface_text(interface: Interface) -> str:
    """A line for each event and function, so that a change of one is a change of one line."""
    contracts = []
    for name, parts in interface.items():
        groups = []
        for group, items in parts.items():
            lines = ",\n".join(f"   {json.dumps(item, ensure_ascii=False)}" for item in items)
            groups.append(f'  "{group}": [\n{lines}\n  ]' if items else f'  "{group}": []')
        contracts.append(f' "{name}": {{\n' + ",\n".join(groups) + "\n }")
    return "{\n" + ",\n".join(contracts) + "\n}\n"


def generated(interface: Interface) -> dict[Path, str]:
    """File → text."""
    python = {PROTOCOL / "events" / name: text for name, text in events(interface).items()}
    python |= {CHAIN / name: text for name, text in calls(interface).items()}
    python |= {
        PROTOCOL / "call_structs.py": structs(interface),
        CHAIN / "contract_views.py": views(interface),
    }
    pages = {
        EVENTS_PAGE: replaced(EVENTS_PAGE.read_text(), "state", state_rows(interface)),
        SPEC: replaced(SPEC.read_text(), "events", event_blocks(interface)),
    }
    return {path: _formatted(path, text) for path, text in python.items()} | pages


def _formatted(path: Path, text: str) -> str:
    for command in (["check", "--select", "I,RUF022", "--fix", "--quiet"], ["format", "--quiet"]):
        line = [RUFF, *command, "--stdin-filename", path, "-"]
        text = subprocess.run(
            line, cwd=ROOT, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text
