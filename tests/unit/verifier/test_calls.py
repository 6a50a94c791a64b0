"""What each duty of a verifier sends: the contract's function with the duty's words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import JOB, ScriptedJob, cid, digest, make_manifest

from atoll.bits.layout import moment_layout, param_count
from atoll.chain.abi import ENTRY_CONTRACTS
from atoll.chain.calls import Calls
from atoll.chain.deployment import Deployment
from atoll.law.settlement import build_verdict
from atoll.law.words import (
    Address,
    Attempt,
    Fault,
    Finding,
    Report,
    RoundIndex,
    SeatIndex,
    SegmentIndex,
)
from atoll.service.commands import ContractCall
from atoll_verifier.duties.attest import SendAttest
from atoll_verifier.duties.ballot import Audited, BallotSigned, SendBallot
from atoll_verifier.duties.challenge import SendChallenge, SendWithdraw
from atoll_verifier.duties.ready import SendReady
from atoll_verifier.duties.settle import SendSettle
from atoll_verifier.duties.vote import Asked, SendVote, VoteSigned
from atoll_verifier.limits import max_update_bytes, states_needed

ADDRESSES = {name: Address(f"0x{at + 1:040x}") for at, name in enumerate(ENTRY_CONTRACTS)}
CALLS = Calls(Deployment(31337, 4, ADDRESSES))
MANIFEST = make_manifest()


def attesting() -> ScriptedJob:
    """Round 0 of a job whose evidence is cut."""
    job = ScriptedJob(MANIFEST)
    job.open()
    job.until_audit()
    for verifier in range(3):
        job.ballot(verifier, range(4))
    job.resolve()
    return job


JOB_VIEW = attesting().view
SLOT = replace(JOB_VIEW.slot, round=RoundIndex(2), attempt=Attempt(1))
REPORT = Report(SeatIndex(1), SegmentIndex(2), Fault.WITHHELD, digest("block"))
BALLOT = BallotSigned((Finding(SeatIndex(3), 5),), (REPORT,), digest("replayed"))
VERDICT = build_verdict(JOB_VIEW, MANIFEST, digest("merged"), cid("merged"))
PLACE = (JOB, 2, 1)
SENT: list[tuple[ContractCall, str, tuple[object, ...]]] = [
    (SendReady(1), "attestReady", (JOB,)),
    (SendAttest(SLOT, digest("verdict")), "attest", (*PLACE, digest("verdict"), b"")),
    (
        SendBallot(Audited(SLOT, digest("seed"), "main"), BALLOT),
        "ballot",
        (*PLACE, [*BALLOT.findings], [REPORT], digest("replayed")),
    ),
    (SendChallenge(SLOT, REPORT), "challenge", (*PLACE, 1, 2, digest("block"))),
    (SendWithdraw(SLOT, 7), "withdrawChallenge", (*PLACE, 7)),
    (SendVote(Asked(SLOT, digest("seed"), 3), VoteSigned(1, 2, 4)), "vote", (*PLACE, 1, 2, 4)),
    (SendSettle(SLOT, VERDICT, digest("verdict")), "settle", (JOB, VERDICT)),
]


@pytest.mark.parametrize(("duty", "function", "words"), SENT, ids=lambda value: str(value)[:12])
def test_a_duty_sends_its_function_with_its_words(
    duty: ContractCall, function: str, words: tuple[object, ...]
) -> None:
    call, expected = duty.call(CALLS, JOB_VIEW), CALLS.build(function, *words)
    assert (call.to, call.data) == (expected.to, expected.data)


@pytest.mark.parametrize(("kind", "width"), [("grid8", 1), ("fp32", 4)])
def test_an_update_may_be_as_long_as_its_sections_and_a_mebibyte(kind: str, width: int) -> None:
    codec = MANIFEST.codec.model_copy(update={"kind": kind})
    manifest = MANIFEST.model_copy(update={"codec": codec})
    values = 2 * width * param_count(manifest.model) + 4 * moment_layout(manifest).sums
    assert max_update_bytes(manifest) == values + 1_048_576


def test_an_update_of_a_job_with_feedback_has_no_moments() -> None:
    codec = MANIFEST.codec.model_copy(update={"feedback": "0.9"})
    values = param_count(MANIFEST.model)
    assert max_update_bytes(MANIFEST.model_copy(update={"codec": codec})) == values + 1_048_576


def test_a_replay_needs_its_opening_state_unless_everybody_can_make_it() -> None:
    assert states_needed(MANIFEST, 3, 0) == range(1, 1)
    assert states_needed(MANIFEST, 3, 2) == range(2, 3)
    carried = MANIFEST.model_copy(update={"epoch": 4})
    assert states_needed(carried, 3, 0) == range(1)
    assert states_needed(carried, 4, 0) == range(1, 1)


def test_a_tolerant_replay_needs_the_closing_state_too() -> None:
    numerics = MANIFEST.numerics.model_copy(update={"tolerance": object()})
    tolerant = MANIFEST.model_copy(update={"numerics": numerics})
    assert states_needed(tolerant, 3, 2) == range(2, 4)
    assert states_needed(tolerant, 3, 0) == range(1, 2)
