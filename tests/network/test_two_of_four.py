"""Seats that send -5 times their update and serve it in odd ways: one, and two where f is one."""

from __future__ import annotations

import pytest
from tests.network.members import Site, Who, is_settled_up, network, slashed

from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.pay import round_pay
from atoll.protocol.safety import last_safe, unsafe_rounds

WITHIN = 0.02


SHAMMED = "half-served"
"""Where beside the one such seat an outsider makes false challenges."""


@pytest.mark.parametrize("serves", ["stall", "drip", "half-served"])
@pytest.mark.parametrize("seats", [(0, 2), (1,)])
async def test_flips_are_slashed_and_the_job_says_what_it_is_worth(
    site: Site, serves: str, seats: tuple[int, ...]
) -> None:
    """What they serve, and how fast, decides whether it is merged, and nothing else."""
    watchers = ("sham",) if len(seats) == 1 and serves == SHAMMED else ()
    who = Who(dict.fromkeys(seats, f"{serves}+flip5"), watchers=watchers, slots=2)
    async with network(site, who) as running:
        view = await running.until(is_settled_up)
        certified, honest = await running.losses()
        holders = [running.provider(seat) for seat in range(4)]
        auditors = [running.verifier(slot) for slot in range(2)]
        outsiders = {member.account for member in running.cluster.watchers}
        (settled_round,), terms = view.settled, running.manifest.terms

    assert slashed(view) == {holders[seat].account for seat in seats}
    for holder in (*holders, *auditors):
        if holder.index in seats and holder in holders:
            assert running.paid(holder) == 0
        else:
            assert not holder.penalties
            assert running.paid(holder) >= round_pay(terms, settled_round, holder) > 0
    shams = [game for game in view.games.values() if game.challenger in outsiders]
    # Of honest seats and of the auditors who said that they are valid; it loses all of them.
    against_honest = [game for game in shams if game.claim.seat not in seats]
    accused = set(range(4)) - set(seats) if outsiders else set()
    assert {game.claim.seat for game in against_honest} == accused
    assert all(game.outcome is Outcome.CHALLENGER_LOST for game in against_honest)
    weighed = (
        settled_round.record.available & ~settled_round.verdict.excluded
        if settled_round.verdict.merged
        else 0
    )
    if sum(weighed >> seat & 1 for seat in seats) > terms.f:
        assert unsafe_rounds(view) == (0,)
        assert last_safe(view).before == 0
    else:
        assert unsafe_rounds(view) == ()
        assert last_safe(view).digest == settled_round.verdict.state
    if weighed and not unsafe_rounds(view):
        assert certified == pytest.approx(honest, rel=WITHIN)
    assert weighed or len(seats) > terms.f  # too few are left to merge only beyond the bound
