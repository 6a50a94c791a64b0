"""A client whose network is a script: what the dashboard reads of one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.unit.dashboard.jobs import items_of
from tests.unit.protocol.script import Script

from atoll.chain.indexed import Indexed
from atoll.errors import ChainError, RpcUnavailable
from atoll.job.client import Client
from atoll.job.figures import RoundFigures, known
from atoll.job.ledger.ledger import Ledger
from atoll.protocol.views import JobView


@dataclass
class ScriptedClient:
    """Follows the script's one job.

    Attributes:
        is_silent: no endpoint answers.
        may_answer: unset, nothing is answered at all.
        read: how often all events were.
    """

    script: Script
    is_silent: bool = False
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    read: int = 0

    def __post_init__(self) -> None:
        self.may_answer.set()

    @property
    def as_client(self) -> Client:
        return cast(Client, self)

    @property
    def session(self) -> ScriptedClient:
        return self

    @property
    def follower(self) -> ScriptedClient:
        return self

    @property
    def now(self) -> int:
        return self.script.net.now

    @property
    def confirmed(self) -> int:
        return len(self.script.net.log)

    def history(self) -> tuple[Indexed, ...]:
        self.read += 1
        return tuple(items_of(self.script))

    async def catch_up(self) -> None:
        await self.may_answer.wait()
        if self.is_silent:
            raise RpcUnavailable("no endpoint answers")

    async def view(self, job: int) -> JobView:
        await self.catch_up()
        if job != self.script.net.job:
            raise ChainError(f"the chain has no job {job} yet")
        return self.script.net.view

    def attach(self, job: int) -> Any:
        return _Handle(self, job)


@dataclass
class _Handle:
    client: ScriptedClient
    id: int

    async def view(self) -> JobView:
        return await self.client.view(self.id)

    async def ledger(self) -> Ledger:
        await self.view()
        return Ledger.of(self.client.script.net.view, self.client.history(), self.client.now)

    async def figures(self) -> list[RoundFigures]:
        return known(None, await self.view())
