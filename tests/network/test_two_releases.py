"""Members serve a job of the last release and one of this, and are started anew in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import pytest
from tests.network.members import Network, Site, Who, everybody, is_settled_up, network, submit
from tests.support.releases import LAST, Release, add_last
from tests.support.small_job import numerics_of_members, small_manifest, with_program

from atoll.protocol.canonical import dag_cbor_cid
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
    async with network(site, Who(), numerics=there) as running:
        await check_paid(running)
        members = [*running.cluster.providers, *running.cluster.verifiers]
        for member in members:
            await asyncio.to_thread(member.process.stop)
            assert (STARTED in log_of(member)) and (LAST in log_of(member))
            (member.folder / "log").write_text("")
            member.process.start()
        second = await next_job(running)
        await check_paid(second)
        assert not [member for member in members if STARTED in log_of(member)]


def log_of(member: Member) -> str:
    return (member.folder / "log").read_text()


async def next_job(running: Network) -> Network:
    """A job of this release, by the same submitter on the same network."""
    store, terms = running.session.store, running.manifest.terms
    now = (await running.session.chain.head()).timestamp
    kept = {"expiry": now + 86_400, "rounds": terms.rounds}
    names = ("min_providers", "min_verifiers", "train_seconds", "reveal_seconds", "merge_seconds")
    names += ("audit_seconds", "open_seconds", "key_seconds", "window_seconds", "ready_seconds")
    kept |= {name: getattr(terms, name) for name in (*names, "game_seconds")}
    manifest = with_program(small_manifest(store, numerics_of_members(), **kept), store)
    await submit(running.session, manifest)
    await running.session.follower.poll()
    cid = dag_cbor_cid(manifest.digest())
    jobs = running.session.follower.views  # a stranger's among them
    (job,) = (job for job, view in jobs.items() if view.spec_cid == cid)
    return replace(running, job=job, manifest=manifest, view=None)


async def check_paid(running: Network) -> None:
    """Every round merged, and nobody lost anything by it."""
    view = await running.until(is_settled_up)
    assert [settled_round.verdict.merged for settled_round in view.settled] == [4]
    assert len(everybody(view)) == 7
    assert not any(holder.penalties or holder.is_slashed for holder in everybody(view))
