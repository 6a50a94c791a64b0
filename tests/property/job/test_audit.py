"""What anybody finds out about a job from public data, and what nobody can any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.identities import digest
from tests.unit.job.trained import InProcess, TrainedJob, lies_at
from tests.unit.protocol.script import VERIFIERS

from atoll.chain.structs import Escrow
from atoll.errors import ChainError, ConfigError
from atoll.job import archive as archiving
from atoll.job import audit as auditing
from atoll.job.archive import Archive, reason, until_claimed
from atoll.job.audit import EQUAL, GONE, Extent, JobCheck, RoundCheck, audit
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.types import Address, JobId, Role
from atoll.storage.cid import Cid
from atoll.train.checkpoints import release_job

EVERY_SEAT = Extent(sample=None)


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "Worker", InProcess)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """Two rounds by honest members, audited."""
    job = TrainedJob.begin(tmp_path_factory.mktemp("honest"), rounds=2)
    job.script.audit(job.round(), job.round())
    return job


async def checked(job: TrainedJob, extent: Extent = EVERY_SEAT) -> JobCheck:
    return await audit(job.handle(), extent)


async def test_of_an_honest_job_everything_is_so(honest: TrainedJob) -> None:
    told: list[RoundCheck] = []
    found = await audit(honest.handle(), EVERY_SEAT, told.append)
    assert (found.faults, found.gaps) == ([], [])
    assert [settled_round.merge for settled_round in found.rounds] == [EQUAL, EQUAL]
    assert [len(settled_round.seats) for settled_round in found.rounds] == [4, 4]
    assert {seat.outcome for settled_round in found.rounds for seat in settled_round.seats} == {
        EQUAL
    }
    assert tuple(told) == found.rounds
    assert found.text() == (
        f"job {found.job}: everything that was checked is so: 2 of 2 merges, 8 of 8 seats' rounds"
    )


async def test_what_begins_is_said_before_it_is_done(honest: TrainedJob) -> None:
    said: list[str] = []

    def tell(found: RoundCheck) -> None:
        said.append(f"round {found.round} is told")

    found = await audit(honest.handle(), Extent(round=1), tell, said.append)
    (seat,) = found.rounds[0].seats
    segments = honest.script.net.view.settled[1].reveals[seat.seat].segments
    assert said == [
        "job 7: tries this machine's arithmetic",
        "job 7: fetches its data, to check 1 of its rounds",
        "round 1: fetches its updates, and merges them again",
        f"round 1: trains seat {seat.seat} again (1 of 1), {segments} segments",
        "round 1 is told",
    ]


async def test_only_what_was_asked_for_is_checked(honest: TrainedJob) -> None:
    found = await checked(honest, Extent(round=1, seat=2))
    assert [
        (settled_round.round, [seat.seat for seat in settled_round.seats])
        for settled_round in found.rounds
    ] == [(1, [2])]
    sampled = await checked(honest, Extent(sample=1))
    assert [len(settled_round.seats) for settled_round in sampled.rounds] == [1, 1]


@pytest.mark.parametrize(
    ("extent", "why"),
    [
        (Extent(round=2), "round 2 of job 7 is not settled: 2 rounds are"),
        (Extent(round=-1), "round -1 of job 7 is not settled"),
        (Extent(seat=99), "job 7 has no seat 99"),
        (Extent(round=1, seat=-1), "job 7 has no seat -1"),
    ],
)
async def test_of_what_is_not_there_nothing_is_said_to_be_so(
    honest: TrainedJob, extent: Extent, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        await checked(honest, extent)


async def test_what_is_not_served_any_more_is_said_and_is_no_fault(honest: TrainedJob) -> None:
    honest.gateways.gone = {honest.updates[0, 1], honest.models[0]}
    try:
        found = await checked(honest)
    finally:
        honest.gateways.gone = set()
    first, second = found.rounds
    assert (first.merge, second.merge) == (GONE, GONE)
    assert {seat.outcome for seat in first.seats} == {EQUAL}
    assert {seat.outcome for seat in second.seats} == {GONE}
    assert found.faults == []
    assert "round 0: the update of seat 1 is not served any more" in found.gaps


async def test_a_model_that_is_gone_is_made_again_from_the_updates(honest: TrainedJob) -> None:
    honest.gateways.gone = {honest.models[0]}
    try:
        found = await checked(honest)
    finally:
        honest.gateways.gone = set()
    assert (found.faults, found.gaps) == ([], [])


async def test_a_seat_that_lied_and_is_paid_is_a_fault_and_a_slashed_one_is_not(
    tmp_path: Path,
) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.changes = {3: lies_at(2)}
    job.round()
    found = await checked(job)
    assert found.faults == ["round 0: seat 3 is paid, and it has a mismatch at segment 2"]
    net = job.script.net
    net.slash(Role.PROVIDER, net.at(Role.PROVIDER, 3, 0).id, VERIFIERS[0], 0)
    after = await checked(job)
    assert after.faults == []
    assert "seat 3: it has a mismatch at segment 2, and is not paid" in after.rounds[0].text()


async def test_a_merge_that_gives_another_model_is_a_fault(tmp_path: Path) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.verdicts = lambda verdict: replace(verdict, state=digest("another model"))
    job.round()
    found = await checked(job, Extent(sample=0))
    assert found.faults == ["round 0: merged again, other is the model"]


async def test_an_address_that_has_another_model_than_was_certified_is_a_fault(
    tmp_path: Path,
) -> None:
    job = TrainedJob.begin(tmp_path, rounds=2)
    first = job.initial_state
    job.verdicts = lambda verdict: replace(verdict, cid=first)
    job.round()
    job.initial_state, job.verdicts = job.merged[0], lambda verdict: verdict
    job.round()
    job.gateways.gone = {job.updates[0, 1]}  # else its own merge is what the next round opens with
    found = await checked(job, Extent(sample=1))
    assert found.faults == ["round 1: the certified address has another model"]
    assert found.gaps[0] == "round 0: the update of seat 1 is not served any more"


async def test_a_valid_entry_of_work_tags_that_nobody_ran_is_a_fault(tmp_path: Path) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.round()
    script, net = job.script, job.script.net
    guesser = next(iter(script.auditors(0)))
    body = AuditReport.from_bytes(script.body(0, guesser))
    guess = replace(body.entries[0], digest=digest("guess"))
    script.audit_report(0, guesser, AuditReport((guess, *body.entries[1:])).to_bytes())
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, guesser)
    found = await checked(job, Extent(seat=guess.seat))
    account: Address = net.member(Role.VERIFIER, guesser).account
    assert found.faults == [
        f"round 0: auditor {account} said of seat {guess.seat} what it had not run"
    ]


async def test_money_that_does_not_add_up_is_a_fault(honest: TrainedJob) -> None:
    net = honest.script.net
    net.log.append((ev.Refunded(net.job, VERIFIERS[0], 5), net.block))
    try:
        found = await checked(honest, Extent(sample=0))
    finally:
        net.log.pop()
    assert len(found.faults) == 2  # what was refunded, and what is left
    assert all(fault.startswith("money: the contract has ") for fault in found.faults)


async def test_what_is_read_while_the_contract_is_asked_is_no_fault(honest: TrainedJob) -> None:
    """Whoever follows the chain by the same client reads on meanwhile, and finds a refund."""
    handle, net = honest.handle(), honest.script.net
    follower, asked = handle.client.session.follower, handle.client.chain.escrow
    before = follower.history()
    refund = replace(before[-1], event=ev.Refunded(net.job, VERIFIERS[0], 5))

    async def escrow(job: JobId, block: str) -> Escrow:
        follower.history = lambda *_: (*before, refund)  # type: ignore[method-assign]
        return await asked(job, block)

    handle.client.chain.escrow = escrow  # type: ignore[method-assign]
    assert (await audit(handle, Extent(sample=0))).faults == []


# --- the submitter's archive ---


async def test_an_archive_has_all_that_an_audit_of_a_job_needs(honest: TrainedJob) -> None:
    archive = Archive(honest.handle(), 1 << 30)
    honest.gateways.gone = {late := honest.updates[1, 2]}
    try:
        await archive.look()
    finally:
        honest.gateways.gone = set()
    assert late not in archive.kept
    await archive.look()
    mine, needed = reason(honest.script.net.job), {*honest.updates.values(), *honest.models}
    kept = {pin.cid.to_bytes() for pin in honest.store.pins() if pin.reason == mine}
    assert kept == set(archive.kept) == needed
    sizes = [honest.store.file_bytes(Cid.from_bytes(cid)) for cid in needed]
    assert archive.used == sum(sizes)


async def test_an_archive_never_exceeds_its_quota(honest: TrainedJob) -> None:
    archive = Archive(honest.handle(), max_state_bytes(honest.manifest))
    await archive.look()
    assert archive.is_full
    assert 0 < archive.used <= archive.quota


async def test_an_archive_is_served_until_nothing_can_be_claimed(
    honest: TrainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, clock = honest.handle(), SimpleNamespace(now=10)
    looks: list[float] = []
    await Archive(handle, 1 << 30).look()

    async def rest_due() -> int:
        if not looks:
            raise ChainError("it pauses")
        assert honest.store.pins()
        return 13

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        clock.now += 1

    monkeypatch.setattr(handle, "rest_due", rest_due, raising=False)
    monkeypatch.setattr(handle.client, "follower", clock, raising=False)
    monkeypatch.setattr(archiving.asyncio, "sleep", sleep)
    await until_claimed(handle)
    assert looks == [archiving.LAST_LOOK_SECONDS] * 3
    assert reason(honest.script.net.job) not in {pin.reason for pin in honest.store.pins()}


# --- reset periods ---


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """A reset period of three rounds and one round of the next, all honest but seat 3's first."""
    job = TrainedJob.begin(tmp_path_factory.mktemp("streamed"), rounds=4, reset_period=3)
    job.changes = {3: lies_at(2)}
    job.round()
    job.changes = {}
    for _ in range(3):
        job.round()
    return job


