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
HONEST = {2, 3}
"""The seed says which of the two auditors has which of them."""


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

    (settled_round,) = view.settled
    # The first of the seats that the accuser was drawn to audit and finds honest.
    target = next(seat for seat in settled_round.duties_of(accuser.id) if seat in HONEST)
    accused = seats[target]
    assert slashed(view) == {seats[seat].account for seat in LIARS}
    unblamed = (*(seats[seat] for seat in HONEST), auditor, seats[6])
    assert not any(holder.penalties for holder in unblamed)
    assert kinds(seats[7]) == {MissedDuty.SEAT}
    assert not any(settled_round.record.available >> seat & 1 for seat in UNAVAILABLE)
    # What was not available is not paid to whoever did the work, either.
    assert all(paid[seats[seat].account] == 0 for seat in (*LIARS, *QUIET))
    # Whoever replays a liar disputes it, an auditor beside the watcher: a seat may lose two games.
    lost = [game for game in view.games.values() if game.outcome is Outcome.HOLDER_LOST]
    assert {(game.claim.seat, game.claim.is_update_proof) for game in lost} == {
        (seat, seat in OF_UPDATE_PROOFS) for seat in LIARS
    }
    hollow = [game for game in lost if game.claim.seat == 0]
    assert {game.claim.segment for game in hollow} == {1}  # the first that was invented
    assert {game.decided for game in hollow} == {Outcome.NONE}  # nobody moved for it
    # The contract ran the operation.
    assert Outcome.HOLDER_LOST in {game.decided for game in lost if game.claim.seat == 1}
    (false,) = (game for game in view.games.values() if game.claim.seat not in LIARS)
    assert (false.claim.seat, false.challenger) == (target, accuser.account)
    assert false.outcome is Outcome.CHALLENGER_LOST
    assert paid[accused.account] >= round_pay(running.manifest.terms, settled_round, accused)
    assert paid[auditor.account] > 0
    assert MissedDuty.AUDIT not in {kind for _, kind in auditor.penalties}
