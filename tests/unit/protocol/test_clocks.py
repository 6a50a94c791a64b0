"""Moments of a round and of a job, by hand."""

from __future__ import annotations

import pytest
from tests.support.manifests import make_terms

from atoll.protocol.clocks import (
    MOST_DRAWS,
    AuditClock,
    absolute_end,
    last_audits,
    last_moment,
    seed_due,
    votes_end,
)

TERMS = make_terms(
    expiry=1_000_000,
    train_seconds=1_000,
    reveal_seconds=200,
    merge_seconds=40,
    audit_seconds=7,
    open_seconds=11,
    key_seconds=13,
    window_seconds=17,
)
CLOCK = AuditClock(
    settled_at=100, audit_end=107, open_end=118, keys_end=131, half=139, window_end=148
)


def test_windows_follow_each_other() -> None:
    assert AuditClock.of(TERMS, 100) == CLOCK
    assert AuditClock.of(TERMS, 100, audits=3).audit_end == 121


def test_a_window_has_its_first_moment_and_not_its_last() -> None:
    auditing = [now for now in range(90, 160) if CLOCK.is_auditing(now)]
    opening = [now for now in range(90, 160) if CLOCK.is_opening(now)]
    challenged = [now for now in range(90, 160) if CLOCK.takes_challenges(now)]
    assert auditing == list(range(100, 107))
    assert opening == list(range(107, 118))
    assert challenged == list(range(107, 148))


@pytest.mark.parametrize(
    ("drawn", "ready", "audits"), [(0, 3, 1), (1, 2, 1), (4, 4, 1), (5, 4, 2), (200, 3, 16)]
)
def test_the_last_round_has_an_audit_for_each_seat_of_an_auditor(
    drawn: int, ready: int, audits: int
) -> None:
    assert last_audits(drawn, ready) == audits


def test_the_ends_of_a_committee_draw_and_of_a_job() -> None:
    assert votes_end(TERMS, 540) == 530
    assert last_moment(TERMS) == 1_000_000 + 1_000 + 200 + 40 + 40
    behind = 1_001_280 + 16 * 7 + 11 + 13 + 17
    assert absolute_end(TERMS, 5) == behind + 6 * 5


@pytest.mark.parametrize(("merge_seconds", "patience"), [(40, 20), (41, 20), (60, 30), (900, 30)])
def test_a_seed_is_asked_for_while_the_chain_remembers_its_block(
    merge_seconds: int, patience: int
) -> None:
    assert seed_due(make_terms(merge_seconds=merge_seconds), 1_000) == 1_000 + patience


def test_the_number_of_committee_draws_fits_in_16_bits_with_room_to_spare() -> None:
    assert MOST_DRAWS == 60_000
