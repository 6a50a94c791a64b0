"""A provider that trains ahead of the merged model, and a verifier's own tasks on its work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.law.factories import JOB, ScriptedJob, make_manifest
from tests.unit.train.factories import Job, make_job, reveal_of
from tests.unit.train.test_methods import Run, manifest_for

from atoll.content.cid import Cid
from atoll.content.storage import Storage
from atoll.law.words import Address, Digest, SeatIndex
from atoll.service.commands import Fact
from atoll.service.context import Context
from atoll.service.effects import Effects
from atoll.service.journal import Journal
from atoll.service.worker import resolve
from atoll.train.probe import configure_native
from atoll.train.round import train_round
from atoll_node.duties.train import DoTrain, DoTrainAhead, SegmentsTrained, Trained
from atoll_verifier import tasks
from atoll_verifier.seatwork import SeatWork

SEAT = SeatIndex(0)
NOT_HERE = Cid.of(b"the merged model, before it is here").to_bytes()


class Worker:
    """Runs what the worker process would, in this one."""

    async def run(self, function: str, *args: object) -> Any:
        return resolve(function)(*args)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A streaming job after its first round: rounds of two segments, the first of them ahead."""
    configure_native()
    job = make_job(tmp_path_factory.mktemp("overlap"))
    started = Run(job.of(manifest_for(job, "streaming")))
    started.one_round()
    return started


@pytest.fixture
def effects(run: Run, tmp_path: Path) -> Effects:
    store = run.job.store
    context = SimpleNamespace(
        config=SimpleNamespace(store_dir=store.root, role="verifier"),
        chain=SimpleNamespace(calls=None),
        store=store,
        storage=Storage(store, cast(Any, None), None, read_only=False),
        worker=Worker(),
        journal=Journal(tmp_path / "journal.sqlite"),
    )
    return Effects(cast(Context, context))


def training(seat: Job, opening: bytes, ahead: SegmentsTrained | None = None) -> DoTrain:
    """What the machine asks for in the second round."""
    task, digest = seat.task, seat.model.digest()
    return DoTrain(
        slot=task.slot,
        seat=task.seat,
        data_seed=task.data_seed,
        manifest=seat.manifest.to_bytes(),
        opening=opening,
        opening_digest=digest,
        optimiser=task.opening_optimiser,
        function="atoll_node.tasks:train",
        extra=(),
        begun=ahead,
    )


def work_of(seat: Job, trained: Trained, accepted: Digest) -> SeatWork:
    """What a verifier is asked about it."""
    return SeatWork(
        slot=seat.task.slot,
        seat=SEAT,
        reveal=trained.reveal,
        account=Address("0x" + "22" * 20),
        gateway="",
        data_seed=seat.task.data_seed,
        manifest=seat.manifest.to_bytes(),
        opening=seat.task.global_state_cid,
        params_root=seat.model.params_root(),
        optimiser_root=accepted,
    )


async def test_training_ahead_leads_to_the_same_round_and_verifiers_agree(
    run: Run, effects: Effects
) -> None:
    seat, view = run.seat(SEAT), ScriptedJob(make_manifest()).view
    begun = await effects.run(view, DoTrainAhead(training(seat, NOT_HERE)))
    ahead = begun.fact
    assert ahead is not None
    done = await effects.run(view, training(seat, seat.task.global_state_cid, ahead))
    trained = done.fact
    assert trained is not None
    assert effects.context.journal.read(JOB).all_of(Fact) == [trained, ahead]

    expected = reveal_of(train_round(seat.task, seat.store))
    assert trained.reveal.trace_root == expected.trace_root
    assert trained.reveal.update_root == expected.update_root
    assert trained.reveal.optimiser_root == expected.optimiser_root

    work, store = work_of(seat, trained, run.roots[SEAT]), str(seat.store.root)
    assert tasks.check_seat(work, store) == ""
    assert [tasks.replay(work, segment, store, 5).differs for segment in range(2)] == ["", ""]
    assert tasks.link(work, store) == ""
