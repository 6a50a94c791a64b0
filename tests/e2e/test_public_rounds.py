"""Rounds open from public data: who joins late opens with what everybody has, served by nobody."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.test_weather import reached

from atoll.content.cid import Cid
from atoll.content.local import LocalStore
from atoll.law.trace import MAX_TRACE_BYTES, TraceDocument
from atoll.law.words import ZERO_DIGEST, Phase, Role, SeatIndex
from atoll_devnet.processes.cluster import Member
from atoll_devnet.report.live import Display
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import finish, is_over, start

from .conftest import check_books

Options = Callable[..., RunOptions]
LATE = SeatIndex(3)


def store_of(member: Member) -> LocalStore:
    return LocalStore(member.folder / "data" / "store")


async def test_who_joins_late_opens_with_what_everybody_has(
    options: Options, display: Display
) -> None:
    chosen = options(job={"rounds": 4, "members.seats": 4}, providers=3, verifiers=2)
    async with start(chosen, display) as running:
        await running.observer.run(reached(0, Phase.TRAIN))
        late = running.cluster.add(Role.PROVIDER)
        late.process.start()
        await running.observer.run(is_over)
        view = running.observer.view
        assert view is not None
        cluster, last = running.cluster, view.settled[-1]
        openings, first_states = set(), set()
        for seat, told in last.reveals.items():
            cid = Cid.from_bytes(told.reveal.trace_cid)
            data = store_of(cluster.providers[seat]).read_bytes(cid, MAX_TRACE_BYTES)
            document = TraceDocument.from_bytes(data)
            openings.add(document.state_roots[0])
            first_states.add(Cid.from_bytes(document.states[0]))
        held = [
            cid
            for verifier in cluster.verifiers
            for cid in first_states
            if store_of(verifier).has(cid)
        ]
        report = (await finish(running, chosen)).report
    check_books(report)
    assert report["job"]["status"] == "done"
    assert last.evidence.accepted == 0b1111
    assert LATE not in view.settled[0].reveals
    (opening,) = openings
    assert opening.optimiser_root != ZERO_DIGEST
    assert all(told.reveal.reset for told in last.reveals.values())
    # Every segment of the last round was replayed, the first one from what everybody has.
    assert held == []
