"""The provider's machine: events in, commands out; each test breaks one thing of a valid job."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias, TypeVar

import pytest
from tests.unit.law.factories import (
    JOB,
    ScriptedJob,
    address,
    cid,
    digest,
    make_manifest,
    make_reveal,
)

from atoll.law import events as ev
from atoll.law.hashing import commitment
from atoll.law.views import JobView
from atoll.law.words import ZERO_DIGEST, Digest, JobStatus, Role, SeatIndex, bits
from atoll.service.commands import Fact, key_of
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
)
from atoll.service.duties.membership import SendAnnounce, SendJoin, SendLeave
from atoll.service.duties.opening import DoPrepareOpening, OpeningReady
from atoll.service.duties.upkeep import SendPoke
from atoll.service.machine import (
    Cancel,
    Drain,
    Finished,
    Head,
    HeadAdvanced,
    Order,
    Setup,
    ViewChanged,
)
from atoll_node.behaviour import ProviderBehaviour, ProviderState
from atoll_node.duties.answer import SendAnswer, Unanswerable
from atoll_node.duties.commit import SendCommit
from atoll_node.duties.reveal import SendReveal
from atoll_node.duties.train import DoTrain, DoTrainAhead, SegmentsTrained, Trained
from atoll_node.machine import step

C = TypeVar("C")
MANIFEST = make_manifest()
ME, SEAT = address("provider 0"), SeatIndex(0)
URL = "http://127.0.0.1:4001"
BLOCK = b"a block that somebody cannot fetch"
INITIAL = digest("initial state")
Left: TypeAlias = tuple[str, Fact]
"""What a command left, under its key."""
SPEC: Left = (key_of(DoFetchSpec), SpecReady(MANIFEST.to_bytes()))
BEGUN = SegmentsTrained(b"a trace", 0.5)
DATA: Left = (key_of(DoFetchData), DataReady(cid("data"), ZERO_DIGEST))


def announced(job: ScriptedJob) -> ScriptedJob:
    job.emit(ev.GatewayAnnounced(ME, URL))
    return job


def seated_job() -> ScriptedJob:
    return announced(ScriptedJob(MANIFEST))


def training_job() -> ScriptedJob:
    job = seated_job()
    job.open()
    job.train()
    return job


def provider(
    job: ScriptedJob, *left: Left, behaviour: ProviderBehaviour | None = None
) -> ProviderState:
    """A provider that has manifest, data and what else was left."""
    return fresh_provider(job, SPEC, DATA, *left, behaviour=behaviour)


def fresh_provider(
    job: ScriptedJob, *left: Left, behaviour: ProviderBehaviour | None = None
) -> ProviderState:
    setup = Setup(URL, behaviour or ProviderBehaviour())
    state = ProviderState(ME, setup, job.view, Head(job.number, job.now), job.number)
    for key, fact in left:
        state = replace(state, facts=state.facts.plus(key, fact))
    return state


def given(state: ProviderState, job: ScriptedJob) -> tuple[ProviderState, list[Order]]:
    """What the machine starts when it sees the job as it is now."""
    state, first = step(state, ViewChanged(job.view, job.number))
    state, then = step(state, HeadAdvanced(Head(job.number, job.now)))
    return state, [*first, *then]


def kinds(commands: list[Order]) -> list[type]:
    return [type(command) for command in commands]


def opening(round_: int = 0, state: Digest = INITIAL) -> Left:
    ready = OpeningReady(cid("opening"), state, digest("params"), digest("moments"))
    return key_of(DoPrepareOpening, round_, state if round_ else None), ready


def trained(job: ScriptedJob) -> tuple[str, Trained]:
    """What honest training of the running round left."""
    state = job.view.state
    fact = Trained(
        round=state.round,
        reveal=make_reveal(job.reveal_name(SEAT)),
        carried_state=cid("last state"),
        loss=2.5,
        seconds=1.0,
    )
    return key_of(DoTrain, state.round, state.train_attempt, SEAT, state.data_seed, INITIAL), fact


def spec_of(method: str) -> Left:
    return key_of(DoFetchSpec), SpecReady(make_manifest({"method.name": method}).to_bytes())


# --- before the rounds ---


def test_the_manifest_comes_first_then_the_data_then_the_seat() -> None:
    job = announced(ScriptedJob(MANIFEST, providers=0))
    state, commands = given(fresh_provider(job), job)
    assert commands == [DoFetchSpec(job.view.spec_cid, job.view.terms_hash)]
    state, commands = step(state, Finished(*SPEC))
    assert kinds(commands) == [DoFetchData]
    _, commands = step(state, Finished(*DATA))
    assert commands == [SendJoin(Role.PROVIDER, MANIFEST.terms.provider_bond)]


def test_nothing_is_staked_on_a_job_that_is_refused() -> None:
    job = announced(ScriptedJob(MANIFEST, providers=0))
    _, commands = given(
        provider(job, (key_of(DoFetchSpec), JobRefused("another software class"))), job
    )
    assert commands == []


def test_a_changed_gateway_is_announced() -> None:
    job = ScriptedJob(MANIFEST, verifiers=0)
    _, commands = given(provider(job), job)
    assert commands == [SendAnnounce(URL)]


def test_a_provider_in_the_waiting_list_does_not_join_twice() -> None:
    job = announced(ScriptedJob(MANIFEST, providers=0))
    job.emit(ev.ProviderQueued(JOB, ME))
    assert given(provider(job), job)[1] == []


def test_a_closed_job_is_not_joined() -> None:
    job = announced(ScriptedJob(MANIFEST, providers=0))
    job.close(JobStatus.CANCELLED, "Cancelled")
    assert given(provider(job), job)[1] == []


def test_draining_gives_the_seat_up() -> None:
    job = seated_job()
    state, _ = given(provider(job), job)
    _, commands = step(state, Drain())
    assert commands == [SendLeave(Role.PROVIDER)]


def test_a_provider_that_leaves_finishes_its_round() -> None:
    job = training_job()
    job.emit(ev.ProviderLeaving(JOB, SEAT, ME))
    state, _ = step(provider(job, opening(), trained(job)), Drain())
    assert kinds([*state.in_flight.values()]) == [SendCommit]


def test_a_rejected_provider_does_not_come_back_by_itself() -> None:
    job = seated_job()
    job.open()
    job.until_audit()
    job.report(0, seat=SEAT)
    job.second(1, 0)
    for v in range(3):
        job.ballot(v, (1, 2, 3))
    job.resolve()
    job.attest()
    job.settle()
    job.emit(ev.ProviderUnseated(JOB, SEAT, ME, "Rejected"))
    state, commands = given(provider(job), job)
    assert SendJoin not in kinds(commands)
    assert "rejected" in state.reasons["membership"]


# --- a round ---


def test_a_round_goes_from_opening_to_reveal() -> None:
    job = training_job()
    state, commands = given(provider(job), job)
    assert commands == [DoPrepareOpening(0, MANIFEST.to_bytes(), None, None)]
    state, commands = step(state, Finished(*opening()))
    (task,) = commands
    assert isinstance(task, DoTrain)
    assert (task.seat, task.data_seed) == (SEAT, job.view.state.data_seed)
    assert (task.opening, task.optimiser) == (cid("opening"), None)
    key, fact = trained(job)
    assert key == task.key
    state, commands = step(state, Finished(task.key, fact))
    slot = job.view.train_slot
    expected = commitment(slot, SEAT, ME, fact.reveal)
    assert commands == [SendCommit(slot, SEAT, job.view.state.data_seed, expected)]
    job.mine()
    for seat in range(4):
        job.commit(seat)
    job.start_reveal()
    state, _ = step(state, Finished(commands[0].key, block=job.number))
    _, commands = given(state, job)
    assert commands == [SendReveal(slot, fact.reveal)]


def first_round(job: ScriptedJob) -> Left:
    """What we trained in the first round, which is settled."""
    fact = Trained(
        round=0,
        reveal=job.view.settled[0].reveals[SEAT].reveal,
        carried_state=cid("moments"),
        loss=2.5,
        seconds=1.0,
    )
    return key_of(DoTrain, 0, 0, SEAT, digest("seed 0"), INITIAL), fact


@pytest.mark.parametrize(("method", "resets"), [("muloco", False), ("streaming", True)])
def test_parameters_carried_past_a_missed_round_are_stale(method: str, resets: bool) -> None:
    """Where seats keep parameters of their own, one that missed a round starts anew."""
    job = seated_job()
    job.honest_round()
    for missed in (False, True):
        if missed:
            job.until_audit(seats=[1, 2, 3])
            for verifier in bits(job.view.state.verifiers):
                job.ballot(verifier, bits(job.view.state.audit_set))
            job.resolve()
            job.attest()
            job.settle()
        job.open()
        job.train()
        spec = spec_of(method)
        done = (
            first_round(job),
            opening(job.view.state.round, job.view.settled[-1].verdict.merged_digest),
        )
        _, commands = given(provider(job, spec, *done), job)
        (task,) = [c for c in commands if isinstance(c, DoTrain)]
        assert (task.optimiser is None) == (missed and resets)


@pytest.mark.parametrize(("method", "brought"), [("muloco", cid("moments")), ("diloco", None)])
def test_the_next_round_starts_from_the_verdict_and_what_a_seat_may_bring(
    method: str, brought: bytes | None
) -> None:
    """Where seats keep nothing of their own, a round opens with what everybody has."""
    job, spec = seated_job(), spec_of(method)
    manifest = make_manifest({"method.name": method}).to_bytes()
    job.honest_round()
    first = first_round(job)
    job.open()
    job.train()
    state, commands = given(provider(job, spec, opening(), first), job)
    verdict = job.view.settled[0].verdict
    prepare = DoPrepareOpening(1, manifest, verdict.merged_cid, verdict.merged_digest)
    assert prepare in commands
    _, commands = step(state, Finished(*opening(1, verdict.merged_digest)))
    (task,) = commands
    assert isinstance(task, DoTrain)
    assert task.optimiser == brought


def overlapping(*left: Left, behaviour: ProviderBehaviour | None = None) -> ProviderState:
    """A provider in the second round of a job whose rounds overlap by a segment."""
    job = seated_job()
    job.honest_round()
    first = first_round(job)
    job.open()
    job.train()
    spec = spec_of("streaming")
    state = provider(job, spec, first, *left, behaviour=behaviour)
    return given(state, job)[0]


def in_flight(state: ProviderState, kind: type[C]) -> C | None:
    found = [command for command in state.in_flight.values() if isinstance(command, kind)]
    return found[0] if found else None


def test_first_segments_are_trained_while_the_merged_model_is_on_its_way() -> None:
    state = overlapping()
    ahead, download = in_flight(state, DoTrainAhead), in_flight(state, DoPrepareOpening)
    assert ahead is not None and download is not None
    assert in_flight(state, DoTrain) is None
    assert ahead.training.optimiser == cid("moments")
    assert ahead.training.opening == download.cid
    key, here = opening(1, ahead.training.opening_digest)
    assert key == download.key
    assert isinstance(here, OpeningReady)
    arrived = Finished(key, replace(here, cid=ahead.training.opening))
    finished = Finished(ahead.key, BEGUN)
    for order in ((arrived, finished), (finished, arrived)):
        after, commands = state, []
        for event in order:
            assert commands == []  # neither alone starts or stops anything
            after, commands = step(after, event)
        (task,) = commands
        assert isinstance(task, DoTrain)
        assert task.begun == BEGUN
        assert replace(task, begun=None) == ahead.training


def test_a_restart_goes_on_from_the_segments_trained_ahead() -> None:
    ahead = in_flight(overlapping(), DoTrainAhead)
    assert ahead is not None
    done = (ahead.key, BEGUN)
    restarted = overlapping(done)
    assert in_flight(restarted, DoTrainAhead) is None
    task = in_flight(overlapping(done, opening(1, ahead.training.opening_digest)), DoTrain)
    assert task is not None
    assert task.begun == BEGUN


def test_nothing_is_trained_ahead_that_the_merged_model_is_needed_for() -> None:
    """Not once it is here, not where training departs, not after a reset."""
    ahead = in_flight(overlapping(), DoTrainAhead)
    assert ahead is not None
    here = opening(1, ahead.training.opening_digest)
    for state in (
        overlapping(here),
        overlapping(behaviour=CommitsElse()),
        provider_that_lost_its_state(),
    ):
        assert in_flight(state, DoTrainAhead) is None


def provider_that_lost_its_state() -> ProviderState:
    job = seated_job()
    job.honest_round()
    job.open()
    job.train()
    spec = spec_of("streaming")
    return given(provider(job, spec), job)[0]


def test_a_new_data_seed_cancels_what_was_begun_ahead() -> None:
    state = overlapping()
    ahead = in_flight(state, DoTrainAhead)
    assert ahead is not None
    seed = digest("another beacon")
    turned = replace(state.view, state=replace(state.view.state, data_seed=seed))
    _, commands = step(state, ViewChanged(turned, state.block))
    assert Cancel(ahead.key) in commands
    (anew,) = [c for c in commands if isinstance(c, DoTrainAhead)]
    assert anew.training.data_seed == seed


def test_lost_moments_are_a_reset() -> None:
    job = seated_job()
    job.honest_round()
    job.open()
    job.train()
    merged = job.view.settled[0].verdict.merged_digest
    _, commands = given(provider(job, opening(1, merged)), job)
    (task,) = [c for c in commands if isinstance(c, DoTrain)]
    assert task.optimiser is None


def test_a_restart_after_training_commits_to_what_was_trained() -> None:
    job = training_job()
    _, commands = given(provider(job, opening(), trained(job)), job)
    assert kinds(commands) == [SendCommit]


def test_a_restart_after_the_commit_neither_trains_nor_commits_again() -> None:
    job = training_job()
    job.commit(SEAT)
    assert given(provider(job, opening()), job)[1] == []


def test_a_commitment_without_its_salt_cannot_be_revealed() -> None:
    job = training_job()
    job.commit(SEAT)
    job.start_reveal()
    state, commands = given(provider(job, opening()), job)
    assert commands == []
    assert "no training" in state.reasons["reveal"]


def test_a_reorg_that_changes_the_data_seed_trains_anew() -> None:
    job = training_job()
    old, _ = trained(job)
    state, _ = given(provider(job, opening()), job)
    turned = training_job()
    seed = digest("another beacon")
    turned.view = replace(turned.view, state=replace(turned.view.state, data_seed=seed))
    state, commands = step(state, ViewChanged(turned.view, turned.number))
    assert Cancel(old) in commands
    (task,) = [c for c in commands if isinstance(c, DoTrain)]
    assert task.data_seed == seed
    before, after = (
        SendCommit(view.train_slot, SEAT, view.state.data_seed, digest("a commitment"))
        for view in (job.view, turned.view)
    )
    assert before.guard != after.guard


@pytest.mark.parametrize("late", [0, 1])
def test_nothing_is_committed_once_the_window_is_over(late: int) -> None:
    job = training_job()
    state = provider(job, opening(), trained(job))
    job.now = job.view.state.deadline + late
    _, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    assert SendCommit not in kinds(commands)
    assert SendPoke in kinds(commands)


def test_a_round_that_was_voided_stops_the_training() -> None:
    job = training_job()
    state, commands = given(provider(job, opening()), job)
    (task,) = commands
    job.mine()
    job.void("NoCommits")
    _, commands = step(state, ViewChanged(job.view, job.number))
    assert Cancel(task.key) in commands


# --- challenges ---


def challenged(job: ScriptedJob) -> int:
    """Verifier 1 cannot fetch a block of ours, which nobody else has looked for yet."""
    job.until_audit()
    return job.challenge(1, SEAT, BLOCK)


def test_a_challenged_block_is_put_on_the_chain_from_half_time_on() -> None:
    job = seated_job()
    job.open()
    index = challenged(job)
    state, commands = given(provider(job, opening()), job)
    assert commands == []
    job.now = job.view.half_time
    _, commands = given(state, job)
    answer = SendAnswer(job.view.slot, index, Digest(sha256(BLOCK).digest()))
    assert commands == [answer]


@pytest.mark.parametrize("how", ["answered", "withdrawn", "late", "impossible", "another seat"])
def test_what_needs_no_answer_or_can_get_none_gets_none(how: str) -> None:
    job = seated_job()
    job.open()
    index = challenged(job)
    left: list[Left] = []
    if how == "answered":
        job.answer(index, BLOCK)
    elif how == "withdrawn":
        job.withdraw(1, index)
    elif how == "impossible":
        slot, missing = job.view.slot, Digest(sha256(BLOCK).digest())
        key = key_of(SendAnswer, slot, index, missing)
        left = [(key, Unanswerable("too large"))]
    elif how == "another seat":
        job.withdraw(1, index)
        job.challenge(1, 2, BLOCK)
    job.now = job.view.state.deadline if how == "late" else job.view.half_time
    _, commands = given(provider(job, opening(), *left), job)
    assert not [command for command in commands if isinstance(command, SendAnswer)]


# --- departures ---


class NeverReveals(ProviderBehaviour):
    def skips_reveal(self, view: JobView) -> bool:
        return True


class NeverCommits(ProviderBehaviour):
    def skips_commit(self, view: JobView) -> bool:
        return True


class CommitsElse(ProviderBehaviour):
    train_function = "elsewhere:train"

    def commit_override(self, view: JobView, commitment: Digest) -> Digest:
        return digest("copied")


class Waits(ProviderBehaviour):
    def may_join(self, view: JobView) -> bool:
        return False


def test_a_behaviour_may_keep_its_commitment_to_itself() -> None:
    job = training_job()
    job.commit(SEAT)
    job.start_reveal()
    state = provider(job, opening(), trained(job), behaviour=NeverReveals())
    assert given(state, job)[1] == []


def test_a_behaviour_may_commit_nothing_or_something_else() -> None:
    job = training_job()
    facts = (opening(), trained(job))
    assert given(provider(job, *facts, behaviour=NeverCommits()), job)[1] == []
    (sent,) = given(provider(job, *facts, behaviour=CommitsElse()), job)[1]
    assert isinstance(sent, SendCommit)
    assert sent.commitment == digest("copied")


def test_a_behaviour_names_its_training_function() -> None:
    job = training_job()
    (task,) = given(provider(job, opening(), behaviour=CommitsElse()), job)[1]
    assert isinstance(task, DoTrain)
    assert task.function == "elsewhere:train"


def test_a_behaviour_may_wait_with_joining() -> None:
    job = announced(ScriptedJob(MANIFEST, providers=0))
    assert given(provider(job, behaviour=Waits()), job)[1] == []
