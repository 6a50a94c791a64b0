"""Submitting jobs: the part of Atoll that a person with text and tokens uses.

    async with Client(rpc, deployment, account) as client:
        job = await client.submit(manifest, max_spend=50 * 10**18)
        async for update in job.watch():
            print(update.text)
        await job.result(Path("model"))

Rule of this file: what is paid for is on disk under a key before it is sent, so that the same
submission made again, after a crash or on purpose, is the same job.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from eth_account.signers.local import LocalAccount

from atoll.chain.calls import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import decode_log
from atoll.chain.deployment import Deployment
from atoll.chain.keys import load_key, read_password
from atoll.chain.txqueue import QueueConfig, TxStatus
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.fetch import Fetcher
from atoll.content.local import LocalStore
from atoll.content.storage import StoreConfig
from atoll.errors import ChainError, ConfigError, InsufficientFunds, NotFound, UndecodableLog
from atoll.job.following import JobFollower
from atoll.job.handle import JobHandle
from atoll.job.narrate import tokens
from atoll.job.spec import Found, JobRequest, build_manifest, machine_numerics, prepare_data
from atoll.law.events import JobCreated
from atoll.law.manifest import Manifest, NumericsSpec
from atoll.law.words import Address, JobId
from atoll.service.config import GatewaySection
from atoll.service.session import Session, SessionConfig, open_session

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where a client keeps its files and how it is reached.

    Attributes:
        home: folder of blocks, transactions and events; one client at a time uses it.
        host, port: where our gateway listens, so that others can fetch manifest and data;
            port 0 takes any free one.
        public_url: what is announced instead, where the gateway is behind something.
        store: the storage backend (see `StoreConfig`); `kubo:URL` mirrors what jobs need.
        confirmations: blocks on top of one before we believe it.
        poll_seconds: how often the chain is asked.
        queue: how transactions bid and wait.
    """

    home: Path = Path(".atoll/client")
    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None
    store: str = "embedded"
    confirmations: int = 1
    poll_seconds: float = 0.5
    queue: QueueConfig = field(default_factory=QueueConfig)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job may cost at most, and what there is to pay it from; wei."""

    budget: int
    balance: int
    allowance: int


class Client:
    """One account's window on one deployment. Use it as an async context manager.

    Args:
        rpc: one or more http(s) endpoints, the preferred one first.
        deployment: the contracts' addresses, or the file that has them.
        account: who pays and signs (`atoll.chain.keys.load_key`); None can only watch.
    """

    def __init__(
        self,
        rpc: str | Sequence[str],
        deployment: Deployment | Path,
        account: LocalAccount | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        if isinstance(deployment, Path):
            deployment = Deployment.load(deployment)
        self.deployment = deployment
        self.config = config or ClientConfig()
        self._rpc_urls = (rpc,) if isinstance(rpc, str) else tuple(rpc)
        self._account = account
        self._opened = AsyncExitStack()
        self._session: Session | None = None
        self._follower: JobFollower | None = None
        self._submitting = asyncio.Lock()

    @classmethod
    def from_keystore(
        cls,
        rpc: str | Sequence[str],
        deployment: Deployment | Path,
        keystore: Path,
        password_file: Path,
        config: ClientConfig | None = None,
    ) -> Client:
        """A client that signs with a keystore's key. Raises KeystoreError."""
        return cls(rpc, deployment, load_key(keystore, read_password(password_file)), config)

    async def __aenter__(self) -> Self:
        """Connects. Raises RpcUnavailable, WrongChain, or ConfigError where `home` is in use."""
        session = await self._opened.enter_async_context(open_session(self._session_config()))
        self._session, self._follower = session, JobFollower(session.follower)
        if self._account is not None:
            sending = asyncio.create_task(session.queue.run())
            self._opened.push_async_callback(_end, sending)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops serving and lets go of the files; transactions under way go on next time."""
        self._session = self._follower = None
        await self._opened.aclose()

    @property
    def session(self) -> Session:
        """Chain, blocks and transactions. Raises ConfigError outside `async with`."""
        if self._session is None:
            raise _not_open()
        return self._session

    @property
    def follower(self) -> JobFollower:
        """What the chain says of jobs. Raises ConfigError outside `async with`."""
        if self._follower is None:
            raise _not_open()
        return self._follower

    @property
    def chain(self) -> AtollChain:
        return self.session.chain

    @property
    def store(self) -> LocalStore:
        return self.session.store

    def fetcher_of(self, job: JobId) -> Fetcher:
        """Brings a job's blocks, from its gateways. Raises ConfigError outside `async with`."""
        return self.session.fetcher_of(job)

    @property
    def address(self) -> Address:
        """Who signs. Raises ConfigError for a client that only watches."""
        return self.session.me

    # Submitting

    async def prepare(self, request: JobRequest) -> Manifest:
        """Puts the request's data into the store and writes its manifest. Spends nothing.

        Raises:
            ManifestError: the choices do not fit together.
            StorageError, ConfigError: the data cannot be used; the train extra is missing.
        """
        data = await asyncio.to_thread(prepare_data, request, self.store)
        numerics = request.numerics
        if not isinstance(numerics, NumericsSpec):
            numerics = await machine_numerics(numerics)
        now = (await self.chain.head()).timestamp
        found = Found(data, numerics, expiry=now + request.lifetime_s, created=now)
        return build_manifest(request.choices, found)

    async def estimate(self, manifest: Manifest) -> Estimate:
        """The most a job can cost, by the contract's own arithmetic, and what is there."""
        owner, spender = self.address, self.deployment.addresses["Jobs"]
        return Estimate(
            budget=await self.chain.budget(manifest.terms),
            balance=await self.chain.token_balance(owner),
            allowance=await self.chain.allowance(owner, spender),
        )

    async def submit(self, job: Manifest | JobRequest, *, max_spend: int) -> JobHandle:
        """Pays for a job and opens it; what is not earned comes back by `refund`.

        The same manifest submitted again is the same job. This client has to stay open, or its
        files be served from elsewhere, until the verifiers hold the data.

        Args:
            max_spend: wei of the token that are never exceeded.

        Raises:
            ConfigError: the job may cost more than `max_spend`.
            InsufficientFunds: the account has less than that.
            NotFound: the manifest's data is not in this client's store.
            StorageError: the Kubo daemon does not take the data.
            TransactionFailed: the contract refused; the message has its reason.
        """
        queue = self.session.queue
        manifest = await self.prepare(job) if isinstance(job, JobRequest) else job
        self._check_data(manifest)
        cid = self.store.add_block(manifest.to_bytes(), DAG_CBOR)
        self.store.pin(cid, f"job:{cid}")
        await self._mirror(cid, manifest)
        key = f"create:{manifest.digest().hex()}"
        async with self._submitting:
            known = queue.status(key)
            if known is None or not known.has_effect:
                await self._pay_in(manifest, key, max_spend)
            status = await queue.wait(key, self.config.confirmations)
        job_id = await self._created_in(status, manifest)
        await self.serve()
        return self.attach(job_id)

    async def serve(self) -> str:
        """Serves this client's blocks and announces where; the announced URL.

        Raises:
            ConfigError: the port is in use.
        """
        queue = self.session.queue
        await self.session.serve()
        url = self.session.url
        # Another URL may have been announced in between, so the key counts the changes.
        told = [tx.key for tx in queue.transactions() if tx.label == "announceGateway"]
        if not told or not told[-1].endswith(f":{url}"):
            told.append(f"gateway:{len(told)}:{url}")
        await self.transact(told[-1], self.chain.calls.announce_gateway(url))
        return url

    def attach(self, job: int | str) -> JobHandle:
        """The handle of a job, by its number or by what `JobHandle.to_json` wrote.

        Raises:
            ConfigError: the text is of another deployment, or no handle at all.
        """
        if isinstance(job, int):
            return JobHandle(self, JobId(job))
        try:
            document = json.loads(job)
            number, there = int(document["job"]), document["deployment"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"this is not a job handle: {error!r}") from error
        if Deployment.from_json(json.dumps(there)) != self.deployment:
            raise ConfigError(
                f"job {number} is in another deployment (chain {there['chain_id']})",
                next_step="open the client with that deployment",
            )
        return JobHandle(self, JobId(number))

    async def _pay_in(self, manifest: Manifest, key: str, max_spend: int) -> None:
        estimate = await self.estimate(manifest)
        if estimate.budget > max_spend:
            raise ConfigError(
                f"the job may cost {tokens(estimate.budget)} tokens, "
                f"more than the {tokens(max_spend)} allowed",
                next_step="raise max_spend, or ask for fewer rounds, seats or steps",
            )
        if estimate.balance < estimate.budget:
            raise InsufficientFunds(
                f"{self.address} has {tokens(estimate.balance)} tokens, "
                f"the job may cost {tokens(estimate.budget)}",
                next_step="send tokens to the account, or ask for a smaller job",
            )
        # Nodes look for the data as soon as they see the job.
        await self.serve()
        calls, addresses = self.chain.calls, self.deployment.addresses
        if estimate.allowance < estimate.budget:
            approve = calls.approve(addresses["Jobs"], estimate.budget)
            await self.transact(f"approve:{key}:{estimate.allowance}", approve)
        spec = (manifest.digest(), manifest.cid())
        policy = addresses["CountingPolicy"]
        create = calls.create(*spec, manifest.terms, policy, estimate.budget)
        await self.transact(key, create)

    async def _created_in(self, status: TxStatus, manifest: Manifest) -> JobId:
        if status.block is None:
            raise ChainError("the job's transaction is in no block")
        for raw in await self.chain.logs(status.block, status.block):
            try:
                event = decode_log(raw)
            except UndecodableLog:
                continue  # a stranger's, who happens to be in the same block
            if (
                isinstance(event, JobCreated)
                and event.spec_digest == manifest.digest()
                and event.submitter == self.address
            ):
                return event.job_id
        raise ChainError(f"block {status.block} does not have the job any more: submit it again")

    def _check_data(self, manifest: Manifest) -> None:
        for cid in map(Cid.from_bytes, manifest.data.cids):
            if not self.store.has(cid):
                raise NotFound(
                    f"the manifest's data {cid} is not in {self.config.home / 'store'}",
                    next_step="prepare the data with this client first",
                )

    async def _mirror(self, cid: Cid, manifest: Manifest) -> None:
        await self.session.storage.mirror([cid, *map(Cid.from_bytes, manifest.data.cids)])

    async def transact(self, key: str, call: Call) -> TxStatus:
        """Sends a call once a key, and again only where it ended without effect.

        Raises:
            TransactionFailed: the contract refused; the message has its reason.
        """
        queue = self.session.queue
        await queue.submit(key, call, retry_failed=True)
        return await queue.wait(key)

    def _session_config(self) -> SessionConfig:
        config = self.config
        return SessionConfig(
            rpc_urls=self._rpc_urls,
            deployment=self.deployment,
            folder=config.home,
            store=StoreConfig(config.home / "store", config.store),
            account=self._account,
            jobs=frozenset(),
            confirmations=config.confirmations,
            gateway=GatewaySection(
                host=config.host, port=config.port, public_url=config.public_url
            ),
            queue=replace(config.queue, poll_seconds=config.poll_seconds),
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs one coroutine to its end, for scripts that are not asynchronous themselves."""
    return asyncio.run(main)


def _not_open() -> ConfigError:
    return ConfigError("the client is not open", next_step="use it inside `async with`")
