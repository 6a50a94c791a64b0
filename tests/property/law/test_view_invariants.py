"""Whatever members do, a job's view keeps its invariants, and its fold is pure."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.law.factories import DOMAIN, JOB, JOBS, ScriptedJob, make_manifest, make_reveal

from atoll.law.rounds import apply
from atoll.law.terms import is_quorum
from atoll.law.views import JobView, ReportRecord
from atoll.law.words import Fault, JobStatus, Outcome, Phase, bits

MANIFEST = make_manifest()
TERMS = MANIFEST.terms
FAULTS = st.sampled_from([fault for fault in Fault if fault >= Fault.WITHHELD])
SUBSETS = st.integers(0, 2**32 - 1)


def chosen(job: ScriptedJob, data: st.DataObject, bitmap: int) -> list[int]:
    """Some of these, drawn."""
    return bits(bitmap & data.draw(SUBSETS))


def train(job: ScriptedJob, data: st.DataObject) -> bool:
    """Some seats commit and reveal. False where nobody did, and the training is void."""
    job.open()
    job.train()
    committed = chosen(job, data, job.view.state.seated)
    for seat in committed:
        job.commit(seat)
    if not committed:
        job.void("NoCommits")
        return False
    job.start_reveal()
    revealed = chosen(job, data, job.view.state.committed)
    for seat in revealed:
        steps = data.draw(st.sampled_from([TERMS.steps, TERMS.steps, 7]))
        job.reveal(seat, make_reveal((job.number, seat), steps=steps))
    if not revealed:
        job.void("NoReveals")
        return False
    job.arm()
    return True


def audit(job: ScriptedJob, data: st.DataObject) -> None:
    """Some verifiers ballot, report, second and vote, as they please."""
    job.draw()
    audited = job.view.state.audit_set
    for v in chosen(job, data, job.view.state.verifiers):
        job.ballot(v, chosen(job, data, audited), data.draw(st.integers(1, 255)))
        for seat in chosen(job, data, audited & data.draw(SUBSETS)):
            key = (seat, data.draw(st.integers(0, 1)), data.draw(FAULTS))
            known = {
                (r.report.seat, r.report.segment, r.report.fault): r
                for r in job.view.attempt_reports
            }
            if key not in known:
                job.report(v, seat, key[2], key[1])
            elif not known[key].reporters >> v & 1:
                job.second(v, known[key].index)
    for report in job.view.attempt_reports:
        treat_challenge(job, data, report)
    if job.view.attempt_reports:
        job.confirm()
        for v in chosen(job, data, job.view.state.verifiers):
            vote(job, data, v)
    job.resolve()


def treat_challenge(job: ScriptedJob, data: st.DataObject, report: ReportRecord) -> None:
    """Some challenges are answered, some taken back, by some or all of those who raised them."""
    how = data.draw(st.sampled_from(["answer", "withdraw", "leave"]))
    if not report.awaits_answer or how == "leave":
        return
    if how == "answer":
        job.answer(report.index, b"block")
        return
    for v in chosen(job, data, report.reporters):
        job.withdraw(v, report.index)


def vote(job: ScriptedJob, data: st.DataObject, verifier: int) -> None:
    maps = [0, 0, 0, 0]
    for report in job.view.attempt_reports:
        if not report.reporters >> verifier & 1:
            maps[data.draw(st.integers(0, 3))] |= 1 << report.index
    job.vote(verifier, *maps[:3])


def check(job: ScriptedJob) -> None:
    """What holds after every action."""
    view, state = job.view, job.view.state
    assert state.committed & ~state.seated == 0
    assert state.revealed & ~state.committed == 0
    assert (state.accepted | state.rejected | state.unresolved) & ~state.revealed == 0
    assert state.caught & ~state.rejected == 0
    assert state.dutiful & ~state.verifiers == 0
    assert state.cumulative_total == sum(view.claims.values())
    assert [report.index for report in view.reports] == list(range(len(view.reports)))
    assert all(settled.is_consistent for settled in view.settled)
    if state.phase is Phase.ATTEST:
        assert state.accepted & state.rejected == 0
        assert state.unresolved == state.revealed & ~state.accepted & ~state.rejected
        assert state.dutiful & (view.work.absent | view.work.contradicted) == 0
        check_outcomes(job)


def check_outcomes(job: ScriptedJob) -> None:
    verifiers = job.view.state.verifiers
    for report in job.view.attempt_reports:
        assert report.outcome is not Outcome.OPEN
        if is_quorum(report.reporters.bit_count(), verifiers.bit_count(), TERMS):
            assert report.outcome is Outcome.CONFIRMED
        assert (job.view.state.rejected >> report.report.seat & 1) >= report.stands


def advance(job: ScriptedJob, data: st.DataObject) -> None:
    """One more phase, whatever the job is in."""
    phase, attempt = job.view.state.phase, job.view.state.attempt
    if phase is Phase.WAITING:
        if attempt >= TERMS.attempts:
            job.close(JobStatus.EXPIRED, "OutOfAttempts")
        else:
            train(job, data)
    elif phase is Phase.DRAW:
        audit(job, data)
    elif phase is Phase.ATTEST and (data.draw(st.booleans()) or attempt + 1 >= TERMS.attempts):
        job.attest()
        job.settle()
    elif phase is Phase.ATTEST:
        job.void_no_quorum()
    elif phase is Phase.HALTED:
        job.close(JobStatus.EXPIRED, "Expired")


@settings(max_examples=150)
@given(st.data())
def test_a_view_keeps_its_invariants_whatever_members_do(data: st.DataObject) -> None:
    job = ScriptedJob(
        MANIFEST,
        data.draw(st.integers(2, 4), "providers"),
        data.draw(st.integers(2, 8), "verifiers"),
    )
    for _ in range(data.draw(st.integers(1, 14), "phases")):
        if job.view.state.phase is Phase.CLOSED:
            break
        advance(job, data)
        check(job)
    again = JobView.of(DOMAIN, JOBS, JOB)
    for event, block in job.log:
        before = again
        again = apply(before, event, block)
        assert apply(before, event, block) == again
    assert again == job.view
