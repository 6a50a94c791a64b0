"""An account's connection to a deployment: its chain, its files, its gateway, its transactions.

Rule of this file: any number of clients watch from a home, one at a time sends from it, and each
transaction has a key under which it is sent once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pydantic import ValidationError

from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import DEVELOPMENT_CHAINS, Deployment
from atoll.chain.keys import load_key, read_password
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue, unspent_key
from atoll.chain.txstatus import TxStatus
from atoll.chain.web3_client import deployed, web3_over
from atoll.errors import ConfigError
from atoll.job.chosen_network import chosen_network
from atoll.job.figures import Figures
from atoll.job.following import JobFollower
from atoll.job.sending import Sender
from atoll.job.submissions import Submissions
from atoll.protocol.token_units import use_decimals
from atoll.protocol.types import Address, JobId
from atoll.service.background_tasks import end
from atoll.service.config import GatewaySection
from atoll.service.lock import FolderHeld, hold_folder
from atoll.service.messages import explain
from atoll.service.session import Session, SessionConfig, open_queue, open_session
from atoll.storage.addresses import is_global, is_own
from atoll.storage.fetch import Fetcher
from atoll.storage.local import LocalStore
from atoll.storage.storage import StoreConfig

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount
    from web3 import AsyncWeb3
    from web3.contract import AsyncContract

DEFAULT_RPC = "http://127.0.0.1:8545"
_VARIABLES = ("RPC", "DEPLOYMENT", "KEYSTORE", "PASSWORD_FILE")
_GATEWAY = ("host", "port", "public_url", "private_peers")
"""What a config says of a gateway, as the variables and `GatewaySection` name it, too."""
HOME = Path("~/.atoll/client")
MAX_WATCHERS = 64


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where a client keeps its files and how it is reached.

    What is None is as `Client.from_env` finds it in the variables, else a default.

    Attributes:
        home: folder of blocks, transactions and events, for any number of clients of one account.
        host, port: where our gateway listens, so that others can fetch manifest and data: if
            nothing is said at every interface where there is a public URL, else at this machine's
            own; port 0 is any free one.
        public_url: what is announced instead, where the gateway is behind something.
        private_peers: whether addresses of this machine or of a network around it are asked, and
            ours may be one; if nothing is said only on a development chain.
        announce: whether others fetch from us, which takes an address that they reach; if nothing
            is said, where there is one. Else what a job begins with is brought to its verifiers.
        store: the storage backend (see `StoreConfig`); `kubo:URL` mirrors what jobs need.
        confirmations: blocks on top of one before we believe it.
        poll_seconds: how often the chain is asked.
        queue: how transactions bid and wait.
    """

    home: str | Path | None = None
    host: str | None = None
    port: int | None = None
    public_url: str | None = None
    private_peers: bool | None = None
    announce: bool | None = None
    store: str = "embedded"
    confirmations: int = 1
    poll_seconds: float = 0.5
    queue: QueueConfig = field(default_factory=QueueConfig)


