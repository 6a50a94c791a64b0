"""The loop: a service that dies at any point goes on from its journal, and commits once."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.contracts import reveal_of
from tests.support.identities import DOMAIN, JOB, cid, digest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower, News
from atoll.chain.index import Advanced, Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.log_store import EVERY_LOG, KeptFold, LogFilter
from atoll.cli.services import status_text
from atoll.errors import InsufficientFunds, NotFound, RpcUnavailable, StorageError
from atoll.protocol import events as ev
from atoll.protocol.types import ZERO_DIGEST, Digest, JobId, Phase, Role
from atoll.protocol.views import JobView
from atoll.service import measuring as measuring_module
from atoll.service.config import PolicySection, ScheduleSection, WatchdogSection
from atoll.service.duties.game import BondCollected, SendCollect
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
)
from atoll.service.duties.round_start import DoPrepareRoundStart, RoundStartReady
from atoll.service.effects import Effects
from atoll.service.entries import Done
from atoll.service.feeding import LOOK_BLOCKS
from atoll.service.journal import Belongs, Journal, JournalGone
from atoll.service.machine import AnyCommand, Event, Finished, Head, HeadAdvanced, Setup, State
from atoll.service.metrics import Measure, read_metrics, write_metrics
from atoll.service.moving import renew_journal
from atoll.service.outside import metrics_of
from atoll.service.service import Service
from atoll.service.stand_statements import note_name
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.commit import SendCommit, SendKey, SendReveal
from atoll_node.duties.train import DoTrain, Trained
from atoll_node.machine import step

MANIFEST = make_manifest()
DEPLOYMENT = Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds})
ME, URL = PROVIDERS[0], "http://127.0.0.1:4001"


class Crash(Exception):
    """The process ends here."""


@dataclass
class Index:
    """Yields what a test puts in."""

    job: Network
    changes: list[list[Change]] = field(default_factory=list)
    ahead: tuple[Indexed, ...] = ()
    confirmed: int = 0
    confirmed_at: int = 0
    undecodable: int = 0
    read: asyncio.Event = field(default_factory=asyncio.Event)

    async def poll(self) -> list[Change]:
        self.read.set()
        return self.changes.pop(0) if self.changes else []

    def history(self, which: LogFilter = EVERY_LOG, *, after: int = -1) -> list[Indexed]:
        items = [Indexed(event, block, i) for i, (event, block) in enumerate(self.job.log)]
        return [item for item in items if item.block.number > after]

    def begin_behind(self, number: int) -> None:
        assert number == -1

    def kept_fold(self, code: bytes, at_most: int) -> KeptFold | None:
        return None

    def checkpoint(self) -> None:
        return None

    def tell_everything(self) -> None:
        self.read.clear()
        self.confirmed, self.confirmed_at = self.job.number, self.job.now
        self.changes.append([*self.history(), Advanced(self.job.block, self.job.number)])


class ScriptedEffects:
    """Carries commands out on paper; `crash` names a command's kind and the moment of the end."""

    def __init__(self, context: Any, crash: tuple[type, str] | None = None) -> None:
        self.context, self.crash = context, crash
        self.started: list[AnyCommand] = []
        self.joined: dict[JobId, int] = {}
        self.did: defaultdict[type, asyncio.Event] = defaultdict(asyncio.Event)
        self.crashed = asyncio.Event()
        self.fail_next: list[Exception] = []

    async def run(self, view: JobView, command: AnyCommand) -> Done[Any]:
        self.started.append(command)
        if self.fail_next:
            raise self.fail_next.pop(0)
        await self._maybe(command, "before")
        done = self._done(command)
        await self._maybe(command, "between")
        if isinstance(command, SendCommit):
            guard = f"commit of round {command.round}"
            self.context.journal.sign_once(guard, command.commitment)
        if done.entry is not None:
            self.context.journal.write(view.job_id, command.key, done.entry)
        await self._maybe(command, "after")
        self.did[type(command)].set()
        return done

    @property
    def committed(self) -> asyncio.Event:
        return self.did[SendCommit]

    async def _maybe(self, command: AnyCommand, moment: str) -> None:
        if self.crash == (type(command), moment):
            self.crashed.set()
            await asyncio.Event().wait()

    def _done(self, command: AnyCommand) -> Done[Any]:
        match command:
            case DoFetchSpec():
                return Done(SpecReady(MANIFEST.to_bytes()))
            case DoFetchData():
                return Done(DataReady(cid("data"), ZERO_DIGEST))
            case DoPrepareRoundStart():
                return Done(RoundStartReady(cid("initial_state"), digest("initial")))
            case DoTrain():
                return Done(_trained(command))
            case SendCollect():
                return Done(BondCollected(), block=1)
        return Done(block=1)


