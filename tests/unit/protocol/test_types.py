"""Python's enums and structs are Solidity's, in the same order."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import IntEnum
from pathlib import Path

import pytest

from atoll.protocol.games import game_machine
from atoll.protocol.program import Source
from atoll.protocol.types import (
    JobStatus,
    MissedDuty,
    Phase,
    Reveal,
    Role,
    RoundRecord,
    Terms,
    Verdict,
    bits,
    to_bitmap,
)

CONTRACTS = Path(__file__).parents[3] / "contracts" / "src"
TYPES = "types/Types.sol"


def body(kind: str, name: str, file: str = TYPES) -> str:
    source = re.sub(r"//.*", "", (CONTRACTS / file).read_text("utf-8"))
    found = re.search(rf"{kind} {name} \{{(.*?)\}}", source, re.DOTALL)
    assert found is not None, f"{kind} {name} is not in {file}"
    return found.group(1)


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


@pytest.mark.parametrize(
    ("enum", "file"),
    [
        *((enum, TYPES) for enum in (Role, JobStatus, Phase, MissedDuty)),
        (game_machine.GamePhase, "judge/GameQueue.sol"),
        (game_machine.Outcome, "judge/IClaims.sol"),
        (Source, "judge/ProgramReader.sol"),
    ],
)
def test_an_enum_has_the_contracts_values(enum: type[IntEnum], file: str) -> None:
    theirs = enum.__name__.removeprefix("Game")
    names = [name.strip() for name in body("enum", theirs, file).split(",")]
    assert {name: i for i, name in enumerate(names)} == {m.name: m.value for m in enum}


@pytest.mark.parametrize("struct", [Terms, Reveal, RoundRecord, Verdict])
def test_a_struct_has_the_contracts_fields(struct: type) -> None:
    declared = [line.split()[1] for line in body("struct", struct.__name__).split(";")[:-1]]
    assert [camel(field.name) for field in fields(struct)] == declared


def test_bitmaps_and_indices_are_two_ways_to_say_the_same() -> None:
    assert bits(0b1000000101) == [0, 2, 9]
    assert to_bitmap([9, 0, 2, 2]) == 0b1000000101
    assert (bits(0), to_bitmap([])) == ([], 0)
