"""Of several jobs the best is taken; many that come to nothing keep it from none that pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import cid
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import MANIFEST

from atoll.protocol.types import ZERO_DIGEST, Address, JobId, JobStatus, Role
from atoll.protocol.views import JobView
from atoll.service.choice import MOST_LOOKED_AT, TURN_SECONDS, VETTING_SECONDS, WAIT_SECONDS, Choice
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
)
from atoll.service.entries import Entries

ME = PROVIDERS[0]
NOW = 1_000_000
PAYS = 10**12


def offered(job: int, price: int = PAYS, net: Network | None = None) -> JobView:
    net = net or Network(make_terms(segment_pay=price))
    return replace(net.view, job_id=JobId(job))


class Market:
    """Jobs on offer, and what is known of each."""

    def __init__(self, *views: JobView, most: int = 1) -> None:
        self.views = {view.job_id: view for view in views}
        self.entries: dict[JobId, Entries] = {}
        self.choice = Choice(Address(ME), Role.PROVIDER)
        self.most, self.now = most, NOW
        self.see()

    def see(self, later: int = 0) -> Choice:
        self.now += later
        self.choice.see(
            self.views, lambda job: self.entries.get(job, Entries()), self.most, self.now
        )
        return self.choice

    def vet(self, job: int, hourly: int) -> None:
        spec = DoFetchSpec(b"", ZERO_DIGEST).key, SpecReady(MANIFEST.to_bytes(), hourly)
        self.entries[JobId(job)] = self.entries.get(JobId(job), Entries()).plus(*spec)
        self.see()

    def refuse(self, job: int) -> None:
        key = DoFetchSpec(b"", ZERO_DIGEST).key
        self.entries[JobId(job)] = Entries().plus(key, JobRefused("too fast"))
        self.see()

    def bring(self, job: int) -> None:
        """Its data is here."""
        data = DoFetchData(b"").key, DataReady(cid("data"), ZERO_DIGEST)
        self.entries[JobId(job)] = self.entries[JobId(job)].plus(*data)
        self.see()

    def join(self, job: int, net: Network) -> None:
        net.join(ME, 0)
        self.views[JobId(job)] = replace(net.view, job_id=JobId(job))
        self.see()


def test_the_best_is_taken_and_not_the_first() -> None:
    market = Market(offered(1), offered(2), offered(3))
    assert market.choice.looked_at == {1, 2, 3}
    market.vet(1, 5)
    assert market.choice.taken == set() and not market.choice.may_take(JobId(1))
    market.vet(2, 9)
    market.vet(3, 9)
    assert market.choice.taken == {2}  # of two alike the older one
    assert [market.choice.why_out(JobId(job)) for job in (1, 2, 3)] == ["", "", ""]


def test_what_is_looked_at_for_long_is_not_waited_for() -> None:
    market = Market(offered(1), offered(2))
    market.vet(1, 5)
    assert market.see(VETTING_SECONDS - 1).taken == set()
    assert market.see(1).taken == {1}


def test_where_there_is_room_for_all_nothing_is_waited_for() -> None:
    market = Market(offered(1), offered(2), most=2)
    market.vet(2, 5)
    assert market.choice.taken == {2}


def test_few_are_looked_at_at_a_time_those_first_that_promise_most() -> None:
    """Hundreds cost an attacker gas alone, and each may measure for minutes."""
    cheap = [offered(job, PAYS // 100) for job in range(1, 301)]
    market = Market(*cheap, offered(999))
    assert len(market.choice.looked_at) == MOST_LOOKED_AT and 999 in market.choice.looked_at
    assert market.choice.why_out(JobId(300)) == "looks at those first that promise more"
    market.refuse(1)  # remembered, and the next one has its turn
    assert 1 not in market.choice.looked_at and 8 in market.choice.looked_at


def test_whose_manifest_does_not_come_is_looked_at_behind_all_others() -> None:
    dear = [offered(job, 100 * PAYS) for job in range(1, 2 * MOST_LOOKED_AT + 1)]
    market = Market(*dear, offered(999))
    for _ in range(2):
        for job in market.choice.looked_at:
            market.choice.did_not_come(job)
        market.see()
    assert 999 in market.choice.looked_at


def test_where_enough_fit_only_what_may_be_better_is_looked_at() -> None:
    market = Market(*(offered(job) for job in range(1, MOST_LOOKED_AT + 1)))
    for job in range(1, MOST_LOOKED_AT + 1):
        market.vet(job, 10**30)
    market.views[JobId(50)] = offered(50)
    assert market.see().looked_at == set()
    market.views[JobId(51)] = offered(51, 10**40)
    assert market.see().looked_at == {51}


def test_data_that_nobody_serves_keeps_nobody_for_ever() -> None:
    market = Market(offered(1), offered(2))
    market.vet(1, 9)
    market.vet(2, 5)
    assert market.choice.taken == {1}
    assert market.see(TURN_SECONDS - 1).taken == {1}
    assert market.see(1).taken == {2}
    assert market.see(TURN_SECONDS).taken == {1}
    assert market.see(2 * TURN_SECONDS - 1).taken == {1}  # twice as long the second time
    assert market.see(1).taken == {2}


def test_who_has_its_turn_keeps_it_from_one_that_comes_later() -> None:
    market = Market(offered(1))
    market.vet(1, 5)
    market.views[JobId(2)] = offered(2)
    market.vet(2, 9)
    assert market.choice.taken == {1}


def full() -> Network:
    net = Network()
    for seat, account in enumerate(("a", "b", "c", "d")):
        net.join(Address("0x" + account * 40), seat)
    return net


def test_a_job_without_a_free_place_is_the_last_to_be_taken() -> None:
    market = Market(offered(1, net=full()), offered(2))
    market.vet(1, 9)
    market.vet(2, 5)
    assert market.choice.taken == {2}


# --- what opens no round ---


def captured(**terms: int) -> tuple[Market, Network]:
    """We have the first seat of a job that waits, and room for one job."""
    net = Network(make_terms(segment_pay=1, **terms))
    market = Market(offered(1, net=net))
    market.vet(1, 1)
    market.bring(1)
    market.join(1, net)
    return market, net


def test_what_opens_no_round_does_not_count_and_is_left_for_what_pays() -> None:
    market, net = captured()
    market.views[JobId(2)] = offered(2)
    assert market.see().looked_at == set()
    assert "policy.jobs_at_once is 1" in market.choice.why_out(JobId(2))
    market.see(net.terms.ready_seconds - 1)
    assert market.choice.unpaid == set()
    assert market.see(1).unpaid == {1}
    assert market.choice.looked_at == {2}
    market.vet(2, 5)
    assert market.choice.why_out(JobId(1)) == ""  # not before it could be joined
    market.bring(2)
    assert market.choice.taken == {2}
    assert market.choice.why_out(JobId(1)) == "has had no round here, and job 2 pays"


def test_no_author_says_how_long_a_job_that_opens_no_round_holds_who_joined() -> None:
    market, _ = captured(ready_seconds=2**32 - 1)
    market.views[JobId(2)] = offered(2)
    market.see()
    assert market.see(WAIT_SECONDS - 1).unpaid == set()
    assert market.see(1).unpaid == {1}
    market.vet(2, 5)
    market.bring(2)
    assert market.choice.taken == {2}


def test_what_was_left_is_not_taken_again_until_it_opens_a_round_or_the_better_one_ends() -> None:
    """Two jobs that never begin could else have us pay gas for ever."""
    market, net = captured()
    waiting = market.views[JobId(1)]
    market.views[JobId(2)] = offered(2)
    market.see()
    market.see(net.terms.ready_seconds)
    market.vet(2, 5)
    market.bring(2)
    other = Network(make_terms())
    market.join(2, other)
    market.views[JobId(1)] = offered(1)  # our place there is released
    assert market.see(10 * net.terms.ready_seconds).unpaid == {2}
    assert not {1} & (market.choice.looked_at | market.choice.taken)
    market.views[JobId(2)] = replace(market.views[JobId(2)], status=JobStatus.CANCELLED)
    market.see()
    assert market.choice.why_out(JobId(1)) == ""
    assert waiting.job_id == 1


def test_a_round_that_opens_counts_again() -> None:
    market, net = captured()
    market.see(net.terms.ready_seconds)
    assert market.choice.unpaid == {1}
    script = Script.ready()
    script.net.advance()
    market.views[JobId(1)] = replace(script.net.view, job_id=JobId(1))
    assert market.see().unpaid == set()


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_are_left_than_have_to_be(most: int) -> None:
    market, net = captured()
    market.most = most
    market.views[JobId(2)] = offered(2)
    market.see()
    market.see(net.terms.ready_seconds)
    market.vet(2, 5)
    market.bring(2)
    assert bool(market.choice.why_out(JobId(1))) == (most == 1)


def test_an_outsider_looks_at_all() -> None:
    choice = Choice(Address(ME), None)
    views: Mapping[JobId, Any] = {JobId(1): offered(1)}
    assert choice.see(views, lambda _: Entries(), 1, NOW) is False
    assert (choice.why_out(JobId(1)), choice.may_take(JobId(1))) == ("", True)
