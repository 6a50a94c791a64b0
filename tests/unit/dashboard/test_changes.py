"""A browser is told what is another in a document, and has the whole one in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.dashboard.changes import changes


def applied(before: Any, change: dict[str, Any]) -> Any:
    """What `changed` in start.js does."""
    if "is" in change:
        return change["is"]
    if isinstance(before, list):
        after: Any = dict(enumerate(before[: change["length"]]))
        for at, part in change["set"].items():
            after[int(at)] = applied(after.get(int(at)), part)
        return [after[at] for at in range(change["length"])]
    after = dict(before)
    for name, part in change["set"].items():
        after[name] = applied(after.get(name), part)
    return after


ROUNDS = [{"round": round, "losses": [1.5, None], "seats": {"0": "0x1"}} for round in range(50)]
BEFORE = {"kind": "job", "now": 5, "rounds": ROUNDS, "members": {"a": 1}}


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        {**BEFORE, "now": 6, "rounds": [*ROUNDS, {"round": 50}]},
        {**BEFORE, "rounds": ROUNDS[:49]},
        {**BEFORE, "rounds": [*ROUNDS[:7], {**ROUNDS[7], "losses": [1.5, 2]}, *ROUNDS[8:]]},
        {**BEFORE, "new": [1]},
        {"new": [1], **BEFORE},
        {"kind": "job"},
        {**BEFORE, "members": {"a": True}},
        {**BEFORE, "members": {"a": 1.0}},
        {**BEFORE, "members": {"a": 1, "__proto__": {"x": 1}}},
        {**BEFORE, "rounds": None, "members": []},
    ],
)
def test_what_is_changed_makes_of_the_one_the_other(after: Any) -> None:
    change = changes(BEFORE, after)
    assert json.dumps(applied(BEFORE, json.loads(json.dumps(change)))) == json.dumps(after)


def test_a_block_of_a_long_job_is_a_few_bytes() -> None:
    after = {**BEFORE, "now": 6, "rounds": [*ROUNDS[:-1], {**ROUNDS[-1], "round": 49.5}]}
    assert len(json.dumps(changes(BEFORE, after))) < len(json.dumps(BEFORE)) / 20
    assert changes(BEFORE, BEFORE) == {"set": {}}
