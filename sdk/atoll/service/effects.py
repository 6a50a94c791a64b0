"""How shared commands are carried out. Roles extend `Effects` with their own.

Rule of this file: an effect that is asked for again takes up where it was; what it leaves behind is
in the journal before it is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from atoll.bits.layout import max_state_bytes
from atoll.chain.calls import Call
from atoll.content.cid import Cid
from atoll.content.errors import MalformedDag
from atoll.errors import (
    AtollError,
    InsufficientFunds,
    ManifestError,
    NumericsMismatch,
    ProtocolError,
    StorageError,
    TooLarge,
    TransactionFailed,
)
from atoll.law.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.law.views import JobView
from atoll.law.words import JobId, Role, RoundIndex, SeatIndex
from atoll.service.commands import (
    DoFetchData,
    DoFetchSpec,
    DoPrepareOpening,
    DoUnpin,
    SendAnnounce,
    SendClaim,
    SendCredit,
    SendFinalise,
    SendJoin,
    SendLeave,
    SendPoke,
    SendPunish,
    SendRelease,
)
from atoll.service.context import Context
from atoll.service.facts import (
    BondReleased,
    DataReady,
    JobRefused,
    OpeningReady,
    RoundsUnpinned,
    SpecReady,
)
from atoll.service.journal import Fact
from atoll.service.machine import Command
from atoll.train.data import (
    MAX_DOCUMENT_BYTES,
    MAX_TOKENIZER_BYTES,
    SHARD_BYTES,
    DatasetIndex,
)

NAMED_TIMES = {"StillBound": 0, "DisputeOpen": 0}
"""Refusals that name when the call will be due, and which of their fields does (unix seconds)."""
NOTHING_HELD = "NotMember"
"""How the roster refuses to release a bond that is not there (any more)."""
TASKS = "atoll.service.tasks"
_PARALLEL_SHARDS = 4
log = structlog.get_logger("atoll.effects")


class NotYet(AtollError):
    """The chain's state says that this is not due, and not that it is done.

    Attributes:
        due_at: when it will be, unix seconds of the chain; None where the contract named no time.
    """

    def __init__(self, message: str, due_at: int | None) -> None:
        super().__init__(message)
        self.due_at = due_at


@dataclass(frozen=True, slots=True)
class Done:
    """What an effect left: facts, and the block of its transaction (0 for work)."""

    facts: tuple[Fact, ...] = ()
    block: int = 0


Handler = Callable[[JobView, Any], Awaitable[Done]]


class Effects:
    """Carries out the commands of one service; roles add handlers of their own."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.calls = context.chain.calls
        self.store_dir = str(context.config.store_dir)
        self._staking = asyncio.Lock()
        self._handlers = self.handlers()

    def handlers(self) -> dict[type, Handler]:
        """How each kind of command is carried out."""
        return {
            DoFetchSpec: self._fetch_spec,
            DoFetchData: self._fetch_data,
            DoPrepareOpening: self._prepare_opening,
            DoUnpin: self._unpin,
            SendAnnounce: self._announce,
            SendJoin: self._join,
            SendLeave: self._leave,
            SendRelease: self._release,
            SendPoke: self._poke,
            SendFinalise: self._finalise,
            SendPunish: self._punish,
            SendCredit: self._credit,
            SendClaim: self._claim,
        }

    async def run(self, view: JobView, command: Command) -> Done:
        """Carries a command out and journals what it left.

        Raises:
            AtollError: it did not take place; it may be asked for again.
        """
        done = await self._handlers[type(command)](view, command)
        if done.facts:
            self.context.journal.write(view.job_id, *done.facts)
        return done

    # --- transactions ---

    async def transact(self, view: JobView, key: str, call: Call) -> Done:
        """Sends what may happen once: asked for again it waits for the same transaction."""
        return await self._send(f"{view.job_id}:{key}", call)

    async def transact_again(self, view: JobView, key: str, call: Call) -> Done:
        """Sends what may be due again: a new transaction once the last one is in the view.

        The machine asks again only where the view, which has the last one's block, lacks its
        effect (a seat lost since, say).
        """
        serial = 0
        while (status := self.context.queue.status(f"{view.job_id}:{key}#{serial}")) is not None:
            settled = status.has_effect and status.block is not None
            if not settled or (status.block or 0) > view.block.number:
                break
            serial += 1
        return await self._send(f"{view.job_id}:{key}#{serial}", call)

    async def _send(self, key: str, call: Call) -> Done:
        await self.context.queue.submit(key, call, retry_failed=True)
        status = await self.context.queue.wait(key)
        if status.block is not None:
            return Done((), status.block)
        # Someone else was first: that is in the view once it has reached the newest block.
        head = await self.context.chain.head()
        await self._check_is_moot(call)
        return Done((), head.number)

    async def _check_is_moot(self, call: Call) -> None:
        """What anyone may do was refused: because it is done, or because it is too early?

        Raises:
            NotYet: the contract names the time from which it will be due.
        """
        try:
            await self.context.chain.simulate(call, self.context.me)
        except TransactionFailed as refused:
            field_ = NAMED_TIMES.get(refused.error or "")
            if field_ is not None:
                raise NotYet(str(refused), int(str(refused.args_[field_]))) from refused

    # --- blocks ---

    async def fetch(
        self, view: JobView, round_: int | None, cid: Cid, max_bytes: int, prefer: str = ""
    ) -> None:
        """Brings a file here, to be kept until its round is final, or for the whole job (None).

        Raises:
            NotFound: nobody has it.
            TooLarge, MalformedDag: it cannot be what it is meant to be.
        """
        await self.keep(view, round_, cid.to_bytes())
        fetcher = self.context.fetcher_of(view.job_id)
        await fetcher.fetch(cid, max_bytes, [prefer] if prefer else [])

    async def keep(self, view: JobView, round_: int | None, *cids: bytes) -> None:
        """Protects files from collection until their round is final, or for the whole job."""
        reason = _reason(view.job_id, round_)

        def pin_all() -> None:
            for cid in cids:
                self.context.store.pin(Cid.from_bytes(cid), reason)

        await asyncio.to_thread(pin_all)
        with _remote_may_fail("mirror"):
            await self.context.storage.mirror([Cid.from_bytes(cid) for cid in cids])

    async def _unpin(self, view: JobView, command: DoUnpin) -> Done:
        for round_ in range(command.first, command.below):
            with _remote_may_fail("unpin"):
                await self.context.storage.unpin(_reason(view.job_id, round_))
        await asyncio.to_thread(self.context.store.collect)
        return Done((RoundsUnpinned(command.below),))

    # --- material ---

    async def _fetch_spec(self, view: JobView, command: DoFetchSpec) -> Done:
        try:
            cid = Cid.from_bytes(command.spec_cid)
            await self.fetch(view, None, cid, MAX_MANIFEST_BYTES)
            data = self.context.store.read_bytes(cid, MAX_MANIFEST_BYTES)
            manifest = Manifest.from_bytes(data)
            manifest.check_terms(command.terms_hash)
            await self.context.worker.run(f"{TASKS}:check_machine", data)
        except (ValueError, TooLarge, MalformedDag, ManifestError, NumericsMismatch) as error:
            return Done((JobRefused(str(error)),))
        return Done((SpecReady(data),))

    async def _fetch_data(self, view: JobView, command: DoFetchData) -> Done:
        data = Manifest.from_bytes(command.manifest).data
        try:
            await self._fetch_dataset(view, Cid.from_bytes(data.cid))
            if data.eval_cid is not None:
                await self._fetch_dataset(view, Cid.from_bytes(data.eval_cid))
            await self.fetch(view, None, Cid.from_bytes(data.tokenizer_cid), MAX_TOKENIZER_BYTES)
            await self.context.worker.run(f"{TASKS}:check_data", command.manifest, self.store_dir)
        except (ProtocolError, MalformedDag, TooLarge) as error:
            return Done((JobRefused(str(error)),))
        return Done((DataReady(data.cid),))

    async def _fetch_dataset(self, view: JobView, cid: Cid) -> None:
        await self.fetch(view, None, cid, MAX_DOCUMENT_BYTES)
        document = self.context.store.read_bytes(cid, MAX_DOCUMENT_BYTES)
        shards = iter(dict.fromkeys(DatasetIndex.from_bytes(document).shards))

        async def fetch_some() -> None:
            for shard in shards:
                await self.fetch(view, None, shard, SHARD_BYTES)

        runs = (fetch_some() for _ in range(_PARALLEL_SHARDS))
        for result in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _prepare_opening(self, view: JobView, command: DoPrepareOpening) -> Done:
        with self.context.store.holding():
            return await self._open_round(view, command)

    async def _open_round(self, view: JobView, command: DoPrepareOpening) -> Done:
        worker, store_dir = self.context.worker, self.store_dir
        if command.cid is None or command.digest is None:
            opened = await worker.run(f"{TASKS}:make_initial_state", command.manifest, store_dir)
            digest = opened.digest
        else:
            limit = max_state_bytes(Manifest.from_bytes(command.manifest))
            await self.fetch(view, command.round, Cid.from_bytes(command.cid), limit)
            opened = await worker.run(
                f"{TASKS}:inspect_state", command.manifest, command.cid, store_dir
            )
            digest = command.digest
        if opened.digest != digest:
            raise ProtocolError(
                f"the model of round {command.round} has digest {opened.digest.hex()}, "
                f"its verdict says {digest.hex()}"
            )
        await self.keep(view, command.round, opened.cid)
        return Done((OpeningReady(command.round, digest, opened.cid, opened.params_root),))

    # --- money ---

    async def _join(self, view: JobView, command: SendJoin) -> Done:
        async with self._staking:
            await self._ensure_stake(view.job_id, command.role, command.bond)
            if command.role is Role.PROVIDER:
                call = self.calls.join_as_provider(view.job_id)
            else:
                call = self.calls.join_as_verifier(view.job_id)
            return await self.transact_again(view, command.key, call)

    async def _ensure_stake(self, job: JobId, role: Role, bond: int) -> None:
        """Deposits what the free stake lacks. Keys name the stake found, so none is sent twice."""
        chain, queue, me = self.context.chain, self.context.queue, self.context.me
        stake = await chain.stake(me, role)
        lacking = bond - (stake.active - stake.locked)
        if lacking <= 0:
            return
        balance = await chain.token_balance(me)
        if balance < lacking:
            raise InsufficientFunds(
                f"{me} has {balance} wei of the stake token, the bond lacks {lacking}",
                next_step="send stake tokens to this account, or take a job with a lower bond",
            )
        at = f"{role.name.lower()}:{stake.active}:{stake.locked}:{lacking}"
        stakes = chain.deployment.addresses["Stakes"]
        if await chain.allowance(me, stakes) < lacking:
            await queue.submit(
                f"approve:{at}", self.calls.approve(stakes, lacking), retry_failed=True
            )
            await queue.wait(f"approve:{at}")
        await queue.submit(f"deposit:{at}", self.calls.deposit(role, lacking), retry_failed=True)
        await queue.wait(f"deposit:{at}")

    async def _claim(self, view: JobView, command: SendClaim) -> Done:
        call = self.calls.claim(
            view.job_id, self.context.me, command.cumulative, list(command.proof)
        )
        return await self.transact_again(view, command.key, call)

    async def _release(self, view: JobView, command: SendRelease) -> Done:
        call = self.calls.release_bond(view.job_id, command.role, self.context.me)
        done = await self.transact_again(view, command.key, call)
        try:
            await self.context.chain.simulate(call, self.context.me)
        except TransactionFailed as refused:
            if refused.error != NOTHING_HELD:
                raise NotYet(f"the bond is still held: {refused}", None) from refused
        else:
            raise NotYet("the bond is still held, and can be released now", None)
        released = BondReleased(command.role, command.settled_rounds, command.is_over)
        return Done((released,), done.block)

    # --- keeping ---

    async def _announce(self, view: JobView, command: SendAnnounce) -> Done:
        call = self.calls.announce_gateway(command.url)
        return await self.transact_again(view, command.key, call)

    async def _leave(self, view: JobView, command: SendLeave) -> Done:
        leave = {
            Role.PROVIDER: self.calls.leave_as_provider,
            Role.VERIFIER: self.calls.leave_as_verifier,
        }
        return await self.transact_again(view, command.key, leave[command.role](view.job_id))

    async def _poke(self, view: JobView, command: SendPoke) -> Done:
        return await self.transact_again(view, command.key, self.calls.poke(view.job_id))

    async def _finalise(self, view: JobView, command: SendFinalise) -> Done:
        return await self.transact_again(view, command.key, self.calls.finalise(view.job_id))

    async def _punish(self, view: JobView, command: SendPunish) -> Done:
        round_ = RoundIndex(command.round)
        call = self.calls.punish(view.job_id, round_, command.offence, command.index)
        return await self.transact_again(view, command.key, call)

    async def _credit(self, view: JobView, command: SendCredit) -> Done:
        index = SeatIndex(command.index)  # a verifier's index for Role.VERIFIER: a plain number
        call = self.calls.credit(view.job_id, RoundIndex(command.round), command.role, index)
        return await self.transact_again(view, command.key, call)


@contextmanager
def _remote_may_fail(what: str) -> Iterator[None]:
    """Another daemon's failure costs its copy, not the round: our own gateway serves the blocks."""
    try:
        yield
    except StorageError as error:
        log.warning("the remote store failed", step=what, cause=str(error))


def _reason(job: int, round_: int | None) -> str:
    """What the store knows a job's or a round's pins by."""
    return f"job/{job}" if round_ is None else f"job/{job}/round/{round_}"
