"""What a job's result is where somebody was slashed for its last round: honest updates alone, or
said."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.identities import digest
from tests.unit.job.trained import Gateways, InProcess, TrainedJob, lies_at
from tests.unit.protocol.script import VERIFIERS

from atoll.job import delivery as delivering
from atoll.job.delivery import Delivery, deliver
from atoll.protocol.types import Bitmap, Role, Verdict, to_bitmap
from atoll.service import tasks
from atoll.service.duties.merge import DoMerge
from atoll.service.duties.updates import updates_of
from atoll.train.stored_states import read_global_state


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "Worker", InProcess)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """One round, in which two seats lie about how they came to their updates."""
    made = TrainedJob.begin(tmp_path_factory.mktemp("trained"), rounds=1)
    made.changes = {1: lies_at(2), 3: lies_at(2)}
    made.round()
    return made


@pytest.fixture
def job(trained: TrainedJob) -> TrainedJob:
    """Who is slashed in it is slashed for one test."""
    return replace(trained, script=deepcopy(trained.script), gateways=Gateways())


def slash(job: TrainedJob, *seats: int) -> None:
    net = job.script.net
    for seat in seats:
        net.slash(Role.PROVIDER, net.at(Role.PROVIDER, seat, 0).id, VERIFIERS[0], 0)


async def delivered(job: TrainedJob) -> Delivery:
    handle = job.handle()
    found = await deliver(handle, await handle.view(), await handle.manifest())
    assert found is not None
    return found


def without(job: TrainedJob, seat: int) -> Verdict:
    """The merge by whoever had never heard of a seat."""
    settled_round = job.script.net.view.settled[0]
    record = settled_round.merge_record
    others = to_bitmap(other for other in settled_round.reveals if other != seat)
    updates = updates_of(settled_round.reveals, others)
    votes = [Bitmap(vote & ~(1 << seat)) for vote in record.votes]
    record = replace(record, votes=votes)
    command = DoMerge(
        settled_round.round_id,
        settled_round.record.seed,
        record,
        updates,
        job.manifest.to_bytes(),
        job.openings[0],
    )
    return tasks.merge_round(command, str(job.store.root))


async def test_where_nobody_was_slashed_the_certified_model_is_the_result(job: TrainedJob) -> None:
    found = await delivered(job)
    certified = job.script.net.view.settled[0].verdict
    assert (found.digest, found.cid, found.merged) == (certified.state, certified.cid, None)
    assert "as its committee certified it" in found.text()


async def test_who_was_slashed_for_the_last_round_is_not_in_the_result(job: TrainedJob) -> None:
    slash(job, 1)
    job.gateways.gone = {job.updates[0, 1]}  # which nobody needs any more
    found, certified = await delivered(job), job.script.net.view.settled[0].verdict.state
    assert (found.digest, found.merged) == (without(job, 1).state, 3)
    assert (found.certified, found.slashed) == (certified, 0b0010)
    assert found.digest != certified
    for told in (found.digest.hex(), certified.hex(), "without seat 1"):
        assert told in found.text()


async def test_where_too_few_are_left_the_result_is_what_the_round_began_with(
    job: TrainedJob,
) -> None:
    slash(job, 1, 3)
    found = await delivered(job)
    assert found.merged == 0
    read = (job.manifest, found.cid, job.store), (job.manifest, job.openings[0], job.store)
    (end, begin) = (read_global_state(*each).params for each in read)
    assert all(end[name].equal(tensor) for name, tensor in begin.items())
    assert "fewer updates are left than its rule needs" in found.text()


async def test_where_an_update_is_gone_the_result_holds_the_cheats_and_says_so(
    job: TrainedJob,
) -> None:
    slash(job, 1)
    job.gateways.gone = {job.updates[0, 2]}
    found, certified = await delivered(job), job.script.net.view.settled[0].verdict
    assert (found.digest, found.cid) == (certified.state, certified.cid)
    assert "holds what seat 1 sent" in found.text()
    assert "the update of seat 2 is not served any more" in found.text()
    assert found.to_json_value()["not_merged_again"] == found.why_not


async def test_a_machine_with_other_bits_delivers_what_was_certified(
    job: TrainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    slash(job, 1)
    probe = {"probe_digest": digest("another machine's")}
    numerics = job.manifest.numerics.model_copy(update=probe)
    monkeypatch.setattr(job, "manifest", job.manifest.model_copy(update={"numerics": numerics}))
    found = await delivered(job)
    assert found.digest == found.certified
    assert "does not come to the job's bits" in found.why_not


async def test_a_round_that_began_with_a_model_that_nobody_certified_is_not_merged_again(
    tmp_path: Path,
) -> None:
    job = TrainedJob.begin(tmp_path, rounds=2)
    first = job.initial_state
    job.verdicts = lambda verdict: replace(verdict, cid=first)
    job.round()
    job.initial_state, job.verdicts = job.merged[0], lambda verdict: verdict
    job.round()
    slash(job, 2)
    assert "has another model" in (await delivered(job)).why_not
