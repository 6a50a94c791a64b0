"""The loop: what fails, ends or does not step holds up nothing else, and is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import JOB
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import Script
from tests.unit.service.running import ME, Running, start, training_job

from atoll.chain.follower import News
from atoll.chain.index import Advanced, Rewound
from atoll.cli.services import status_text
from atoll.errors import InsufficientFunds, NotFound
from atoll.protocol import events as ev
from atoll.protocol.types import ZERO_DIGEST, JobId, Phase, Role
from atoll.service.config import PolicySection
from atoll.service.duties.material import (
    DoFetchData,
    DoFetchSpec,
    JobRefused,
)
from atoll.service.feeding import LOOK_BLOCKS
from atoll.service.machine import Event, Finished, Head, HeadAdvanced, Setup, State
from atoll.service.outside import metrics_of
from atoll.service.service import Service
from atoll.service.stand_statements import note_name
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import step


async def test_what_fails_is_tried_again_when_the_chains_clock_allows(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    running.effects.fail_next = [NotFound("nobody has it")]
    tries = 0
    while tries < 2:
        job.wait(2)
        running.index.tell_everything()
        await running.index.read.wait()
        tries = sum(isinstance(c, DoFetchSpec) for c in running.effects.started)
    await running.effects.committed.wait()
    await running.stop()


async def test_a_further_job_waits_until_there_is_a_place_for_it(tmp_path: Path) -> None:
    """Anybody announces as many as gas pays for: what they take would be missing in ours."""
    net, other = Script.ready().net, JobId(99)
    created = net.log[0][0]
    assert isinstance(created, ev.JobCreated)
    net.log.append((replace(created, job_id=other), net.block))
    running = start(tmp_path, net)
    running.effects.context.config.policy = PolicySection(jobs_at_once=1)
    await running.effects.did[DoFetchData].wait()
    why = running.service.machines.states[other].reasons["membership"]
    assert "looks at no further one: it serves 1, and policy.jobs_at_once is 1" in why
    assert len(running.journal.read(other)) == 0
    net.advance()
    net.leave_seat(ME)
    Script(net).honest_round()
    net.wait_until(net.settled[0].ends["window"])
    net.release(Role.PROVIDER, 1)
    running.index.tell_everything()
    async with asyncio.timeout(600):
        while len(running.journal.read(other)) < 1:  # noqa: ASYNC110 - the older one has its turn
            await asyncio.sleep(0.01)
    assert running.service.machines.states[other].may_take is False
    await running.stop()


@pytest.mark.parametrize(
    ("is_home", "is_burnt"), [(False, True), (True, True), (True, False)],
    ids=["bound", "home", "unburnt"],
)  # fmt: skip
async def test_a_job_that_is_over_is_looked_at_now_and_then(
    tmp_path: Path, is_home: bool, is_burnt: bool
) -> None:
    """With every block as long as a bond of ours is in it, or something is due that is ours unless
    somebody before us in line does it.
    """
    script = Script.ready(make_terms(rounds=1))
    net = script.net
    script.train()
    script.say(has=None if is_burnt else 0b0111)
    net.wait(1)
    script.settle()
    net.wait_until(net.settled[0].ends["window"])
    me = next(holder for holder in net.view.providers.values() if holder.account == ME)
    if is_home:
        net.release(Role.PROVIDER, me.id)
    looks = await looks_at(start(tmp_path, net), net)
    assert looks in ({2, 3, 4} if is_home and is_burnt else {2 * LOOK_BLOCKS, 2 * LOOK_BLOCKS + 1})


async def looks_at(running: Running, net: Network) -> int:
    """How often a service that can do nothing looks at its job within so many blocks."""
    works, looks = running.service.machines.step, 0

    def counted(state: Any, *events: Event) -> Any:
        nonlocal looks
        looks += sum(isinstance(event, HeadAdvanced) for event in events)
        # What it wants of a job that it was in, nobody carries out here.
        return replace(works(state, *events)[0], in_flight={}), []

    running.service.machines.step = counted
    await running.index.read.wait()
    for _ in range(2 * LOOK_BLOCKS):
        net.wait(1)
        running.index.read.clear()
        running.index.changes.append([Advanced(net.block, net.number)])
        await running.index.read.wait()
    running.index.read.clear()
    await running.index.read.wait()
    await asyncio.sleep(0)
    await running.stop()
    assert running.service.status()["over"] == ([net.job] if looks < 2 * LOOK_BLOCKS else [])
    return looks


async def test_a_defect_in_one_effect_does_not_end_the_service(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    running.effects.fail_next = [ZeroDivisionError("a defect")]
    while not running.effects.committed.is_set():
        job.wait(2)
        running.index.tell_everything()
        await running.index.read.wait()
    await running.stop()


async def test_a_job_that_did_not_step_and_steps_again_is_stuck_no_more(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    service = running.service
    works, fails = service.step, True

    def step_or_fail(state: Any, event: Event) -> Any:
        if fails:
            raise ZeroDivisionError("a defect")
        return works(state, event)

    service.machines.step = step_or_fail
    for is_stuck in (1, 0):
        while service.stuck != is_stuck:
            job.wait(2)
            running.index.tell_everything()
            await running.index.read.wait()
        found = service.health_status()
        assert (found is not None and found.name == "defect") == bool(is_stuck)
        fails = False
    await running.stop()


async def test_what_ended_while_a_job_did_not_step_is_told_when_it_does(tmp_path: Path) -> None:
    """Else its command would be under way for ever: it is not given again, and never ends."""
    job = training_job()
    running = start(tmp_path, job)
    service = running.service
    works, failed = service.step, asyncio.Event()

    def step_or_fail(state: Any, *events: Event) -> Any:
        ended = [event for event in events if isinstance(event, Finished)]
        if ended and ended[0].key.startswith("fetch-data.v1") and not failed.is_set():
            if len(events) == 1:
                failed.set()
            raise ZeroDivisionError("a defect")
        return works(state, *events)

    service.machines.step = step_or_fail
    while not failed.is_set():
        job.wait(2)
        running.index.tell_everything()
        await running.index.read.wait()
    while not running.effects.committed.is_set():
        job.wait(2)
        running.index.tell_everything()
        await running.index.read.wait()
    await running.stop()
    assert sum(isinstance(c, DoFetchData) for c in running.effects.started) == 1


async def test_a_job_whose_machine_does_not_step_leaves_the_others_alone(tmp_path: Path) -> None:
    job, stranger = training_job(), JobId(99)
    job.log.append((replace(job.log[0][0], job_id=stranger), job.block))
    running = start(tmp_path, job)

    def fails_for_the_stranger(state: State[Setup[ProviderBehaviour]], *events: Event) -> Any:
        if state.view.job_id == stranger:
            raise ZeroDivisionError("a hostile job")
        return step(state, *events)

    running.service.machines.step = fails_for_the_stranger
    await running.effects.committed.wait()
    await running.stop()
    assert '"stuck_jobs": [\n  99\n ]' in (tmp_path / "metrics.json").read_text()


async def test_a_reorg_folds_the_view_anew(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    await running.effects.committed.wait()
    job.log = [item for item in job.log if not isinstance(item[0], ev.RoundOpened)]
    follower, turned = running.effects.context.follower, asyncio.Event()
    poll = follower.poll_patiently

    async def poll_and_tell() -> News:
        news: News = await poll()
        if news.turned is not None:
            turned.set()
        return news

    follower.poll_patiently = poll_and_tell
    running.index.changes.append([Rewound(job.number - 1), Advanced(job.block, job.number)])
    await turned.wait()
    await running.stop()
    assert follower.views[JOB].phase is Phase.WAITING


async def test_a_status_says_up_to_which_block_everything_has_been_begun(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    while not (status := running.service.status())["sent"]:
        assert status["taken"] <= job.number
        await asyncio.sleep(0.001)
    assert status["sent"] == 1  # as the scripted chain says of every transaction
    while running.service.status()["taken"] < job.number:  # noqa: ASYNC110 (what a stranger sees)
        await asyncio.sleep(0.001)
    running.service.machines.put(job.job, HeadAdvanced(Head(job.number, job.now)))
    assert running.service.status()["taken"] == -1  # a machine has yet to be given that
    await running.stop()


async def test_what_fails_is_the_status_until_it_is_done(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    running.effects.fail_next = [InsufficientFunds("has 0 wei", next_step="send some")]
    while not (failing := running.service.status()["failing"]):
        running.index.tell_everything()
        await running.index.read.wait()
    assert [(one["times"], one["text"]) for one in failing] == [(1, "has 0 wei")]
    found = running.service.health_status()
    assert found is not None
    assert (found.name, found.next_step) == ("money", "send some")
    while not running.effects.committed.is_set():
        job.wait(2)
        running.index.tell_everything()
        await running.index.read.wait()
    assert running.service.status()["failing"] == []
    assert running.service.health_status() is None
    assert running.service.is_alive()
    metrics = {m.name: m for m in metrics_of(running.service)}
    assert metrics["atoll_commands_failed_total"].values == {"": 1}
    assert metrics["atoll_blocked"].values == {"": 0}
    await running.stop()


async def test_a_watchdog_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    def broken(service: Any) -> None:
        looked.set()
        raise OSError("no such folder")

    monkeypatch.setattr(Service, "health_status", broken)
    running = start(tmp_path, training_job())
    await looked.wait()
    await running.effects.committed.wait()
    await running.stop()


async def test_what_it_refuses_is_served_and_in_its_status(tmp_path: Path) -> None:
    """Its latest word alone, signed with the account's key."""
    net, other = Script.ready().net, JobId(99)
    created = net.log[0][0]
    assert isinstance(created, ev.JobCreated)
    net.log.append((replace(created, job_id=other), net.block))
    running = start(tmp_path, net)
    running.effects.context.journal.publish(note_name(JobId(5)), b"of another start")
    service = running.service

    async def stands(word: str) -> None:
        async with asyncio.timeout(600):
            while service.status()["stands"].get("99", {}).get("stand") != word:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    await stands("joins")
    key = DoFetchSpec(b"", ZERO_DIGEST).key
    service.machines.put(other, Finished(key, JobRefused("move window 1 s < 60 s")))
    await stands("refuses")
    service.stand_notes.say(service.effects.context)
    assert running.journal.note(note_name(JobId(5))) is None
    note = running.journal.note(note_name(other))
    assert note is not None and note.endswith(b"move window 1 s < 60 s")
    assert service.status()["stands"][str(created.job_id)] == {"stand": "joined", "text": ""}
    assert "job 99 stand        refuses: move window 1 s < 60 s" in status_text(service.status())
    await running.stop()
