"""Seats that do a part of every second round, so that too few are left to be merged."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import Who, is_settled_up, kinds, network, slashed

from atoll.protocol.types import MissedDuty

HONEST = 3


async def test_half_of_every_second_round_pays_nobody(tmp_path: Path) -> None:
    """Three of four do one segment of four in rounds 0 and 2: these merge nothing, and pay whoever
    was whole alone. The second is a missed duty, and the submitter has the others' price back."""
    who = Who(providers=dict.fromkeys(range(HONEST), "alternate"))
    async with network(tmp_path, who, rounds=3, f=1) as running:
        view = await running.until(is_settled_up)
        *halves, honest = (running.provider(seat) for seat in range(4))
        auditors = [running.verifier(slot) for slot in range(3)]
        terms = running.manifest.terms
        paid = {seat: running.paid(seat) for seat in (*halves, honest)}

    assert [settled_round.verdict.merged for settled_round in view.settled] == [0, 4, 0]
    assert [settled_round.pay for settled_round in view.settled] == [0b1000, 0b1111, 0b1000]
    a_round = terms.segments * terms.segment_pay
    assert paid == {**dict.fromkeys(halves, a_round), honest: 3 * a_round}
    assert not slashed(view)
    assert [kinds(seat) for seat in halves] == [{MissedDuty.SEAT}] * 3
    for holder in (honest, *auditors):
        assert not holder.penalties
    # Nothing of the escrow is burnt, and six rounds of a seat are the submitter's.
    assert view.burnt == 0
    assert view.funded - sum(view.paid.values()) >= 6 * a_round
