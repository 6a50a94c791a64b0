"""Submitting jobs: the part of Atoll that a person with text and tokens uses.

    async with Client.from_env() as client:
        job = await client.submit("job.toml", max_spend="50")
        async for update in job.watch():
            print(update.text)
        await job.result("model")

Rule of this file: what is paid for is on disk under a key before it is sent, so that the same
submission made again, after a crash or on purpose, is the same job.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import structlog
from pydantic import ValidationError

from atoll.chain.calls import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.deployment import DEVELOPMENT_CHAINS, Deployment
from atoll.chain.keys import load_key, read_password
from atoll.chain.txqueue import QueueConfig, TxStatus, unspent_key
from atoll.chain.txstore import ENDED_WITHOUT_EFFECT
from atoll.content.addresses import is_global, is_own
from atoll.content.cid import DAG_CBOR, Cid
from atoll.content.fetch import Fetcher
from atoll.content.local import LocalStore
from atoll.content.storage import StoreConfig
from atoll.errors import ChainError, ConfigError, InsufficientFunds, NotFound, UndecodableLog
from atoll.job.asking import Ask, asking
from atoll.job.document import to_toml
from atoll.job.draft import Draft, Found, write_draft
from atoll.job.figures import Figures
from atoll.job.following import JobFollower, job_created
from atoll.job.groups import parse_tokens, tokens_text
from atoll.job.handle import JobHandle
from atoll.job.narrate import tokens
from atoll.job.plan import Floors
from atoll.job.prepare import (
    OnProgress,
    machine_numerics,
    prepare_data,
    prepare_weights,
    untold,
    with_program,
)
from atoll.job.spec import JobSpec
from atoll.job.submissions import Submissions, key_of
from atoll.law.certificates import Kind
from atoll.law.events import ContractEvent
from atoll.law.manifest import Manifest, NumericsSpec
from atoll.law.words import Address, JobId, Params
from atoll.service.beside import beside
from atoll.service.config import GatewaySection
from atoll.service.lock import FolderHeld, hold_folder
from atoll.service.session import Session, SessionConfig, open_session
from atoll.service.wording import explain
from atoll.train.corpus.options import PUBLIC_NOTICE

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

DEFAULT_RPC = "http://127.0.0.1:8545"
START_SECONDS = 600
"""A manifest that expires sooner is not paid for: it is written anew."""
_VARIABLES = ("RPC", "DEPLOYMENT", "KEYSTORE", "PASSWORD_FILE")
_GATEWAY = ("host", "port", "public_url", "private_peers")
"""What a config says of a gateway, as the variables and `GatewaySection` name it, too."""
HOME = Path("~/.atoll/client")
MAX_WATCHERS = 64
log = structlog.get_logger("atoll.job.client")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where a client keeps its files and how it is reached.

    What is None is as `Client.from_env` finds it in the variables, else a default.

    Attributes:
        home: folder of blocks, transactions and events; one client at a time uses it.
        host, port: where our gateway listens, so that others can fetch manifest and data: if
            nothing is said at every interface where there is a public URL, else at this machine's
            own; port 0 is any free one.
        public_url: what is announced instead, where the gateway is behind something.
        private_peers: whether addresses of this machine or of a network around it are asked, and
            ours may be one; if nothing is said only on a development chain.
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
        deployment: the contracts' addresses, or the path of the file that has them.
        account: who pays and signs (`atoll.chain.keys.load_key`); None can only watch.
        ask: whom to ask what a manifest says of this machine; None starts a process when it is.

    Raises:
        ConfigError: the deployment cannot be read, or no gateway could be as the config says.
    """

    def __init__(
        self,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        account: LocalAccount | None = None,
        config: ClientConfig | None = None,
        ask: Ask | None = None,
    ) -> None:
        if not isinstance(deployment, Deployment):
            deployment = Deployment.load(Path(deployment).expanduser())
        self.deployment = deployment
        self.config = config or ClientConfig()
        self._listens = _gateway_of(_gateway_words(self.config))
        self._rpc_urls = (rpc,) if isinstance(rpc, str) else tuple(rpc)
        self._account = account
        self.ask = ask
        self._opened = AsyncExitStack()
        self._session: Session | None = None
        self._follower: JobFollower | None = None
        self._submissions: Submissions | None = None
        self._figures: Figures | None = None
        self._folder = self.home
        self._submitting = asyncio.Lock()

    @classmethod
    def from_keystore(
        cls,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        keystore: str | Path,
        password_file: str | Path,
        config: ClientConfig | None = None,
    ) -> Client:
        """A client that signs with a keystore's key. Raises KeystoreError."""
        password = read_password(Path(password_file).expanduser())
        return cls(rpc, deployment, load_key(Path(keystore).expanduser(), password), config)

    @classmethod
    def from_env(cls, config: ClientConfig | None = None) -> Client:
        """A client of the network and key that the command line's variables name.

        They are ATOLL_RPC, ATOLL_DEPLOYMENT, ATOLL_KEYSTORE and ATOLL_PASSWORD_FILE; without a
        keystore it only watches. ATOLL_HOME, ATOLL_HOST, ATOLL_PORT, ATOLL_PUBLIC_URL and
        ATOLL_PRIVATE_PEERS say what the config leaves open.

        Raises:
            ConfigError: a variable is missing, or says what cannot be. KeystoreError: the key
                cannot be used.
        """
        found = {name: os.environ.get(f"ATOLL_{name}") for name in _VARIABLES}
        if found["DEPLOYMENT"] is None:
            raise ConfigError("ATOLL_DEPLOYMENT is not set", next_step="name a deployment file")
        rpc, config = (found["RPC"] or DEFAULT_RPC).split(","), _with_variables(config)
        if found["KEYSTORE"] is None:
            return cls(rpc, found["DEPLOYMENT"], None, config)
        if found["PASSWORD_FILE"] is None:
            raise ConfigError("ATOLL_PASSWORD_FILE is not set", next_step="name its file")
        key = found["KEYSTORE"], found["PASSWORD_FILE"]
        return cls.from_keystore(rpc, found["DEPLOYMENT"], *key, config)

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            RpcUnavailable, WrongChain: no endpoint answers, or it is another chain.
            FolderHeld: another client signs from the same home. Any number may watch.
        """
        home = self.home
        home.mkdir(parents=True, exist_ok=True)
        self._hold(home)
        session = await self._opened.enter_async_context(open_session(self._session_config(home)))
        self._session, self._follower = session, JobFollower(session.follower)
        self._submissions = Submissions(home / "submissions.sqlite")
        self._opened.callback(self._submissions.close)
        self._figures = Figures(home / "figures.sqlite")
        self._opened.callback(self._figures.close)
        if self._account is not None:
            await self._opened.enter_async_context(beside([session.queue.run()]))
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
        self._session = self._follower = self._submissions = self._figures = None
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

    @property
    def can_sign(self) -> bool:
        """Whether it has an account."""
        return self._account is not None

    # Submitting

    async def draft(
        self,
        spec: JobSpec | str | Path,
        numerics: NumericsSpec | None = None,
        *,
        again: bool = False,
        measured: bool = False,
        on_progress: OnProgress = untold,
    ) -> Draft:
        """Puts a job's text and weights into the store and completes it. Spends nothing.

        A job that was submitted from this home before is that job, as it was submitted.

        Args:
            spec: or the path of its file.
            numerics: None asks this machine, which needs torch.
            again: another job of the same words, where the last is on the chain.
            measured: measure the pace even where nothing is left out.
            on_progress: told how far the preparation of the text is, from another thread.

        Raises:
            ManifestError: the choices do not fit together.
            StorageError, ConfigError: the data cannot be used; the train extra is missing.
        """
        chosen = spec if isinstance(spec, JobSpec) else JobSpec.read(spec)
        said = to_toml(chosen)
        chosen, init = await asyncio.to_thread(prepare_weights, chosen, self.store)
        data = await asyncio.to_thread(prepare_data, chosen, self.store, on_progress)
        key, now = key_of(chosen, data, init), (await self.chain.head()).timestamp
        known = self.submissions.newest(key)
        if known is not None:
            manifest, job = Manifest.from_bytes(known.manifest), known.job
            if job is None and self.can_sign:
                job = await self._found(manifest)
            if not (again and job) and (job is not None or self._stands(manifest, now)):
                return Draft(key, chosen, manifest, job=job, said=said)
            # Its second is all that tells another job of the same words from this one.
            now = max(now, manifest.created + 1)
        floors, is_open = await self._floors(), bool(chosen.left_out())
        async with asking(self.ask) as ask:
            found = Found(data, init, numerics or await machine_numerics(ask))
            measuring = ask if measured or is_open else None
            draft = await write_draft(key, chosen, found, now, floors, ask=measuring)
            manifest = await with_program(draft.manifest, self.store, ask)
        return replace(draft, manifest=manifest, said=said)

    async def prepare(self, spec: JobSpec, numerics: NumericsSpec | None = None) -> Manifest:
        """The manifest of `draft`. Raises as that."""
        return (await self.draft(spec, numerics)).manifest

    def _stands(self, manifest: Manifest, now: int) -> bool:
        """Whether a submission that is not on the chain can still come to be there."""
        sent = None if self._account is None else self.session.queue.status(_create_key(manifest))
        under_way = sent is not None and sent.state not in ENDED_WITHOUT_EFFECT
        return under_way or manifest.terms.expiry > now + START_SECONDS

    async def _found(self, manifest: Manifest) -> JobId | None:
        """Our job of a manifest that the chain has, whichever machine sent it, once confirmed."""
        mine = manifest.digest(), self.address
        while True:
            job = await self.follower.created(*mine)
            if job is not None:
                return job
            first, last = self.follower.confirmed + 1, (await self.chain.head()).number
            logs = await self.chain.logs(first, last) if first <= last else []
            if all(job_created(_event_of(raw), *mine) is None for raw in logs):
                return None
            await asyncio.sleep(self.config.poll_seconds)

    async def _floors(self) -> Floors:
        (values,) = await self.chain.read("params")
        params = Params(*values)
        return Floors(params.min_provider_bond, params.min_verifier_bond, params.winner_share_bps)

    async def estimate(self, manifest: Manifest) -> Estimate:
        """The most a job can cost, by the contract's own arithmetic, and what is there."""
        owner, spender = self.address, self.deployment.addresses["Jobs"]
        return Estimate(
            budget=await self.chain.budget(manifest.terms),
            balance=await self.chain.token_balance(owner),
            allowance=await self.chain.allowance(owner, spender),
        )

    async def submit(
        self,
        job: JobSpec | str | Path | Draft | Manifest,
        *,
        max_spend: int | str,
        again: bool = False,
        on_progress: OnProgress = untold,
    ) -> JobHandle:
        """Pays for a job and opens it; what is not earned comes back by `refund`.

        The same job submitted again is the same job, paid once. This client has to stay open, or
        its files be served from elsewhere, until the verifiers hold the data.

        Args:
            job: a spec, the path of its file, or what was made of it.
            max_spend: never exceeded; wei, or tokens as text ("25").
            again: another job of the same words, where the last is on the chain.
            on_progress: of a spec's data; see `draft`.

        Raises:
            ConfigError: the job may cost more than `max_spend`, wants certificates that the
                network does not check, or its data could not be fetched (`check_reach`).
            InsufficientFunds: the account has less than that.
            NotFound: the manifest's data is not in this client's store.
            StorageError: the Kubo daemon does not take the data.
            TransactionFailed: the contract refused; the message has its reason.
        """
        limit = wei_of(max_spend)
        self.check_reach()
        if not isinstance(job, Draft | Manifest):
            job = await self.draft(job, again=again, on_progress=on_progress)
        manifest = job.manifest if isinstance(job, Draft) else job
        kept = job.key if isinstance(job, Draft) else manifest.digest().hex()
        said = job.said if isinstance(job, Draft) else ""
        policy = self._policy_of(job)
        log.info(PUBLIC_NOTICE)
        self._check_data(manifest)
        cid = self.store.add_block(manifest.to_bytes(), DAG_CBOR)
        self.store.pin(cid, f"job:{cid}")
        await self._mirror(cid, manifest)
        async with self._submitting:
            job_id = await self._create(manifest, (kept, said), policy, limit)
        await self.serve()
        return self.attach(job_id)

    def _policy_of(self, job: Draft | Manifest) -> Address:
        """What checks the job's certificates; a manifest alone does not say which it wants."""
        kind = Kind(job.spec.certificate) if isinstance(job, Draft) else Kind.ECDSA
        policy = self.deployment.addresses.get(kind.policy)
        if policy is None:
            raise ConfigError(
                f"this network checks no certificates in {kind.value}: "
                "its chain had no precompiles for them (EIP-2537) when it was deployed",
                next_step='set certificate = "ecdsa"',
            )
        return policy

    async def _create(
        self, manifest: Manifest, kept: tuple[str, str], policy: Address, limit: int
    ) -> JobId:
        """Notes the submission under its key with its file, and pays unless that was done."""
        (key, said), create = kept, _create_key(manifest)
        sent = self.session.queue.status(create)
        is_paid = sent is not None and sent.has_effect
        # What was copied here may know nothing of the transaction that another machine sent.
        job = None if is_paid else await self._found(manifest)
        is_due = not is_paid and job is None
        if is_due:
            await self._check_money(manifest, limit)
        submission = self.submissions.write(key, manifest.name, manifest.to_bytes(), said)
        if is_due:
            await self._pay_in(manifest, policy, create)
        if job is None:
            status = await self.session.queue.wait(create, self.config.confirmations)
            job = await self._created_in(status, manifest)
        self.submissions.created(submission, job)
        return job

    def jobs(self) -> list[JobHandle]:
        """Every job that was submitted from this home, oldest first."""
        numbers = (item.job for item in self.submissions.all())
        return [self.attach(job) for job in dict.fromkeys(numbers) if job is not None]

    async def serve(self) -> str:
        """Serves this client's blocks and announces where; the announced URL.

        Where no port is chosen, the one that was announced last is taken if it is free.

        Raises:
            ConfigError: the port is in use, or as `check_reach`.
        """
        self.check_reach()
        queue = self.session.queue
        # Another URL may have been announced in between, so the key counts the changes.
        told = [tx.key for tx in queue.transactions() if tx.label == "announceGateway"]
        await self.session.serve(port=_port_in(told[-1]) if told else 0)
        url = self.session.url
        if not told or not told[-1].endswith(f":{url}"):
            told.append(f"gateway:{len(told)}:{url}")
        await self.transact(told[-1], self.chain.calls.announce_gateway(url))
        return url

    def check_reach(self) -> None:
        """That others can be where our blocks are announced, before anything is paid for.

        Raises:
            ConfigError: the members of this chain's jobs ask no such address, or it leads to a port
                that is not chosen.
        """
        listens, chain_id = self._listens, self.deployment.chain_id
        if listens.public_url and not listens.port:
            raise ConfigError(
                "a public URL is set, and the port is any free one",
                next_step="choose the port that the URL leads to: --port, or ATOLL_PORT",
            )
        url, allowed = listens.public_url, listens.private_peers
        host = urlsplit(url).hostname or "" if url else listens.host
        is_here = chain_id in DEVELOPMENT_CHAINS
        may_be_near = is_here if allowed is None else allowed
        # Who says that members are near means other machines of a network, too.
        is_refused = not may_be_near or (is_own(host) and not is_here)
        if is_refused and (is_own(host) or not is_global(host)):
            raise ConfigError(
                f"nobody could fetch the data from {url or host}: members of chain {chain_id} ask "
                "no address of one machine or of a network around it",
                next_step="pass --port N and --public-url URL, with an address at which others "
                "reach that port; or set ATOLL_PORT and ATOLL_PUBLIC_URL",
            )

    @property
    def port(self) -> int:
        """Where this client serves; 0 where it does not."""
        gateway = self.session.gateway
        # A public URL has another port, or none.
        return 0 if gateway is None else self._listens.port or urlsplit(gateway.url).port or 0

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

    async def _check_money(self, manifest: Manifest, max_spend: int) -> None:
        estimate = await self.estimate(manifest)
        if estimate.budget > max_spend:
            raise ConfigError(
                f"the job may cost {tokens(estimate.budget)} tokens, "
                f"more than the {tokens_text(max_spend)} allowed",
                next_step="raise max_spend (text is tokens, an integer is wei), or ask for fewer "
                "rounds, seats or steps",
            )
        if estimate.balance < estimate.budget:
            raise InsufficientFunds(
                f"{self.address} has {tokens(estimate.balance)} tokens, "
                f"the job may cost {tokens(estimate.budget)}",
                next_step="send tokens to the account, or ask for a smaller job",
            )

    async def _pay_in(self, manifest: Manifest, policy: Address, key: str) -> None:
        # Nodes look for the data as soon as they see the job.
        await self.serve()
        budget = await self.chain.budget(manifest.terms)
        await self.allow(budget, key)
        spec = (manifest.digest(), manifest.cid())
        create = self.chain.calls.create(*spec, manifest.terms, policy, budget)
        await self.transact(key, create)

    async def allow(self, amount: int, key: str) -> None:
        """Lets the jobs contract take `amount` wei for what `key` names.

        What it finds may be as it was before an earlier approval, which another job has used up.
        """
        jobs = self.deployment.addresses["Jobs"]
        allowance = await self.chain.allowance(self.address, jobs)
        if allowance < amount:
            approve = self.chain.calls.approve(jobs, amount)
            found = unspent_key(self.session.queue, f"approve:{key}:{allowance}")
            await self.transact(found, approve)

    async def _created_in(self, status: TxStatus, manifest: Manifest) -> JobId:
        if status.block is None:
            raise ChainError("the job's transaction is in no block")
        for raw in await self.chain.logs(status.block, status.block):
            job = job_created(_event_of(raw), manifest.digest(), self.address)
            if job is not None:
                return job
        raise ChainError(f"block {status.block} does not have the job any more: submit it again")

    def _check_data(self, manifest: Manifest) -> None:
        for cid in map(Cid.from_bytes, manifest.content):
            if not self.store.has(cid):
                raise NotFound(
                    f"the manifest's data {cid} is not in {self.store.root}",
                    next_step="prepare the data with this client first",
                )

    async def _mirror(self, cid: Cid, manifest: Manifest) -> None:
        await self.session.storage.mirror([cid, *map(Cid.from_bytes, manifest.content)])

    async def transact(self, key: str, call: Call) -> TxStatus:
        """Sends a call once a key, and again only where it ended without effect.

        Raises:
            TransactionFailed: the contract refused; the message has its reason.
        """
        queue = self.session.queue
        await queue.submit(key, call, retry_failed=True)
        return await queue.wait(key)

    def _hold(self, home: Path) -> None:
        """One client signs from a home; those that watch have folders of their own in it."""
        if self._account is None:
            self._folder = self._watching_folder(home)
            return
        self._folder = home
        try:
            self._opened.enter_context(hold_folder(home))
        except FolderHeld as error:
            # Not from another home, which does not know what was paid for from this one.
            raise FolderHeld(
                f"another client signs from {home}: {error}",
                next_step="wait until it has sent its transactions",
            ) from error

    def _watching_folder(self, home: Path) -> Path:
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
            jobs=frozenset(),
            confirmations=config.confirmations,
            gateway=self._listens,
            queue=replace(config.queue, poll_seconds=config.poll_seconds),
        )


