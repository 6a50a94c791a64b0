"""Four providers and three verifiers, each a process, finish two rounds and are paid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.network.members import create, network, open_session, until

from atoll.law.pay import budget
from atoll.law.views import JobView
from atoll.law.words import JobStatus, Phase
from atoll.service.duties.upkeep import is_over


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    node = start_anvil("--block-time", "1")
    yield node
    stop(node)


TERMS = {
    "rounds": 2,
    "train_seconds": 40,
    "reveal_seconds": 15,
    "merge_seconds": 30,
    "audit_seconds": 25,
    "open_seconds": 10,
    "key_seconds": 12,
    "window_seconds": 24,
    "ready_seconds": 120,
    "min_providers": 4,
    "share_bps": 5_000,
    "game_seconds": 12,
}


async def test_a_job_of_two_rounds_is_trained_merged_audited_and_paid(
    anvil: Anvil, tmp_path: Path
) -> None:
    members, config = await network(tmp_path, anvil)
    async with open_session(config) as session:
        try:
            job, manifest = await create(members, session, **TERMS)
            for index in range(1, 8):
                members.start("provider" if index < 5 else "verifier", index)
            settled = await until(session, job, lambda v, _: len(v.settled) == 2, 400)
            _check_rounds(settled)
            view = await until(session, job, _is_paid, 300)
        finally:
            members.stop()
            await members.chain.close()
    assert view.status is JobStatus.DONE
    assert all(past.bodies for past in view.settled)
    assert not any(
        h.cuts or h.has_fallen for h in (*view.providers.values(), *view.verifiers.values())
    )
    assert sum(view.paid.values()) <= budget(manifest.terms)


def _check_rounds(view: JobView) -> None:
    for past in view.settled:
        assert past.facts.revealed == past.facts.available == 0b1111
        assert past.verdict.merged == 4
        assert past.is_consistent


def _is_paid(view: JobView, now: int) -> bool:
    holders = (*view.providers.values(), *view.verifiers.values())
    return view.phase is Phase.CLOSED and is_over(view, now) and all(h.is_released for h in holders)
