"""A service on a scripted chain, with effects that tests decide."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.contracts import reveal_of
from tests.support.identities import DOMAIN, cid, digest
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower
from atoll.chain.index import Advanced, Change, EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.log_store import EVERY_LOG, KeptFold, LogFilter
from atoll.protocol import events as ev
from atoll.protocol.types import ZERO_DIGEST, JobId
from atoll.protocol.views import JobView
from atoll.service.config import KeeperConfig, PolicySection, ScheduleSection, WatchdogSection
from atoll.service.drand_section import DrandSection
from atoll.service.duties.game import BondCollected, SendCollect
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    SpecReady,
)
from atoll.service.duties.round_start import DoPrepareRoundStart, RoundStartReady
from atoll.service.effects import Effects
from atoll.service.entries import Done
from atoll.service.journal import Journal
from atoll.service.machine import AnyCommand, Setup
from atoll.service.service import Service
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.commit import SendCommit
from atoll_node.duties.train import DoTrain, Trained
from atoll_node.machine import step

MANIFEST = make_manifest()
DEPLOYMENT = Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds})
ME, URL = PROVIDERS[0], "http://127.0.0.1:4001"


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
            keeper=KeeperConfig(),
            drand=DrandSection(),
            policy=PolicySection(),
            auto_claim="end",
            doppelganger_wait_s=180,
        ),
        journal=journal,
        chain=SimpleNamespace(
            deployment=DEPLOYMENT,
            provider=SimpleNamespace(useless_answers=0),
            events=SimpleNamespace(excluded=0),
        ),
        follower=Follower(cast(EventIndex, index), DEPLOYMENT),
        queue=SimpleNamespace(
            run=idle, gas_by_label=dict, waiting=list, has_signed=lambda tx_hash: is_ours
        ),
        gateway=SimpleNamespace(bytes_up=0, sent_away={}, connections=0, trouble=""),
        fetcher=SimpleNamespace(bytes_down=0, bytes_up=0),
    )
    effects = ScriptedEffects(context, crash)
    service = Service("provider", Setup(URL, ProviderBehaviour()), step, cast(Effects, effects))
    index.tell_everything()
    return Running(service, effects, index, asyncio.create_task(service.run()), journal)


def training_job() -> Network:
    net = Script.ready().net
    net.emit(ev.GatewayAnnounced(ME, URL))
    net.advance()
    return net