def wei_of(amount: int | str) -> int:
    """Wei of an amount: an integer is wei, text is tokens. Raises ConfigError, of a float too."""
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise ConfigError(
            f"{amount!r} is no amount: an integer is wei, text is tokens",
            next_step=f'write tokens as text: "{amount}"',
        )
    try:
        wei = parse_tokens(amount) if isinstance(amount, str) else amount
    except ValueError as error:
        raise ConfigError(str(error), next_step="write tokens as text: 25 or 0.5") from error
    if wei < 0:
        raise ConfigError(f"{wei} wei is less than nothing")
    return wei


def _event_of(raw: RawLog) -> ContractEvent | None:
    try:
        return decode_log(raw)
    except UndecodableLog:
        return None  # a stranger's, who happens to be in the same block


def _gateway_words(config: ClientConfig) -> dict[str, Any]:
    """What the config says of our gateway, by name."""
    said = {name: getattr(config, name) for name in _GATEWAY}
    return {name: value for name, value in said.items() if value is not None}


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
    found = {name: os.environ.get(f"ATOLL_{name.upper()}") for name in _GATEWAY}
    words = {name: value for name, value in found.items() if value} | _gateway_words(config)
    section = _gateway_of(words)
    return replace(config, home=home, **{name: getattr(section, name) for name in words})


def _create_key(manifest: Manifest) -> str:
    return f"create:{manifest.digest().hex()}"


def _port_in(key: str) -> int:
    """The port of an announced URL."""
    return urlsplit(key.split(":", 2)[2]).port or 0


def _not_open() -> ConfigError:
    return ConfigError("the client is not open", next_step="use it inside `async with`")
