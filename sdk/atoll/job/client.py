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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from atoll.chain import contract_views as views
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.deployment import Deployment
from atoll.chain.txfile import QUEUE_FILE, read_intent
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import ENDED_WITHOUT_EFFECT
from atoll.chain.txstatus import TxStatus
from atoll.errors import (
    AtollError,
    ChainError,
    ConfigError,
    InsufficientFunds,
    NotFound,
    UndecodableLog,
)
from atoll.job.asking import Ask, asking
from atoll.job.connection import ClientConfig, Connection
from atoll.job.draft import Draft, PreparedParts, write_draft
from atoll.job.event_text import tokens
from atoll.job.following import job_created
from atoll.job.groups import units_text, wei_of
from atoll.job.handle import JobHandle
from atoll.job.handover import hand_over
from atoll.job.hub import pin_hub
from atoll.job.plan import BondFloors, priced
from atoll.job.prepare_manifest import (
    OnProgress,
    machine_numerics,
    prepare_text,
    prepare_weights,
    untold,
    with_program,
)
from atoll.job.spec import JobSpec
from atoll.job.submissions import key_of
from atoll.job.toml_files import to_toml
from atoll.nested import loads
from atoll.protocol.certificates import CertificateKind
from atoll.protocol.events import ContractEvent
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.types import Address, JobId
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.train.corpus.options import PUBLIC_NOTICE

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