def _trained(command: DoTrain) -> Trained:
    """Every training has other secrets, as in life."""
    reveal = reveal_of(f"mine {id(command)}", 8)[0]
    return Trained(command.round_id.round, reveal, command.round_start_digest, 1.0, 1.0)


@dataclass
class Running:
    service: Service[Setup[ProviderBehaviour]]
    effects: ScriptedEffects
    index: Index
    task: asyncio.Task[None]
    journal: Journal

    async def end(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    async def stop(self) -> None:
        await self.end()
        self.journal.close()


def start(
    tmp_path: Path,
    job: Network,
    crash: tuple[type, str] | None = None,
    *,
    knows_past: bool = True,
    is_ours: bool = True,
) -> Running:
    """A service beside a job, where it has its seat, with the journal that it had when it joined.

    Args:
        knows_past: False with one that is new.
        is_ours: whether what the account did was done from here.
    """

    async def idle() -> None:
        await asyncio.Event().wait()

    journal = Journal(tmp_path / "journal.sqlite")
    if knows_past:
        journal.begin()
    index = Index(job)
    context = SimpleNamespace(
        me=ME,
        url=URL,
        sign=lambda message: bytes(65),
        config=SimpleNamespace(
            poll_interval_s=0.001,
            metrics_file=tmp_path / "metrics.json",
            journal_file=tmp_path / "journal.sqlite",
            data_dir=tmp_path,
            watchdog=WatchdogSection(),
            schedule=ScheduleSection(),
            policy=PolicySection(),
            auto_claim="end",
            doppelganger_wait_s=180,
        ),
        journal=journal,
        chain=SimpleNamespace(
            provider=SimpleNamespace(useless_answers=0), events=SimpleNamespace(excluded=0)
        ),
        follower=Follower(cast(EventIndex, index), DEPLOYMENT),
        queue=SimpleNamespace(
            run=idle, gas_by_label=dict, waiting=list, has_signed=lambda tx_hash: is_ours
        ),
        gateway=SimpleNamespace(bytes_up=0, sent_away={}, connections=0, trouble=""),
        fetcher=SimpleNamespace(bytes_down=0),
    )
    effects = ScriptedEffects(context, crash)
    service = Service("provider", Setup(URL, ProviderBehaviour()), step, cast(Effects, effects))
    index.tell_everything()
    return Running(service, effects, index, asyncio.create_task(service.run()), journal)


ROOT = Path(__file__).resolve().parents[3]


def training_job() -> Network:
    net = Script.ready().net
    net.emit(ev.GatewayAnnounced(ME, URL))
    net.advance()
    return net


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


@pytest.mark.parametrize("fails", [OSError(24, "Too many open files"), StorageError("disk")])
async def test_metrics_that_cannot_be_written_end_nothing(
    tmp_path: Path, fails: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, thrice = 0, asyncio.Event()

    def write(*_: object) -> None:
        nonlocal failures
        failures += 1
        if failures == 3:
            thrice.set()
        raise fails

    monkeypatch.setattr(measuring_module, "write_metrics", write)
    monkeypatch.setattr(measuring_module, "METRICS_SECONDS", 0.0)
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await thrice.wait()
    assert not running.task.done()
    await running.stop()


async def test_a_metrics_path_that_is_a_folder_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").mkdir()
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await running.stop()
    assert read_metrics(tmp_path / "metrics.json") == {}


async def test_metrics_are_written_when_they_change_or_are_gone(tmp_path: Path) -> None:
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await running.end()  # else it writes, too
    file, service = tmp_path / "metrics.json", running.service
    file.write_text("{}")
    service.write_metrics()
    assert read_metrics(file) == {}
    running.journal.measure(99, 0, "train_seconds", 1.5)
    service.write_metrics()
    assert read_metrics(file)["jobs"]["99"] == {"0": {"train_seconds": 1.5}}  # type: ignore[index]
    file.unlink()
    service.write_metrics()
    assert read_metrics(file) != {}
    running.journal.close()


class Writer:
    """Writes metrics as the service does, once it is let.

    Attributes:
        written: how many measures each file had; −1 where the loop was kept from letting it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.written: list[int] = []
        self.may_write = threading.Event()
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self._loop = loop

    def __call__(self, measures: Sequence[Measure], *where: Any) -> None:
        self._loop.call_soon_threadsafe(self.began.set)
        count = len(measures) if self.may_write.wait(10) else -1
        write_metrics(measures, *where)
        self.written.append(count)
        self._loop.call_soon_threadsafe(self.ended.set)


@pytest.fixture
async def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    found = Writer(asyncio.get_running_loop())
    monkeypatch.setattr(measuring_module, "write_metrics", found)
    return found


async def test_duties_are_done_while_metrics_are_written(tmp_path: Path, writer: Writer) -> None:
    running = start(tmp_path, training_job())
    await writer.began.wait()
    await running.effects.committed.wait()
    assert writer.written == []
    writer.may_write.set()
    await running.stop()
    assert read_metrics(tmp_path / "metrics.json") != {}


async def test_what_is_being_written_at_the_end_is_not_the_last(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool(ThreadPoolExecutor):
        def shutdown(self, *told: Any, **options: Any) -> None:
            writer.may_write.set()
            super().shutdown(*told, **options)
            assert writer.written == [0]

    monkeypatch.setattr(measuring_module, "ThreadPoolExecutor", Pool)
    running = start(tmp_path, training_job())
    await writer.began.wait()
    running.journal.measure(99, 0, "train_seconds", 1.5)
    await running.stop()
    assert writer.written == [0, 1]
    assert list(read_metrics(tmp_path / "metrics.json")["jobs"]) == ["99"]  # type: ignore[call-overload]


async def test_metrics_of_many_rounds_are_written_less_often(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_module, "METRICS_SECONDS", 0.0)
    monkeypatch.setattr(measuring_module, "SECONDS_BY_MEASURE", 3600.0)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.measure(1, 0, "train_seconds", 1.5)
    writer.may_write.set()
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    await writer.ended.wait()
    running.journal.measure(1, 1, "train_seconds", 1.5)
    for _ in range(50):  # turns of the loop, in each of which it could be written
        running.index.read.clear()
        await running.index.read.wait()
    assert writer.written == [1]
    await running.stop()
    assert writer.written == [1, 2]


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


async def test_the_board_names_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    running = start(tmp_path, training_job())
    await running.effects.committed.wait()
    metrics = {metric.name: metric.label for metric in metrics_of(running.service)}
    await running.stop()
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    assert len(targets) >= len(board["panels"]) > 0
    named = set()
    for target in targets:
        (name,) = re.findall(r"atoll_\w+", target["expr"])
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert labels <= {"instance", metrics[name]}, target
        named.add(name)
    variable = board["templating"]["list"][1]["query"]["query"]
    assert set(re.findall(r"atoll_\w+", variable)) <= set(metrics)
    assert named == set(metrics)


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
