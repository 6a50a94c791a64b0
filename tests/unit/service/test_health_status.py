"""The one condition that blocks a service: the worst of what is known, with numbers and a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from atoll.service.health_status import Failing, KnownOfService, blocking

WORKS = KnownOfService(silent_seconds=1.0, room=1 << 40, jobs=2)
KEY = (1, "join.v1:0:100")


def failing(kind: str, times: int = 1) -> dict[str, Any]:
    return {"failing": {KEY: Failing(kind, "why", "what helps", times)}}


def test_a_service_that_works_is_not_blocked() -> None:
    assert blocking(WORKS) is None
    assert blocking(replace(WORKS, **failing("NotFound"))) is None  # once is bad luck


@pytest.mark.parametrize(
    ("known", "name", "words"),
    [
        ({"silent_seconds": None}, "chain", "has not answered yet"),
        ({"silent_seconds": 90.0}, "chain", "for 90 s"),
        ({"doppelganger": "its key acted"}, "doppelganger", "its key acted"),
        ({"silent_seconds": 90.0, "silence": "two differ"}, "chain", "for 90 s: two differ"),
        ({"room": 1 << 29}, "disk", "0.50 GiB"),
        (failing("DiskFull"), "disk", "job 1: why"),
        (failing("InsufficientFunds"), "money", "job 1: why"),
        (failing("NotOurPolicy"), "policy", "job 1: why"),
        ({"gateway": "its process ended"}, "gateway", "its process ended"),
        ({"waiting": ["waits: the base fee is above the fee cap"]}, "fees", "1 transactions wait"),
        (failing("NotFound", 3), "failing", "failed 3 times in a row: why"),
        ({"defects": {7: "KeyError()"}}, "defect", "job 7 does not step"),
    ],
)
def test_what_blocks_is_named(known: dict[str, Any], name: str, words: str) -> None:
    found = blocking(replace(WORKS, **known))
    assert found is not None
    assert (found.name, found.is_fault) == (name, True)
    assert words in found.text
    assert found.next_step


@pytest.mark.parametrize("kind", ["NotOurPolicy", "InsufficientFunds", "ChainError", "NotFound"])
def test_what_keeps_a_member_out_of_another_job_does_not_block_it(kind: str) -> None:
    at_work = replace(WORKS, **failing(kind, 3))
    assert blocking(at_work) is not None
    assert blocking(replace(at_work, strange=frozenset({1}))) is None
    nowhere = blocking(replace(at_work, strange=frozenset({1, 2})))
    assert (nowhere is None) == (kind == "NotFound")  # which is the fault of who announced the job


def test_a_full_disk_is_a_fault_whatever_it_was_wanted_for() -> None:
    found = blocking(replace(WORKS, strange=frozenset({1}), **failing("DiskFull")))
    assert found is not None and found.name == "disk"


def test_waiting_for_a_job_is_no_fault() -> None:
    found = blocking(replace(WORKS, jobs=0))
    assert found is not None
    assert (found.name, found.is_fault) == ("no job", False)


def test_when_every_job_is_refused_the_newest_refusal_is_told() -> None:
    some = replace(WORKS, refused={3: "pays 1 wei a token"})
    assert blocking(some) is None
    found = blocking(replace(some, refused={3: "pays 1 wei a token", 7: "would take 90 s"}))
    assert found is not None
    assert (found.name, found.is_fault) == ("refused", False)
    assert "job 7: would take 90 s" in found.text


def test_who_has_no_place_and_looks_at_a_job_says_that_it_measures() -> None:
    looks = replace(WORKS, strange=frozenset({1, 2}), measured=frozenset({2}))
    found = blocking(looks)
    assert found is not None
    assert (found.name, found.is_fault) == ("measures", False)
    assert "job 2 is being looked at" in found.text
    assert blocking(replace(looks, strange=frozenset({2}))) is None  # it is at work in the other


def test_who_waits_for_members_is_told_how_many_are_there() -> None:
    waits = "waits for members: 2 of 3 seats are held"
    found = blocking(replace(WORKS, gathering={1: waits, 2: waits}))
    assert found is not None
    assert (found.name, found.text, found.is_fault) == ("members", f"job 1 {waits}", False)
    assert blocking(replace(WORKS, gathering={1: waits})) is None  # it is at work in the other
    elsewhere = blocking(replace(WORKS, gathering={1: waits}, strange=frozenset({2})))
    assert elsewhere is not None and elsewhere.name == "members"
    out = blocking(replace(WORKS, gathering={1: waits, 2: waits}, sits_out="is paused"))
    assert out is not None and out.name == "sits out"


def test_the_cause_comes_before_what_follows_from_it() -> None:
    everything = replace(
        WORKS, silent_seconds=90.0, room=0, waiting=["stuck"], **failing("InsufficientFunds", 9)
    )
    names = []
    for fixed in ({"silent_seconds": 0.0}, {"room": 1 << 40}, {"failing": {}}, {"waiting": ()}):
        found = blocking(everything)
        assert found is not None
        names.append(found.name)
        everything = replace(everything, **fixed)  # type: ignore[arg-type]
    assert names == ["chain", "disk", "money", "fees"]
    assert blocking(everything) is None


def test_who_sits_out_is_not_at_fault_and_is_told_how_to_go_on() -> None:
    found = blocking(replace(WORKS, sits_out="is paused, as ordered"))
    assert found is not None
    assert (found.name, found.is_fault) == ("sits out", False)
    assert found.text == "the service is paused, as ordered"
    assert "resume" in found.next_step
    hours = blocking(replace(WORKS, sits_out="is out of its schedule's hours for 60 min more"))
    assert hours is not None and hours.next_step == "wait, or change [schedule]"
    late = replace(WORKS, sits_out="drains, as ordered", **failing("InsufficientFunds"))
    worse = blocking(late)
    assert worse is not None and worse.name == "money"
