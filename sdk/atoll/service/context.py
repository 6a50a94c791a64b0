"""What a running service holds: chain, queue, store, gateway, worker, journal; opened and closed.

Rule of this file: what is opened is closed in reverse order however the service ends, and a config
that cannot work fails here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from eth_account.signers.local import LocalAccount

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.index import EventIndex
from atoll.chain.keys import load_key, read_password
from atoll.chain.mirror import Mirror
from atoll.chain.txqueue import GWEI, QueueConfig, TxQueue
from atoll.content.cid import Cid
from atoll.content.fetch import Fetcher
from atoll.content.gateway import Gateway
from atoll.content.local import LocalStore
from atoll.content.storage import Storage, StoreConfig, open_storage
from atoll.law.words import Address, JobId
from atoll.service.config import ServiceConfig
from atoll.service.journal import Fact, Journal
from atoll.service.lock import hold_folder
from atoll.service.worker import Worker

GAS_MARGIN_PERCENT = 200
"""Whoever happens to be last in a phase also closes it, which no estimate made before can know."""


@dataclass(frozen=True)
class Context:
    """Everything that effects are carried out with.

    Attributes:
        me: the account that signs.
        url: where our gateway is announced.
    """

    config: ServiceConfig
    me: Address
    chain: AtollChain
    queue: TxQueue
    index: EventIndex
    mirror: Mirror
    storage: Storage
    gateway: Gateway
    worker: Worker
    journal: Journal

    @property
    def store(self) -> LocalStore:
        return self.storage.local

    @property
    def fetcher(self) -> Fetcher:
        return self.storage.fetcher

    @property
    def url(self) -> str:
        return self.config.gateway.public_url or self.gateway.url

    def fetcher_of(self, job: JobId) -> Fetcher:
        """Brings a job's blocks, from the gateways of that job's members and submitter only."""
        return self.fetcher.among(lambda: self._gateways_of(job))

    def _gateways_of(self, job: JobId) -> list[str]:
        view = self.mirror.views.get(job)
        return [] if view is None else [url for url in view.gateway_urls() if url != self.url]


@asynccontextmanager
async def open_context(
    config: ServiceConfig, kinds: tuple[type[Fact], ...], may_serve: Callable[[Cid], bool]
) -> AsyncIterator[Context]:
    """Opens everything; the gateway listens when this returns.

    Args:
        kinds: every kind of fact the role's journal may hold.
        may_serve: which blocks the gateway gives out.

    Raises:
        ConfigError, KeystoreError: a file, key or port that cannot be used, or another process
            runs in the folder.
        ChainError: no endpoint answers, or it is another chain.
        StorageError: the folder of blocks, or the Kubo daemon, cannot be used.
    """
    config.data_dir.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        stack.enter_context(hold_folder(config.data_dir))
        account = load_key(config.keystore, read_password(config.password_file))
        deployment = Deployment.load(config.deployment)
        journal = Journal(config.journal_file, kinds)
        stack.callback(journal.close)
        chain = await AtollChain.connect(config.rpc_urls, deployment)
        stack.push_async_callback(chain.close)
        queue = _open_queue(config, chain, account)
        stack.callback(queue.close)
        index = EventIndex(
            chain, confirmations=config.confirmations, path=config.data_dir / "events.sqlite"
        )
        stack.callback(index.close)
        only = None if config.jobs == "any" else frozenset(config.jobs)
        mirror = Mirror(deployment.domain, deployment.addresses["Jobs"], only)
        storage = await open_storage(
            StoreConfig(config.store_dir, config.store.backend, config.store.quota_bytes)
        )
        stack.push_async_callback(storage.close)
        listen = config.gateway
        gateway = Gateway(storage.local, listen.host, listen.port, allow=may_serve)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        worker = Worker(niceness=config.worker_niceness)
        stack.callback(worker.kill)
        yield Context(
            config=config,
            me=Address(account.address),
            chain=chain,
            queue=queue,
            index=index,
            mirror=mirror,
            storage=storage,
            gateway=gateway,
            worker=worker,
            journal=journal,
        )


def _open_queue(config: ServiceConfig, chain: AtollChain, account: LocalAccount) -> TxQueue:
    return TxQueue(
        chain,
        account,
        config.data_dir / "transactions.sqlite",
        QueueConfig(
            fee_cap=config.fees.max_fee_gwei * GWEI,
            poll_seconds=config.poll_interval_s,
            gas_margin_percent=GAS_MARGIN_PERCENT,
        ),
    )
