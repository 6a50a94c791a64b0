"""One account as the chain tells it: its jobs, their events, its stake.

Rule of this file: it reads; nothing is sent, and nothing is asked of a service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold
from atoll.chain.index import EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.log_heads import NO_JOB
from atoll.chain.log_store import LogFilter
from atoll.errors import ConfigError, RpcUnavailable
from atoll.job.ledger.ledger import Ledger
from atoll.job.ledger.statements import Statement, jobs_of, statement
from atoll.job.stake import Bond, Stake, Sums, bonds_of, stake_of
from atoll.protocol.events import ContractEvent, Slashed
from atoll.protocol.types import Address, BlockRef, JobId, Role
from atoll.protocol.views import JobView
from atoll.service.lock import hold_folder
from atoll.service.private import make_private

log = structlog.get_logger("atoll.job.account")
READERS: Final = 16
LOOKS: Final = 20
"""How often a chain that turns while it is read is read again."""


@dataclass(frozen=True, slots=True)
class KnownOfAccount:
    """What the chain says of an account at a block.

    Attributes:
        items: every event of no job, of its jobs, and that names it, oldest first.
        views: of the jobs in which the account has, or had, a part.
    """

    head: BlockRef
    items: Sequence[Indexed]
    views: Mapping[JobId, JobView]

    @property
    def events(self) -> list[ContractEvent]:
        """Without their places in the chain."""
        return [item.event for item in self.items]

    def statements(self, account: Address) -> list[Statement]:
        """What the account has of each of its jobs, by number."""
        return statements(self.views, self.items, account, self.head.timestamp)


def statements(
    views: Mapping[JobId, JobView], items: Sequence[Indexed], account: Address, now: int
) -> list[Statement]:
    """What an account has of each of its jobs, by number.

    Args:
        views: of these jobs, after all of `items`, which are oldest first.
        now: the chain's clock, unix seconds.
    """
    by_job: dict[JobId, list[Indexed]] = {
        job: [] for job in jobs_of((item.event for item in items), account)
    }
    job_of_game = {game: job for job, view in views.items() for game in view.games}
    for item in items:
        job = getattr(item.event, "job_id", None)
        if job is None:  # a game's events have its number alone
            job = job_of_game.get(getattr(item.event, "id", -1))
        if job in by_job:
            by_job[job].append(item)
    counted = []
    for job, of_job in by_job.items():
        try:
            counted.append(statement(Ledger.of(views[job], of_job, now), account))
        except Exception as error:  # what one job brings about must not hide the others
            log.exception("defect: a job cannot be counted", job=job)
            counted.append(Statement(job, (), {}, (f"job {job} cannot be counted: {error!r}",)))
    return counted


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a deployment up to its newest block."""

    chain: AtollChain
    index: EventIndex

    async def look(self, account: Address) -> KnownOfAccount:
        """Everything about an account, as of the newest block.

        Raises:
            RpcUnavailable: no endpoint answers, or the chain turns all the time.
        """
        head = await self._caught_up()
        # Few of a network's events are about an account; each that is decoded costs more than all
        # else that is done with it.
        about = LogFilter(frozenset(), frozenset({account}))
        events = [item.event for item in self.index.history(about)]
        jobs = jobs_of(events, account)
        slashed = (event for event in events if isinstance(event, Slashed))
        # What was won of somebody's bond is of the job that the next event about it names.
        losers = {event.account for event in slashed if event.beneficiary == account}
        which = LogFilter(frozenset({NO_JOB, *jobs}), frozenset({account, *losers}))
        history = list(self.index.history(which))
        fold = Fold(self.chain.deployment, set(jobs))
        fold.fold_all(history)
        return KnownOfAccount(head, history, dict(fold.views))

    async def _caught_up(self) -> BlockRef:
        for _ in range(LOOKS):
            head = await self.chain.head()
            await self.index.poll()
            if self.index.confirmed >= head.number:
                return head
        raise RpcUnavailable("the chain turns faster than it is read")

    async def stakes(self, account: Address, known: KnownOfAccount) -> list[Stake]:
        """The account's stake by role, with what holds each part of it."""
        now = known.head.timestamp
        bonds: list[Bond] = []
        for job, view in known.views.items():
            end = await self.chain.absolute_end(job)
            bonds += bonds_of(view, account, now, end)
        staked = []
        for role in Role:
            stake = await self.chain.stake(account, role, hex(known.head.number))
            sums = Sums(stake.active, stake.locked, stake.unbonding)
            held = [bond for bond in bonds if bond.role is role]
            staked.append(stake_of(role, sums, held, known.events, account))
        return staked


@asynccontextmanager
async def reading(
    rpc_urls: Sequence[str], deployment: Deployment, folder: Path, agreement: int = 1
) -> AsyncIterator[Reader]:
    """Opens a reader that remembers events in a folder of its own below `folder`.

    Raises:
        ConfigError: too many read there at once, or the folder is of another deployment.
        ChainError: no endpoint answers, or it is another chain.
    """
    async with AsyncExitStack() as stack:
        place = free_folder(folder, stack)
        chain = await AtollChain.connect(list(rpc_urls), deployment, agreement)
        stack.push_async_callback(chain.close)
        index = EventIndex(chain, confirmations=0, path=place / "events.sqlite")
        stack.callback(index.close)
        yield Reader(chain, index)


def free_folder(folder: Path, stack: AsyncExitStack | ExitStack) -> Path:
    """A reader's place below the folder that nobody holds. Raises ConfigError, OSError."""
    for number in range(READERS):
        place = folder / "readers" / str(number)
        make_private(place)
        with suppress(ConfigError):
            stack.enter_context(hold_folder(place))
            return place
    raise ConfigError(f"{READERS} commands read in {folder}", next_step="let some of them end")
