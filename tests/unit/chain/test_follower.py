"""Events into views: each job sees its own events and all gateways, and reorgs leave no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from tests.support.identities import DOMAIN, JOB, address
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.chain import follower as follower_module
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold, Follower, News
from atoll.chain.index import Advanced, Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.log_store import EVERY_LOG, KeptFold, LogFilter
from atoll.errors import RpcUnavailable
from atoll.protocol import events as ev
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.membership import NOWHERE
from atoll.protocol.owners import Ownership
from atoll.protocol.types import ZERO_DIGEST, HolderId, JobId, Role, RoundIndex, SeatIndex

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
    confirmed_at: int = 0
    folds: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def poll(self) -> list[Change]:
        if self.error is not None:
            raise self.error
        changes, self.untold = self.untold, []
        return changes

    def history(self, which: LogFilter = EVERY_LOG, *, after: int = -1) -> list[Indexed]:
        return [item for item in self.stands if item.block.number > after]

    def begin_behind(self, number: int) -> None:
        self.untold = [
            change
            for change in self.untold
            if not isinstance(change, Indexed) or change.block.number > number
        ]

    def keep_fold(self, code: bytes, fold: bytes) -> None:
        self.folds.append((code, fold))

    def kept_fold(self, code: bytes, at_most: int) -> KeptFold | None:
        kept = [fold for of, fold in self.folds if of == code]
        return KeptFold(0, kept[-1]) if kept else None

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


async def stopped_after_a_piece(work: Coroutine[Any, Any, object]) -> None:
    """Begins it, and stops it when others get their turn."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_events_give_the_view_of_the_law_s_fold() -> None:
    job, index = running(), Index()
    index.add(job)
    index.untold.append(Advanced(job.block, 1))
    follower = following(index)
    news = await follower.poll()
    assert follower.views == {JOB: job.view}
    assert news.head == job.block
    assert (news.begins, news.folded) == (True, ())
    assert await follower.poll() == News()
    job.wait(1)
    job.emit(ev.JobFunded(JOB, SUBMITTER, 5))
    index.add(job)
    (step,) = (await follower.poll()).folded
    assert (step.item, step.view) == (index.stands[-1], job.view)
    assert follower.views == {JOB: job.view}


