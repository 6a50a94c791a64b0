"""A client whose network is a script: what the dashboard reads of one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.unit.dashboard.jobs import items_of
from tests.unit.protocol.script import Script

from atoll.chain.deployment import Deployment
from atoll.chain.indexed import Indexed
from atoll.chain.log_store import EVERY_LOG, LogFilter
from atoll.chain.response_checks import TxReceipt
from atoll.errors import ChainError, NotFound, RpcUnavailable
from atoll.job.client import Client
from atoll.job.figures import RoundFigures, known
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.overview import GasSpent
from atoll.protocol.manifest import Manifest
from atoll.protocol.views import JobView

GAS, PRICE = 21_000, 10**9
"""Of each transaction, and a gas."""


@dataclass
class ScriptedClient:
    """Follows the script's one job.

    Attributes:
        is_silent: no endpoint answers.
        may_answer: unset, nothing is answered at all.
        read: how often all events were.
        manifest: what members serve; None where nobody has it.
        measured: by round and seat, of the rounds that were measured.
        counted: how many rounds were settled each time that rewards were counted.
        deployment: with an explorer and names, where the network has them.
    """

    script: Script
    is_silent: bool = False
    manifest: Manifest | None = None
    deployment: Deployment = field(default_factory=lambda: Deployment(31337, 0, {}))
    prompts: list[str] = field(default_factory=list)
    measured: dict[tuple[int, int], float] = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)
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
    def chain(self) -> ScriptedClient:
        return self

    @property
    def submissions(self) -> ScriptedClient:
        return self

    def of_job(self, job: int) -> None:
        return None

    async def receipt(self, tx_hash: str) -> TxReceipt | None:
        if self.is_silent:
            raise RpcUnavailable("no endpoint answers")
        return TxReceipt(
            tx_hash=tx_hash,
            succeeded=True,
            block_number=1,
            block_hash=bytes(32),
            gas_used=GAS,
            fee_price=PRICE,
            logs=(),
        )

    @property
    def now(self) -> int:
        return self.script.net.now

    @property
    def confirmed(self) -> int:
        return len(self.script.net.log)

    def history(self, which: LogFilter = EVERY_LOG) -> tuple[Indexed, ...]:
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

    def own_manifest(self) -> Manifest | None:
        return None

    async def manifest(self) -> Manifest:
        if self.client.manifest is None:
            raise NotFound("no gateway has it")
        return self.client.manifest

    async def sample(self, prompt: str, *, round: int) -> str:
        assert round == len(self.client.script.net.view.settled) - 1
        if self.client.manifest is None:
            raise NotFound("no gateway has the model")
        self.client.prompts.append(prompt)
        return f"and {len(self.client.prompts)}"

    async def measure_distances(self, gone: set[int]) -> None:
        """A round whose updates are served: where the manifest is."""
        for settled in self.client.script.net.view.settled:
            if self.client.manifest is None:
                gone.add(settled.round)
                continue
            for seat in settled.reveals:
                self.client.measured[settled.round, seat] = 1 + seat / 4

    async def measure_rewards(self, gone: set[int]) -> None:
        assert gone == set()
        self.client.counted.append(len(self.client.script.net.view.settled))

    async def distances(self) -> dict[tuple[int, int], float]:
        return self.client.measured

    async def ledger(self) -> Ledger:
        await self.view()
        return Ledger.of(self.client.script.net.view, self.client.history(), self.client.now)

    async def figures(self) -> list[RoundFigures]:
        return known(None, await self.view())


def gas_of(script: Script) -> GasSpent:
    """What `receipt` comes to for the script's transactions: each event has one of its own."""
    count = len(Ledger.of(script.net.view, items_of(script), script.net.now).items)
    return GasSpent(count, count, count * GAS, count * GAS * PRICE)
