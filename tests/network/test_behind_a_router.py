"""Providers that nobody reaches: they bring what they owe, and are paid like others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.network.members import Site, Who, is_settled_up, network

from atoll.protocol.pay import round_pay
from atoll_devnet.processes.cluster import Cluster

HIDDEN = (0, 1)


@asynccontextmanager
async def two_serve_nobody(cluster: Cluster) -> AsyncIterator[None]:
    for seat in HIDDEN:
        path = cluster.providers[seat].folder / "config.toml"
        text = path.read_text("utf-8")
        path.write_text(text.replace("[gateway]\n", "[gateway]\nannounce = false\n"), "utf-8")
    yield


async def test_who_announces_no_address_trains_is_available_and_is_paid(site: Site) -> None:
    async with network(site, Who(), before=two_serve_nobody, rounds=2) as running:
        view = await running.until(is_settled_up)
        holders = [running.provider(seat) for seat in range(4)]
        paid = [running.paid(holder) for holder in holders]
    terms = running.manifest.terms
    for settled_round in view.settled:
        assert settled_round.record.available.bit_count() == settled_round.verdict.merged == 4
    assert [holders[seat].account in view.gateways for seat in range(4)] == [
        seat not in HIDDEN for seat in range(4)
    ]
    assert not any(holder.penalties for holder in holders)
    for holder, amount in zip(holders, paid, strict=True):
        earned = sum(round_pay(terms, settled_round, holder) for settled_round in view.settled)
        assert amount >= earned > 0
