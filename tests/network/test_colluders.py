"""Every verifier colludes with two cheats: an outsider with a bond has both slashed."""

from __future__ import annotations

import pytest
from tests.network.members import Site, Who, is_settled_up, network, slashed

from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.pay import round_pay
from atoll.protocol.safety import last_safe, unsafe_rounds
from atoll.protocol.types import MissedDuty


async def test_one_watcher_is_enough_and_a_valid_entry_without_a_replay_earns_nothing(
    site: Site,
) -> None:
    """One cheat lies in its update proof, one in the words that its auditors are paid for; one
    auditor covers for them, the other has never run a step."""
    who = Who(
        providers={0: "stall+flip5", 1: "wrong-work-tags"},
        verifiers={0: "false-valid", 1: "null"},
        watchers=("",),
        slots=2,
    )
    async with network(site, who) as running:
        view = await running.until(is_settled_up)
        flipper, masker, *honest = (running.provider(seat) for seat in range(4))
        covering, idle = (running.verifier(slot) for slot in range(2))
        certified, honest_loss = await running.losses()
        (watcher,) = running.cluster.watchers
        (settled_round,), terms = view.settled, running.manifest.terms

    assert slashed(view) == {flipper.account, masker.account}
    assert all(
        entry.is_valid for body in settled_round.opened_reports.values() for entry in body.entries
    )
    lost = {g.claim.seat: g for g in view.games.values() if g.outcome is Outcome.HOLDER_LOST}
    assert set(lost) == {0, 1}
    assert (lost[0].challenger, lost[0].claim.is_update_proof) == (watcher.account, True)
    assert lost[1].challenger == watcher.account
    assert any(lost[1].claim.work_tag)  # what the key gave, which no run of the steps does
    assert not any(game.outcome is Outcome.CHALLENGER_LOST for game in view.games.values())
    for holder in honest:
        assert not holder.penalties
        assert running.paid(holder) >= round_pay(terms, settled_round, holder) > 0
    # Of a seat that was slashed a valid word earns nothing, and no guess does of the others; nobody
    # has anything of showing it, be it the same one.
    assert running.paid(idle) == terms.sign_fee  # each has every other seat
    assert (settled_round.round, MissedDuty.DIGEST) in idle.penalties
    assert not covering.penalties
    assert running.paid(covering) >= terms.sign_fee + terms.duty_fee
    assert certified == pytest.approx(honest_loss, rel=0.02)
    assert settled_round.verdict.merged == 3  # what is stalled is nobody's to merge
    assert unsafe_rounds(view) == ()
    assert last_safe(view).digest == settled_round.verdict.state
