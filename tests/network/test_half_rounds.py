"""Seats that do a part of every second round, so that too few are left to be merged."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import Who, fallen, is_settled_up, kinds, network

from atoll.protocol.words import Miss

HONEST = 3


async def test_half_of_every_second_round_pays_nobody(tmp_path: Path) -> None:
    """Three of four do one segment of four in rounds 0 and 2: these merge nothing, and pay whoever
    was whole alone. The second is a miss, and the submitter has the others' price back."""
    who = Who(providers=dict.fromkeys(range(HONEST), "alternate"))
    async with network(tmp_path, who, rounds=3, f=1) as running:
        view = await running.until(is_settled_up)
        *halves, honest = (running.provider(seat) for seat in range(4))
        auditors = [running.verifier(place) for place in range(3)]
        terms = running.manifest.terms
        paid = {seat: running.paid(seat) for seat in (*halves, honest)}

    assert [past.verdict.merged for past in view.settled] == [0, 4, 0]
    assert [past.pay for past in view.settled] == [0b1000, 0b1111, 0b1000]
    a_round = terms.segments * terms.segment_pay
    assert paid == {**dict.fromkeys(halves, a_round), honest: 3 * a_round}
    assert not fallen(view)
    assert [kinds(seat) for seat in halves] == [{Miss.SEAT}] * 3
    for holder in (honest, *auditors):
        assert not holder.cuts
    # Nothing of the escrow is burnt, and six rounds of a seat are the submitter's.
    assert view.burnt == 0
    assert view.funded - sum(view.paid.values()) >= 6 * a_round
