"""Lies of all kinds in one job: who lied loses, and nobody else.

What each of them sends is trained and replayed in `tests/unit/devnet/test_cheat_updates.py`; a
network of processes has one of each way in which a lie is found (`tests/network/test_lies.py`).
"""

from __future__ import annotations

import pytest
from tests.property.schedules.test_members import earned, everybody, holders, kinds, paid, played
from tests.support.manifests import make_terms
from tests.support.schedules import Cast, World

from atoll.protocol.types import MissedDuty

LIARS = {
    0: "hollow",
    1: "poison-segment",
    4: "wrong-data",
    5: "omniscient",
    6: "forged-moments",
    7: "nan-moments",
    8: "garbage-shapes",
    9: "garbage",
    10: "sign-flip",
    11: "scale",
    12: "noise",
    13: "forged-second-moments",
}
QUIET = {14: "withhold", 15: "no-reveal"}
HONEST = (2, 3)
SEATS = len(HONEST) + len(LIARS | QUIET)
UNAVAILABLE = {7, 8, 9, *QUIET}
"""Bytes that are no update, and those that nobody serves or names."""
OF_UPDATES = set(range(5, 14))
"""Who lies in what it sends of its training, and not in the training."""
AUDITORS = 8


@pytest.mark.parametrize("seed", range(3))
def test_liars_are_slashed_where_they_lied_and_nobody_else_loses(seed: int) -> None:
    terms = make_terms(rounds=1, seats=SEATS, min_providers=SEATS, slots=AUDITORS, min_verifiers=8)
    world = World(Cast(LIARS | QUIET), terms, seed=seed)
    view = played(world)
    seats, auditors = world.members[:SEATS], world.members[SEATS:]
    (settled_round,) = view.settled
    slashed = {holder.account for holder in everybody(view) if holder.is_slashed}
    assert slashed == {seats[seat].account for seat in LIARS}
    assert not any(settled_round.record.available >> seat & 1 for seat in UNAVAILABLE)
    assert kinds(holders(view, seats[15])) == {MissedDuty.SEAT}
    # What was not available is not paid to whoever did the work, either.
    assert all(paid(world, seats[seat]) == 0 for seat in (*LIARS, *QUIET))
    at = {seat: segment for (_, seat), segment in world.lost.items()}
    assert set(at) == set(LIARS)
    assert (at[0], at[1], at[4]) == (1, 0, 0)  # the first that was invented, planted, not drawn
    assert {seat for seat, segment in at.items() if segment == terms.segments} == OF_UPDATES
    for member in (*(seats[seat] for seat in HONEST), *auditors, seats[14]):
        assert not kinds(holders(view, member))
    for seat in HONEST:
        assert paid(world, seats[seat]) == earned(world, seats[seat]) > 0
    assert all(paid(world, auditor) > 0 for auditor in auditors)
