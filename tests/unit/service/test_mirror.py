"""The mirror of several jobs: each sees its own events and everyone's gateways."""

from __future__ import annotations

from tests.unit.law.factories import (
    DOMAIN,
    JOB,
    JOBS,
    ScriptedJob,
    address,
    make_manifest,
)

from atoll.chain.mirror import Mirror
from atoll.law import events as ev
from atoll.law.words import JobId, VerifierIndex


def test_folding_gives_the_view_of_the_rounds_fold() -> None:
    job = ScriptedJob(make_manifest())
    job.honest_round()
    mirror = Mirror(DOMAIN, JOBS, None)
    assert mirror.fold(job.log) == {JOB}
    assert mirror.views == {JOB: job.view}


def test_a_gateway_announced_before_the_job_is_known_to_it() -> None:
    job = ScriptedJob(make_manifest())
    mirror = Mirror(DOMAIN, JOBS, None)
    mirror.fold([(ev.GatewayAnnounced(address("submitter"), "http://a:1"), job.block)])
    mirror.fold(job.log)
    assert mirror.views[JOB].gateway_urls() == ("http://a:1",)
    late = ev.GatewayAnnounced(address("submitter"), "http://b:1")
    assert mirror.fold([(late, job.block)]) == {JOB}
    assert mirror.views[JOB].gateway_urls() == ("http://b:1",)


def test_jobs_that_are_not_followed_are_not_there() -> None:
    job = ScriptedJob(make_manifest())
    mirror = Mirror(DOMAIN, JOBS, {JobId(99)})
    assert mirror.fold(job.log) == set()
    assert mirror.views == {}


def test_a_cleared_mirror_folds_anew() -> None:
    job = ScriptedJob(make_manifest())
    mirror = Mirror(DOMAIN, JOBS, None)
    mirror.fold(job.log)
    mirror.clear()
    mirror.fold(job.log)
    assert mirror.views == {JOB: job.view}


def test_an_event_that_does_not_fold_is_passed_over() -> None:
    job = ScriptedJob(make_manifest())
    job.honest_round()
    nobody = VerifierIndex(31)
    broken = ev.VerifierReady(JOB, nobody, address("a stranger"))
    mirror = Mirror(DOMAIN, JOBS, None)
    half = len(job.log) // 2
    mirror.fold([*job.log[:half], (broken, job.block)])
    assert mirror.rejected == 1
    mirror.fold(job.log[half:])
    assert mirror.views == {JOB: job.view}
    mirror.clear()
    assert mirror.rejected == 0
