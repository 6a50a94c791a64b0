"""Disks lose updates while the committee is getting them; who made them makes them again."""

from __future__ import annotations

import asyncio

from tests.network.members import Network, Site, Who, is_settled_up, network, slashed
from tests.support.small_job import damage

from atoll.protocol.pay import round_pay
from atoll.storage.local import LocalStore

LOOK_SECONDS = 0.02
"""Members look at the chain far less often, and get an update only then."""


async def test_who_loses_its_update_once_it_is_revealed_is_paid(site: Site) -> None:
    """A gateway that drips its bytes holds up whoever asks everybody for what is lost."""
    async with network(site, Who({0: "drip"}, slots=2)) as running:
        await lose_updates(running, {1, 2, 3})
        view = await running.until(is_settled_up)
        holders = [running.provider(seat) for seat in range(4)]
        (settled_round,), terms = view.settled, running.manifest.terms

    assert slashed(view) == set()
    for holder in holders[1:]:
        assert not holder.penalties
        assert running.paid(holder) >= round_pay(terms, settled_round, holder) > 0


async def lose_updates(running: Network, seats: set[int]) -> None:
    """Turns a bit in the update of each of these as soon as it is revealed."""
    while seats:
        await running.session.follower.poll()
        view = running.session.follower.views.get(running.job)
        reveals = view.open.reveals if view is not None and view.open is not None else {}
        for seat in sorted(seats.intersection(reveals)):
            store = LocalStore(running.cluster.providers[seat].folder / "data" / "store")
            damage(store, reveals[seat].reveal.update_cid)
            seats.remove(seat)
        await asyncio.sleep(LOOK_SECONDS)