START_SECONDS = 600
"""A manifest that expires sooner is not paid for: it is written anew."""
log = structlog.get_logger("atoll.job.client")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job may cost at most, and what there is to pay it from; wei."""

    budget: int
    balance: int
    allowance: int


@dataclass(frozen=True, slots=True)
class _Order:
    """What is known of a submission beside its manifest.

    Attributes:
        key: the same words have the same one.
        file: text of the job's file.
        policy: what checks the job's certificates.
        limit: the most that it may cost, in wei.
    """

    key: str
    file: str
    policy: Address
    limit: int


class Client(Connection):
    """A connection that submits jobs, and knows those of its home.

    Args:
        rpc: one or more http(s) endpoints, the preferred one first.
        deployment: the network's contracts, or the file that has them.
        account: who signs; None only watches.
        config: home, address and limits; None is as usual.
        ask: whom to ask what a manifest says of this machine; None starts a process when it is.

    Raises:
        ConfigError: as a `Connection`.
    """

    def __init__(
        self,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        account: LocalAccount | None = None,
        config: ClientConfig | None = None,
        ask: Ask | None = None,
    ) -> None:
        super().__init__(rpc, deployment, account, config)
        self.ask = ask
        self._submitting = asyncio.Lock()

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
            measured: measure the pace even where nothing is excluded.
            on_progress: told how far the preparation of the text is, from another thread.

        Raises:
            ManifestError: the choices do not fit together.
            StorageError, ConfigError: the data cannot be used; the train extra is missing.
        """
        chosen = spec if isinstance(spec, JobSpec) else JobSpec.read(spec)
        chosen, pinned = await asyncio.to_thread(pin_hub, chosen)
        file = to_toml(chosen)
        chosen, init = await asyncio.to_thread(prepare_weights, chosen, self.store)
        text = await asyncio.to_thread(prepare_text, chosen, self.store, on_progress)
        data = text.spec(chosen.evaluate.batches)
        key, now = key_of(chosen, data, init), (await self.chain.head()).timestamp
        known = self.submissions.newest(key)
        if known is not None:
            manifest, job = Manifest.from_bytes(known.manifest), known.job
            if job is None and self.can_sign:
                job = await self._job_on_chain(manifest)
            if not (again and job) and (job is not None or self._stands(manifest, now)):
                draft = Draft(key, chosen, manifest, job=job, file=file)
                return replace(draft, read=text.account, notes=(*pinned, *text.notes))
            # Its second is all that tells another job of the same words from this one.
            now = max(now, manifest.created + 1)
        after = None if again else 0 if known is None else known.id
        floors = await self._floors()
        is_open = bool(priced(chosen, floors)[0].left_out())
        async with asking(self.ask) as ask:
            parts = PreparedParts(data, init, numerics or await machine_numerics(ask), text.task)
            measuring = ask if measured or is_open else None
            draft = await write_draft(key, chosen, parts, now, floors, ask=measuring)
            manifest = await with_program(draft.manifest, self.store, ask)
        draft = replace(draft, manifest=manifest, file=file, after=after)
        return replace(draft, read=text.account, notes=(*pinned, *text.notes))

    async def prepare(self, spec: JobSpec, numerics: NumericsSpec | None = None) -> Manifest:
        """The manifest of `draft`. Raises as that."""
        return (await self.draft(spec, numerics)).manifest

    def _stands(self, manifest: Manifest, now: int) -> bool:
        """Whether a submission that is not on the chain can still come to be there."""
        path, key = self.home / QUEUE_FILE, _create_key(manifest)
        sent = read_intent(path, key) if self.can_sign else None
        under_way = sent is not None and sent.state not in ENDED_WITHOUT_EFFECT
        return under_way or manifest.terms.expiry > now + START_SECONDS

    async def _job_on_chain(self, manifest: Manifest) -> JobId | None:
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

    async def _floors(self) -> BondFloors:
        params = await self.chain.ask(views.params())
        return BondFloors.of(params, self.deployment.decimals)

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

        The same job submitted again is the same job, paid once. This client has to stay open until
        the verifiers hold the data: it serves it where others reach it, and else brings it to them
        (`JobHandle.hand_over` waits for that).

        Args:
            job: a spec, the path of its file, or what was made of it.
            max_spend: never exceeded; wei, or tokens as text ("25").
            again: another job of the same words, where the last is on the chain.
            on_progress: of a spec's data; see `draft`.

        Raises:
            ConfigError: the job may cost more than `max_spend`, wants certificates that the
                network does not check, the network is paused, or its data could not be fetched
                (`check_reach`).
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
        order = _Order(
            key=job.key if isinstance(job, Draft) else manifest.digest().hex(),
            file=job.file if isinstance(job, Draft) else "",
            policy=self._policy_of(job),
            limit=limit,
        )
        log.info(PUBLIC_NOTICE)
        self._check_data(manifest)
        async with self._submitting, self.sending() as queue:
            manifest = self._first_of(job) if isinstance(job, Draft) else manifest
            cid = self.store.add_block(manifest.to_bytes(), DAG_CBOR)
            self.store.pin(cid, f"job:{cid}")
            await self._mirror(cid, manifest)
            handle = self.attach(await self._create(queue, manifest, order))
        if self.announces:
            await self.serve()
        else:
            await self._bring(handle)
        return handle

    async def _bring(self, job: JobHandle) -> None:
        """Brings a job's data to verifiers beside other work, until this client closes."""

        async def bring() -> None:
            try:
                await hand_over(job, log.info)
            except AtollError as error:
                log.error("a job's data is not brought to anybody", job=job.id, cause=str(error))

        await self.stop_bringing(job.id)
        self._bringing[job.id] = asyncio.create_task(bring())

    def _policy_of(self, job: Draft | Manifest) -> Address:
        """What checks the job's certificates; a manifest alone does not say which it wants."""
        kind = (
            CertificateKind(job.spec.certificate)
            if isinstance(job, Draft)
            else CertificateKind.ECDSA
        )
        policy = self.deployment.addresses.get(kind.policy)
        if policy is None:
            raise ConfigError(
                f"this network checks no certificates in {kind.value}: "
                "its chain had no precompiles for them (EIP-2537) when it was deployed",
                next_step='set certificate = "ecdsa"',
            )
        return policy

    def _first_of(self, draft: Draft) -> Manifest:
        """The manifest of a draft, or of what another program submitted of the same words since."""
        newest = self.submissions.newest(draft.key)
        if draft.after is None or newest is None or newest.id <= draft.after:
            return draft.manifest
        return Manifest.from_bytes(newest.manifest)

    async def _create(self, queue: TxQueue, manifest: Manifest, order: _Order) -> JobId:
        """Notes the submission under its key with its file, and pays unless that was done."""
        create = _create_key(manifest)
        sent = queue.status(create)
        is_paid = sent is not None and sent.has_effect
        # What was copied here may know nothing of the transaction that another machine sent.
        job = None if is_paid else await self._job_on_chain(manifest)
        is_due = not is_paid and job is None
        if is_due:
            await self._check_open()
            await self._check_money(manifest, order.limit)
        submission = self.submissions.write(
            order.key, manifest.name, manifest.to_bytes(), order.file
        )
        if is_due:
            await self._pay_in(manifest, order.policy, create)
        if job is None:
            status = await queue.wait(create, self.config.confirmations)
            job = await self._created_in(status, manifest)
        self.submissions.created(submission, job)
        return job

    def jobs(self) -> list[JobHandle]:
        """Every job that was submitted from this home, oldest first."""
        numbers = (item.job for item in self.submissions.all())
        return [self.attach(job) for job in dict.fromkeys(numbers) if job is not None]

    def attach(self, job: int | str) -> JobHandle:
        """The handle of a job, by its number or by what `JobHandle.to_json` wrote.

        Raises:
            ConfigError: the text is of another deployment, or no handle at all.
        """
        if isinstance(job, int):
            return JobHandle(self, JobId(job))
        try:
            document = loads(job)
            number, there = int(document["job"]), document["deployment"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"this is not a job handle: {error!r}") from error
        if Deployment.from_json(json.dumps(there)) != self.deployment:
            raise ConfigError(
                f"job {number} is in another deployment (chain {there['chain_id']})",
                next_step="open the client with that deployment",
            )
        return JobHandle(self, JobId(number))

    async def _check_open(self) -> None:
        if await self.chain.ask(views.paused()):
            raise ConfigError(
                "the network is paused by its owner: no new job is created, and open ones go on",
                next_step="run this again later; nothing was paid",
            )

    async def _check_money(self, manifest: Manifest, max_spend: int) -> None:
        estimate = await self.estimate(manifest)
        if estimate.budget > max_spend:
            raise ConfigError(
                f"the job may cost {tokens(estimate.budget)} tokens, "
                f"more than the {units_text(max_spend)} allowed",
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
        if self.announces:  # nodes look for the data as soon as they see the job
            await self.serve()
        budget = await self.chain.budget(manifest.terms)
        await self.allow(budget, key)
        spec = (manifest.digest(), manifest.cid())
        create = self.chain.calls.create(*spec, manifest.terms, policy, budget)
        await self.transact(key, create)

    async def _created_in(self, status: TxStatus, manifest: Manifest) -> JobId:
        """The job of a transaction that is confirmed.

        Asked of what is followed, not of that block: whoever comes back hours later finds no node
        that still has the state of it, but archives.
        """
        if status.block is None:
            raise ChainError("the job's transaction is in no block")
        mine = manifest.digest(), self.address
        while (job := await self.follower.created(*mine, status.block)) is None:
            if self.follower.confirmed >= status.block:
                lost = f"block {status.block} does not have the job any more"
                raise ChainError(lost, next_step="submit it again")
            await asyncio.sleep(self.config.poll_seconds)
        return job

    def _check_data(self, manifest: Manifest) -> None:
        for cid in map(Cid.from_bytes, manifest.content):
            if not self.store.has(cid):
                raise NotFound(
                    f"the manifest's data {cid} is not in {self.store.root}",
                    next_step="prepare the data with this client first",
                )

    async def _mirror(self, cid: Cid, manifest: Manifest) -> None:
        await self.session.storage.mirror([cid, *map(Cid.from_bytes, manifest.content)])


def _event_of(raw: RawLog) -> ContractEvent | None:
    try:
        return decode_log(raw)
    except UndecodableLog:
        return None  # a stranger's, who happens to be in the same block


def _create_key(manifest: Manifest) -> str:
    return f"create:{manifest.digest().hex()}"
