"""What a job's result is where somebody was slashed for its last round: honest updates alone, or
said."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import digest
from tests.unit.job.trained import Gateways, InProcess, TrainedJob, lies_at
from tests.unit.protocol.script import VERIFIERS

from atoll.errors import ConfigError
from atoll.job import delivery as delivering
from atoll.job.delivery import Delivery, deliver
from atoll.job.handle import JobHandle
from atoll.job.signs import Signs
from atoll.protocol import events as ev
from atoll.protocol.types import Bitmap, Role, RoundIndex, Verdict, to_bitmap
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


# --- rounds that were struck ---


def lie(verdict: Verdict) -> Verdict:
    return replace(verdict, state=digest("a lie"))


@pytest.fixture(scope="module")
def lied(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """Three rounds, of which the second has a certificate of another model."""
    made = TrainedJob.begin(tmp_path_factory.mktemp("lied"), rounds=3)
    made.round()
    made.verdicts = lie
    made.round()
    made.verdicts = lambda verdict: verdict
    made.round()
    return made


@pytest.fixture
def struck(lied: TrainedJob) -> TrainedJob:
    return strike(replace(lied, script=deepcopy(lied.script), gateways=Gateways()), 1)


def strike(job: TrainedJob, round: int) -> TrainedJob:
    net = job.script.net
    signers = net.view.settled[round].signers
    net.emit(ev.MergeStruck(net.job, RoundIndex(round), VERIFIERS[0], signers))
    return job


async def test_the_result_is_what_the_struck_round_rightly_merges_to(struck: TrainedJob) -> None:
    found, view = await delivered(struck), struck.script.net.view
    assert found.cid == struck.merged[1]
    assert (found.certified, found.round) == (digest("a lie"), 1)
    assert (found.digest, found.merged) != (digest("a lie"), None)
    assert found.rounds(len(view.settled)) == 2  # the third followed from the lie
    for told in ("round 1 was struck", found.digest.hex(), digest("a lie").hex(), "4 updates"):
        assert told in found.text()
    assert found.to_json_value()["struck"]
    signs = Signs.of(view)
    assert (signs.struck, signs.clean_before) == ([1], 1)
    assert "round 1 was struck" in " ".join(signs.lines())
    of_result = found.signs(signs)
    assert of_result.is_clean and len(of_result.rounds) == 2


async def test_where_it_cannot_be_merged_the_last_model_before_it_is_the_result(
    struck: TrainedJob,
) -> None:
    struck.gateways.gone = {struck.updates[1, 2]}
    found, before = await delivered(struck), struck.script.net.view.settled[0].verdict
    assert (found.digest, found.cid, found.merged) == (before.state, before.cid, None)
    assert found.rounds(3) == 1
    assert "which that round began with" in found.text()
    assert "the update of seat 2 is not served any more" in found.text()
    assert found.signs(Signs.of(struck.script.net.view)).lines() == []


async def test_of_a_struck_first_round_it_is_the_jobs_first_model(lied: TrainedJob) -> None:
    job = strike(replace(lied, script=deepcopy(lied.script), gateways=Gateways()), 0)
    assert (await delivered(job)).cid == job.merged[0]
    job.gateways.gone = {job.updates[0, 0]}
    found = await delivered(job)
    assert (found.cid, found.rounds(3)) == (job.openings[0], 0)


async def test_a_job_goes_on_from_the_result_of_a_struck_one(
    struck: TrainedJob, tmp_path: Path
) -> None:
    asked: list[str] = []

    def writes(name: str) -> Any:
        async def written(*args: object, **kwargs: object) -> Path:
            del args, kwargs
            asked.append(name)
            return tmp_path

        return written

    handle: Any = struck.handle()
    handle.result, handle.checkpoint = writes("result"), writes("checkpoint")
    await JobHandle._newest_sound(handle, tmp_path)
    slash(struck, 0, 1)  # in all rounds, and before the struck one, too
    with pytest.raises(ConfigError, match="no safe model"):
        await JobHandle._newest_sound(handle, tmp_path)
    assert asked == ["result"]
