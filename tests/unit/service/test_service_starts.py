"""How a service starts: after a crash, beside another one, without its journal or a chain."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import Script
from tests.unit.service.running import ME, start, training_job

from atoll.chain.index import Advanced, Change
from atoll.errors import RpcUnavailable
from atoll.protocol.types import Digest
from atoll.service.duties.material import (
    DoFetchData,
)
from atoll.service.duties.round_start import DoPrepareRoundStart
from atoll.service.journal import Belongs, Journal, JournalGone
from atoll.service.machine import AnyCommand
from atoll.service.moving import renew_journal
from atoll_node.duties.commit import SendCommit, SendKey, SendReveal
from atoll_node.duties.train import DoTrain

POINTS = [
    (kind, moment)
    for kind in (DoFetchData, DoPrepareRoundStart, DoTrain, SendCommit)
    for moment in ("before", "between", "after")
]


@pytest.mark.parametrize(("kind", "moment"), POINTS)
async def test_a_service_that_dies_anywhere_goes_on_and_commits_once(
    tmp_path: Path, kind: type, moment: str
) -> None:
    job = training_job()
    first = start(tmp_path, job, crash=(kind, moment))
    await first.effects.crashed.wait()
    await first.stop()
    second = start(tmp_path, job)
    await second.effects.committed.wait()
    await second.stop()
    commits = [c for c in first.effects.started + second.effects.started if _is_commit(c)]
    assert len({commit.key for commit in commits}) == 1
    trained_before = any(isinstance(c, DoTrain) for c in first.effects.started)
    trains_again = any(isinstance(c, DoTrain) for c in second.effects.started)
    was_journaled = (kind, moment) == (DoTrain, "after") or kind is SendCommit
    assert trains_again == (not was_journaled)
    assert trained_before == (kind in {DoTrain, SendCommit})


async def seen_through(
    tmp_path: Path, net: Network, kind: type, moment: str = ""
) -> list[AnyCommand]:
    """What services start until one has done this; where a moment is named, the first dies then."""
    started: list[AnyCommand] = []
    if moment:
        first = start(tmp_path, net, crash=(kind, moment))
        await first.effects.crashed.wait()
        await first.stop()
        started += first.effects.started
    last = start(tmp_path, net)
    await last.effects.did[kind].wait()
    await last.stop()
    return started + last.effects.started


@pytest.mark.parametrize("moment", ["before", "between", "after"])
async def test_a_service_that_dies_between_commit_and_key_says_what_it_committed_to(
    tmp_path: Path, moment: str
) -> None:
    net = training_job()
    script = Script(net)
    (commit,) = {c for c in await seen_through(tmp_path, net, SendCommit) if _is_commit(c)}
    assert isinstance(commit, SendCommit)
    net.commit(ME, commit.commitment)
    for seat in sorted(net.waited):
        script.commit(seat)
    started = await seen_through(tmp_path, net, SendReveal, moment)
    reveals = {c.reveal for c in started if isinstance(c, SendReveal)}
    assert len(reveals) == 1
    net.reveal(ME, reveals.pop())  # which the contract takes
    for seat in sorted(net.waited):
        script.reveal(seat)
    script.say()
    net.wait(1)
    net.settle(set(net.committee), {0})  # excluded, and so drawn
    net.wait_until(net.settled[0].ends["keys"] - 1)
    keys = await seen_through(tmp_path, net, SendKey, moment)
    assert len({c for c in keys if isinstance(c, SendKey)}) == 1
    rounds = {c.round_id.round for c in (*started, *keys) if isinstance(c, DoTrain)}
    assert 0 not in rounds  # nothing was trained twice


def _is_commit(command: AnyCommand) -> bool:
    return isinstance(command, SendCommit)


async def test_a_second_service_with_one_key_waits_and_says_why(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job, is_ours=False)
    context = running.service.effects.context
    context.config.doppelganger_wait_s = 20
    await running.index.read.wait()
    while running.service.head is None:  # noqa: ASYNC110 (it folds what it has read)
        await asyncio.sleep(0.001)
    found = running.service.health_status()
    assert found is not None
    assert (found.name, found.is_fault) == ("doppelganger", True)
    assert "and not from this folder" in found.text
    assert running.effects.started == []
    job.wait_until(job.block.timestamp + 20)  # nobody has acted since
    running.index.changes.append([Advanced(job.block, job.number)])
    await running.effects.committed.wait()
    found = running.service.health_status()
    assert found is None or found.name != "doppelganger"
    await running.stop()


async def test_beside_an_account_in_a_live_round_a_new_journal_ends_the_start(
    tmp_path: Path,
) -> None:
    for is_ours in (True, False):
        running = start(tmp_path, training_job(), knows_past=False, is_ours=is_ours)
        with pytest.raises(ExceptionGroup) as ended:
            await running.task
        running.journal.close()
        (error,) = ended.value.exceptions
        assert isinstance(error, JournalGone)
        assert "this journal is new" in str(error)
        assert "--new-journal" in (error.next_step or "")
        assert running.effects.started == []
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        assert journal.is_new  # so the next start looks again


async def test_an_act_in_a_live_round_that_is_not_from_here_ends_the_start(tmp_path: Path) -> None:
    job = training_job()
    job.commit(ME, Digest(b"c" * 32))
    running = start(tmp_path, job, is_ours=False)
    with pytest.raises(ExceptionGroup) as ended:
        await running.task
    running.journal.close()
    (error,) = ended.value.exceptions
    assert "acted in round 0" in str(error)
    assert "Committed" in str(error)
    assert running.effects.started == []


async def test_who_goes_on_without_its_journal_waits_first_and_then_has_a_past(
    tmp_path: Path,
) -> None:
    job = training_job()
    renew_journal(tmp_path, Belongs(ME, 31337, ""))
    running = start(tmp_path, job, knows_past=False)
    running.service.effects.context.config.doppelganger_wait_s = 20
    await running.index.read.wait()
    while running.service.head is None:  # noqa: ASYNC110 (it folds what it has read)
        await asyncio.sleep(0.001)
    found = running.service.health_status()
    assert found is not None and found.name == "doppelganger"
    assert "journal is new" in found.text
    assert (running.effects.started, running.journal.is_renewed) == ([], True)
    job.wait_until(job.block.timestamp + 20)
    running.index.changes.append([Advanced(job.block, job.number)])
    await running.effects.committed.wait()
    assert not (running.journal.is_renewed or running.journal.is_new)
    await running.stop()


async def test_an_unreachable_chain_is_waited_for(tmp_path: Path) -> None:
    job = training_job()
    running = start(tmp_path, job)
    answers = iter([RpcUnavailable("no endpoint"), RpcUnavailable("no endpoint")])
    real = running.index.poll

    async def poll() -> list[Change]:
        for error in answers:
            raise error
        return await real()

    running.index.poll = poll  # type: ignore[method-assign]
    await running.effects.committed.wait()
    await running.stop()
    metrics = (tmp_path / "metrics.json").read_text()
    assert '"role": "provider"' in metrics