class Connection:
    """One account's window on one deployment. Use it as an async context manager.

    Args:
        rpc: one or more http(s) endpoints, the preferred one first.
        deployment: the contracts' addresses, or the path of the file that has them.
        account: who pays and signs (`atoll.chain.keys.load_key`); None can only watch.

    Raises:
        ConfigError: the deployment cannot be read, or no gateway could be as the config says.
    """

    def __init__(
        self,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        account: LocalAccount | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        if not isinstance(deployment, Deployment):
            deployment = Deployment.load(Path(deployment).expanduser())
        self.deployment = deployment
        use_decimals(deployment.decimals)
        self.config = config or ClientConfig()
        self._listens = _gateway_of(_gateway_words(self.config))
        self._rpc_urls = (rpc,) if isinstance(rpc, str) else tuple(rpc)
        self._account = account
        self._opened = AsyncExitStack()
        self._session: Session | None = None
        self._follower: JobFollower | None = None
        self._submissions: Submissions | None = None
        self._figures: Figures | None = None
        self._sender: Sender | None = None
        self._bringing: dict[JobId, asyncio.Task[None]] = {}
        self._web3: AsyncWeb3[Any] | None = None
        self._folder = self.home

    @classmethod
    def from_keystore(
        cls,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        keystore: str | Path,
        password_file: str | Path,
        config: ClientConfig | None = None,
    ) -> Self:
        """A client that signs with a keystore's key. Raises KeystoreError."""
        password = read_password(Path(password_file).expanduser())
        return cls(rpc, deployment, load_key(Path(keystore).expanduser(), password), config)

    @classmethod
    def from_env(cls, config: ClientConfig | None = None) -> Self:
        """A client of the network and key that the command line's variables name, or of the network
        that `atoll network use` chose.

        They are ATOLL_RPC, ATOLL_DEPLOYMENT, ATOLL_KEYSTORE and ATOLL_PASSWORD_FILE; without a
        keystore it only watches. ATOLL_HOME, ATOLL_HOST, ATOLL_PORT, ATOLL_PUBLIC_URL and
        ATOLL_PRIVATE_PEERS say what the config leaves open.

        Raises:
            ConfigError: a variable is missing, or says what cannot be. KeystoreError: the key
                cannot be used.
        """
        variables = {name: os.environ.get(f"ATOLL_{name}") for name in _VARIABLES}
        if (network := chosen_network()) is not None:
            variables["RPC"] = variables["RPC"] or network.rpc
            variables["DEPLOYMENT"] = variables["DEPLOYMENT"] or str(network.deployment)
        if variables["DEPLOYMENT"] is None:
            raise ConfigError(
                "ATOLL_DEPLOYMENT is not set",
                next_step="name a deployment file, or choose one with `atoll network use FILE`",
            )
        rpc, config = (variables["RPC"] or DEFAULT_RPC).split(","), _with_variables(config)
        if variables["KEYSTORE"] is None:
            return cls(rpc, variables["DEPLOYMENT"], None, config)
        if variables["PASSWORD_FILE"] is None:
            raise ConfigError("ATOLL_PASSWORD_FILE is not set", next_step="name its file")
        key = variables["KEYSTORE"], variables["PASSWORD_FILE"]
        return cls.from_keystore(rpc, variables["DEPLOYMENT"], *key, config)

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            RpcUnavailable, WrongChain: no endpoint answers, or it is another chain.
            FolderHeld: too many clients watch from the home.
        """
        home = self.home
        home.mkdir(parents=True, exist_ok=True)
        self._folder = self._watching_folder(home)
        session = await self._opened.enter_async_context(open_session(self._session_config(home)))
        self._session, self._follower = session, JobFollower(session.follower)
        self._submissions = Submissions(home / "submissions.sqlite")
        self._opened.callback(self._submissions.close)
        self._figures = Figures(home / "figures.sqlite")
        self._opened.callback(self._figures.close)
        self._sender = Sender(home, lambda: open_queue(session, home))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops serving and lets go of the files; transactions under way go on with the next."""
        try:
            for job in list(self._bringing):
                await self.stop_bringing(job)
        finally:
            self._session = self._follower = self._submissions = self._figures = None
            self._sender = self._web3 = None
            await self._opened.aclose()

    @property
    def home(self) -> Path:
        """The folder of its files; paid jobs are known there alone."""
        home = HOME if self.config.home is None else Path(self.config.home)
        return home.expanduser()

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
    def submissions(self) -> Submissions:
        """What was submitted from this home. Raises ConfigError outside `async with`."""
        if self._submissions is None:
            raise _not_open()
        return self._submissions

    @property
    def figures(self) -> Figures:
        """What is known of how jobs go. Raises ConfigError outside `async with`."""
        if self._figures is None:
            raise _not_open()
        return self._figures

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[TxQueue]:
        """The account's transactions, at work; no other client of the home sends meanwhile.

        Raises:
            ConfigError: outside `async with`, or without an account.
            FolderHeld: another client sends, and does not come to an end.
        """
        if self._sender is None:
            raise _not_open()
        async with self._sender.queue() as queue:
            yield queue

    @property
    def chain(self) -> AtollChain:
        return self.session.chain

    @property
    def web3(self) -> AsyncWeb3[Any]:
        """web3.py over this client's endpoints: views, users' own contracts, decoding.

        It signs nothing: what this account sends goes by `transact`, which sends it once.

        Raises:
            ConfigError: outside `async with`, or the web3 extra is missing.
        """
        endpoints = self.chain.provider
        if self._web3 is None:
            self._web3 = web3_over(endpoints)
        return self._web3

    def contract(self, name: str) -> AsyncContract:
        """A contract of the deployment by its Solidity name, as web3.py has them. Raises as `web3`.

        stake = await client.contract("Stakes").functions.stakeOf(account, 0).call()
        """
        return deployed(self.web3, self.deployment, name)

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

    @property
    def is_open(self) -> bool:
        """Whether it is inside `async with`."""
        return self._follower is not None

    @property
    def can_sign(self) -> bool:
        """Whether it has an account."""
        return self._account is not None

    async def serve(self) -> str:
        """Serves this client's blocks and announces where; the announced URL.

        Where no port is chosen, the one that was announced last is taken if it is free.

        Raises:
            ConfigError: the port is in use, nobody could reach it, or nothing is to be announced.
        """
        if self.config.announce is False:
            raise ConfigError(
                "this client announces nothing, as its config says",
                next_step="bring a job's data to verifiers: `await job.hand_over(print)`",
            )
        self._require_reach()
        async with self.sending() as queue:
            # Another URL may have been announced in between, so the key counts the changes.
            announced = [tx.key for tx in queue.transactions() if tx.label == "announceGateway"]
            await self.session.serve(port=_port_in(announced[-1]) if announced else 0)
            url = self.session.url
            if not announced or not announced[-1].endswith(f":{url}"):
                announced.append(f"gateway:{len(announced)}:{url}")
            await self.transact(announced[-1], self.chain.calls.announce_gateway(url))
        return url

    async def stop_bringing(self, job: JobId) -> None:
        """Ends what brings a job's data to verifiers beside other work."""
        if (task := self._bringing.pop(job, None)) is not None:
            await end([task])

    @property
    def announces(self) -> bool:
        """Whether others fetch from here; else what a job begins with is brought to its verifiers.

        An address that is named is meant to be reached.
        """
        if self.config.announce is not None:
            return self.config.announce
        return self._listens.public_url is not None or not self._unreached

    def check_reach(self) -> None:
        """That others can be where our blocks are announced, where they are, before anything is
        paid for.

        Raises:
            ConfigError: the members of this chain's jobs ask no such address, or it leads to a port
                that is not chosen.
        """
        if self.announces:
            self._require_reach()

    def _require_reach(self) -> None:
        """Raises as `check_reach`."""
        listens, chain_id = self._listens, self.deployment.chain_id
        if listens.public_url and not listens.port:
            raise ConfigError(
                "a public URL is set, and the port is any free one",
                next_step="choose the port that the URL leads to: --port, or ATOLL_PORT",
            )
        if unreached := self._unreached:
            raise ConfigError(
                f"nobody could fetch the data from {unreached}: members of chain {chain_id} ask "
                "no address of one machine or of a network around it",
                next_step="pass --detach, which brings it to two verifiers; or --port N and "
                "--public-url URL, with an address at which others reach that port (ATOLL_PORT and "
                "ATOLL_PUBLIC_URL)",
            )

    @property
    def _unreached(self) -> str:
        """The address at which nobody could fetch anything; empty where others may."""
        listens, chain_id = self._listens, self.deployment.chain_id
        url, allowed = listens.public_url, listens.private_peers
        host = urlsplit(url).hostname or "" if url else listens.host
        is_here = chain_id in DEVELOPMENT_CHAINS
        may_be_near = is_here if allowed is None else allowed
        # Who says that members are near means other machines of a network, too.
        is_refused = not may_be_near or (is_own(host) and not is_here)
        return (url or host) if is_refused and (is_own(host) or not is_global(host)) else ""

    @property
    def port(self) -> int:
        """Where this client serves; 0 where it does not."""
        gateway = self.session.gateway
        # A public URL has another port, or none.
        return 0 if gateway is None else self._listens.port or urlsplit(gateway.url).port or 0

    async def allow(self, amount: int, key: str) -> None:
        """Lets the jobs contract take `amount` wei for what `key` names.

        What it finds may be as it was before an earlier approval, which another job has used up.
        """
        jobs = self.deployment.addresses["Jobs"]
        async with self.sending() as queue:
            allowance = await self.chain.allowance(self.address, jobs)
            if allowance < amount:
                approve = self.chain.calls.approve(jobs, amount)
                unspent = unspent_key(queue, f"approve:{key}:{allowance}")
                await self.transact(unspent, approve)

    async def transact(self, key: str, call: Call) -> TxStatus:
        """Sends a call once a key, and again only where it ended without effect.

        Raises:
            TransactionFailed: the contract refused; the message has its reason.
            FolderHeld: another client sends, and does not come to an end.
        """
        async with self.sending() as queue:
            await queue.submit(key, call, retry_failed=True)
            return await queue.wait(key)

    def _watching_folder(self, home: Path) -> Path:
        """Each client has events of its own, and holds nothing that another needs."""
        for number in range(MAX_WATCHERS):
            folder = home / "watching" / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(FolderHeld):
                self._opened.enter_context(hold_folder(folder))
                return folder
        raise FolderHeld(f"{MAX_WATCHERS} clients watch from {home}", next_step="stop some of them")

    def _session_config(self, home: Path) -> SessionConfig:
        config = self.config
        return SessionConfig(
            rpc_urls=self._rpc_urls,
            deployment=self.deployment,
            folder=self._folder,
            store=StoreConfig(home / "store", config.store),
            account=self._account,
            sends=False,
            jobs=frozenset(),
            confirmations=config.confirmations,
            gateway=self._listens,
            queue=replace(config.queue, poll_seconds=config.poll_seconds),
        )


def _gateway_words(config: ClientConfig) -> dict[str, Any]:
    """What the config says of our gateway, by name."""
    values = {name: getattr(config, name) for name in _GATEWAY}
    return {name: value for name, value in values.items() if value is not None}


def _gateway_of(words: dict[str, Any]) -> GatewaySection:
    listens = {"host": "0.0.0.0"} if "public_url" in words else {}  # noqa: S104 - it is announced
    try:
        return GatewaySection.model_validate(listens | words)
    except ValidationError as error:
        raise explain(error, GatewaySection, "where the data is served") from error


def _with_variables(config: ClientConfig | None) -> ClientConfig:
    """The config, with what it leaves open as the variables say. Raises ConfigError."""
    config = config or ClientConfig()
    home = os.environ.get("ATOLL_HOME") or None if config.home is None else config.home
    variables = {name: os.environ.get(f"ATOLL_{name.upper()}") for name in _GATEWAY}
    words = {name: value for name, value in variables.items() if value} | _gateway_words(config)
    section = _gateway_of(words)
    return replace(config, home=home, **{name: getattr(section, name) for name in words})


def _port_in(key: str) -> int:
    """The port of an announced URL."""
    return urlsplit(key.split(":", 2)[2]).port or 0


def _not_open() -> ConfigError:
    return ConfigError("the client is not open", next_step="use it inside `async with`")
