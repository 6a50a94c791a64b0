"""The effects of a node whose chain, store and worker are as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from tests.support.identities import address
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network

from atoll.errors import (
    NotFound,
    TooLarge,
    TransactionFailed,
)
from atoll.protocol.hashing import terms_hash
from atoll.protocol.owners import Ownership
from atoll.protocol.types import (
    Role,
)
from atoll.protocol.views import JobView
from atoll.service.context import Context
from atoll.service.duties.material import (
    DoFetchSpec,
)
from atoll.service.effects import Effects
from atoll.service.task import Task, TaskCall
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.storage.spread import Spread

MANIFEST = make_manifest()
ME = address("me")


ADDRESSES = {"Stakes": address("stakes"), "Game": address("game"), "EcdsaPolicy": "0x" + "0" * 40}


@dataclass
class Queue:
    """Mines what is submitted into the block that the test names."""

    block: int | None = 50
    calls: dict[str, Any] = field(default_factory=dict)
    mined: dict[str, int | None] = field(default_factory=dict)

    async def submit(self, key: str, call: Any, *, retry_failed: bool = False) -> None:
        assert retry_failed
        self.calls.setdefault(key, call)
        self.mined.setdefault(key, self.block)

    async def wait(self, key: str) -> Any:
        return self.status(key)

    def status(self, key: str) -> Any:
        if key not in self.mined:
            return None
        return SimpleNamespace(has_effect=self.mined[key] is not None, block=self.mined[key])


class Calls:
    """Every call is its name and arguments."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: (name, *args)


@dataclass
class Chain:
    active: int = 0
    locked: int = 0
    balance: int = 10**30
    allowed: int = 0
    calls: Calls = field(default_factory=Calls)
    deployment: Any = field(
        default_factory=lambda: SimpleNamespace(addresses=ADDRESSES, chain_id=31337)
    )
    refusal: TransactionFailed | None = None

    async def simulate(self, call: Any, sender: str) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        return b""

    async def head(self) -> Any:
        return SimpleNamespace(number=77, timestamp=MANIFEST.terms.expiry - 1000)

    owned: Ownership = field(default_factory=lambda: Ownership(ME, ME))

    async def nonce(self, account: str) -> int:
        return 4

    async def ownership(self, account: str) -> Ownership:
        return self.owned

    async def stake(self, account: str, role: Role) -> Any:
        return SimpleNamespace(active=self.active, locked=self.locked)

    async def token_balance(self, account: str) -> int:
        return self.balance

    async def allowance(self, owner: str, spender: str) -> int:
        return self.allowed


@dataclass
class Fetcher:
    store: LocalStore
    blocks: dict[Cid, bytes] = field(default_factory=dict)
    limits: dict[Cid, int] = field(default_factory=dict)

    spreads: list[Spread] = field(default_factory=list)

    async def fetch_spread(self, cid: Cid, max_bytes: int, spread: Spread) -> None:
        self.spreads.append(spread)
        await self.fetch(cid, max_bytes, [])

    async def fetch(self, cid: Cid, max_bytes: int, prefer: Sequence[str]) -> None:
        self.limits[cid] = max_bytes
        if cid not in self.blocks:
            raise NotFound(f"nobody has {cid}")
        if len(self.blocks[cid]) > max_bytes:
            raise TooLarge(f"more than {max_bytes} bytes")
        self.store.put_block(cid, self.blocks[cid])


@dataclass
class Worker:
    """Returns, or raises, what the test put in."""

    results: list[Any] = field(default_factory=list)
    asked: list[Task[..., Any]] = field(default_factory=list)
    gave_way: list[Task[..., Any]] = field(default_factory=list)

    async def run_last(self, call: TaskCall[Any]) -> Any:
        self.gave_way.append(call.task)
        return await self.run(call)

    async def run(self, call: TaskCall[Any], **_: Any) -> Any:
        self.asked.append(call.task)
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result


def effects(context: Any) -> Effects:
    return Effects(cast(Context, context))


def view_at(number: int) -> JobView:
    view = Network(MANIFEST.terms).view
    named = {"spec_cid": MANIFEST.cid(), "terms_hash": terms_hash(MANIFEST.terms)}
    return replace(view, block=replace(view.block, number=number), **named)


# --- material ---


def spec_of(view: JobView) -> DoFetchSpec:
    return DoFetchSpec(view.spec_cid, view.terms_hash)
