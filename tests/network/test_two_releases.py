"""Members serve a job of the last release and one of this, and are started anew in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from tests.network.members import (
    Asked,
    Network,
    Site,
    Who,
    another_job,
    everybody,
    is_settled_up,
    network,
)
from tests.support.releases import LAST, Release, add_last
from tests.support.small_job import numerics_of_members

from atoll.service.environments import FOLDER_VARIABLE
from atoll_devnet.processes.cluster import Member

STARTED = "started another release's worker"


@pytest.fixture
def last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """The last release beside this one, for every member that starts meanwhile."""
    made = add_last(tmp_path / "added")
    monkeypatch.setenv(FOLDER_VARIABLE, str(made.folder))
    # Members are forked from a server, which has the environment that it was started with: by an
    # earlier test of this process, and for the later ones.
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # not in the type stubs
    yield made
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


async def test_two_releases(site: Site, last: Release) -> None:
    here = numerics_of_members()
    there = here.model_copy(update={"code_digest": last.digest})
    assert there != here
    async with network(site, Who(), asked=Asked(numerics=there)) as running:
        await check_paid(running)
        members = [*running.cluster.providers, *running.cluster.verifiers]
        for member in members:
            await asyncio.to_thread(member.process.stop)
            assert (STARTED in log_of(member)) and (LAST in log_of(member))
            (member.folder / "log").write_text("")
            member.process.start()
        second = await another_job(running)
        await check_paid(second)
        assert not [member for member in members if STARTED in log_of(member)]


def log_of(member: Member) -> str:
    return (member.folder / "log").read_text()


async def check_paid(running: Network) -> None:
    """Every round merged, and nobody lost anything by it."""
    view = await running.until(is_settled_up)
    assert [settled_round.verdict.merged for settled_round in view.settled] == [4]
    assert len(everybody(view)) == 7
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
