"""A job's manifest and data, brought to verifiers by a submitter that nobody has to reach.

Each of two verifiers gets a whole copy; everybody else gets it from them, once they have a place in
the job. Rule of this file: a verifier has the data once its gateway says so of every block, shows
some that are drawn, and its account is ready in the job's pool, where its bond answers for what it
can not do. What a gateway says or does besides takes its own turn and nobody else's. Who shows
everything and drops it later is not found out: two are asked, and one is enough.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.chain.response_checks import text
from atoll.errors import ChainError, NotFound, RpcUnavailable
from atoll.job.followed import FollowedJob, Tell
from atoll.job.standings import could_pay, grouped, standings_text, stands_of
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address, Phase, Role
from atoll.protocol.views import JobView
from atoll.service.background_tasks import end
from atoll.service.duties.material import files_of
from atoll.service.stand_statements import Stand, StandStatement
from atoll.storage.block_links import walk_dag
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.storage.push import Receivers

ENOUGH: Final = 2
LOOK_SECONDS: Final = 5.0
TRIES: Final = 6
"""Looks at a chain that does not have the job yet."""
STILL_SECONDS: Final = 120.0
"""A gateway that takes no block for so long gives its turn to the next. On the slowest line that
gateways bear a block takes half of it."""
OFFER_SECONDS: Final = 5.0
"""The same of a manifest, which is one block."""
TURN_SECONDS: Final = 600.0
"""So long a turn is at most, and twice as long each further time: who takes a block now and then
keeps others from theirs no longer, and what it took it keeps."""
MOST_DOUBLED: Final = 8
PLACE_SECONDS: Final = 900.0
"""So long a verifier that has everything may check it, measure, take its place and be ready before
another one gets a copy."""
SHOWN: Final = 8
"""Blocks of each file that it shows: who has half of the files passes with 1 in 256."""
OFFERS: Final = 16
"""Manifests on their way at once, to who asks for no more yet: that costs no bond."""


async def hand_over(job: FollowedJob, tell: Tell) -> tuple[Address, ...]:
    """Returns once two verifiers, or all that there are slots for, hold a job's data; who they are.

    Returns before that where the job runs, which it does not without them, or has ended.

    Raises:
        NotFound: manifest or data are not all in this home; or the job's lifetime is over, and it
            never began.
        ChainError: the chain does not answer, or has no such job.
    """
    manifest, store = await _manifest_of(job), job.client.store
    cids = (manifest.cid(), *(cid for cid, _ in files_of(manifest)))
    files = tuple(Cid.from_bytes(cid) for cid in cids)
    with store.holding():
        await asyncio.to_thread(_check_here, store, files)
        return await Handover(job, files, tell).run()


async def _manifest_of(job: FollowedJob) -> Manifest:
    """Of a job that may be in the newest blocks alone, of which an endpoint does not know yet."""
    tries = 0
    while True:
        try:
            return await job.manifest()
        except RpcUnavailable:
            pass  # it comes back, and what is paid for waits for us
        except ChainError:
            tries += 1
            if tries == TRIES:
                raise
        await asyncio.sleep(LOOK_SECONDS)


def _check_here(store: LocalStore, files: Iterable[Cid]) -> None:
    def block_of(cid: Cid) -> bytes:
        return b"" if cid.codec == RAW else store.get_block(cid)

    lost = sum(not store.has(cid) for cid, _ in walk_dag(block_of, files))
    if lost:
        raise NotFound(
            f"{lost} blocks of the job's data are not in {store.root} any more",
            next_step="submit the same job file again: it prepares the same text, and pays nothing",
        )


@dataclass
class Handover:
    """One job on its way.

    Args:
        files: the manifest first.
    """

    job: FollowedJob
    files: tuple[Cid, ...]
    tell: Tell
    _having: dict[Address, float] = field(default_factory=dict)
    _turns: Counter[Address] = field(default_factory=Counter)
    _offered: dict[Address, asyncio.Task[None]] = field(default_factory=dict)
    _brought: dict[Address, asyncio.Task[None]] = field(default_factory=dict)
    _offers: Counter[Address] = field(default_factory=Counter)
    _offered_again: dict[Address, int] = field(default_factory=dict)
    _looks: int = 0
    _last_words: str = ""

    async def run(self) -> tuple[Address, ...]:
        """See `hand_over`."""
        try:
            while True:
                view = await self._view()
                if view is not None:
                    self._check_is_it(view)
                    if self._is_over(view):
                        return self._ready(view)
                    self._check_lifetime(view)
                    await self._look(view)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await end([*self._offered.values(), *self._brought.values()])

    async def _view(self) -> JobView | None:
        try:
            return await self.job.view()
        except ChainError as error:  # it pauses, or has not confirmed the job yet
            self._say(str(error))
            return None

    def _check_is_it(self, view: JobView) -> None:
        if view.spec_cid != self.files[0].to_bytes():
            raise ChainError(
                f"job {self.job.id} is another one by now: the chain took this one back",
                next_step="submit the same job file again",
            )

    def _check_lifetime(self, view: JobView) -> None:
        if self.job.client.follower.now >= view.require_terms().expiry:
            raise NotFound(
                f"the lifetime of job {self.job.id} is over, and too few verifiers came for its "
                "data",
                next_step=f"`atoll job refund {self.job.id}` brings its money back",
            )

    def _is_over(self, view: JobView) -> bool:
        if view.status.is_closed or view.phase is not Phase.WAITING:
            return True
        return len(self._ready(view)) >= self._enough(view)

    def _enough(self, view: JobView) -> int:
        return min(ENOUGH, view.require_terms().slots)

    def _ready(self, view: JobView) -> tuple[Address, ...]:
        """Who has everything, and has said in the pool that it is ready."""
        ready = {h.account for h in view.pool(view.round).values() if h.is_ready}
        return tuple(account for account in self._having if account in ready)

    async def _look(self, view: JobView) -> None:
        """Asks who wants what, and brings it to as many as are still needed."""
        _reap(self._offered)
        _reap(self._brought)
        stands = await stands_of(self.job.client, view)
        self._looks += 1
        verifiers = {a: s.stand for a, s in stands.items() if s.role is Role.VERIFIER}
        self._offer_manifest(view, [a for a, s in verifiers.items() if s is Stand.MEASURES])
        wanting = self._wanting(view, verifiers)
        if not (wanting or self._brought or self._having):
            self._say(nobody_asks(view, stands))
        for account in list(self._brought):
            # It has spent what it showed; a chain that does not answer says nothing of it.
            if await self._is_good(view, account) is False:
                await end([self._brought.pop(account)])
                self._turns[account] += 1
        for account in wanting:
            if self._lacking(view) <= 0:
                return
            if await self._is_good(view, account):
                bringing = self._bring(account, view.gateways[account])
                self._brought[account] = asyncio.create_task(bringing)

    async def _is_good(self, view: JobView, account: Address) -> bool | None:
        """Whether it has the bond, or a place for which it has paid it; None: nobody knows now."""
        is_in, client = account in pool_of(view), self.job.client
        return is_in or await could_pay(client, view, account, Role.VERIFIER)

    def _offer_manifest(self, view: JobView, asking: Iterable[Address]) -> None:
        """Brings the manifest to some who look at the job; to the same one more and more seldom."""
        for account in asking:
            is_due = self._looks >= self._offered_again.get(account, 0)
            if account in self._offered or not is_due or len(self._offered) >= OFFERS:
                continue
            self._offered_again[account] = self._looks + 2 ** min(
                self._offers[account], MOST_DOUBLED
            )
            self._offers[account] += 1
            offering = self._offer(view.gateways[account])
            self._offered[account] = asyncio.create_task(offering)

    def _wanting(self, view: JobView, stands: Mapping[Address, Stand]) -> list[Address]:
        """Who is to have everything, the next first: who has a place, and who had fewer turns."""
        pool = [account for account in pool_of(view) if account in view.gateways]
        ready = [a for a, stand in stands.items() if stand in (Stand.JOINS, Stand.JOINED)]
        free = {*pool, *ready} - self._brought.keys() - self._having.keys()
        # Of equal ones by lot: who answers fastest would else be before all others.
        by_lot = random.sample(sorted(free), len(free))
        return sorted(by_lot, key=lambda account: (self._turns[account], account not in pool))

    def _lacking(self, view: JobView) -> int:
        """How many more are to be brought everything: those who have it get time for a place."""
        now, ready = asyncio.get_running_loop().time(), self._ready(view)
        fresh = [a for a, since in self._having.items() if now - since < PLACE_SECONDS]
        return self._enough(view) - len({*ready, *fresh}) - len(self._brought)

    async def _offer(self, url: str) -> None:
        await self._push(url, self.files[:1], OFFER_SECONDS)

    async def _bring(self, account: Address, url: str) -> None:
        self.tell(f"brings the data of job {self.job.id} to {account} at {text(url)}")
        turn = TURN_SECONDS * 2 ** min(self._turns[account], MOST_DOUBLED)
        why = f"took no block for {STILL_SECONDS:.0f} s"
        try:
            async with asyncio.timeout(turn):
                has_all = await self._push(url, self.files, STILL_SECONDS)
                if has_all and not await self._gives_back(url):
                    has_all, why = False, "does not show what it says to have"
        except TimeoutError:
            has_all, why = False, f"does not have all after {turn / 60:.0f} min"
        if has_all:
            self._having[account] = asyncio.get_running_loop().time()
            self.tell(f"{account} has the data of job {self.job.id}")
        else:
            self._turns[account] += 1
            self.tell(f"{account} {why}: another one has its turn, and what it took it keeps")

    async def _push(self, url: str, files: Iterable[Cid], still_s: float) -> bool:
        pusher = self.job.client.fetcher_of(self.job.id).pusher()
        to = Receivers((url,), 1, still_s, still_s)
        for cid in files:
            if not await pusher.push(cid, to):
                return False
        return True

    async def _gives_back(self, url: str) -> bool:
        pusher = self.job.client.fetcher_of(self.job.id).pusher()
        return all([await pusher.gives_back(cid, url, SHOWN) for cid in self.files])

    def _say(self, words: str) -> None:
        """What is said already is not said again."""
        if words != self._last_words:
            self._last_words = words
            self.tell(words)


def pool_of(view: JobView) -> list[Address]:
    """Accounts with a place in a job's pool."""
    holders = view.verifiers.values()
    return [h.account for h in holders if view.standing(h.account) is h and not h.is_slashed]


def nobody_asks(view: JobView, stands: Mapping[Address, StandStatement]) -> str:
    """Why nothing is brought yet."""
    others = len(view.gateways.keys() - {view.submitter})
    if not others:
        return "no member has announced a gateway on this chain: waits for verifiers"
    words = f"no verifier at {others} announced gateways asks for the data of job {view.job_id} yet"
    stands_text = standings_text(grouped(list(stands.values())))
    return f"{words}: {stands_text}" if stands_text else words


def _reap(tasks: dict[Address, asyncio.Task[None]]) -> None:
    """Forgets those that have ended; raises what ended one of them."""
    for account, task in list(tasks.items()):
        if task.done():
            del tasks[account]
            task.result()
