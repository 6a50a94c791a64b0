"""Which of drand's signatures a service posts: those that draws of its own jobs wait for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import address
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, SECRETS, VERIFIERS, WATCHER, Script
from tests.unit.service.contexts import Calls, Queue

from atoll.chain.contracts import AtollChain
from atoll.chain.txqueue import TxQueue
from atoll.chain.view import View
from atoll.protocol.clocks import last_moment
from atoll.protocol.types import Address, JobId, Phase
from atoll.protocol.views import JobView
from atoll.service import drand_posts
from atoll.service.drand_posts import AwaitedBlocks, DrandPosts, awaits_draw
from atoll.service.drand_section import DrandSection

ME = PROVIDERS[0]
GENESIS, PERIOD = 1_000_000, 3
NOTED, ROUND = 107, 40
SIGNED_AT = GENESIS + PERIOD * (ROUND - 1)


@dataclass
class Chain:
    """The beacon and the rounds contract, as far as they say what is awaited.

    Attributes:
        noted: by job, the block whose seed its next draw is by.
        rounds: of noted blocks that are neither posted nor lost.
    """

    noted: dict[JobId, int] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)
    asked: list[str] = field(default_factory=list)

    async def ask(self, view: View[Any]) -> int:
        self.asked.append(view.name)
        match view.name:
            case "genesis":
                return GENESIS
            case "period":
                return PERIOD
            case "awaitedBlock":
                return self.noted.get(view.args[0], 0)
            case "awaited":
                return self.rounds.get(view.args[0], 0)
        raise AssertionError(view.name)

    async def simulate(self, call: Any, sender: Address) -> bytes:
        return b""


@dataclass
class Posting:
    """A service that follows one job, on a chain as a test says."""

    net: Network
    me: Address = ME
    chain: Chain = field(default_factory=Chain)
    queue: Queue = field(default_factory=Queue)

    async def look(self, now: float = SIGNED_AT) -> list[Any]:
        """What has been submitted by then."""
        chain = cast(AtollChain, self.chain)
        posts = DrandPosts(
            chain=chain,
            queue=cast(TxQueue, self.queue),
            me=self.me,
            blocks=AwaitedBlocks(chain, self.me, lambda: [self.net.view]),
            section=DrandSection(urls=("http://127.0.0.1:9",)),
            is_alone=asyncio.Event(),
            stagger_s=0,
            poll_s=0.05,
        )
        await posts.look(now)
        return list(self.queue.calls.values())


@pytest.fixture(autouse=True)
def drand(monkeypatch: pytest.MonkeyPatch) -> None:
    async def signature(url: str, chain_hash: str, round: int) -> bytes:
        return b"signed"

    monkeypatch.setattr(drand_posts, "fetch_signature", signature)


@pytest.fixture
def merging() -> Script:
    """All have revealed, and nobody has asked for the audit seed."""
    script = Script.ready()
    script.train()
    return script


def full(slots: int) -> Network:
    """A job that waits, with so many ready verifiers."""
    net = Network(make_terms(slots=48, min_verifiers=33))
    for seat, account in enumerate(PROVIDERS[:4]):
        net.join(account, seat)
    for slot, account in enumerate(list(SECRETS)[:slots]):
        net.enrol(account, slot, net.terms.verifier_bond)
        net.say_ready(account)
    return net


async def test_the_round_that_our_job_waits_for_is_posted_once_it_is_signed(
    merging: Script,
) -> None:
    posting = Posting(merging.net, chain=Chain({merging.net.job: NOTED}, {NOTED: ROUND}))
    assert await posting.look(SIGNED_AT - 1) == []
    assert await posting.look() == [("post", ROUND, b"signed")]


async def test_what_anybody_has_noted_is_not_paid_for(merging: Script) -> None:
    """`note` is open: blocks of no job of ours, and of jobs that we have no part in."""
    strange = Chain({}, {NOTED: ROUND, NOTED + 1: ROUND + 1})
    assert await Posting(merging.net, chain=strange).look() == []
    theirs = Chain({merging.net.job: NOTED}, {NOTED: ROUND})
    assert await Posting(merging.net, WATCHER, theirs).look() == []
    assert "awaitedBlock" not in theirs.asked


async def test_what_is_lost_or_posted_is_awaited_no_longer(merging: Script) -> None:
    posting = Posting(merging.net, chain=Chain({merging.net.job: NOTED}, {}))
    assert await posting.look() == []
    posting.chain.noted[merging.net.job] = NOTED + 9_000  # noted anew, without an event
    posting.chain.rounds[NOTED + 9_000] = ROUND
    assert await posting.look() == [("post", ROUND, b"signed")]


async def test_a_job_that_has_ended_awaits_nothing(merging: Script) -> None:
    net = merging.net
    end = last_moment(net.terms)
    assert awaits_draw(net.view, ME, end - 1)
    assert not awaits_draw(net.view, ME, end)
    net.wait_until(end)
    net.advance()
    assert net.view.phase is Phase.CLOSED
    assert not awaits_draw(net.view, ME, net.now)


def test_a_merge_waits_until_its_audit_seed_is_known(merging: Script) -> None:
    net = merging.net
    assert awaits_draw(net.view, ME, net.now)
    assert awaits_draw(net.view, VERIFIERS[0], net.now)
    net.wait(1)
    net.seed_audit()
    assert not awaits_draw(net.view, ME, net.now)


def test_no_other_phase_waits_for_a_draw() -> None:
    script = Script.ready()
    assert not awaits_draw(script.net.view, ME, script.net.now)
    script.net.advance()
    assert not awaits_draw(script.net.view, ME, script.net.now)
    for seat in sorted(script.net.waited):
        script.commit(seat)
    assert script.net.phase is Phase.REVEAL
    assert not awaits_draw(script.net.view, ME, script.net.now)
    assert not awaits_draw(JobView.of(script.net.domain, JobId(9)), ME, 0)


def test_a_pool_waits_of_which_a_committee_is_drawn() -> None:
    net = full(33)
    assert awaits_draw(net.view, ME, net.now)
    assert not awaits_draw(net.view, address("stranger"), net.now)
    assert not awaits_draw(net.view, ME, net.terms.expiry)
    assert not awaits_draw(full(32).view, ME, net.now)


async def test_the_newest_view_of_a_job_counts(merging: Script) -> None:
    """What no block has confirmed yet is posted for: nothing is signed by it."""
    net, waiting = merging.net, Script.ready().net
    chain = Chain({net.job: NOTED}, {NOTED: ROUND})
    ahead: dict[JobId, JobView] = {}
    follower = SimpleNamespace(views={net.job: waiting.view}, ahead=ahead.get)
    blocks = AwaitedBlocks.of(cast(Any, SimpleNamespace(chain=chain, me=ME, follower=follower)))
    assert await blocks(net.now) == set()
    ahead[net.job] = net.view
    assert await blocks(net.now) == {NOTED}
