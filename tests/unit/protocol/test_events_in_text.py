"""SPEC-ROUNDS.md, 13, gives every event of a job as the contracts emit it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

SDK = Path(__file__).parents[3] / "sdk" / "atoll"
SECTION = (SDK / "protocol" / "SPEC-ROUNDS.md").read_text().split("\n## 13. ")[1].split("\n## ")[0]
BLOCKS = dict(re.findall(r"`(\w+)`(?:, in [^\n]*)?:\n\n```\n(.*?)```", SECTION, re.DOTALL))
Argument = tuple[bool, str, str]
"""Whether it is indexed, its type, its name."""


def told(block: str) -> dict[str, list[Argument]]:
    """The events of a block, each with its arguments."""
    found = {}
    for name, arguments in re.findall(r"^(\w+)\(([^)]*)\)", block, re.MULTILINE):
        words = [argument.split() for argument in arguments.split(", ")]
        found[name] = [(len(w) == 3 and w[0] == "i", w[-2], w[-1]) for w in words]
    return found


def emitted(contract: str) -> dict[str, list[Argument]]:
    """The same of an interface, where a struct is called by its name."""
    abi = json.loads((SDK / "chain" / "artifacts" / f"{contract}.json").read_text())["abi"]

    def type_of(one: dict[str, Any]) -> str:
        is_struct = one["type"].startswith("tuple")
        return str(one["internalType"].removeprefix("struct ") if is_struct else one["type"])

    return {
        event["name"]: [(i["indexed"], type_of(i), i["name"]) for i in event["inputs"]]
        for event in abi
        if event["type"] == "event"
    }


def test_the_section_has_a_block_for_each_contract_of_a_job() -> None:
    assert set(BLOCKS) == {"Rounds", "Members", "Audits", "Words", "Jobs"}


@pytest.mark.parametrize("contract", BLOCKS)
def test_events_of_the_text_are_those_of_the_contract(contract: str) -> None:
    assert told(BLOCKS[contract]) == emitted(contract)
