"""What a handle says of a job that is not there, and refuses of one that is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.job.trained import TrainedJob
from tests.unit.protocol.script import Script
from typer.testing import CliRunner

from atoll.chain.deployment import Deployment
from atoll.cli.job_reading import watch_app
from atoll.errors import ChainError, ConfigError, ProtocolError
from atoll.job.client import Client
from atoll.job.figures import RoundFigures
from atoll.job.handle import JobHandle
from atoll.job.job_snapshot import JobSnapshot
from atoll.job.job_update import JobUpdate
from atoll.protocol.losses import loss_bytes
from atoll.protocol.round_list import RoundList
from atoll.protocol.types import JobId, JobStatus
from atoll.protocol.views import JobView


class Follower:
    """Of a chain that has the jobs of these views."""

    now = 0

    def __init__(self, **views: JobView) -> None:
        self.views = views

    async def view(self, job: int) -> JobView:
        if str(job) not in self.views:
            raise ChainError(f"the chain has no job {job} yet")
        return self.views[str(job)]

    newest = view

    async def updates(self, job: int) -> list[JobUpdate]:
        assert str(job) in self.views, "it would be waited for"
        return []


def handle_of(job: int, follower: Follower) -> JobHandle:
    client = SimpleNamespace(follower=follower)
    return JobHandle(cast(Client, client), JobId(job))


async def test_the_log_of_a_job_or_a_seat_that_is_not_there_is_an_error() -> None:
    view = Script.ready().net.view
    follower = Follower(**{"1": view})
    assert await handle_of(1, follower).logs(view.require_terms().seats - 1) == []
    with pytest.raises(ChainError, match="no job 99"):
        await handle_of(99, follower).logs()
    with pytest.raises(ConfigError, match="has no seat 300"):
        await handle_of(1, follower).logs(300)


async def test_what_strangers_put_in_a_cids_place_is_told(tmp_path: Path) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.round()
    view = job.script.net.view
    handle = handle_of(1, Follower(**{"1": replace(view, spec_cid=b"\x00")}))
    with pytest.raises(ProtocolError, match="names no manifest: 00 is no CID"):
        await handle.manifest()
    settled_round = view.settled[0]
    nowhere = replace(settled_round, verdict=replace(settled_round.verdict, cid=b"\x1b"))
    handle = handle_of(1, Follower(**{"1": replace(view, settled=RoundList([nowhere]))}))
    with pytest.raises(ProtocolError, match="names no model: 1b is no CID"):
        await handle.checkpoint(tmp_path / "model")


async def test_the_round_whose_model_there_is_can_be_asked_for(tmp_path: Path) -> None:
    job = TrainedJob.begin(tmp_path, rounds=2)
    handle = handle_of(1, Follower(**{"1": job.script.net.view}))
    with pytest.raises(ConfigError, match="no model of a round yet: 0 rounds"):
        await handle.settled_round()
    job.round()
    handle = handle_of(1, Follower(**{"1": job.script.net.view}))
    assert (await handle.settled_round(), await handle.settled_round(0)) == (0, 0)
    with pytest.raises(ConfigError, match="no model of round 1 yet: 1 rounds"):
        await handle.settled_round(1)


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.EXPIRED])
async def test_nothing_is_sent_to_a_job_that_is_over(status: JobStatus) -> None:
    view = Script.ready().net.view
    handle = handle_of(1, Follower(**{"1": replace(view, status=status)}))
    for sent in (handle.cancel(), handle.fund("1")):
        with pytest.raises(ConfigError, match=f"job [0-9]+ is {status.name.lower()}"):
            await sent


@pytest.mark.parametrize("status", [JobStatus.ACTIVE, JobStatus.CANCELLED])
async def test_a_job_that_is_cancelled_already_is_left_alone(status: JobStatus) -> None:
    """The follower has no chain to send to, so a transaction would fail."""
    view = replace(Script.ready().net.view, status=status, cancel_requested=True)
    assert not await handle_of(1, Follower(**{"1": view})).cancel()


async def test_a_job_can_be_named_by_its_file(tmp_path: Path) -> None:
    client = Client("http://127.0.0.1:1", Deployment(31337, 0, {}))
    for file in (tmp_path / "none.toml", str(tmp_path / "none.toml")):
        for asked in (client.draft(file), client.submit(file, max_spend="1")):
            with pytest.raises(ConfigError, match=r"cannot read the job .*none\.toml"):
                await asked


def test_a_job_that_is_not_there_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def opened(_network: object) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(attach=lambda job: handle_of(job, Follower()))

    monkeypatch.setattr("atoll.cli.network_commands.Network.open", opened)
    done = CliRunner().invoke(watch_app, ["99"])
    assert isinstance(done.exception, ChainError)


async def test_a_loss_is_told_again_only_where_its_sentence_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its certificate comes a round later, and is no news where it says the same."""
    mine, other = loss_bytes(2.0), loss_bytes(3.0)
    looks = [RoundFigures(0, mine, signed) for signed in (None, mine, other)]
    snapshot = JobSnapshot.of(Script.ready().net.view)
    update = JobUpdate("Advanced", "it happened", snapshot.block, None, snapshot)

    async def look(_: JobHandle) -> tuple[list[JobUpdate], JobSnapshot]:
        now = replace(snapshot, status=JobStatus.OPEN if looks[1:] else JobStatus.DONE)
        return [update] * (4 - len(looks)), now

    async def figures(_: JobHandle) -> list[RoundFigures]:
        return [looks.pop(0)]

    monkeypatch.setattr(JobHandle, "_look", look)
    monkeypatch.setattr(JobHandle, "figures", figures)
    client = SimpleNamespace(config=SimpleNamespace(poll_seconds=0.0))
    handle = JobHandle(cast(Client, client), JobId(1))
    told = [item async for item in handle.follow() if isinstance(item, RoundFigures)]
    assert [item.is_disputed for item in told] == [False, True]
