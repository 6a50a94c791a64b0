"""What `make check` makes of Slither's results, and the file that judges them."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "contracts" / "tools" / "slither"))
GROUPS: list[dict[str, Any]] = tomllib.loads(TOOL["JUDGED"].read_text("utf-8"))["judged"]
FOUND = {(group["check"], text) for group in GROUPS for text in group["found"]}


def test_what_is_judged_passes():
    assert TOOL["complaints"](FOUND, GROUPS) == []


@pytest.mark.parametrize("check", ["unchecked-transfer", GROUPS[0]["check"]])
def test_a_new_result_fails(check: str):
    (said,) = TOOL["complaints"](FOUND | {(check, "Jobs.claim(uint256) does it")}, GROUPS)
    assert said == f"not judged: {check}: Jobs.claim(uint256) does it"


def test_a_judgement_of_code_that_is_gone_fails():
    gone = min(FOUND)
    (said,) = TOOL["complaints"](FOUND - {gone}, GROUPS)
    assert said.startswith(f"judged, and gone: {gone[0]}")


def test_a_judgement_without_a_reason_fails():
    idle = [{"check": "timestamp", "because": TOOL["UNJUDGED"], "found": []}]
    assert TOOL["complaints"](FOUND, GROUPS + idle) == ["no reason yet: timestamp"]


def test_a_result_has_its_name_wherever_its_code_stands():
    at = " (src/Jobs.sol#{0}-9)"
    said = f"Jobs.f(){at} calls:\n\t- x = g(){at}\n\tJobs.y{at} can be used in cross function "
    said += f"reentrancies:\n\t- Jobs.h(uint256){at}\n\t- Jobs.z{at}\n\t- job.y = f(){at}\n"
    names = {TOOL["name"]({"description": said.format(line)}) for line in (4, 5)}
    assert names == {"Jobs.f() calls: - job.y = f() - x = g()"}


def test_a_result_has_its_name_in_whatever_order_its_calls_are_listed():
    calls = [
        "\n\t- a = g() (src/Jobs.sol#7)\n\t\t- g2() (src/Jobs.sol#9)\n\t\t- g1() (src/Jobs.sol#8)",
        "\n\t- b = h() (src/Jobs.sol#4)",
    ]
    inner = calls[0].split("\n\t\t")
    again = "\n\t\t".join([inner[0], *reversed(inner[1:])])
    orders = ("".join(calls), "".join(reversed(calls)), again + calls[1])
    names = {TOOL["name"]({"description": f"Jobs.f() calls:{order}\n"}) for order in orders}
    assert names == {"Jobs.f() calls: - a = g() - g1() - g2() - b = h()"}
