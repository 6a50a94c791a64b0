"""What a settled round says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import address
from tests.unit.protocol.script import Script

from atoll.protocol.settled_rounds import Contest, SettledRound
from atoll.protocol.types import NO_BITS, ZERO_DIGEST, Bitmap, SlotIndex


def settled() -> SettledRound:
    script = Script.ready()
    script.honest_round()
    return script.net.view.settled[0]


def test_a_contest_is_of_nobody_of_no_game_and_open_at_first() -> None:
    contest = Contest()
    assert (contest.by, contest.game, contest.is_wrong) == (None, 0, None)


@pytest.mark.parametrize(
    ("drawn", "in_time", "is_it"),
    [(4, 0, True), (4, 1, True), (4, 2, False), (4, 3, False), (5, 2, True), (5, 3, False)],
)
def test_keys_stand_still_where_fewer_than_half_of_the_drawn_show_them(
    drawn: int, in_time: int, is_it: bool
) -> None:
    round = settled()
    record = replace(round.record, drawn=Bitmap((1 << drawn) - 1))
    round = replace(round, record=record, in_time=Bitmap((1 << in_time) - 1))
    assert round.is_key_standstill is is_it


def test_where_nobody_was_drawn_nothing_stands_still() -> None:
    round = settled()
    round = replace(round, record=replace(round.record, drawn=NO_BITS), in_time=NO_BITS)
    assert not round.is_key_standstill


def test_who_lacks_an_available_seat_need_not_sign() -> None:
    round = settled()
    record = replace(round.record, available=Bitmap(0b0111), committee=Bitmap(0b1111))
    votes = {0: 0b0111, 1: 0b1111, 2: 0b1011, 3: 0b0111}
    given = {SlotIndex(slot): Bitmap(has) for slot, has in votes.items()}
    round = replace(round, record=record, votes=given, signers=Bitmap(0b0001))
    assert round.unsigned == 0b1010
    assert replace(round, digest=ZERO_DIGEST).unsigned == NO_BITS
    assert replace(round, struck_by=address("striker")).unsigned == NO_BITS


def test_short_seats_of_a_round_that_merged_have_earned() -> None:
    round = replace(settled(), short=Bitmap(0b10))
    assert round.verdict.merged > 0
    assert round.unearned == NO_BITS
    nothing = replace(round, verdict=replace(round.verdict, merged=0))
    assert nothing.unearned == 0b10


def test_a_merges_record_is_the_rounds() -> None:
    round = replace(settled(), slashed=Bitmap(0b01), accused=Bitmap(0b10))
    record = round.merge_record
    assert (record.slashed, record.accused) == (0b01, 0b10)
    members = round.record.committee.bit_count()
    assert (record.committee, list(record.votes)) == (members, [*round.votes.values()])
    assert record.revealed == round.record.revealed
    assert dict(record.segments) == {s: r.segments for s, r in round.reveals.items()}