async def test_a_round_is_checked_with_those_that_it_comes_from(streamed: TrainedJob) -> None:
    found = await checked(streamed)
    why = "its state comes from round 0, which has a mismatch at 2"
    assert found.faults == [
        "round 0: seat 3 is paid, and it has a mismatch at segment 2",
        f"round 1: seat 3 is paid, and {why}",
        f"round 2: seat 3 is paid, and {why}",
    ]
    assert {seat.outcome for seat in found.rounds[3].seats} == {EQUAL}  # a new reset period


async def test_an_audit_leaves_no_state_of_its_replays(
    streamed: TrainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each seat, as large as a checkpoint, which nobody else ever lets go of."""
    release_job(streamed.store, 7)  # what its seats carry, which trained in this store
    others, kept = streamed.store.pins(), list[str]()

    class Looking(InProcess):
        def kill(self) -> None:
            kept.extend(pin.reason for pin in streamed.store.pins())

    monkeypatch.setattr(auditing, "Worker", Looking)
    await checked(streamed)
    assert len(kept) > len(others)
    assert streamed.store.pins() == others


async def test_a_round_whose_beginning_is_not_served_any_more_is_a_gap(
    streamed: TrainedJob,
) -> None:
    streamed.gateways.gone = {streamed.models[0], streamed.updates[0, 1]}
    try:
        found = await checked(streamed, Extent(round=2, seat=1))
    finally:
        streamed.gateways.gone = set()
    assert found.faults == []
    (gap,) = found.gaps
    assert gap.startswith("round 2: seat 1: of a round that it comes from: the model")
