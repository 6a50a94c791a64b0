"""The contracts' mutants: one change each, of what runs, which the compiler takes or refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.mutants.contracts import CONTRACTS, HELD_BY
from tests.mutants.solidity import Mutant, difference, mutants_of

IMPORT = re.compile(r'^import .*"(\.[^"]+)";', re.MULTILINE)
SOURCE = b"""// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A contract: 1 + 1.
contract Counter {
    uint256[3] internal counts;
    uint256 internal constant MOST = 0x10;
    uint256 internal constant LONG = 2 days;
    mapping(address => bool) internal isGone;

    event Counted(uint256 count);

    error TooMany(uint256 count, uint256 most);

    function count(uint256 by, bool isTwice) external returns (uint256 total) {
        if (by > MOST && !isGone[msg.sender]) revert TooMany(by - 1, MOST);
        total = (by) + (isTwice ? by : 0);
        counts[0] += total;
        assembly {
            total := add(total, 1)
        }
        if (total == 9) total <<= 1;
        else total = 7;
        emit Counted(total);
    }
}
"""


def compiled(*sources: bytes) -> dict[str, Any]:
    """What the pinned compiler says of files, which it calls 0, 1, …"""
    asked = {
        "language": "Solidity",
        "sources": {str(i): {"content": text.decode()} for i, text in enumerate(sources)},
        "settings": {"outputSelection": {"*": {"": ["ast"]}}},
    }
    solc = [str(CONTRACTS / "tools/solc"), "--standard-json"]
    done = subprocess.run(solc, input=json.dumps(asked), capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    tree = compiled(SOURCE)["sources"]["0"]["ast"]
    return mutants_of("Counter.sol", tree, SOURCE)


def changes(mutants: list[Mutant], operator: str) -> list[str]:
    """Each changed line as it became."""
    found = [difference(m, SOURCE) for m in mutants if m.operator == operator]
    return [text.splitlines()[-1].removeprefix("+").strip() for text in found]


def test_every_operator_changes_one_thing(mutants: list[Mutant]) -> None:
    assert changes(mutants, "comparison") == [
        "if (by >= MOST && !isGone[msg.sender]) revert TooMany(by - 1, MOST);",
        "if (total != 9) total <<= 1;",
    ]
    assert changes(mutants, "arithmetic") == [
        "total = (by) - (isTwice ? by : 0);",
        "counts[0] -= total;",
    ]
    assert changes(mutants, "boolean") == [
        "if (by > MOST || !isGone[msg.sender]) revert TooMany(by - 1, MOST);",
        "if (by > MOST && isGone[msg.sender]) revert TooMany(by - 1, MOST);",
    ]
    assert changes(mutants, "branch") == [
        "if (false) revert TooMany(by - 1, MOST);",
        "total = (by) + (true ? by : 0);",
    ]
    assert changes(mutants, "deletion") == ["0;", "0;", "if (total == 9) 0;", "else 0;"]


def test_a_number_becomes_the_next_and_lengths_and_reasons_stay(mutants: list[Mutant]) -> None:
    assert changes(mutants, "constant") == [
        "uint256 internal constant MOST = 17;",
        "total = (by) + (isTwice ? by : 1);",
        "counts[1] += total;",
        "if (total == 10) total <<= 1;",
        "if (total == 9) total <<= 2;",
        "else total = 8;",
    ]


def test_what_is_changed_is_solidity_still(mutants: list[Mutant]) -> None:
    said = compiled(*(mutant.of(SOURCE) for mutant in mutants)).get("errors", [])
    assert [one["formattedMessage"] for one in said if one["severity"] == "error"] == []


def test_a_difference_says_where_it_is(mutants: list[Mutant]) -> None:
    first = next(mutant for mutant in mutants if mutant.operator == "comparison")
    assert difference(first, SOURCE).splitlines() == [
        "contracts/Counter.sol:16 comparison",
        "-        if (by > MOST && !isGone[msg.sender]) revert TooMany(by - 1, MOST);",
        "+        if (by >= MOST && !isGone[msg.sender]) revert TooMany(by - 1, MOST);",
    ]


def imported(file: Path) -> set[Path]:
    """A source and all that it imports of ours."""
    found, new = set[Path](), {file.resolve()}
    while new:
        found |= new
        texts = {path: path.read_text() for path in new}
        named = {(at.parent / n).resolve() for at, t in texts.items() for n in IMPORT.findall(t)}
        new = named - found
    return found


@pytest.mark.parametrize("file", HELD_BY)
def test_who_holds_a_mutated_file_imports_it(file: str) -> None:
    sources = {path.stem: path for path in (CONTRACTS / "src").rglob("*.sol")}
    for contract in HELD_BY[file]:
        assert (CONTRACTS / file).resolve() in imported(sources[contract])
