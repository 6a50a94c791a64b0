"""Where a job stands, as a person reads it: units, times, and what comes next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.job.trained import TrainedJob

from atoll.cli.snapshot import after_the_end, while_it_waits
from atoll.job.job_snapshot import JobSnapshot
from atoll.protocol.types import TOKEN, JobStatus, Phase
from atoll.storage.cid import Cid


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> JobSnapshot:
    """Of a job whose first of two rounds is settled."""
    job = TrainedJob.begin(tmp_path_factory.mktemp("running"), rounds=2)
    job.round()
    return JobSnapshot.of(job.script.net.view)


def test_amounts_are_tokens_and_times_are_dates(running: JobSnapshot) -> None:
    money = {"funded_wei": 3 * TOKEN // 2, "paid_wei": TOKEN, "burnt_wei": 0, "refunded_wei": 0}
    snapshot = replace(running, deadline=1_700_000_000, **money)
    lines = dict(line.split(maxsplit=1) for line in str(snapshot).splitlines())
    assert (lines["funded"], lines["paid"], lines["left"]) == (
        "1.5 tokens",
        "1 tokens",
        "0.5 tokens",
    )
    assert lines["phase"].endswith("until 2023-11-14 22:13:20 UTC at the latest")
    assert lines["rounds"] == "1 of 2 settled, 0 final"
    assert "next" not in lines


def test_programs_have_wei_seconds_and_a_cid_that_can_be_fetched(running: JobSnapshot) -> None:
    snapshot = replace(running, deadline=7, funded_wei=5)
    data = snapshot.to_json_value()
    assert snapshot.model_cid is not None
    assert Cid.parse(data["model_cid"]).to_bytes() == snapshot.model_cid
    assert (data["deadline"], data["funded_wei"], data["status"]) == (7, "5", "active")
    assert replace(snapshot, model_cid=None).to_json_value()["model_cid"] is None


def test_a_committee_s_model_that_is_nowhere_is_shown(running: JobSnapshot) -> None:
    """Of a job that is in one hand, to begin with; whoever looks at it is told."""
    nowhere = replace(running, model_cid=b"\x00\x1b")
    assert nowhere.to_json_value()["model_cid"] == "not a CID: 001b"
    assert "not a CID: 001b" in str(nowhere)


def test_who_has_a_job_that_has_ended_is_told_what_comes_next(running: JobSnapshot) -> None:
    ended = replace(running, status=JobStatus.CANCELLED)
    job = ended.job
    assert f"`atoll job result {job} DIR` fetches the model, once its last" in after_the_end(ended)
    assert f"`atoll job refund {job}`" in str(ended)
    final = replace(ended, final_rounds=1)
    assert f"`atoll job result {job} DIR` fetches the model;" in after_the_end(final)
    nothing = replace(ended, settled_rounds=0)
    assert "job result" not in after_the_end(nothing)
    assert f"`atoll job refund {job}`" in after_the_end(nothing)


def test_a_job_that_waits_says_what_it_lacks_and_what_its_submitter_can_do(
    running: JobSnapshot,
) -> None:
    members = {"providers": 2, "enough_providers": 3, "ready": 1, "enough_ready": 2}
    waiting = replace(running, phase=Phase.WAITING, expiry=1_700_000_000, **members)
    lines = dict(line.split(maxsplit=1) for line in str(waiting).splitlines())
    lacking = "2 of 3 seats are held, 1 of 2 verifiers are ready"
    ends = "without them it ends at 2023-11-14 22:13:20 UTC"
    assert lines["waits"] == f"for members: {lacking}; {ends}"
    for verb in ("serve", "cancel", "refund"):
        assert f"`atoll job {verb} {waiting.job}`" in lines["next"]
        assert f"`atoll job {verb} {waiting.job}`" in while_it_waits(waiting)
    assert lacking in while_it_waits(waiting)
    data = waiting.to_json_value()
    assert {name: data[name] for name in members} == members


def test_a_job_that_lacks_nobody_waits_for_nobody(running: JobSnapshot) -> None:
    enough = replace(running, phase=Phase.WAITING)
    for snapshot in (enough, replace(running, providers=0), replace(enough, phase=Phase.CLOSED)):
        assert while_it_waits(snapshot) == ""
        assert "waits" not in str(snapshot)
