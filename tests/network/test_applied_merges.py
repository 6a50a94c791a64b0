"""Providers that apply what the committee merged: they train on it, and on nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.network.members import Network, Site, Who, everybody, is_settled_up, network

from atoll.protocol.types import NO_ROUND, Phase
from atoll.protocol.views import JobView
from atoll_devnet.processes.cluster import Cluster


@asynccontextmanager
async def everybody_applies(cluster: Cluster) -> AsyncIterator[None]:
    """Of a small job each member would merge by itself."""
    for member in cluster.providers:
        path = member.folder / "config.toml"
        path.write_text(f'merge = "apply"\n{path.read_text("utf-8")}', "utf-8")
    yield


async def test_two_rounds_are_trained_from_what_the_committee_merged(site: Site) -> None:
    async with network(site, Who(), before=everybody_applies, rounds=2) as running:
        view = await running.until(is_settled_up)
        logs = logs_of(running)
    assert [settled_round.verdict.merged for settled_round in view.settled] == [4, 4]
    assert all(any(settled_round.verdict.statement) for settled_round in view.settled)
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
    for log in logs:
        assert "apply-merge.v1:0" in log
        assert not re.search(r"(?<!apply-)merge\.v1:0", log)
        assert "fetch-update.v1" not in log
        assert "merge_not_applied" not in log


async def test_a_merge_that_follows_from_nothing_is_not_applied(site: Site) -> None:
    who = Who(verifiers=dict.fromkeys(range(3), "wrong-merge"))
    async with network(site, who, before=everybody_applies, rounds=2) as running:
        view = await running.until(_is_left)
        logs = logs_of(running)
    (settled_round,) = view.settled
    assert all(not holder.penalties for holder in view.providers.values())
    for log in logs:
        assert "merge_not_applied" in log  # and then each has merged by itself
        assert f"its certificate says {settled_round.verdict.state.hex()[:16]}" in log
        assert "commit.v1:1" not in log


def logs_of(running: Network) -> list[str]:
    members = running.cluster.providers
    return [(member.folder / "log").read_text(encoding="utf-8") for member in members]


def _is_left(view: JobView, now: int) -> bool:
    has_left = all(holder.to != NO_ROUND for holder in view.providers.values())
    return bool(view.settled) and has_left and view.phase is Phase.CLOSED
