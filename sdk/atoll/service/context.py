"""What a running service holds: a session that signs and serves, a worker, a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower
from atoll.chain.keys import load_key, read_password
from atoll.chain.txconfig import GWEI, QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.errors import ConfigError
from atoll.protocol.typed_data import TypedMessage
from atoll.protocol.types import Address, JobId
from atoll.service.config import ServiceConfig
from atoll.service.control import NotRunning, Refused, ask
from atoll.service.gateway_process import GatewayProcess, Serves
from atoll.service.journal import Belongs, Journal
from atoll.service.lock import FolderHeld, hold_folder
from atoll.service.private import private_paths, require_private
from atoll.service.session import SessionConfig, open_session
from atoll.service.worker import Worker
from atoll.storage.cid import Cid
from atoll.storage.fetch import Fetcher
from atoll.storage.local import LocalStore
from atoll.storage.storage import Storage, StoreConfig
from atoll.train.torchrun import RANKS_OF_TORCHRUN, Torchrun

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

GAS_MARGIN_PERCENT = 200
"""Whoever happens to be last in a phase also closes it, which no estimate made before can know."""
HOLD_TRIES = 30
HOLD_PAUSE_S = 1.0
"""Half a minute, of the minute and a half that systemd gives a start."""
log = structlog.get_logger("atoll.context")


@dataclass(frozen=True)
class Context:
    """Everything that effects are carried out with.

    Attributes:
        me: the account that signs.
        url: where our gateway is announced.
        ask_for: takes files from whoever brings them, and those named before no longer; of those
            accounts whatever strangers do.
        fetcher_of: brings a job's blocks, from that job's gateways only.
        spare_worker: a second process, started when what is urgent finds the first one at work.
        game_worker: a third one, started by the first game: a first move takes as long as a round.
        sign: our signature of a message.
    """

    config: ServiceConfig
    me: Address
    url: str
    ask_for: Callable[[Mapping[Cid, int], Set[Address]], None]
    fetcher_of: Callable[[JobId], Fetcher]
    chain: AtollChain
    queue: TxQueue
    follower: Follower
    storage: Storage
    gateway: GatewayProcess
    worker: Worker
    spare_worker: Worker
    game_worker: Worker
    journal: Journal
    sign: Callable[[TypedMessage], bytes]

    @property
    def store(self) -> LocalStore:
        return self.storage.local

    @property
    def fetcher(self) -> Fetcher:
        """Brings blocks from nobody in particular; its counters are of all."""
        return self.storage.fetcher


@asynccontextmanager
async def open_context(
    config: ServiceConfig, serves: Serves | None = None
) -> AsyncIterator[Context]:
    """Opens everything; the gateway listens when this returns.

    Args:
        serves: says which blocks are given out; None gives out all.

    Raises:
        FolderHeld: another process runs in the folder.
        JournalError: what the service signed is not known, or it is another's.
        ConfigError, KeystoreError: a file, key or port that cannot be used, or one that others can
            read.
        ChainError: no endpoint answers, or it is another chain.
        StorageError: the folder of blocks, or the Kubo daemon, cannot be used.
    """
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_private(private_paths(config.keystore, config.password_file, config.data_dir))
    async with AsyncExitStack() as stack:
        await hold_when_free(stack, config.data_dir)
        account = load_key(config.keystore, read_password(config.password_file))
        whose = Belongs.of(Deployment.load(config.deployment), account.address)
        journal = stack.enter_context(closing(Journal(config.journal_file, whose)))
        session_config = _session_config(config, account, journal.pair)
        session = await stack.enter_async_context(open_session(session_config))
        journal.tell_claims(session.queue.claimed)
        gateway = await session.serve(serves, journal=config.journal_file)
        niceness, device = config.worker_niceness, config.device
        most_memory = config.policy.most_memory_bytes
        workers = [
            Worker(niceness=niceness, device=device, most_memory=most_memory, ranks=ranks)
            for ranks in ranks_of_workers(config)
        ]
        for each in workers:
            stack.callback(each.kill)
        worker, spare_worker, game_worker = workers
        yield Context(
            config=config,
            me=session.me,
            url=session.url,
            ask_for=session.ask_for,
            fetcher_of=session.fetcher_of,
            chain=session.chain,
            queue=session.queue,
            follower=session.follower,
            storage=session.storage,
            gateway=gateway,
            worker=worker,
            spare_worker=spare_worker,
            game_worker=game_worker,
            journal=journal,
            sign=session.sign,
        )


def ranks_of_workers(config: ServiceConfig) -> tuple[int, int, int]:
    """Of worker, spare and game worker; ranks that torchrun started have one that leads them.

    Raises ConfigError where the config would start others beside these.
    """
    here = Torchrun.here()
    if here is None:
        return config.ranks, config.ranks, config.ranks
    if config.ranks != 1:
        raise ConfigError(
            f"torchrun has started {here.size} ranks, and the config wants {config.ranks}",
            next_step="take `ranks` out of the config",
        )
    return RANKS_OF_TORCHRUN, 1, 1


async def hold_when_free(stack: AsyncExitStack, data_dir: Path) -> None:
    """Holds the folder until the stack ends; a command that has it, as `atoll tx bump` does for
    some seconds, is waited for.

    Raises:
        FolderHeld: a service runs there, or a command that takes longer.
    """
    for tries_left in reversed(range(HOLD_TRIES)):
        try:
            stack.enter_context(hold_folder(data_dir, is_service=True))
        except FolderHeld as held:
            if not tries_left or await _is_answered(data_dir):
                raise
            log.warning("waits for the folder", cause=str(held))
            await asyncio.sleep(HOLD_PAUSE_S)
        else:
            return


async def _is_answered(data_dir: Path) -> bool:
    """Whether a service runs in the folder."""
    try:
        with suppress(Refused):
            await ask(data_dir, "status")
    except NotRunning:
        return False
    return True


def _session_config(config: ServiceConfig, account: LocalAccount, pair: str) -> SessionConfig:
    return SessionConfig(
        rpc_urls=config.rpc_urls,
        deployment=Deployment.load(config.deployment),
        folder=config.data_dir,
        store=StoreConfig(config.store_dir, config.store.backend, config.store.quota_bytes),
        account=account,
        jobs=None if config.jobs == "any" else frozenset(config.jobs),
        confirmations=config.confirmations,
        agreement=config.rpc_agreement,
        looks_ahead=True,
        gateway=config.gateway,
        queue=QueueConfig(
            fee_cap=config.fees.max_fee_gwei * GWEI,
            fee_per_stake=config.fees.per_stake,
            poll_seconds=config.poll_interval_s,
            gas_margin_percent=GAS_MARGIN_PERCENT,
            pair=pair,
        ),
    )
