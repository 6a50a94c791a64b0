"""A committee whose two thirds name a model that follows from nothing: nobody trains on it."""

from __future__ import annotations

import pytest
from tests.network.members import Site, Who, network

from atoll.protocol.types import NO_ROUND, JobStatus, Phase
from atoll.protocol.views import JobView


async def test_providers_say_that_their_merge_is_another_and_leave_without_a_missed_duty(
    site: Site,
) -> None:
    who = Who(verifiers=dict.fromkeys(range(3), "wrong-merge"))
    async with network(site, who, rounds=2) as running:
        view = await running.until(_is_left)
        log = (running.cluster.providers[0].folder / "log").read_text(encoding="utf-8")
    (settled_round,) = view.settled
    assert settled_round.verdict.merged == 4
    assert view.round == 1
    assert all(not holder.penalties for holder in view.providers.values())
    # Each of them had the same other model, and committed to nothing from the certified one.
    assert f"its certificate says {settled_round.verdict.state.hex()[:16]}" in log
    assert "disagree.v1" in log
    assert "commit.v1:1" not in log
    # And somebody showed that the certified state is not the statement's, which ended the job.
    assert settled_round.struck_by is not None
    assert settled_round.signers == 0
    assert view.status is JobStatus.CANCELLED


@pytest.mark.parametrize(("cheat", "merged"), [("wrong-gram", 3), ("wrong-leaf", 4)])
async def test_what_no_strike_shows_nobody_trains_on(site: Site, cheat: str, merged: int) -> None:
    who = Who(verifiers=dict.fromkeys(range(3), cheat), watchers=("",))
    async with network(site, who, rounds=2) as running:
        view = await running.until(_is_deserted)
        log = (running.cluster.providers[0].folder / "log").read_text(encoding="utf-8")
    (settled_round,) = view.settled
    assert settled_round.verdict.merged == merged  # the longest update is excluded
    assert settled_round.struck_by is None
    assert all(not holder.penalties for holder in view.providers.values())
    assert f"its certificate says {settled_round.verdict.state.hex()[:16]}" in log
    assert "commit.v1:1" not in log


def _is_deserted(view: JobView, now: int) -> bool:
    return bool(view.settled) and all(holder.to != NO_ROUND for holder in view.providers.values())


def _is_left(view: JobView, now: int) -> bool:
    has_left = all(holder.to != NO_ROUND for holder in view.providers.values())
    return bool(view.settled) and has_left and view.phase is Phase.CLOSED
