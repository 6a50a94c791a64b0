"""Posts drand's signatures that draws of our jobs wait for, where the chain draws by them.

Whoever posts pays the gas, and nothing is paid for it. It is worth it to each member: until the
signature is there its job stands still, with the bond and the pay in it. A service posts nothing
else, since anybody may have the beacon note any block. Each waits for some seconds that it draws
itself, so that one of many posts and the others find it done.

Rule of this file: what a server says is believed by nobody. The contract checks each signature, and
is asked before a transaction is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import aiohttp
import structlog

from atoll.chain import contract_views as views
from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.drand import expanded
from atoll.chain.txqueue import TxQueue
from atoll.errors import AtollError, TransactionFailed
from atoll.nested import loads
from atoll.protocol.clocks import last_moment
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.hashing import sha256
from atoll.protocol.types import Address, Phase
from atoll.protocol.views import JobView
from atoll.proxies import proxy_of
from atoll.service.context import Context
from atoll.service.drand_section import DrandSection

BEACON: Final = "DrandBeacon"
TURNS: Final = 3
"""Over so many times the keeper's stagger the services spread."""
FETCH_SECONDS: Final = 5.0
MOST_BYTES: Final = 4_096
log = structlog.get_logger("atoll.drand")


@dataclass(frozen=True, slots=True)
class _Clock:
    """When drand's rounds are signed, as the contract has it."""

    genesis: int
    period: int

    def time_of(self, round: int) -> int:
        return self.genesis + (round - 1) * self.period


def awaits_draw(view: JobView, me: Address, now: float) -> bool:
    """Whether a draw waits for its seed that the account has a bond in, and that still matters."""
    if view.terms is None or view.phase not in {Phase.WAITING, Phase.MERGE}:
        return False
    if view.open is not None:
        is_waiting = not any(view.open.audit_seed) and now < last_moment(view.terms)
    else:
        gathered = view.gathered()
        is_drawn = gathered.can_open and gathered.ready > COMMITTEE  # fewer are all of them drawn
        is_waiting = is_drawn and now < view.terms.expiry
    return is_waiting and view.standing(me) is not None


@dataclass(frozen=True, slots=True)
class AwaitedBlocks:
    """The blocks whose seeds our jobs wait for, as the chain has them now.

    It is asked each time, since a block that is lost is replaced without an event.

    Attributes:
        views: of the followed jobs, the newest.
    """

    chain: AtollChain
    me: Address
    views: Callable[[], Iterable[JobView]]

    @classmethod
    def of(cls, context: Context) -> AwaitedBlocks:
        """Of a service."""
        follower = context.follower

        def newest() -> list[JobView]:
            return [follower.ahead(job) or view for job, view in follower.views.items()]

        return cls(context.chain, context.me, newest)

    async def __call__(self, now: float) -> set[int]:
        jobs = [v.job_id for v in self.views() if awaits_draw(v, self.me, now)]
        blocks: list[int] = [await self.chain.ask(views.awaited_block(job)) for job in jobs]
        return set(blocks) - {0}


@dataclass
class DrandPosts:
    """Which rounds are awaited, and what is done about them.

    Attributes:
        blocks: whose seeds are awaited at a unix second.
    """

    chain: AtollChain
    queue: TxQueue
    me: Address
    blocks: Callable[[float], Awaitable[Collection[int]]]
    section: DrandSection
    is_alone: asyncio.Event
    stagger_s: float
    poll_s: float
    _clock: _Clock | None = None

    @classmethod
    def of(cls, context: Context, is_alone: asyncio.Event) -> DrandPosts:
        """Of a service."""
        config = context.config
        return cls(
            chain=context.chain,
            queue=context.queue,
            me=context.me,
            blocks=AwaitedBlocks.of(context),
            section=config.drand,
            is_alone=is_alone,
            stagger_s=config.keeper.stagger_s,
            poll_s=config.poll_interval_s,
        )

    async def run(self) -> None:
        """Until cancelled; at once over on a chain that draws by something else."""
        if BEACON not in self.chain.deployment.addresses:
            return
        while True:
            await self.is_alone.wait()
            try:
                await self.look(await self._now())
            except AtollError as error:
                log.warning("drand's signatures cannot be posted", cause=str(error))
            except Exception:  # a defect of ours must not stop the duties
                log.exception("defect: drand's signatures are not posted")
            await asyncio.sleep(self.poll_s)

    async def _now(self) -> float:
        """Unix seconds by this machine's clock or by the chain's, whichever is ahead.

        A machine whose clock is late would post nothing in time. Who is early asks in vain.
        """
        return max(time.time(), (await self.chain.head(self.poll_s)).timestamp)

    async def look(self, now: float) -> None:
        """Posts what is due by this second and nobody has posted.

        Raises AtollError where the chain does not answer.
        """
        clock = await self._read_clock()
        blocks = await self.blocks(now)
        rounds: set[int] = {await self.chain.ask(views.awaited(block)) for block in blocks}
        for round in sorted(rounds - {0}):
            if now >= clock.time_of(round) + self._patience(round):
                await self._post(round)

    async def _read_clock(self) -> _Clock:
        if self._clock is None:
            genesis = await self.chain.ask(views.genesis())
            self._clock = _Clock(genesis, await self.chain.ask(views.period()))
        return self._clock

    def _patience(self, round: int) -> float:
        """Seconds that this service leaves a round to the others."""
        drawn = sha256(self.me.encode() + round.to_bytes(8, "big"))
        return self.stagger_s * TURNS * int.from_bytes(drawn[:4], "big") / 2**32

    async def _post(self, round: int) -> None:
        for url in self.section.urls:
            signature = await fetch_signature(url, self.section.chain_hash, round)
            if signature is None:
                continue
            call = self.chain.calls.post(round, signature)
            if await self._is_taken(call):
                # On disk: asked for again it is the same transaction.
                await self.queue.submit(f"drand:{round}", call, retry_failed=True)
                return

    async def _is_taken(self, call: Call) -> bool:
        try:
            await self.chain.simulate(call, self.me)
        except TransactionFailed as refused:
            log.info("a signature of drand's is not taken", cause=str(refused))
            return False
        return True


async def fetch_signature(url: str, chain_hash: str, round: int) -> bytes | None:
    """A round's signature, as the contract takes it; None where the server gives none."""
    where = f"{url.rstrip('/')}/{chain_hash}/public/{round}"
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            aiohttp.ClientSession() as session,
            session.get(where, proxy=proxy_of(where), allow_redirects=False) as answer,
        ):
            answer.raise_for_status()
            document = loads((await answer.content.read(MOST_BYTES)).decode())
            return expanded(bytes.fromhex(document["signature"]))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, TypeError, KeyError) as error:
        log.info("a server of drand's gives no signature", round=round, cause=type(error).__name__)
        return None
