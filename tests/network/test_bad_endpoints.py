"""First endpoints that are of no use, each beside a good one: nobody loses anything by them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from tests.network.members import Site, Who, everybody, is_settled_up, network, slashed

from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.pay import round_pay
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.processes.faulty_rpc import (
    BY_STATUS,
    FAULTS,
    STALE,
    TROUBLE,
    faulty_rpc,
)
from atoll_devnet.run.stranger import point_at

EVERY = (*FAULTS, *TROUBLE, *BY_STATUS)
POISONER = 0
MEMBERS = 6
BEHIND = (1, 4)
"""A provider and an auditor whose first endpoint has lost its peers, beside the others' kinds."""


def kinds_before(number: int) -> tuple[str, ...]:
    """What the endpoints before a member's good one answer to every question, each of one kind."""
    return (STALE,) * (number in BEHIND) + EVERY[number::MEMBERS]


def put_first(member: Member, urls: list[str]) -> None:
    """Has a member ask these endpoints before those that it has."""
    known = tomllib.loads(member.config_file.read_text(encoding="utf-8"))["rpc_urls"]
    point_at(member.folder, [*urls, *known])


@asynccontextmanager
async def faulty_first(cluster: Cluster, told: Counter[str]) -> AsyncIterator[None]:
    """Puts endpoints of no use before each member's; at the end counts what they told."""
    async with AsyncExitStack() as stack:
        proxies = []
        for number, member in enumerate(cluster.members):
            urls = []
            for kind in kinds_before(number):
                proxy = faulty_rpc(cluster.chain.rpc_url, 0, rate=1.0, only=(kind,))
                proxies.append(await stack.enter_async_context(proxy))
                urls.append(proxies[-1].url)
            put_first(member, urls)
        yield
        for one in proxies:
            told.update(one.counts)


async def test_no_transaction_duty_or_game_is_lost_to_a_first_endpoint(site: Site) -> None:
    told = Counter[str]()
    who = Who(providers={POISONER: "poison-segment"}, slots=2)
    async with network(site, who, before=partial(faulty_first, told=told)) as running:
        view = await running.until(is_settled_up)
        seats = [running.provider(seat) for seat in range(4)]
        auditors = [running.verifier(slot) for slot in range(2)]
        paid = {holder: running.paid(holder) for holder in (*seats, *auditors)}
        terms = running.manifest.terms

    liar, *honest = seats
    assert slashed(view) == {liar.account}
    assert any(game.outcome is Outcome.HOLDER_LOST for game in view.games.values())
    assert not any(holder.penalties for holder in everybody(view) if holder is not liar)
    (settled_round,) = view.settled
    assert settled_round.record.revealed == 0b1111
    for holder in (*honest, *auditors):
        assert paid[holder] >= round_pay(terms, settled_round, holder)
    for seat in honest:
        assert paid[seat] > 0
    assert len(EVERY) >= 17
    assert {*EVERY, STALE} - told.keys() == set()
