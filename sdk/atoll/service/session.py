"""One account on one deployment: chain, followed jobs, transactions, blocks; opened and closed.

Rule of this file: what is opened is closed in reverse order however the session ends, and a config
that cannot work fails here, before anything is sent.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower
from atoll.chain.index import EventIndex
from atoll.chain.keys import sign_digest
from atoll.chain.txqueue import QueueConfig, TxQueue
from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.content.gateway import Gateway, GatewayConfig
from atoll.content.local import LocalStore
from atoll.content.storage import Storage, StoreConfig, open_storage
from atoll.errors import ConfigError
from atoll.law.views import JobView
from atoll.law.words import Address, Digest, JobId
from atoll.service.config import GatewaySection
from atoll.service.greeting import Greeter, greeted

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


QUEUE_FILE = "transactions.sqlite"
DEVELOPMENT_CHAINS = frozenset({1337, 31337})
"""Of Ganache and Anvil: everybody is on this machine."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a session is opened with.

    Attributes:
        rpc_urls: one or more http(s) endpoints, the preferred one first.
        folder: of transactions and events; one session at a time uses it.
        store: where blocks are kept.
        account: who signs; None can only watch.
        jobs: the jobs to follow; None follows every job.
        confirmations: blocks on top of one before we believe it.
    """

    rpc_urls: tuple[str, ...]
    deployment: Deployment
    folder: Path
    store: StoreConfig
    account: LocalAccount | None = None
    jobs: frozenset[int] | None = None
    confirmations: int = 1
    gateway: GatewaySection = field(default_factory=GatewaySection)
    queue: QueueConfig = field(default_factory=QueueConfig)


@dataclass
class Session:
    """What `open_session` opened.

    Attributes:
        gateway: serves our blocks; None until `serve`.
    """

    config: SessionConfig
    chain: AtollChain
    follower: Follower
    storage: Storage = field(init=False)
    gateway: Gateway | None = None
    _queue: TxQueue | None = None

    @property
    def store(self) -> LocalStore:
        return self.storage.local

    def fetcher_of(self, job: JobId) -> Fetcher:
        """Brings a job's blocks, from the gateways of that job's members and submitter only."""
        return self.storage.fetcher.among(lambda: self._others(job))

    @property
    def queue(self) -> TxQueue:
        """Every transaction of the account. Raises ConfigError where the session only watches."""
        if self._queue is None:
            raise _only_watches()
        return self._queue

    @property
    def url(self) -> str:
        """Where our blocks are announced; empty until `serve`."""
        if self.gateway is None:
            return ""
        return self.config.gateway.public_url or self.gateway.url

    @property
    def me(self) -> Address:
        """Who signs. Raises ConfigError where the session only watches."""
        return self.queue.address

    def sign(self, digest: Digest) -> bytes:
        """Our signature of a digest (`sign_digest`). Raises ConfigError where we only watch."""
        if self.config.account is None:
            raise _only_watches()
        return sign_digest(self.config.account, digest)

    async def serve(
        self,
        allow: Callable[[Cid], bool] | None = None,
        *,
        port: int = 0,
        notes: Callable[[str], bytes | None] = lambda _: None,
    ) -> Gateway:
        """Serves our blocks from now on; the same gateway when asked again.

        Args:
            allow: which blocks are given out; None gives out every block.
            port: taken if it is free, where the config leaves it open.
            notes: what we say under a name.

        Raises:
            ConfigError: the port is in use.
        """
        if self.gateway is None:
            listen = self.config.gateway
            make = partial(
                Gateway, self.store, listen.host, allow=allow, notes=notes,
                config=GatewayConfig(budget=listen.budget()), recognise=self._member_of,
            )  # fmt: skip
            gateway = make(listen.port or port)
            try:
                await gateway.start()
            except ConfigError:
                if listen.port:
                    raise
                gateway = make(0)
                await gateway.start()
            self.gateway = gateway
        return self.gateway

    async def stop_serving(self) -> None:
        """Ends what `serve` began."""
        gateway, self.gateway = self.gateway, None
        if gateway is not None:
            await gateway.stop()

    def _member_of(self, header: str) -> str | None:
        """The member of a followed job who signed what it asks our gateway with."""
        chain_id = self.config.deployment.chain_id
        account = greeted(header, chain_id, self.url, time.time())
        if account is None:
            return None
        views = self.follower.views.values()
        return account if any(has_part(view, account) for view in views) else None

    def _others(self, job: JobId) -> list[str]:
        return [url for url in self.follower.gateways(job) if url != self.url]


@asynccontextmanager
async def open_session(config: SessionConfig) -> AsyncIterator[Session]:
    """Connects and opens the files; nothing is sent, served or polled yet.

    Raises:
        ConfigError: a file that cannot be used, or that another session has open.
        ChainError: no endpoint answers, or it is another chain.
        StorageError: the folder of blocks, or the Kubo daemon, cannot be used.
    """
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with AsyncExitStack() as stack:
        chain = await AtollChain.connect(config.rpc_urls, config.deployment)
        stack.push_async_callback(chain.close)
        index = EventIndex(
            chain, confirmations=config.confirmations, path=config.folder / "events.sqlite"
        )
        stack.callback(index.close)
        session = Session(config, chain, Follower(index, config.deployment, config.jobs))
        session.storage = await open_storage(_guarded(config))
        stack.push_async_callback(session.storage.close)
        if config.account is not None:
            path = config.folder / QUEUE_FILE
            queue = session._queue = TxQueue(chain, config.account, path, config.queue)
            stack.callback(queue.close)
        stack.push_async_callback(session.stop_serving)
        yield session


def _guarded(config: SessionConfig) -> StoreConfig:
    """The store's config, with which gateways are asked, and how they are greeted."""
    allowed, chain_id = config.gateway.private_peers, config.deployment.chain_id
    fetch = replace(
        config.store.fetch,
        private_addresses=chain_id in DEVELOPMENT_CHAINS if allowed is None else allowed,
    )
    if config.account is not None:
        me = Address(config.account.address)
        fetch = replace(fetch, greet=Greeter(me, chain_id, partial(sign_digest, config.account)))
    return replace(config.store, fetch=fetch)


def has_part(view: JobView, account: Address) -> bool:
    """Whether an account is a member of a job, waits to be one, or submitted it."""
    return (
        account == view.submitter
        or account in view.waiting
        or view.seat_of(account) is not None
        or view.verifier_of(account) is not None
    )


def _only_watches() -> ConfigError:
    return ConfigError(
        "this client has no key and can only watch", next_step="open it with an account"
    )
