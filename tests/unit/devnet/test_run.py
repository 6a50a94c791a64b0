"""When a run has ended: not before the last payment that can still be made. And being stuck."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from tests.support.manifests import make_terms
from tests.unit.protocol.script import Script

from atoll.protocol.types import Role
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.runner import GIVE_UP_SECONDS, QUIET_SECONDS, is_over, is_stuck


def watching(job: Script, quiet: float = 0.0) -> Observer:
    """Somebody who sees the job, and saw its last event so many seconds ago."""
    since = asyncio.get_running_loop().time() - quiet
    seen = SimpleNamespace(view=job.net.view, now=job.net.now, quiet_since=since)
    return cast(Observer, seen)


async def test_a_run_ends_once_every_window_is_over_and_all_is_claimed_and_released() -> None:
    job = Script.ready(make_terms(rounds=1))
    job.honest_round()
    job.audit(0)
    assert not is_over(watching(job, QUIET_SECONDS + 1))  # the window is open
    job.net.wait_until(job.net.settled[0].ends["window"])
    assert not is_over(watching(job))
    for role, id in job.net.members:
        assert not is_over(watching(job))
        job.net.claim(role, id, 1)
        job.net.release(role, id)
    assert is_over(watching(job))


async def test_who_is_gone_is_not_waited_for_for_ever() -> None:
    job = Script.ready(make_terms(rounds=1))
    job.honest_round()
    job.audit(0)
    job.net.wait_until(job.net.settled[0].ends["window"])
    assert not is_over(watching(job, QUIET_SECONDS / 2))
    assert is_over(watching(job, QUIET_SECONDS + 1))


async def test_a_job_is_stuck_once_it_waits_and_no_window_could_bring_a_member_back() -> None:
    job = Script.ready(make_terms(rounds=2))
    assert not is_stuck(watching(job, GIVE_UP_SECONDS + 1))  # it has not begun
    job.train()
    job.say()
    for seat in range(4):
        job.net.leave_seat(job.account(seat))
    job.net.wait(1)
    job.settle()
    assert not is_stuck(watching(job, GIVE_UP_SECONDS + 1))
    job.net.wait_until(job.net.settled[0].ends["window"])
    assert not is_stuck(watching(job))
    assert is_stuck(watching(job, GIVE_UP_SECONDS + 1))
    assert job.net.member(Role.PROVIDER, 1).to == 1
