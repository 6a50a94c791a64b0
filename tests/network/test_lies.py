"""Lies of all kinds in one network: who lied loses, by time-out or by proof, and nobody else."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import Who, fallen, is_settled_up, network

from atoll.law.games.machine import Outcome
from atoll.law.pay import round_pay
from atoll.law.words import Miss


async def test_liars_fall_and_who_is_accused_falsely_is_paid(tmp_path: Path) -> None:
    """Two seats lie, one with nothing to say for it and one that plays its own run to the end; and
    of two auditors one accuses an honest seat."""
    who = Who(
        providers={0: "hollow", 1: "poison-segment"}, verifiers={1: "false-differs"}, places=2
    )
    async with network(tmp_path, who) as running:
        view = await running.until(is_settled_up, 800)
        hollow, poisoner, accused, bystander = (running.provider(seat) for seat in range(4))
        auditor, accuser = (running.verifier(place) for place in range(2))
        paid = {h.account: running.paid(h) for h in (accused, bystander, auditor)}

    assert fallen(view) == {hollow.account, poisoner.account}
    assert not any(holder.cuts for holder in (accused, bystander, auditor))
    (past,) = view.settled
    lost = [game for game in view.games.values() if game.outcome is Outcome.HOLDER_FELL]
    games = {game.claim.seat: game for game in lost}
    assert set(games) == {0, 1}
    assert games[0].claim.segment == 1  # the first that was invented
    assert games[0].decided is Outcome.NONE  # nobody moved for it
    assert games[1].decided is Outcome.HOLDER_FELL  # the contract ran the operation
    (false,) = (game for game in view.games.values() if game.claim.seat == 2)
    assert (false.challenger, false.outcome) == (accuser.account, Outcome.CHALLENGER_FELL)
    assert paid[accused.account] >= round_pay(running.manifest.terms, past, accused)
    assert paid[auditor.account] > 0
    assert Miss.AUDIT not in {kind for _, kind in auditor.cuts}
