"""A job's log: what the second client reads of the events is what atoll's fold says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.second_client import chain, rounds

Json = dict[str, Any]
LOG: Json = json.loads((Path(__file__).parents[1] / "vectors" / "log.json").read_text())
EVENTS = chain.read(LOG["events"])
CREATED = next(said for name, said in EVENTS if name == "JobCreated")
TOLD = chain.rounds_of(EVENTS)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_holders_are_those_of_the_view() -> None:
    found = chain.holders_of(EVENTS)
    for expected in LOG["view"]["holders"]:
        held = found.pop((expected["role"], expected["id"]))
        assert held["account"] == unhex(expected["account"])
        ends = chain.NEVER if expected["to"] is None else expected["to"]
        assert (held["index"], held["from"], held["to"]) == (
            expected["index"], expected["from"], ends,
        )  # fmt: skip
    assert not found


@pytest.mark.parametrize("number", range(len(LOG["view"]["rounds"])))
def test_a_round_is_that_of_the_view(number: int) -> None:
    told, expected = TOLD[number], LOG["view"]["rounds"][number]
    reveals = told["reveals"]
    assert {str(s): r["updateRoot"] for s, r in reveals.items()} == {
        seat: unhex(root) for seat, root in expected["reveals"].items()
    }
    assert {str(s): len(r["checkpointCommitments"]) // 64 for s, r in reveals.items()} == expected[
        "segments"
    ]
    assert {str(slot): has for slot, has in told["votes"]} == expected["votes"]
    assert {str(id): body for id, body in told["bodies"].items()} == {
        id: unhex(body) for id, body in expected["bodies"].items()
    }
    shown = {str(s): told["keys"].get(r["account"]) for s, r in reveals.items()}
    assert {seat: key for seat, key in shown.items() if key is not None} == {
        seat: unhex(key) for seat, key in expected["keys"].items()
    }
    assert told["auditSeed"] == unhex(expected["auditSeed"])
    assert told["verdict"]["state"] == unhex(expected["state"])
    assert (told["signers"], told["pay"]) == (expected["signers"], expected["pay"])


@pytest.mark.parametrize("number", range(len(LOG["view"]["rounds"])))
def test_what_follows_from_a_round_is_that_of_the_view(number: int) -> None:
    """What was signed of it, which seats are audited, and by whom."""
    told, expected = TOLD[number], LOG["view"]["rounds"][number]
    round_id = (LOG["chainId"], unhex(LOG["rounds"]), LOG["jobId"], number)
    later = rounds.later_committee(told["auditSeed"], told["committeeDraw"])
    committee_draw = later if told["committeeDraw"] else told["seed"]
    votes = rounds.votes_accumulator(committee_draw, told["votes"])
    digest = rounds.certificate_digest(round_id, told["seed"], votes, told["verdict"])
    assert digest == unhex(expected["digest"])
    terms, ready = CREATED["terms"], told["ready"]
    last = number + 1 == terms["rounds"]
    revealed = sum(1 << seat for seat in told["reveals"])
    record = {"revealed": revealed, "excluded": told["verdict"]["excluded"], "ready": ready}
    rate = terms["lastRate" if last else "auditRate"]
    drawn = rounds.drawn_seats(told["auditSeed"], record, rate, 1 << 32)
    assert drawn == expected["drawn"]
    duties: dict[str, list[int]] = {}
    for seat, slot in rounds.auditors_of(told["auditSeed"], drawn, ready).items():
        duties.setdefault(str(slot), []).append(seat)
    assert duties == expected["duties"]
