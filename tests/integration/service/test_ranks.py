"""A worker of several ranks, as a service has it."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.service import rank_tasks

from atoll.service.processes import started_at
from atoll.service.worker import Worker


async def test_a_worker_s_ranks_end_with_it() -> None:
    worker = Worker(devices=("cpu",) * 3)
    try:
        is_same, followers = await worker.run(rank_tasks.SHARED())
        assert is_same
        assert len(followers) == 2
        assert all(map(started_at, followers))
    finally:
        worker.kill()
    for _ in range(600):
        if not any(map(started_at, followers)):
            return
        await asyncio.sleep(0.1)
    pytest.fail("ranks outlive their worker")
