"""A provider that is killed in the middle of a round commits what it would have committed."""

from __future__ import annotations

import asyncio

from tests.network.members import Network, Site, Who, network

from atoll.protocol.types import SeatIndex
from atoll.storage.local import LocalStore
from atoll.storage.pins import Pin
from atoll.train.initial_model import open_initial_state
from atoll.train.probe import pin_torch
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll_devnet.processes.cluster import Member

SEAT = SeatIndex(1)
STEPS, SEGMENT = 160, 20
"""Some seconds of training, of which the first checkpoint comes after the eighth part."""


def checkpoints(member: Member) -> list[Pin]:
    pins = LocalStore(member.folder / "data" / "store").pins()
    return [pin for pin in pins if pin.reason.endswith("/checkpoint")]


async def killed_at_a_checkpoint(running: Network) -> None:
    """kill -9 of the provider and its worker, as soon as there is something to go on from."""
    member = running.cluster.providers[SEAT]
    while not checkpoints(member):  # noqa: ASYNC110 (files are looked for)
        await asyncio.sleep(0.02)
    member.process.kill()
    assert "Trained" not in member.journal_file.read_bytes().decode(errors="ignore")
    member.process.start()


async def test_a_killed_provider_goes_on_where_it_was(site: Site) -> None:
    steps = {"steps": STEPS, "segment_steps": SEGMENT}
    async with network(site, Who(), **steps) as running:
        await running.until(lambda view, _: bool(view.providers))
        await killed_at_a_checkpoint(running)
        view = await running.until(lambda view, _: bool(view.settled))
        member = running.cluster.providers[SEAT]
        log, left = (member.folder / "log").read_text(), checkpoints(member)
        settled_round, store = view.settled[0], running.session.store
        honest = trained(running, store)
    assert "goes on from a checkpoint" in log
    assert settled_round.reveals[SEAT].reveal.update_root == honest.update_root
    checkpoint_commitments = settled_round.reveals[SEAT].reveal.checkpoint_commitments
    assert [
        checkpoint_commitments[at : at + 32] for at in range(0, len(checkpoint_commitments), 64)
    ] == list(honest.states)
    assert not running.provider(SEAT).penalties
    assert left == []


def trained(running: Network, store: LocalStore) -> TrainedRound:
    """The seat's round 0, without any checkpoint."""
    pin_torch()
    assert running.view is not None
    settled_round, job = running.view.settled[0], running.manifest
    cid = store.add_pieces(open_initial_state(job, store).pieces()).to_bytes()
    task = TrainTask(job, settled_round.round_id, SEAT, settled_round.record.seed, cid)
    return train_round(task, store)
