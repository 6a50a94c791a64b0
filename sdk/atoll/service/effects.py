"""What commands are carried out with: transactions, blocks, the worker, the journal.

Rule of this file: an effect that is asked for again takes up where it was; what it leaves behind is
in the journal before it is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Never, Protocol, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.errors import NotFound, StorageError, TransactionFailed
from atoll.protocol.hashing import sha256
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.types import JobId, Role
from atoll.protocol.views import JobView
from atoll.service.context import Context
from atoll.service.entries import Done, F, NotYet, R_co
from atoll.service.pace import Load
from atoll.service.priority_lock import PriorityLock
from atoll.service.task import TaskCall
from atoll.storage.cid import Cid
from atoll.storage.pins import Pin
from atoll.storage.spread import Spread
from atoll.train.checkpoints import release

T = TypeVar("T")
_FILES_AT_ONCE = 4
"""With eight blocks of each under way, which the fetcher sees to, enough for a gateway's line, and
at most 64 MiB in memory."""
NAMED_TIMES = {"StillBound": 0, "WindowOpen": 0}
"""Refusals that name when the call will be due, and which of their fields does (unix seconds)."""
ROLES = {"provider": Role.PROVIDER, "verifier": Role.VERIFIER}
RELAY_PART = 4
"""Relays are waited for a 4th of a committee draw's time. When half of it is over, votes are cast.
"""
MOST_HEALED = 64
"""Blocks that are fetched again for one command; a disk that loses more has to be looked at."""
PATIENCE_S = 3.0
"""About what it takes to start a process."""
log = structlog.get_logger("atoll.effects")


class Performed(Protocol[R_co]):
    """What `Effects.run` has to know of a command (see `Command`)."""

    @property
    def key(self) -> str: ...
    async def perform(self, effects: Effects, view: JobView) -> Done[R_co]: ...


class Sent(Protocol):
    """What `Effects.transact` has to know of a command (see `Transaction`)."""

    @property
    def key(self) -> str: ...
    @property
    def once(self) -> bool: ...
    @property
    def is_of_account(self) -> bool: ...


class Effects:
    """Carries out the commands of one service.

    Attributes:
        staking: held while the free stake is looked at and added to.
        moves: of games, one at a time: ranked by their deadlines, those of the run at hand first,
            which another would have to make room for.
        joined: the blocks in which this process took a place in jobs: views show them later.
        unpaid: jobs of ours that open no round, as the service sees it.
        games: what a run in a game takes this machine, of jobs whose pace was measured.
        role: whose terms the policy is held against; None for an outsider's.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.calls = context.chain.calls
        self.store_dir = str(context.config.store_dir)
        self.staking = asyncio.Lock()
        self.moves = PriorityLock()
        self.joined: dict[JobId, int] = {}
        self.unpaid: frozenset[JobId] = frozenset()
        self.games: dict[JobId, Load] = {}
        self.role = ROLES.get(context.config.role or "")
        self._long = 0

    def other_jobs(self, view: JobView) -> list[JobView]:
        """Jobs that have not ended in which the account has a part, or just took one; without those
        that open no round.
        """

        def is_fresh(other: JobView) -> bool:
            return other.block.number < self.joined.get(other.job_id, 0)

        return [
            other
            for job, other in self.context.follower.views.items()
            if job != view.job_id
            and job not in self.unpaid
            and not other.status.is_closed
            and (is_fresh(other) or other.standing(self.context.me) is not None)
        ]

    async def run(self, view: JobView, command: Performed[F]) -> Done[F]:
        """Carries a command out and journals what it left.

        A block that was here once and is lost, as disks lose them, is fetched again from the job's
        gateways meanwhile.

        Raises:
            AtollError: it did not take place; it may be asked for again.
        """
        left = await self._perform(view, command)
        if left.entry is not None:
            self.context.journal.write(view.job_id, command.key, left.entry)
        return left

    async def _perform(self, view: JobView, command: Performed[F]) -> Done[F]:
        healed: set[str] = set()
        while True:
            try:
                return await command.perform(self, view)
            except StorageError as error:
                if not error.lost or error.lost in healed or len(healed) == MOST_HEALED:
                    raise
                healed.add(error.lost)
                fetcher = self.context.fetcher_of(view.job_id)
                try:
                    await fetcher.fetch_block(Cid.parse(error.lost))
                except NotFound:
                    raise error from None
                log.warning("a block was lost here", job=view.job_id, block=error.lost)

    async def work(self, call: TaskCall[T], *, due: int = 0) -> T:
        """Runs a task in the worker, by when it is `due` (see `Worker.run`), whatever job it is of.
        Raises what it raises, or WorkerDied.
        """
        self._long += 1
        try:
            return await self.context.worker.run(call, due=due)
        finally:
            self._long -= 1

    async def vet(self, view: JobView, call: TaskCall[T]) -> T:
        """As `work`, of what a job brings along: where we have no part in it, and so owe it
        nothing, it gives way to all else.
        """
        if view.is_bound(self.context.me):
            return await self.work(call)
        self._long += 1
        try:
            return await self.context.worker.run_last(call)
        finally:
            self._long -= 1

    async def play(self, call: TaskCall[T]) -> T:
        """As `work`, for a move of a game, whose clock runs in each of them.

        What takes as long as a round is never before it: a side that moves at once could else make
        another, which trains or replays, wait for its own work until the clock is over. Nor is it
        before what is owed: who disputes somebody could else have it miss its votes and rounds.
        """
        return await self.context.game_worker.run(call, is_first=True)

    async def work_soon(self, call: TaskCall[T]) -> T:
        """As `work`, for what has a deadline and takes seconds.

        It waits a little, before all others, for what is under way; what takes as long as a round,
        of whatever job, has to be passed, and then it has a process of its own.
        """
        patience = PATIENCE_S if self._long else None
        run = self.context.worker.run
        try:
            return await run(call, is_first=True, patience_s=patience)
        except TimeoutError:
            return await self.context.spare_worker.run(call)

    # --- transactions ---

    async def transact(self, view: JobView, command: Sent, call: Call) -> Done[Never]:
        """Sends a command's call; asked for again, waits for the same transaction (see `once`)."""
        key = command.key if command.is_of_account else f"{view.job_id}:{command.key}"
        key = key if command.once else self.serial_key(key, view.block.number)
        seen = self.context.follower.confirmed
        await self.context.queue.submit(key, call, retry_failed=True)
        status = await self.context.queue.wait(key)
        if status.block is not None:
            # A view that has the block and wants this still is to be asked again with the next one.
            return Done(block=max(status.block, seen + 1))
        # Someone else was first: that is in the view once it has reached the newest block. Where it
        # has, and wants this still, nothing can have changed before the block after that.
        head = await self.context.chain.head()
        await self._check_is_moot(call)
        is_seen = self.context.follower.confirmed >= head.number
        return Done(block=head.number + is_seen)

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

    def serial_key(self, key: str, seen: int) -> str:
        """The key of the last such transaction, or a new one where that one's block was seen.

        Args:
            seen: number of the newest block that whoever asks has looked at.
        """
        serial = 0
        while (status := self.context.queue.status(f"{key}#{serial}")) is not None:
            settled = status.has_effect and status.block is not None
            if not settled or (status.block or 0) > seen:
                break
            serial += 1
        return f"{key}#{serial}"

    # --- blocks ---

    async def fetch(
        self,
        view: JobView,
        round_: int | None,
        cid: Cid,
        max_bytes: int,
        prefer: Sequence[str] = (),
    ) -> None:
        """Brings a file here, to be kept until its round is final, or for the whole job (None).

        Raises:
            NotFound: nobody has it.
            TooLarge, MalformedDag: it cannot be what it is meant to be.
        """
        await self.pin(view, round_, cid)
        await self.context.fetcher_of(view.job_id).fetch(cid, max_bytes, prefer)
        self.context.storage.mirror_later([cid])

    async def fetch_spread(self, view: JobView, round_: int, cid: Cid, max_bytes: int) -> None:
        """As `fetch`, of what its author brings to a round's committee, which serves it on. Raises
        as `fetch`.
        """
        await self.pin(view, round_, cid)
        relays, me = committee_gateways(view, round_), view.gateways.get(self.context.me, "")
        spread = Spread.of("", relays, me, view.require_terms().merge_seconds / RELAY_PART)
        await self.context.fetcher_of(view.job_id).fetch_spread(cid, max_bytes, spread)
        self.context.storage.mirror_later([cid])

    async def fetch_handed_on(
        self, view: JobView, round_: int, cid: Cid, max_bytes: int, *, made_in: int
    ) -> None:
        """As `fetch`, of what a round's committee made and every member serves on. Raises as
        `fetch`.
        """
        await self.pin(view, round_, cid)
        gateways, me = view.gateways, view.gateways.get(self.context.me, "")
        makers = [url for url in committee_gateways(view, made_in) if url != me]
        running = view.open
        seats = running.seats.values() if running is not None else ()
        seated = (view.providers[holder].account for holder in seats)
        relays = {gateways[account] for account in seated if account in gateways}
        # Each asks its own one of the committee, or all would ask the first.
        author = min(makers, key=lambda url: sha256(f"{me} {url}".encode()), default="")
        patience = view.require_terms().train_seconds / RELAY_PART
        spread = Spread.of(author, relays, me, patience)
        await self.context.fetcher_of(view.job_id).fetch_spread(cid, max_bytes, spread)
        self.context.storage.mirror_later([cid])

    async def for_each(self, items: Iterable[T], bring: Callable[[T], Awaitable[None]]) -> None:
        """Brings every item, a few at a time; blocks of one file are asked for side by side anyway.

        Raises:
            what an item raised, once those under way have ended: what came stays, so that a repeat
                has less to do.
        """
        waiting = iter(items)

        async def bring_some() -> None:
            for item in waiting:
                await bring(item)

        runs = (bring_some() for _ in range(_FILES_AT_ONCE))
        for result in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def keep(self, view: JobView, round_: int | None, *cids: bytes) -> None:
        """Protects files from collection until their round is final, or for the whole job."""
        files = [Cid.from_bytes(cid) for cid in cids]
        await self.pin(view, round_, *files)
        self.context.storage.mirror_later(files)

    async def pin(self, view: JobView, round_: int | None, *cids: Cid) -> None:
        """As `keep`, here alone, also of what is still to come."""
        reason = _reason(view.job_id, round_)

        def pin_all() -> None:
            for cid in cids:
                self.context.store.pin(cid, reason)

        await asyncio.to_thread(pin_all)

    async def unpin(self, view: JobView, round_: int) -> None:
        """Lets go of what was kept for a round, and of its checkpoints.

        Raises:
            StorageError: our own store did not; what is left goes when it is asked for again.
        """
        await asyncio.to_thread(release, self.context.store, view.job_id, round_)
        await self.end(_reason(view.job_id, round_))

    async def kept_for(self, view: JobView) -> list[Pin]:
        """Everything that is kept for a job, its rounds among them."""
        whole = _reason(view.job_id, None)
        pins = await asyncio.to_thread(self.context.store.pins)
        return [pin for pin in pins if f"{pin.reason}/".startswith(f"{whole}/")]

    async def end(self, reason: str) -> None:
        """Lets go of what was kept for a reason. Raises as `unpin`."""
        await self.context.storage.release(reason)


def _reason(job: int, round_: int | None) -> str:
    """What the store knows a job's or a round's pins by."""
    return f"job/{job}" if round_ is None else f"job/{job}/round/{round_}"
