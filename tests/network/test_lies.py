"""A lie of each way in one network: who lied loses, by time-out or by proof, and nobody else.

Every other lie goes one of these ways: `tests/property/schedules/test_lies.py` has all of them.
"""

from __future__ import annotations

from tests.network.members import Site, Who, is_settled_up, kinds, network, slashed

from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.pay import round_pay
from atoll.protocol.types import MissedDuty

LIARS = {0: "hollow", 1: "poison-segment", 4: "sign-flip", 5: "garbage"}
"""One of each way: nobody moves for it, it plays its own run, its update is another, or is none."""
QUIET = {6: "withhold", 7: "no-reveal"}
SEATS = 2 + len(LIARS | QUIET)
UNAVAILABLE = {5, *QUIET}
"""Bytes that are no update, and those that nobody serves or names."""
OF_UPDATE_PROOFS = {4, 5}
"""Who lies in what it sends of its training, and not in the training."""


async def test_liars_are_slashed_and_who_is_accused_falsely_is_paid(site: Site) -> None:
    """Seats lie about their training, about what they send of it, and in what they send; one plays
    its own run to the end. Two more keep their work to themselves, which is no lie. Of two auditors
    one accuses an honest seat and falls: an outsider has slashed whom it was drawn to audit."""
    who = Who(
        providers=LIARS | QUIET,
        verifiers={1: "false-mismatch"},
        watchers=("",),
        seats=SEATS,
        slots=2,
    )
    async with network(site, who, seats=SEATS, min_providers=SEATS) as running:
        view = await running.until(is_settled_up)
        seats = [running.provider(seat) for seat in range(SEATS)]
        auditor, accuser = (running.verifier(slot) for slot in range(2))
        paid = {holder.account: running.paid(holder) for holder in (*seats, auditor)}

    accused, bystander = seats[2:4]
    assert slashed(view) == {seats[seat].account for seat in LIARS}
    assert not any(holder.penalties for holder in (accused, bystander, auditor, seats[6]))
    assert kinds(seats[7]) == {MissedDuty.SEAT}
    (settled_round,) = view.settled
    assert not any(settled_round.record.available >> seat & 1 for seat in UNAVAILABLE)
    # What was not available is not paid to whoever did the work, either.
    assert all(paid[seats[seat].account] == 0 for seat in (*LIARS, *QUIET))
    lost = [game for game in view.games.values() if game.outcome is Outcome.HOLDER_LOST]
    games = {game.claim.seat: game for game in lost}
    assert set(games) == set(LIARS)
    assert games[0].claim.segment == 1  # the first that was invented
    assert games[0].decided is Outcome.NONE  # nobody moved for it
    assert games[1].decided is Outcome.HOLDER_LOST  # the contract ran the operation
    assert {seat for seat, game in games.items() if game.claim.is_update_proof} == OF_UPDATE_PROOFS
    (false,) = (game for game in view.games.values() if game.claim.seat == 2)
    assert (false.challenger, false.outcome) == (accuser.account, Outcome.CHALLENGER_LOST)
    assert paid[accused.account] >= round_pay(running.manifest.terms, settled_round, accused)
    assert paid[auditor.account] > 0
    assert MissedDuty.AUDIT not in {kind for _, kind in auditor.penalties}
