"""Committees that do not sign: what was had is paid when the job expires, whoever they are."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import Who, fallen, is_settled_up, kinds, network

from atoll.protocol.pay import round_pay
from atoll.protocol.words import ZERO_DIGEST, JobStatus, Miss

LASTS = 600
"""Seconds of the chain's clock, in which all members come and the first round trains."""
COMMITTEE_DRAW = 300
"""Of which few end before the expiry."""


async def test_a_submitter_that_is_all_verifiers_neither_slashes_nor_withholds(
    tmp_path: Path,
) -> None:
    """They say what they have, sign nothing, and accuse honest seats without playing it."""
    who = Who(verifiers=dict.fromkeys(range(3), "no-sign+false-differs+no-challenge"))
    async with network(
        tmp_path, who, lasts=LASTS, rounds=2, merge_seconds=COMMITTEE_DRAW
    ) as running:
        view = await running.until(is_settled_up)
        seats = [running.provider(seat) for seat in range(4)]
        accusers = [running.verifier(place) for place in range(3)]
        paid = {holder: running.paid(holder) for holder in seats}

    (past,) = view.settled
    assert (view.status, past.digest) == (JobStatus.EXPIRED, ZERO_DIGEST)
    assert past.facts.available == past.pay == 0b1111
    assert fallen(view) == set()
    for holder in seats:
        assert not holder.cuts
        assert paid[holder] == round_pay(running.manifest.terms, past, holder) > 0
    false = {id: sum(not duty.is_fine for duty in body.duties) for id, body in past.bodies.items()}
    assert sum(false.values()) > 0
    assert past.dropped == {
        (id, duty.seat)
        for id, body in past.bodies.items()
        for duty in body.duties
        if not duty.is_fine
    }
    for member in accusers:
        assert (Miss.DROPPED in kinds(member)) == bool(false.get(member.id))


async def test_half_of_a_committee_that_does_not_sign_takes_nobodys_pay(tmp_path: Path) -> None:
    """Two of four are more than a third: no committee draw is certified, and the job goes on to its
    end.
    """
    who = Who(verifiers=dict.fromkeys((2, 3), "no-sign"), places=4)
    terms = {"rounds": 2, "places": 4, "min_verifiers": 4, "merge_seconds": COMMITTEE_DRAW}
    async with network(tmp_path, who, lasts=LASTS, **terms) as running:
        view = await running.until(is_settled_up)
        honest = [running.provider(seat) for seat in range(4)]
        honest += [running.verifier(place) for place in range(2)]
        paid = {holder: running.paid(holder) for holder in honest}

    (past,) = view.settled
    assert (view.status, past.digest) == (JobStatus.EXPIRED, ZERO_DIGEST)
    assert past.pay == 0b1111 and not past.signers
    assert fallen(view) == set()
    for holder in honest:
        assert not holder.cuts
        assert paid[holder] == round_pay(running.manifest.terms, past, holder)
    assert all(paid[seat] > 0 for seat in honest[:4])
    # Nobody is paid for a signature on nothing; a replay is paid as ever.
    duties = {holder.id: len(past.duties_of(holder.id)) for holder in honest[4:]}
    for member in honest[4:]:
        assert paid[member] == duties[member.id] * running.manifest.terms.duty_fee
