"""Cheats by name: what combines, what each decides, and what cheating verifiers say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.identities import digest
from tests.support.small_job import SmallJob, small_job

from atoll.errors import ConfigError
from atoll.protocol.audit_reports import AuditEntry, AuditReport, valid_digest
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.obligations import Duty
from atoll.protocol.types import Address, SeatIndex
from atoll.service.duties.replay_seat import DoReplay
from atoll.storage.cid import Cid
from atoll.train.replay import SeatReplay
from atoll.train.round import TrainedRound, train_round
from atoll_devnet.cheats import (
    PROVIDER_CHEATS,
    VERIFIER_CHEATS,
    WATCHER_CHEATS,
    never_does,
    never_serves,
    provider_behaviour,
    providers,
    serving,
    training,
    verifier_behaviour,
    verifiers,
    watcher_player,
)
from atoll_verifier.behaviour import VerifierBehaviour

ME = Address("0x" + "11" * 20)
TESTS = Path(__file__).parents[2]


def test_every_cheat_has_a_sentence_and_a_behaviour() -> None:
    assert set(PROVIDER_CHEATS) == set(providers.BEHAVIOURS)
    assert set(VERIFIER_CHEATS) == set(verifiers.BEHAVIOURS)
    assert set(WATCHER_CHEATS) == {"sham"}


def test_every_cheat_is_in_a_network_or_a_schedule_of_a_test() -> None:
    folders = ("network", "e2e", "property/schedules")
    files = [file for folder in folders for file in (TESTS / folder).glob("test_*.py")]
    written = re.findall(r'"([a-z0-9+-]+)"', "\n".join(file.read_text() for file in files))
    names = {name for word in written for name in word.split("+")}
    assert {*PROVIDER_CHEATS, *VERIFIER_CHEATS, *WATCHER_CHEATS} - names == set()


def test_cheats_combine() -> None:
    both = provider_behaviour("stall+flip5")
    assert both.serve_function == serving.STALLED
    assert both.train_function == providers.Flip5.train_function
    checked = verifier_behaviour("null+no-sign")
    assert checked.replay_function == verifiers.GUESSED
    assert type(checked).skips_signing is not VerifierBehaviour.skips_signing


@pytest.mark.parametrize("text", ["stall+drip", "flip5+lazy", "no-key+no-key"])
def test_two_that_decide_the_same_thing_do_not_combine(text: str) -> None:
    with pytest.raises(ConfigError, match="decide the same thing"):
        provider_behaviour(text)


@pytest.mark.parametrize("text", ["", "nobody", "stall+", "stall+nobody"])
def test_what_is_no_cheat_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="no provider cheat is called"):
        provider_behaviour(text)


def test_what_is_never_done_is_told_for_each_part() -> None:
    assert never_does("provider", "") == frozenset()
    assert never_does("provider", "stall+flip5") == frozenset()
    assert never_does("provider", "no-reveal+no-key") == {Duty.REVEAL, Duty.KEY}
    assert never_does("verifier", "no-sign+no-open") == {Duty.SIGN, Duty.OPEN}
    with pytest.raises(ConfigError):
        never_does("verifier", "flip5")


def test_who_serves_nobody_is_told_for_each_part() -> None:
    assert never_serves("provider", "flip5+stall")
    assert never_serves("provider", "withhold+flip5")
    assert not never_serves("provider", "drip")
    assert not never_serves("watcher", "")
    with pytest.raises(ConfigError):
        never_serves("verifier", "stall")


def test_half_served_answers_every_second_request() -> None:
    block, other = (Cid.from_bytes(_cid(name)) for name in (b"block", b"other"))
    assert [serving.half(block) for _ in range(4)] == [True, False, True, False]
    assert serving.half(other)


def _cid(name: bytes) -> bytes:
    from hashlib import sha256

    return b"\x01\x55\x12\x20" + sha256(name).digest()


# --- verifiers ---


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    return small_job(tmp_path_factory.mktemp("verifiers"))


KEY = digest("key")


def replay_by(name: str, job: SmallJob, done: TrainedRound) -> SeatReplay:
    task = job.task
    leaves = CheckpointCommitments.of(done.states, done.work_tags, KEY).to_bytes()
    said = (task.data_seed, leaves, done.update_root, None, job.manifest.to_bytes())
    command = DoReplay(task.round_id, task.seat, digest("commitment"), *said)
    call = verifier_behaviour(name).replay_function
    return call(command, task.global_state_cid, str(job.store.root))()


def test_null_knows_no_work_tag(job: SmallJob) -> None:
    honest = train_round(job.task, job.store)
    found = replay_by("null", job, honest)
    assert found.mismatch_at is None
    assert valid_digest(ME, found.work_tags) != valid_digest(ME, honest.work_tags)


@pytest.mark.parametrize("cheat", [training.flip5, training.hollow])
def test_false_valid_lets_a_cheat_pass_with_an_honest_runs_work_tags(
    job: SmallJob, cheat: object, tmp_path: Path
) -> None:
    assert callable(cheat)
    lying: TrainedRound = cheat(job.task, str(job.store.root), ())
    assert replay_by("no-open", job, lying).mismatch_at is not None  # it replays honestly
    found = replay_by("false-valid", job, lying)
    assert found.mismatch_at is None
    assert found.work_tags == train_round(job.task, job.store).work_tags


def test_false_mismatch_accuses_the_first_honest_seat_alone() -> None:
    said = (
        AuditEntry(SeatIndex(0), 2, digest("own")),
        AuditEntry.valid(SeatIndex(1), ME, [digest("a")]),
        AuditEntry.valid(SeatIndex(3), ME, [digest("b")]),
    )
    behaviour = verifier_behaviour("false-mismatch")
    body = behaviour.audit_report_override(None, AuditReport(said))  # type: ignore[arg-type]
    assert [entry.seat for entry in body.entries if not entry.is_valid] == [1]
    assert body.entries[2] == said[2]
    assert AuditReport.from_bytes(body.to_bytes()) == body


def test_a_sham_says_of_every_seat_that_its_first_segment_is_wrong(job: SmallJob) -> None:
    done = train_round(job.task, job.store)
    leaves = CheckpointCommitments.of(done.states, done.work_tags, KEY).to_bytes()
    said = (job.task.data_seed, leaves, done.update_root, None, job.manifest.to_bytes())
    command = DoReplay(job.task.round_id, job.task.seat, digest("commitment"), *said)
    found = watcher_player("sham").replay.resolve()(command, b"", "")
    assert found.mismatch_at == 0
    assert found.own != done.states[0]
