"""One account on one deployment: chain, followed jobs, transactions, blocks; opened and closed.

Rule of this file: what is opened is closed in reverse order however the session ends, and a config
that cannot work fails here, before anything is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eth_utils.address import to_checksum_address
from yarl import URL

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import DEVELOPMENT_CHAINS, Deployment
from atoll.chain.follower import Follower
from atoll.chain.index import EventIndex
from atoll.chain.keys import sign_typed
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txfile import QUEUE_FILE
from atoll.chain.txqueue import TxQueue
from atoll.errors import AtollError, ConfigError
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.typed_data import TypedMessage
from atoll.protocol.types import Address, Domain, JobId
from atoll.protocol.views import JobView
from atoll.service.accepted_files import accepted_files, longest, shown_files
from atoll.service.checkpoints import NAME, CheckpointFinder
from atoll.service.config import GatewaySection
from atoll.service.gateway_process import GatewayFiles, GatewayProcess, GatewaySpec, Serves
from atoll.service.greeting import Greeter
from atoll.service.update_limits import max_update_bytes
from atoll.storage.addresses import is_global
from atoll.storage.cid import Cid
from atoll.storage.fetch import Fetcher
from atoll.storage.local import LocalStore
from atoll.storage.rate_limits import Outsider
from atoll.storage.storage import Storage, StoreConfig, open_storage

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


ADMIT_SECONDS = 2.0
LOOK_SECONDS = 0.25
"""Between two looks at which files others may bring, or have pieces of: they wait for it."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a session is opened with.

    Attributes:
        rpc_urls: one or more http(s) endpoints, the preferred one first.
        folder: of transactions and events; one session at a time uses it.
        store: where blocks are kept.
        account: who signs; None can only watch.
        sends: whether the account's transactions are sent from the folder, which this session then
            holds the queue of; who only signs leaves it to others.
        jobs: the jobs to follow; None follows every job.
        confirmations: blocks on top of one before we believe it.
        agreement: endpoints that have to give a block alike before we believe it.
        looks_ahead: whether the blocks on top are read, too: see `Follower.ahead`.
    """

    rpc_urls: tuple[str, ...]
    deployment: Deployment
    folder: Path
    store: StoreConfig
    account: LocalAccount | None = None
    sends: bool = True
    jobs: frozenset[int] | None = None
    confirmations: int = 1
    agreement: int = 1
    looks_ahead: bool = False
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
    gateway: GatewayProcess | None = None
    _queue: TxQueue | None = None
    _admits: asyncio.Task[None] | None = None
    _ours: set[JobId] = field(default_factory=set)
    _files: dict[JobId, tuple[JobView, GatewayFiles]] = field(default_factory=dict)
    _asked: Mapping[Cid, int] = field(default_factory=dict)
    _submitters: Set[Address] = frozenset()

    @property
    def store(self) -> LocalStore:
        return self.storage.local

    def fetcher_of(self, job: JobId) -> Fetcher:
        """Brings a job's blocks, from the gateways of that job's members and submitter only.

        Those in which nothing of ours is at stake wait for one another: anybody can announce any
        number of them.
        """
        party = job if self._is_ours(job) else Outsider(job)
        return self.storage.fetcher.among(lambda: self._others(job), party)

    @property
    def queue(self) -> TxQueue:
        """Every transaction of the account. Raises ConfigError where the session sends nothing."""
        if self._queue is None:
            raise _only_watches()
        return self._queue

    @property
    def url(self) -> str:
        """Where our blocks are announced; empty until `serve`, and where nobody could reach it."""
        listens = self.config.gateway
        if self.gateway is None or not listens.announce:
            return ""
        if listens.public_url:
            return listens.public_url
        is_reached = _asks_private_peers(self.config) or is_global(URL(self.gateway.url).host or "")
        return self.gateway.url if is_reached else ""

    @property
    def me(self) -> Address:
        """Who signs. Raises ConfigError where the session only watches."""
        if self.config.account is None:
            raise _only_watches()
        return Address(to_checksum_address(self.config.account.address))

    def sign(self, message: TypedMessage) -> bytes:
        """Our signature of a message (`sign_typed`). Raises ConfigError where we only watch."""
        if self.config.account is None:
            raise _only_watches()
        return sign_typed(self.config.account, message)

    async def serve(
        self, serves: Serves | None = None, *, port: int = 0, journal: Path | None = None
    ) -> GatewayProcess:
        """Serves our blocks from now on; the same gateway when asked again.

        Args:
            serves: says which blocks are given out; None gives out all.
            port: taken if it is free, where the config leaves it open.
            journal: whose notes are served.

        Raises:
            ConfigError: the port is in use.
        """
        if self.gateway is None:
            spec = self._gateway_spec(serves, port, journal)
            gateway = GatewayProcess(spec)
            try:
                await gateway.start()
            except ConfigError:
                if self.config.gateway.port or not port:
                    raise
                gateway = GatewayProcess(replace(spec, port=0))
                await gateway.start()
            self.gateway = gateway
            self._admits = asyncio.create_task(self._admit(gateway))
        return self.gateway

    def _gateway_spec(self, serves: Serves | None, port: int, journal: Path | None) -> GatewaySpec:
        listen = self.config.gateway
        return GatewaySpec(
            store=str(self.store.root.absolute()),
            host=listen.host,
            port=listen.port or port,
            chain_id=self.config.deployment.chain_id,
            rounds=self.config.deployment.addresses["Rounds"],
            budget=listen.budget(),
            journal=str(journal.absolute()) if journal is not None else "",
            url=listen.public_url or "",
            serves=serves,
        )

    async def stop_serving(self) -> None:
        """Ends what `serve` began."""
        gateway, self.gateway = self.gateway, None
        if self._admits is not None:
            self._admits.cancel()
            self._admits = None
        if gateway is not None:
            await gateway.stop()

    async def _admit(self, gateway: GatewayProcess) -> None:
        clock = asyncio.get_running_loop().time
        admitted, admitted_at = self.admitted(), clock()
        while True:
            if clock() - admitted_at >= ADMIT_SECONDS:
                admitted, admitted_at = self.admitted(), clock()
            # Of who is a member already a place is kept as for who is seated.
            placed, submitters = self.seated() | self._submitters, self._submitters - admitted
            gateway.admit(admitted, self.files(), placed, submitters)
            await asyncio.sleep(LOOK_SECONDS)

    def admitted(self) -> set[Address]:
        """The members of the jobs that are ours, or were: until the claim deadline we keep what
        their submitters may fetch.

        Of all jobs it would be anybody: announcing one costs only gas.
        """
        views = self.follower.views
        if self.config.account is not None:
            me = Address(self.config.account.address)
            self._ours |= {job for job, view in views.items() if _had_part(view, me)}
        return {account for job in self._ours & views.keys() for account in members_of(views[job])}

    def ask_for(self, files: Mapping[Cid, int], submitters: Set[Address]) -> None:
        """Takes these from whoever brings them, too, each of at most so many bytes, and no other
        ones of those that were asked for before.

        Args:
            submitters: of the jobs that begin with them; each can bring some whatever others do.
        """
        self._asked, self._submitters = dict(files), frozenset(submitters)

    def files(self) -> GatewayFiles:
        """The files that others may bring to our gateway, and of which it shows pieces."""
        if self.config.account is None:
            return GatewayFiles()
        me, views = Address(self.config.account.address), self.follower.views
        for job in self._ours & views.keys():
            view, (seen, _) = views[job], self._files.get(job, (None, None))
            if view is not seen:
                accepted, shown = list(accepted_files(view, me)), list(shown_files(view))
                most = self._most_of_update(view) if accepted or shown else 0
                if most or not (accepted or shown):
                    files = (dict.fromkeys(accepted, most), dict.fromkeys(shown, most))
                    self._files[job] = (view, GatewayFiles(*files))
        every = [files for _, files in self._files.values()]
        updates = (files.accepted for files in every)
        return GatewayFiles(
            longest((self._asked, *updates)), longest(files.shown for files in every)
        )

    def seated(self) -> set[Address]:
        """Who trains now for a job in which we have a part."""
        views = self.follower.views
        running = [
            view for job in self._ours & views.keys() if (view := views[job]).open is not None
        ]
        return {
            view.providers[holder].account
            for view in running
            if view.open is not None
            for holder in view.open.seats.values()
        }

    def _most_of_update(self, view: JobView) -> int:
        """Bytes that an update of a job may have; 0 where its manifest is not here."""
        try:
            data = self.store.read_bytes(Cid.from_bytes(view.spec_cid), MAX_MANIFEST_BYTES)
            manifest = Manifest.from_bytes(data)
        except (AtollError, ValueError):
            return 0
        return max_update_bytes(manifest) if manifest.digest() == view.spec_digest else 0

    def _is_ours(self, job: JobId) -> bool:
        """Whether something of ours is at stake in it."""
        view, account = self.follower.views.get(job), self.config.account
        if view is None or account is None:
            return False
        me = Address(account.address)
        return view.submitter == me or view.is_bound(me)

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
        chain = await AtollChain.connect(config.rpc_urls, config.deployment, config.agreement)
        stack.push_async_callback(chain.close)
        index = EventIndex(
            chain,
            confirmations=config.confirmations,
            path=config.folder / "events.sqlite",
            looks_ahead=config.looks_ahead,
            checkpoints=_finder(chain, config, lambda: session.storage.fetcher),
        )
        stack.callback(index.close)
        session = Session(config, chain, Follower(index, config.deployment, config.jobs))
        session.storage = await open_storage(_guarded(config))
        stack.push_async_callback(session.storage.close)
        if config.account is not None and config.sends:
            queue = session._queue = open_queue(session, config.folder)
            stack.callback(queue.close)
        stack.push_async_callback(session.stop_serving)
        yield session


def _finder(
    chain: AtollChain, config: SessionConfig, fetcher: Callable[[], Fetcher]
) -> CheckpointFinder:
    """Asks one gateway at a time; nothing of ours is at stake in what it gives."""
    account = None if config.account is None else Address(config.account.address)

    def from_one(url: str) -> Fetcher:
        return fetcher().among(lambda: [url], Outsider(NAME))

    return CheckpointFinder(chain, from_one, config.deployment.block, account)


def open_queue(session: Session, folder: Path) -> TxQueue:
    """The account's queue in a folder; nobody works at it yet.

    Raises:
        ConfigError: another process has it open, or it is another account's; the session only
            watches.
        StorageError: its file is damaged, or cannot be used.
    """
    config = session.config
    if config.account is None:
        raise _only_watches()
    return TxQueue(session.chain, config.account, folder / QUEUE_FILE, config.queue)


def _guarded(config: SessionConfig) -> StoreConfig:
    """The store's config, with which gateways are asked, and how they are greeted."""
    chain_id = config.deployment.chain_id
    fetch = replace(config.store.fetch, private_addresses=_asks_private_peers(config))
    if config.account is not None:
        me = Address(config.account.address)
        domain = Domain(chain_id, config.deployment.addresses["Rounds"])
        fetch = replace(fetch, greet=Greeter(me, domain, partial(sign_typed, config.account)))
    return replace(config.store, fetch=fetch)


def _asks_private_peers(config: SessionConfig) -> bool:
    """Whether gateways of this machine and of networks around it are asked."""
    allowed = config.gateway.private_peers
    return config.deployment.chain_id in DEVELOPMENT_CHAINS if allowed is None else allowed


def members_of(view: JobView) -> set[Address]:
    """Who has a bond in a job, or submitted it; who has it home owes and needs nothing."""
    holders = (*view.providers.values(), *view.verifiers.values())
    return {view.submitter, *(held.account for held in holders if not held.is_released)}


def _had_part(view: JobView, account: Address) -> bool:
    return view.submitter == account or view.holder_of(account) is not None


def _only_watches() -> ConfigError:
    return ConfigError(
        "this client has no key and can only watch", next_step="open it with an account"
    )
