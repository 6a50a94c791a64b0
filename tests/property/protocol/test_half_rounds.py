"""Short and whole rounds in any order: what a bucket says, and that no order of them pays.

The network is `tests/support/contracts/`, written from the text and without the law's
functions; the bucket of this file is a third one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import make_terms
from tests.unit.protocol.script import Script

from atoll.protocol import missed_duties, pay
from atoll.protocol.holders import Holder
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import NO_ROUND, Phase, RoundIndex, SeatIndex

ROUNDS, SEATS, WHOLE, PART = 9, 4, 8, 3
FULL = 3
FIRST_PENALTY_BPS = 100


def levels(rounds: Sequence[bool]) -> Iterator[int]:
    """A bucket's level behind each round, short or not, up to its missed duty."""
    level = 0
    for is_short in rounds:
        level = level + 2 if is_short else max(0, level - 1)
        yield level
        if level >= FULL:
            return


def played(script: Script, schedule: Sequence[Sequence[bool]]) -> Script:
    """Each round of the schedule, as far as the job goes on; a True is a seat that is short."""
    net = script.net
    net.advance()
    for row in schedule:
        if net.phase is not Phase.TRAIN:
            break
        done = {seat: PART if row[seat] else WHOLE for seat in net.seated}
        whole = sum(m == WHOLE for m in done.values())
        script.train(done)
        script.say()
        net.wait(1)
        script.settle(merged=whole if whole > 2 * net.terms.f else 0)
    return script


def income(script: Script, holder: Holder) -> int:
    """What the law pays a provider of all its rounds."""
    end = min(holder.to, len(script.net.view.settled))
    settled_round = script.net.view.settled[holder.start : end]
    return sum(pay.round_pay(script.net.terms, each, holder) for each in settled_round)


SCHEDULES = st.lists(
    st.lists(st.booleans(), min_size=SEATS, max_size=SEATS), min_size=1, max_size=ROUNDS
)


@given(schedule=SCHEDULES, f=st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_no_schedule_gains_by_short_rounds(schedule: list[list[bool]], f: int) -> None:
    script = played(Script.ready(make_terms(rounds=ROUNDS + 1, f=f, min_providers=1)), schedule)
    net, view = script.net, script.net.view
    price = net.terms.segment_pay
    for holder in view.providers.values():
        seat = SeatIndex(holder.index)
        rounds = [
            settled_round
            for settled_round in view.settled
            if settled_round.seats.get(seat) == holder.id
        ]
        done = sum(settled_round.reveals[seat].segments for settled_round in rounds)
        merged = [settled_round.verdict.merged > 0 for settled_round in rounds]
        shorts = [settled_round.reveals[seat].segments == PART for settled_round in rounds]
        lost = sum(PART for a, b in zip(shorts, merged, strict=True) if a and not b)
        assert income(script, holder) == (done - lost) * price
        found = list(levels(shorts))
        assert len(found) == len(rounds)
        assert (holder.missed != NO_ROUND) == (found[-1] >= FULL)
    check_escrow(script, view.settled)


def check_escrow(script: Script, settled: Sequence[SettledRound]) -> None:
    """All that is not paid or burnt of these rounds is the submitter's now."""
    net = script.net
    for settled_round in settled:
        earning = [
            told.segments
            for s, told in settled_round.reveals.items()
            if not settled_round.unearned >> s & 1
        ]
        paid = sum(pay.seat_pay(net.terms, settled_round, s) for s in settled_round.reveals)
        assert sum(earning) * net.terms.segment_pay == paid + pay.unpaid(net.terms, settled_round)
        fees = pay.may_earn(net.terms, settled_round) - paid - pay.unpaid(net.terms, settled_round)
        duties = settled_round.record.drawn.bit_count() * net.terms.duty_fee
        assert fees == settled_round.record.committee.bit_count() * net.terms.sign_fee + duties


def test_two_short_rounds_of_any_three_are_a_missed_duty_and_nothing_else_is() -> None:
    """A bucket, and what the text says of it in words."""
    for rounds in product((False, True), repeat=ROUNDS):
        close = [
            i for i, is_short in enumerate(rounds) if is_short and any(rounds[max(0, i - 2) : i])
        ]
        found = list(levels(rounds))
        full = [i for i, level in enumerate(found) if level >= FULL]
        assert full == close[:1]


def test_whoever_is_never_penalised_is_whole_in_two_rounds_of_three() -> None:
    """So is every schedule without a missed duty, and the law has the same of any seat."""
    kept = [r for r in product((False, True), repeat=6) if all(n < FULL for n in levels(r))]
    assert max(map(sum, kept)) == 2
    for rounds in kept:
        script = played(
            Script.ready(make_terms(rounds=ROUNDS, f=0, min_providers=1)),
            [[is_short, False, False, False] for is_short in rounds],
        )
        assert not script.net.owing
        assert len(script.net.view.settled) == len(rounds)


def test_all_seats_in_one_hand_stop_two_rounds_of_three_at_the_most() -> None:
    """Where nobody is ever penalised; each round that they stop costs them the pay of who was
    short."""
    # So many groups of seats can take turns, each large enough to leave too few by itself.
    assert {n // (n - 2 * f) for n in range(1, 257) for f in range((n + 2) // 3)} == {1, 2}
    for f, turns in ((0, 1), (1, 2)):
        needed = SEATS - 2 * f
        turn = [[seat // needed == r % 3 for seat in range(SEATS)] for r in range(6)]
        script = Script.ready(make_terms(rounds=ROUNDS, f=f, min_providers=1))
        net = played(script, turn).net
        stopped = [not settled_round.verdict.merged for settled_round in net.view.settled]
        assert (len(stopped), sum(stopped), net.owing) == (6, 2 * turns, {})
        whole = net.terms.segment_pay * WHOLE
        for holder in net.view.providers.values():  # one that stops a round of three
            assert income(script, holder) == (4 if f or holder.index < needed else 6) * whole


def test_coming_back_after_each_missed_duty_costs_more_each_time() -> None:
    """An account that fills its bucket, joins again and fills it again."""
    bond, record, start, penalties = 1_000_000, missed_duties.MissRecord(), 0, list[int]()
    for _ in range(6):
        round = RoundIndex(start + 1)  # short in both of its first rounds
        penalties.append(record.charge(round, bond, FIRST_PENALTY_BPS))
        record, start = record.missed(round), round + 1
    assert penalties == sorted(penalties)
    assert penalties[0] == bond // 100
