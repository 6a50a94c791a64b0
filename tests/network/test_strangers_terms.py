"""Jobs that a stranger writes, beside one that pays: what cannot begin holds nobody, and what would
take bonds by its clocks finds nobody, who says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.network.members import A_DAY, TERMS, Network, Site, Who, everybody, network, submit
from tests.support.small_job import numerics_of_members, small_manifest, with_program

from atoll.job.standings import Standing, standings
from atoll.protocol.types import NO_ROUND
from atoll.protocol.views import JobView
from atoll.service.stand_statements import Stand
from atoll_devnet.processes.cluster import Cluster

POLICY = """
[policy]
jobs_at_once = 1
least_move_s = 5
"""
DUST = {"segment_pay": 1, "min_verifiers": 5, "ready_seconds": 30}
"""It pays, and begins with five verifiers, of whom there are three."""


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member has room for one job, and asks for the time of a transaction."""
    written = Cluster._config_text

    def with_policy(cluster: Cluster, *about: Any) -> str:
        return written(cluster, *about) + POLICY

    monkeypatch.setattr(Cluster, "_config_text", with_policy)


async def offer(running: Network, **changes: Any) -> None:
    """One more job, which the members' clocks allow but for these."""
    store, now = running.session.store, running.now
    terms = {"expiry": now + A_DAY, **TERMS, **changes}
    manifest = small_manifest(store, numerics_of_members(), **terms)
    await submit(running.session, with_program(manifest, store))


def are_all_there(view: JobView, _: int) -> bool:
    return len(view.providers) == 4 and len(view.verifiers) == 3


def ours(running: Network, **terms: int) -> JobView | None:
    """The submitter's job of these terms; a stranger's own are among the others."""
    for view in running.session.follower.views.values():
        own = view.terms is not None and view.submitter == running.session.me
        if own and all(getattr(view.terms, name) == value for name, value in terms.items()):
            return view
    return None


@pytest.mark.usefixtures("careful")
async def test_what_cannot_begin_is_left_for_what_pays_and_a_trap_is_refused(
    site: Site,
) -> None:
    async with network(site, Who(), **DUST) as running:
        view = await running.until(are_all_there)
        members = {h.account for h in everybody(view)}
        await offer(running, move_seconds=1)
        await offer(running)

        def has_settled(_: JobView, __: int) -> bool:
            paid = ours(running, min_verifiers=2, move_seconds=5)
            return paid is not None and bool(paid.settled)

        view = await running.until(has_settled)
        trap = ours(running, move_seconds=1)
        assert trap is not None and not everybody(trap)
        client = SimpleNamespace(session=running.session, chain=running.session.chain)
        found: list[Standing] = await standings(cast(Any, client), trap)
    why = "move window 1 s < 5 s, which transactions take"
    assert found == [Standing(Stand.REFUSES, why, len(members))]
    assert not view.settled
    assert {h.account for h in everybody(view) if h.to != NO_ROUND} == members
