"""What a service holds: each job's blocks come from that job's gateways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.law.factories import DOMAIN, JOB, JOBS, ScriptedJob, address, make_manifest

from atoll.chain.mirror import Mirror
from atoll.content import Fetcher, LocalStore
from atoll.law.words import JobId
from atoll.service.context import Context


async def test_a_job_s_blocks_are_asked_of_that_job_s_gateways_only(tmp_path: Path) -> None:
    view = ScriptedJob(make_manifest()).view
    own, submitter, stranger = "http://me:1", address("submitter"), address("a stranger")
    urls = {submitter: "http://paid:1", stranger: "http://free:1", address("me"): own}
    mirror = Mirror(DOMAIN, JOBS, None)
    mirror.views = {
        JOB: replace(view, submitter=submitter, gateways=urls),
        JobId(99): replace(view, submitter=stranger, gateways=urls),
        JobId(100): replace(view, submitter=address("me"), gateways=urls),
    }
    async with Fetcher(LocalStore(tmp_path), tuple) as fetcher:
        nothing = cast(Any, None)
        context = Context(
            config=cast(Any, SimpleNamespace(gateway=SimpleNamespace(public_url=own))),
            me=address("me"), chain=nothing, queue=nothing, index=nothing, mirror=mirror,
            storage=cast(Any, SimpleNamespace(fetcher=fetcher)), gateway=nothing, worker=nothing,
            journal=nothing,
        )  # fmt: skip
        asked = {
            job: list(context.fetcher_of(job)._gateways()) for job in (*mirror.views, JobId(1))
        }
    assert asked == {
        JOB: ["http://paid:1"], JobId(99): ["http://free:1"], JobId(100): [], JobId(1): []
    }  # fmt: skip