async def test_who_stops_in_the_middle_of_a_long_history_is_told_all_of_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is long: others get their turn while it is folded."""
    monkeypatch.setattr(follower_module, "PIECE", 5)
    job, index = running(), Index()
    index.add(job)
    follower = following(index)
    await stopped_after_a_piece(follower.poll())
    assert follower.views == {}
    assert (await follower.poll()).begins
    assert follower.views == {JOB: job.view}


async def test_who_stops_in_the_middle_of_many_new_events_is_told_all_of_them_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_module, "PIECE", 5)
    index, short, long = Index(), Network(), running()
    index.add(short)
    assert long.log[: len(short.log)] == short.log
    follower = following(index)
    await follower.poll()
    index.add(long)
    new, index.confirmed = index.stands[len(short.log) :], long.number
    index.confirmed_at = long.now
    await stopped_after_a_piece(follower.poll())
    assert (follower.views, follower.confirmed, follower.confirmed_at) == ({JOB: short.view}, 0, 0)
    news = await follower.poll()
    assert [step.item for step in news.folded] == new
    assert (follower.views, follower.confirmed) == ({JOB: long.view}, long.number)
    assert follower.confirmed_at == long.now


async def test_what_stands_after_a_turn_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """To decode it takes longer than to fold it."""
    monkeypatch.setattr(follower_module, "PIECE", 5)
    job, index, read = running(), Index(), list[Indexed]()
    index.add(job)
    follower = following(index)
    await follower.poll()
    follower._kept.clear()  # the reorg is deeper than what is remembered
    before = follower.views[JOB]

    def history(*, after: int) -> Iterator[Indexed]:
        assert after == -1
        for item in index.stands:
            read.append(item)
            yield item

    index.turn(job.number - 1)
    assert len(index.stands) > 5
    monkeypatch.setattr(index, "history", history)
    await stopped_after_a_piece(follower.poll())
    assert len(read) == 5
    assert follower.views[JOB] is before
    news = await follower.poll()
    assert news.turned is not None


async def test_an_event_without_a_job_is_folded_into_the_job_that_it_is_of() -> None:
    """Most of a game's events name its number only; a stake's are of no job."""
    job, index, other = running(), Index(), JobId(8)
    created = replace(job.log[0][0], job_id=other)
    index.untold = [Indexed(created, job.block, 0)]
    index.add(job)
    follower = following(index)
    await follower.poll()
    before = follower.views[other]
    where = bond_set(JOB, Role.PROVIDER, HolderId(1))
    claim = Claim(DOMAIN.rounds, where, *(ZERO_DIGEST,) * 2, False, 0, 0, 0, *(ZERO_DIGEST,) * 2)
    said = [
        ev.Deposited(SUBMITTER, Role.PROVIDER, 1),
        ev.Challenged(3, PROVIDERS[0], SUBMITTER, 1, claim, b""),
        ev.Began(3, PROVIDERS[0]),
        ev.Ended(3, GameOutcome.SENT_HOME),
        ev.Ended(4, GameOutcome.SENT_HOME),
    ]
    job.wait(1)
    for event in said:
        job.emit(event)
    index.add(job)
    steps = (await follower.poll()).folded
    assert [step.view and step.view.job_id for step in steps] == [None, JOB, JOB, JOB, None]
    assert follower.views[JOB].games == job.view.games
    assert follower.views[JOB].games[3].outcome is GameOutcome.SENT_HOME
    assert follower.views[other] is before


async def test_all_jobs_share_what_strangers_announce() -> None:
    """It costs gas alone: what each job kept of its own, strangers would multiply."""
    index, block = Index(), Network().block
    created = Network().log[0][0]
    jobs = [JobId(number) for number in (1, 2, 3)]
    told = [replace(created, job_id=job) for job in jobs]
    told += [ev.GatewayAnnounced(address(f"stranger {n}"), f"http://{n}:1") for n in range(9)]
    index.untold = [Indexed(event, block, at) for at, event in enumerate(told)]
    index.stands = [item for item in index.untold if isinstance(item, Indexed)]
    follower = following(index, {1, 2})
    await follower.poll()
    await follower.follow(jobs[2])
    first, second, third = (follower.views[job].gateways for job in jobs)
    assert len(first) == 9
    assert first is second is third


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
    assert step.view is None
    assert follower.views == {JOB: job.view}
    assert follower.gateways(JOB) == ("http://b:1",)
    assert follower.gateways(JobId(8)) == ()
    job.emit(ev.GatewayAnnounced(SUBMITTER, NOWHERE))
    index.add(job)
    await follower.poll()
    assert follower.gateways(JOB) == () and follower.views == {JOB: job.view}


async def test_jobs_that_are_not_followed_are_not_there() -> None:
    index = Index()
    index.add(running())
    follower = following(index, {99})
    await follower.poll()
    assert follower.views == {}


async def test_a_job_followed_later_is_told_from_its_first_event() -> None:
    job, index = running(), Index()
    index.add(job)
    late = following(index, set())
    await late.poll()
    followed = await late.follow(JOB)
    assert isinstance(followed[0].item.event, ev.JobCreated)
    assert late.views == {JOB: job.view}
    assert await late.follow(JOB) == ()
    job.wait(1)
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://a:1"))
    index.add(job)
    await late.poll()
    assert late.views == {JOB: job.view}


async def test_who_stops_while_a_job_s_long_past_is_folded_follows_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_module, "PIECE", 5)
    job, index = running(), Index()
    index.add(job)
    late = following(index, set())
    await late.poll()
    await stopped_after_a_piece(late.follow(JOB))
    assert late.views == {}
    followed = await late.follow(JOB)
    assert [step.item for step in followed] == index.stands
    assert late.views == {JOB: job.view}


async def test_a_job_may_be_followed_before_it_exists() -> None:
    job, index = Network(), Index()
    follower = following(index, set())
    assert await follower.follow(JOB) == ()
    index.add(job)
    await follower.poll()
    assert follower.views == {JOB: job.view}


async def test_a_reorg_takes_back_what_came_after_its_block() -> None:
    job, index = Network(), Index()
    index.add(job)
    before = job.view
    job.wait(1)
    job.join(PROVIDERS[0], 0)
    index.add(job)
    follower = following(index)
    await follower.poll()
    assert follower.views[JOB] != before
    index.turn(job.number - 1)
    news = await follower.poll()
    assert news.turned is not None and news.folded == ()
    assert (news.turned.to_block, news.turned.views) == (job.number - 1, {JOB: before})
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
    job.join(PROVIDERS[0], 0)
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
    lost.join(PROVIDERS[0], 0)
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


async def test_what_one_reorg_took_back_no_later_one_begins_with() -> None:
    """The blocks of the first have others in their place, without events of ours at first."""
    job, lost, index = Network(), Network(), Index()
    index.add(job)
    follower = following(index)
    await follower.poll()
    number = job.number
    lost.wait(1)
    lost.join(PROVIDERS[0], 0)
    index.add(lost)
    await follower.poll()
    index.turn(number)
    job.wait(2)
    job.number = lost.number + 1
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://a:1"))
    index.add(job)
    await follower.poll()
    index.turn(lost.number)
    job.emit(ev.GatewayAnnounced(SUBMITTER, "http://b:1"))
    index.add(job)
    await follower.poll()
    assert follower.views == {JOB: job.view}


async def test_a_reorg_of_one_block_is_folded_from_the_block_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, index = running(), Index()
    index.add(job)
    follower = following(index)
    await follower.poll()
    number, asked, history = job.number, list[int](), index.history

    def noted(which: LogFilter = EVERY_LOG, *, after: int = -1) -> list[Indexed]:
        asked.append(after)
        return history(which, after=after)

    monkeypatch.setattr(index, "history", noted)
    for url in ("http://lost:1", "http://stands:1"):
        job.wait(1)
        job.emit(ev.GatewayAnnounced(SUBMITTER, url))
        index.add(job)
        await follower.poll()
        if url == "http://lost:1":
            job.log.pop()
            index.turn(number)
            turned = (await follower.poll()).turned
            assert turned is not None and turned.views[JOB].gateways == {}
    assert asked == [number]
    assert follower.views[JOB].gateways == {SUBMITTER: "http://stands:1"}


async def test_a_start_goes_on_with_the_fold_that_this_code_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_module, "CACHED_EVENTS", 20)
    job, index = running(), Index()
    index.add(job)
    await following(index).poll()
    assert len(index.folds) == 1
    job.wait(1)
    job.emit(ev.JobFunded(JOB, SUBMITTER, 5))
    again = replace(index, stands=[], untold=[])
    again.add(job)
    folded, fold = list[Indexed](), Fold.fold
    monkeypatch.setattr(Fold, "fold", lambda self, item: folded.append(item) or fold(self, item))
    follower = following(again)
    assert (await follower.poll()).begins
    assert [item.event for item in folded] == [job.log[-1][0]]
    assert follower.views == {JOB: job.view}
    assert follower.views[JOB].gateways is follower._fold._gateways


@pytest.mark.parametrize("other", ["code", "jobs", "damaged"])
async def test_a_fold_of_other_code_or_other_jobs_is_not_gone_on_with(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "CACHED_EVENTS", 20)
    job, index = running(), Index()
    index.add(job)
    await following(index).poll()
    again = replace(index, stands=[], untold=[])
    again.add(job)
    if other == "code":
        monkeypatch.setattr(follower_module, "_code", lambda: b"another")
    if other == "damaged":
        again.folds = [(code, fold[:-9]) for code, fold in index.folds]
    follower = following(again, {JOB} if other == "jobs" else None)
    await follower.poll()
    assert follower.views == {JOB: job.view}


async def test_a_turn_leaves_the_followed_jobs_followed() -> None:
    job, index = Network(), Index()
    follower = following(index, set())
    await follower.follow(JOB)
    index.add(job)
    await follower.poll()
    index.turn(job.number)
    await follower.poll()
    assert follower.views == {JOB: job.view}
    assert await follower.follow(JobId(8)) == ()


async def test_an_event_that_does_not_fold_is_passed_over() -> None:
    job, index = running(), Index()
    follower = following(index)
    await follower.poll()
    index.add(job)
    broken = ev.Struck(JOB, RoundIndex(31), SeatIndex(0))
    half = len(index.untold) // 2
    index.untold.insert(half, Indexed(broken, job.block, 99))
    news = await follower.poll()
    assert [step.item.event for step in news.folded if step.view is None] == [broken]
    assert follower.rejected == 1
    assert follower.views == {JOB: job.view}
    index.untold.append(Indexed(broken, job.block, 100))
    await follower.poll()
    assert follower.rejected == 2


async def test_a_chain_that_does_not_answer_has_no_news() -> None:
    index = Index(error=RpcUnavailable("no endpoint"))
    index.add(running())
    follower = following(index)
    assert await follower.poll_patiently() == News()
    index.error = None
    assert (await follower.poll_patiently()).begins
