"""Whoever leaves out what it owes is cut for that, and the others are paid all the same."""

from __future__ import annotations

from pathlib import Path

from tests.network.members import Who, fallen, is_settled_up, kinds, network

from atoll.protocol.pay import round_pay
from atoll.protocol.words import Miss

DROPPING = "no-sign+false-differs+no-challenge"


async def test_every_silence_has_its_price_and_nobody_else_pays_it(tmp_path: Path) -> None:
    """A seat that shows no key, one that does a segment a round; auditors that copy, do not open
    or do not play what they accuse of; members that do not sign, which costs their fee, or say the
    opposite of what they have."""
    who = Who(
        providers={0: "no-key", 1: "partial"},
        verifiers={2: "copier", 3: "no-open", 4: DROPPING, 5: "false-have"},
        places=6,
    )
    async with network(tmp_path, who, rounds=2, places=6, min_verifiers=6) as running:
        view = await running.until(is_settled_up)
        keyless, short, *seats = (running.provider(seat) for seat in range(4))
        *honest, copier, closed, mute, wrong = (running.verifier(place) for place in range(6))
        paid = {holder: running.paid(holder) for holder in (keyless, short, *seats, *honest)}
        terms = running.manifest.terms

    assert fallen(view) == {keyless.account}
    assert paid[keyless] == 0
    for holder in (*seats, *honest):
        assert not holder.cuts
        assert paid[holder] >= sum(round_pay(terms, past, holder) for past in view.settled) > 0
    # One segment of four is paid, and merged in no round; the second one running is a miss.
    assert paid[short] == sum(round_pay(terms, past, short) for past in view.settled)
    assert paid[short] * 4 == paid[seats[0]]
    assert all(past.verdict.merged == 3 for past in view.settled)
    assert kinds(short) == {Miss.SEAT}
    for member in (copier, closed):
        duties = [seat for past in view.settled for seat in past.duties_of(member.id)]
        assert kinds(member) == ({Miss.AUDIT} if duties else set())
    # A signature is paid and not owed.
    assert Miss.SILENCE not in kinds(mute) | kinds(wrong)
    assert not any(past.signers >> mute.index & 1 for past in view.settled)
    bodies = [past.bodies[mute.id] for past in view.settled if mute.id in past.bodies]
    accused = {duty.seat for body in bodies for duty in body.duties if not duty.is_fine}
    # Who is accused and falls for something else makes the accusation moot.
    assert (Miss.DROPPED in kinds(mute)) == bool(accused - {keyless.index})
    # What one member of six says of the seats changes nothing.
    assert all(past.facts.available == 0b1111 for past in view.settled)
