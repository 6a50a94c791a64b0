"""When a run has ended: not before the last payment that can still be made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from tests.unit.law.factories import JOB, ScriptedJob, make_manifest

from atoll.law import events as ev
from atoll.law.words import JobStatus
from atoll_devnet.report.observer import Observer
from atoll_devnet.run.runner import is_over


def is_over_after(job: ScriptedJob) -> bool:
    now = asyncio.get_running_loop().time()
    return is_over(cast(Observer, SimpleNamespace(view=job.view, quiet_since=now)))


async def test_a_run_ends_once_every_round_is_final_and_claimed() -> None:
    job = ScriptedJob(make_manifest())
    job.honest_round()
    assert not is_over_after(job)
    job.close(JobStatus.EXPIRED, "Expired")
    assert not is_over_after(job)  # the round's pay is not final, so that nobody can claim it yet
    job.finalise()
    for account, amount in job.view.final_claims.items():
        assert not is_over_after(job)
        job.emit(ev.Claimed(JOB, account, amount, amount))
    assert is_over_after(job)
