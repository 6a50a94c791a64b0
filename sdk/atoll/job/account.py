"""One account as the chain tells it: its jobs, their events, its stake.

Rule of this file: it reads; nothing is sent, and nothing is asked of a service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold
from atoll.chain.index import EventIndex
from atoll.errors import ConfigError, RpcUnavailable
from atoll.job.earnings import Statement, jobs_of, statement
from atoll.job.forwarding import paid_to
from atoll.job.stake import Bond, Stake, Sums, bonds_of, stake_of
from atoll.law.events import ContractEvent
from atoll.law.views import JobView
from atoll.law.words import Address, BlockRef, JobId, Role
from atoll.service.lock import hold_folder

log = structlog.get_logger("atoll.job.account")
READERS: Final = 16
LOOKS: Final = 20
"""How often a chain that turns while it is read is read again."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the chain says of an account at a block.

    Attributes:
        events: all of the deployment, oldest first; `own` by job.
        views: of the jobs in which the account has, or had, a part.
    """

    head: BlockRef
    events: Sequence[ContractEvent]
    own: Mapping[JobId, Sequence[ContractEvent]]
    views: Mapping[JobId, JobView]

    def statements(self, account: Address) -> list[Statement]:
        """What the account has of each of its jobs, by number."""
        return [self._statement(job, account) for job in self.own]

    def paid_to(self, account: Address) -> int:
        """Wei that jobs have paid an account."""
        return paid_to(self.events, account)

    def _statement(self, job: JobId, account: Address) -> Statement:
        try:
            return statement(self.views[job], self.own[job], account, self.head.timestamp)
        except Exception as error:  # what one job brings about must not hide the others
            log.exception("defect: a job cannot be counted", job=job)
            return Statement(job, (), {}, (f"job {job} cannot be counted: {error!r}",))


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a deployment up to its newest block."""

    chain: AtollChain
    index: EventIndex

    async def look(self, account: Address) -> Known:
        """Everything about an account, as of the newest block.

        Raises:
            RpcUnavailable: no endpoint answers, or the chain turns all the time.
        """
        head = await self._caught_up()
        history = self.index.history()
        events = [item.event for item in history]
        jobs = jobs_of(events, account)
        fold = Fold(self.chain.deployment, set(jobs))
        fold.fold_all(history)
        of_job: dict[JobId, list[ContractEvent]] = {job: [] for job in jobs}
        for event in events:
            job = getattr(event, "job_id", None)
            if job in of_job:
                of_job[job].append(event)
        return Known(head, events, of_job, dict(fold.views))

    async def _caught_up(self) -> BlockRef:
        for _ in range(LOOKS):
            head = await self.chain.head()
            await self.index.poll()
            if self.index.confirmed >= head.number:
                return head
        raise RpcUnavailable("the chain turns faster than it is read")

    async def stakes(self, account: Address, known: Known) -> list[Stake]:
        """The account's stake by role, with what holds each part of it."""
        now = known.head.timestamp
        bonds: list[Bond] = []
        for job, view in known.views.items():
            end = await self.chain.absolute_end(job)
            bonds += bonds_of(view, account, now, end)
        found = []
        for role in Role:
            said = await self.chain.stake(account, role)
            sums = Sums(said.active, said.locked, said.thawing)
            held = [bond for bond in bonds if bond.role is role]
            found.append(stake_of(role, sums, held, known.events, account))
        return found


@asynccontextmanager
async def reading(
    rpc_urls: Sequence[str], deployment: Deployment, folder: Path
) -> AsyncIterator[Reader]:
    """Opens a reader that remembers events in a folder of its own below `folder`.

    Raises:
        ConfigError: too many read there at once, or the folder is of another deployment.
        ChainError: no endpoint answers, or it is another chain.
    """
    async with AsyncExitStack() as stack:
        place = _free_folder(folder, stack)
        chain = await AtollChain.connect(list(rpc_urls), deployment)
        stack.push_async_callback(chain.close)
        index = EventIndex(chain, confirmations=0, path=place / "events.sqlite")
        stack.callback(index.close)
        yield Reader(chain, index)


def _free_folder(folder: Path, stack: AsyncExitStack) -> Path:
    for number in range(READERS):
        place = folder / "readers" / str(number)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(ConfigError):
            stack.enter_context(hold_folder(place))
            return place
    raise ConfigError(f"{READERS} commands read in {folder}", next_step="let some of them end")
