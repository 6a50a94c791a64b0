"""A second service with the same key is noticed by what it did on the chain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import address

from atoll.chain.indexed import Indexed
from atoll.law import events as ev
from atoll.law.words import BlockRef, Digest
from atoll.service.twin import ACTS, Twin

ME, OTHER = address("me"), address("other")
OURS, FOREIGN = b"\x01" * 32, b"\x02" * 32
WAIT, AT, HEIGHT = 180, 1_000_000, 50
ANNOUNCED = Indexed(
    ev.GatewayAnnounced(ME, "http://x"), BlockRef(HEIGHT, Digest(bytes(32)), AT), 0, FOREIGN
)


def twin(since: float = 0.0) -> Twin:
    return Twin(ME, lambda tx_hash: tx_hash == f"0x{OURS.hex()}", WAIT, since)


def test_an_act_from_elsewhere_is_waited_out() -> None:
    found = twin()
    found.see([ANNOUNCED])
    told = found.why_waits(AT + 30, HEIGHT + 3)
    assert "acted 3 blocks ago (GatewayAnnounced" in told
    assert "for 180 s, 150 s more" in told
    assert found.why_waits(AT + WAIT - 1, HEIGHT + 9)
    assert found.why_waits(AT + WAIT, HEIGHT + 10) == ""


def test_every_act_begins_the_wait_anew() -> None:
    found = twin()
    later = replace(ANNOUNCED, block=replace(ANNOUNCED.block, timestamp=AT + 100))
    found.see([ANNOUNCED, later])
    assert found.why_waits(AT + WAIT, HEIGHT)
    assert found.why_waits(AT + 100 + WAIT, HEIGHT) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"transaction": OURS},
        {"event": ev.GatewayAnnounced(OTHER, "http://x")},
        {"event": ev.Deposited(ME, 0, 1)},
        {"event": ev.Stopped(1, ME, 0, 0, bytes(32))},
    ],
)
def test_what_is_ours_or_anothers_or_moves_money_only_is_not_waited_for(
    changed: dict[str, object],
) -> None:
    found = twin()
    found.see([replace(ANNOUNCED, **changed)])  # type: ignore[arg-type]
    assert found.why_waits(AT, HEIGHT) == ""


def test_what_was_before_the_journal_moved_here_is_ours() -> None:
    found = twin(since=AT)
    found.see([ANNOUNCED])
    assert found.why_waits(AT, HEIGHT) == ""
    found.see([replace(ANNOUNCED, block=replace(ANNOUNCED.block, timestamp=AT + 1))])
    assert found.why_waits(AT + 1, HEIGHT)


def test_every_act_says_whose_it_is() -> None:
    for kind in ACTS:
        assert "account" in kind.__dataclass_fields__
