"""Events into views: each job sees its own events and all gateways, and reorgs leave no trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from tests.unit.law.factories import DOMAIN, JOB, address
from tests.unit.law.network import Network
from tests.unit.law.script import PROVIDERS, Script

from atoll.chain.deployment import Deployment
from atoll.chain.follower import Follower, News
from atoll.chain.index import Advanced, Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.errors import RpcUnavailable
from atoll.law import events as ev
from atoll.law.owners import Ownership
from atoll.law.words import JobId, RoundIndex, SeatIndex

DEPLOYMENT = Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds})
SUBMITTER = address("submitter")


@dataclass
class Index:
    """Tells what a test puts in; `stands` is what no reorg took back."""

    stands: list[Indexed] = field(default_factory=list)
    untold: list[Change] = field(default_factory=list)
    ahead: tuple[Indexed, ...] = ()
    error: Exception | None = None
    confirmed: int = 0

    async def poll(self) -> list[Change]:
        if self.error is not None:
            raise self.error
        changes, self.untold = self.untold, []
        return changes

    def history(self) -> list[Indexed]:
        return list(self.stands)

    def add(self, job: Network) -> None:
        """Everything that the job said and that was not told yet."""
        items = [Indexed(event, block, i) for i, (event, block) in enumerate(job.log)]
        self.untold += items[len(self.stands) :]
        self.stands = items

    def turn(self, to_block: int) -> None:
        self.stands = [item for item in self.stands if item.block.number <= to_block]
        self.untold.append(Rewound(to_block))


def following(index: Index, only: set[int] | None = None) -> Follower:
    return Follower(cast(EventIndex, index), DEPLOYMENT, only)


def running() -> Network:
    script = Script.ready()
    script.honest_round()
    return script.net


async def test_events_give_the_view_of_the_law_s_fold() -> None:
    job, index = running(), Index()
    index.add(job)
    index.untold.append(Advanced(job.block, 1))
    follower = following(index)
    news = await follower.poll()
    assert follower.views == {JOB: job.view}
    assert news.head == job.block
    assert [step.item for step in news.folded] == index.stands
    assert news.folded[-1].views == {JOB: job.view}
    assert await follower.poll() == News()


async def test_a_gateway_announced_before_the_job_is_known_to_it() -> None:
    job, index = Network(), Index()
    early = ev.GatewayAnnounced(SUBMITTER, "http://a:1")
    job.log.insert(0, (early, job.block))
    index.add(job)
    follower = following(index)
    await follower.poll()
    assert follower.views[JOB].gateway_urls() == ("http://a:1",)
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://b:1"))
    index.add(job)
    (step,) = (await follower.poll()).folded
    assert step.views.keys() == {JOB}
    assert follower.gateways(JOB) == ("http://b:1",)
    assert follower.gateways(JobId(8)) == ()


async def test_jobs_that_are_not_followed_are_not_there() -> None:
    index = Index()
    index.add(running())
    follower = following(index, {99})
    assert not any(step.views for step in (await follower.poll()).folded)
    assert follower.views == {}


async def test_a_job_followed_later_is_told_from_its_first_event() -> None:
    job, index = running(), Index()
    index.add(job)
    late = following(index, set())
    await late.poll()
    past = late.follow(JOB)
    assert isinstance(past[0].item.event, ev.JobCreated)
    assert late.views == {JOB: job.view}
    assert late.follow(JOB) == ()
    job.wait(1)
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://a:1"))
    index.add(job)
    await late.poll()
    assert late.views == {JOB: job.view}


async def test_a_job_may_be_followed_before_it_exists() -> None:
    job, index = Network(), Index()
    follower = following(index, set())
    assert follower.follow(JOB) == ()
    index.add(job)
    await follower.poll()
    assert follower.views == {JOB: job.view}


async def test_a_reorg_takes_back_what_came_after_its_block() -> None:
    job, index = Network(), Index()
    index.add(job)
    before = job.view
    job.wait(1)
    job.sit(PROVIDERS[0], 0)
    index.add(job)
    follower = following(index)
    await follower.poll()
    assert follower.views[JOB] != before
    index.turn(job.number - 1)
    news = await follower.poll()
    assert news.turned is not None and news.folded == ()
    assert (news.turned.to_block, news.turned.views) == (job.number - 1, {JOB: before})
    assert list(news.turned.kept) == index.stands
    assert follower.views == {JOB: before}


async def test_whose_an_account_is_follows_its_events_and_turns_back_with_them() -> None:
    job, index, cold, wallet = Network(), Index(), address("cold"), address("wallet")
    job.emit(ev.OwnerAccepted(PROVIDERS[0], cold))
    kept = job.number
    job.wait(1)
    job.emit(ev.PayeeSet(PROVIDERS[0], wallet))
    index.add(job)
    follower = following(index, {99})  # of no job of theirs
    await follower.poll()
    assert follower.ownership(PROVIDERS[0]) == Ownership(cold, wallet)
    assert follower.ownership(cold) == Ownership(cold, cold)
    index.turn(kept)
    await follower.poll()
    assert follower.ownership(PROVIDERS[0]) == Ownership(cold, cold)


async def test_what_is_not_confirmed_is_a_view_of_its_own() -> None:
    job, index = Network(), Index()
    index.add(job)
    follower, before, said = following(index), job.view, len(job.log)
    await follower.poll()
    assert follower.ahead(JOB) is None
    job.wait(1)
    job.sit(PROVIDERS[0], 0)
    index.ahead = tuple(Indexed(e, block, i) for i, (e, block) in enumerate(job.log[said:]))
    assert await follower.poll() == News()
    assert (follower.views[JOB], follower.ahead(JOB)) == (before, job.view)
    index.ahead = ()  # a reorg took it back
    await follower.poll()
    assert (follower.views[JOB], follower.ahead(JOB)) == (before, None)


async def test_reorgs_on_reorgs_leave_what_stands_in_the_end() -> None:
    """Two turns told at once: what came between them never happened."""
    job, index = Network(), Index()
    index.add(job)
    follower = following(index)
    await follower.poll()
    number = job.number
    lost = Network()
    lost.wait(1)
    lost.sit(PROVIDERS[0], 0)
    index.add(lost)
    index.turn(number)
    job.wait(1)
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://a:1"))
    index.add(job)
    index.turn(number + 5)
    news = await follower.poll()
    assert news.turned is not None
    assert news.turned.to_block == number
    assert [step.item.event for step in news.folded] == [job.log[-1][0]]
    assert follower.views == {JOB: job.view}


async def test_a_turn_leaves_the_followed_jobs_followed() -> None:
    job, index = Network(), Index()
    follower = following(index, set())
    follower.follow(JOB)
    index.add(job)
    await follower.poll()
    index.turn(job.number)
    await follower.poll()
    assert follower.views == {JOB: job.view}
    assert follower.follow(JobId(8)) == ()


async def test_an_event_that_does_not_fold_is_passed_over() -> None:
    job, index = running(), Index()
    index.add(job)
    broken = ev.Struck(JOB, RoundIndex(31), SeatIndex(0))
    half = len(index.untold) // 2
    index.untold.insert(half, Indexed(broken, job.block, 99))
    follower = following(index)
    news = await follower.poll()
    assert news.folded[half].views == {}
    assert follower.rejected == 1
    assert follower.views == {JOB: job.view}


async def test_a_chain_that_does_not_answer_has_no_news() -> None:
    index = Index(error=RpcUnavailable("no endpoint"))
    index.add(running())
    follower = following(index)
    assert await follower.poll_patiently() == News()
    index.error = None
    assert (await follower.poll_patiently()).folded
