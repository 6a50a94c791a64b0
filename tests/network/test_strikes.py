"""Every verifier certifies a wrong merge together, and somebody else strikes it."""

from __future__ import annotations

import pytest
from tests.network.members import Site, Who, network

from atoll.protocol.types import JobStatus, MissedDuty, Phase
from atoll.protocol.views import JobView


@pytest.mark.parametrize("cheat", ["wrong-coordinate", "wrong-exponent", "dropped"])
async def test_all_verifiers_lie_and_one_outsider_strikes(site: Site, cheat: str) -> None:
    who = Who(verifiers=dict.fromkeys(range(3), cheat), watchers=("",))
    async with network(site, who, rounds=2) as running:
        view = await running.until(_is_struck)
    struck = view.settled[0]
    liars = list(view.verifiers.values())
    # Two of three settle; who signs later than the strike signs nothing.
    missed = [(0, MissedDuty.MISMERGED) in holder.penalties for holder in liars]
    assert sum(missed) == struck.struck_signers.bit_count() >= 2
    assert struck.signers == 0  # nobody is paid for it
    assert struck.struck_by not in {holder.account for holder in liars}
    # Nobody else lost anything, and every seat keeps its pay.
    assert not any(holder.penalties or holder.is_slashed for holder in view.providers.values())
    assert struck.pay == struck.record.available
    assert view.status is JobStatus.CANCELLED


def _is_struck(view: JobView, now: int) -> bool:
    is_struck = bool(view.settled) and view.settled[0].struck_by is not None
    return is_struck and view.phase is Phase.CLOSED
