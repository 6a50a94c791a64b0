"""The submitter of a local network: its store and gateway, its transactions, its job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import decode_log
from atoll.chain.txqueue import QueueConfig, TxQueue
from atoll.errors import ChainError
from atoll.protocol.events import JobCreated
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import JobId
from atoll.store.gateway import Gateway
from atoll.store.local import LocalStore
from atoll_devnet.cluster import Cluster


@dataclass(frozen=True)
class Submitter:
    """What the submitter holds while its job runs."""

    chain: AtollChain
    queue: TxQueue
    store: LocalStore
    store_dir: Path
    gateway: Gateway

    async def submit(self, manifest: bytes) -> JobId:
        """Announces the gateway, approves the budget and creates the job.

        Raises:
            ManifestError: the manifest is malformed.
            ChainError: the chain refuses it; nothing is in escrow then.
        """
        spec, calls = Manifest.from_bytes(manifest), self.chain.calls
        budget = await self.chain.budget(spec.terms)
        addresses = self.chain.deployment.addresses
        await self.queue.execute("announce", calls.announce_gateway(self.gateway.url))
        await self.queue.execute("approve", calls.approve(addresses["Jobs"], budget))
        policy = addresses["CountingPolicy"]
        create = calls.create(spec.digest(), spec.cid(), spec.terms, policy, budget)
        status = await self.queue.execute("create", create)
        return await self._created_in(status.block)

    async def refund(self, job: JobId) -> None:
        """Takes back what was not earned. Raises TransactionFailed where it is too early."""
        await self.queue.execute("refund", self.chain.calls.refund(job))

    async def _created_in(self, block: int | None) -> JobId:
        for raw in await self.chain.logs(block or 0, block or 0):
            event = decode_log(raw)
            if isinstance(event, JobCreated) and event.submitter == self.queue.address:
                return event.job_id
        raise ChainError(f"block {block} holds no job of {self.queue.address}")


@asynccontextmanager
async def open_submitter(cluster: Cluster) -> AsyncIterator[Submitter]:
    """The submitter at work; its gateway serves the manifest and the dataset."""
    folder = cluster.submitter_folder
    async with AsyncExitStack() as stack:
        chain = await AtollChain.connect(cluster.chain.rpc_url, cluster.deployment)
        stack.push_async_callback(chain.close)
        config = QueueConfig(poll_seconds=cluster.config.poll_interval_s)
        queue = TxQueue(chain, cluster.submitter, folder / "transactions.sqlite", config)
        stack.callback(queue.close)
        store = LocalStore(folder / "store")
        gateway = Gateway(store)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        sending = asyncio.create_task(queue.run())
        stack.callback(sending.cancel)
        yield Submitter(chain, queue, store, folder / "store", gateway)
