"""First endpoints that are of no use, each beside a good one: nobody loses anything by them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.network.members import Who, everybody, fallen, is_settled_up, network

from atoll.law.games.machine import Outcome
from atoll.law.pay import round_pay
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
OLD = (STALE,)
POISONER = 0
FAULTY: dict[str, Sequence[Sequence[str]]] = {
    "provider": (EVERY[0::4], OLD, EVERY[1::4], EVERY[2::4]),
    "verifier": (OLD, EVERY[3::4]),
}
"""What the first endpoint of each member answers to every question, one after the other."""


def put_first(member: Member, url: str) -> None:
    """Has a member ask that endpoint before those that it has."""
    known = tomllib.loads(member.config_file.read_text(encoding="utf-8"))["rpc_urls"]
    point_at(member.folder, [url, *known])


@asynccontextmanager
async def faulty_first(cluster: Cluster, told: Counter[str]) -> AsyncIterator[None]:
    """Puts an endpoint of no use before each member; at the end counts what they told."""
    async with AsyncExitStack() as stack:
        proxies = []
        for seed, member in enumerate(cluster.members):
            kinds = tuple(FAULTY[member.kind][member.index])
            proxy = faulty_rpc(cluster.chain.rpc_url, seed, rate=1.0, only=kinds, in_turn=True)
            proxies.append(await stack.enter_async_context(proxy))
            put_first(member, proxies[-1].url)
        yield
        for one in proxies:
            told.update(one.told)


async def test_no_transaction_duty_or_game_is_lost_to_a_first_endpoint(tmp_path: Path) -> None:
    told = Counter[str]()
    who = Who(providers={POISONER: "poison-segment"}, places=2)
    async with network(tmp_path, who, before=partial(faulty_first, told=told)) as running:
        view = await running.until(is_settled_up)
        seats = [running.provider(seat) for seat in range(4)]
        auditors = [running.verifier(place) for place in range(2)]
        paid = {holder: running.paid(holder) for holder in (*seats, *auditors)}
        terms = running.manifest.terms

    liar, *honest = seats
    assert fallen(view) == {liar.account}
    assert any(game.outcome is Outcome.HOLDER_FELL for game in view.games.values())
    assert not any(holder.cuts for holder in everybody(view) if holder is not liar)
    (past,) = view.settled
    assert past.facts.revealed == 0b1111
    for holder in (*honest, *auditors):
        assert paid[holder] >= round_pay(terms, past, holder)
    for seat in honest:
        assert paid[seat] > 0
    assert len(EVERY) >= 17
    assert {*EVERY, *OLD} - told.keys() == set()
