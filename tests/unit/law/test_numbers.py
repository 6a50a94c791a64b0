"""Numbers that the law states: those that the contracts state too, and those it begins with."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from tests.unit.law.factories import ScriptedJob, make_manifest, make_trace

from atoll.errors import MalformedTrace
from atoll.law import (
    checks,
    evidence,
    manifest,
    merge_inputs,
    rounds,
    settlement,
    terms,
    trace,
    views,
    words,
)
from atoll.law import events as ev
from atoll.law.trace import TraceDocument
from atoll.law.views import JobView, RoundState, RoundWork
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    BlockRef,
    Domain,
    JobId,
    JobStatus,
    Offence,
    Phase,
)

CONTRACTS = Path(__file__).parents[3] / "contracts" / "src"
SHARED = {
    "libraries/TermsCheck.sol": {
        "MAX_SEATS": terms.MAX_SEATS,
        "MAX_VERIFIERS": terms.MAX_VERIFIERS,
        "MAX_ATTEMPTS": terms.MAX_ATTEMPTS,
        "MAX_BEACON_DELAY": terms.MAX_BEACON_DELAY,
    },
    "rounds/RoundsReports.sol": {
        "MAX_REPORTS": terms.MAX_REPORTS,
        "CHALLENGES_BELOW": views.CHALLENGES_BELOW,
        "MAX_SEGMENTS": manifest.MAX_SEGMENTS,
        "SPARE_CHALLENGES": views.SPARE_CHALLENGES,
        "ANSWER_SHARE": views.ANSWER_SHARE,
        "MAX_BLOCK_BYTES": views.MAX_ANSWER_BYTES,
    },
    "rounds/RoundsAudit.sol": {"BREAKER_SEATS": evidence.BREAKER_SEATS},
    "rounds/RoundsBase.sol": {"NO_SEGMENT": words.NO_SEGMENT},
}
EMPTY = JobView(Domain(1, Address("0x" + "11" * 20)), Address("0x" + "22" * 20), JobId(1))


@pytest.mark.parametrize("file", SHARED)
def test_a_constant_is_the_contracts(file: str) -> None:
    declared = re.findall(r"constant (\w+) = (\w+);", (CONTRACTS / file).read_text("utf-8"))
    numbers = {name: int(value.replace("_", ""), 0) for name, value in declared}
    assert SHARED[file] == {name: numbers[name] for name in SHARED[file]}


def test_the_numbers_that_only_the_text_states() -> None:
    """As SPEC has them: changing one changes who is paid or what is merged."""
    assert (3, Fraction(99, 100)) == (checks.NORM_CAP, checks.COPY_COSINE)
    assert (Fraction(9, 10), Fraction(3, 4)) == (checks.ALIGNMENT, checks.GRAVE_ALIGNMENT)
    assert Fraction(3, 5) == checks.GRAVE_ALIGNMENT_SPARSE
    assert (settlement.DIVERGING_SHARE, merge_inputs.FEW_UPDATES) == (4, 2)
    assert (manifest.MANIFEST_VERSION, trace.TRACE_VERSION) == (1, 1)
    assert (manifest.MAX_MANIFEST_BYTES, trace.MAX_TRACE_BYTES) == (16_384, 65_536)
    assert (manifest.INNER_LIMIT, manifest.ELEMENTS_LIMIT) == (133_144, 2_147_483_647)
    assert (manifest.MAX_STEPS, manifest.MAX_ROTARY) == (1_048_576, 16_777_216)
    assert (manifest.MDA_SUBSETS, rounds.BLOCK_HASHES) == (200_000, 256)
    assert (trace.MAX_LEAVES, trace.DIVERGED_LOSS_BITS) == (64, 0x7FC0_0000)


def test_a_view_begins_with_nothing() -> None:
    state = RoundState()
    assert (state.status, state.phase) == (JobStatus.NONE, Phase.WAITING)
    for name in RoundState.__dataclass_fields__:
        assert getattr(state, name) in (0, ZERO_DIGEST), name
    assert EMPTY.block == BlockRef(0, ZERO_DIGEST, 0)
    assert (EMPTY.funded, EMPTY.refunded, EMPTY.closed_at, EMPTY.final_rounds) == (0, 0, 0, 0)
    assert (EMPTY.submitter, EMPTY.policy) == ("0x" + "0" * 40, "0x" + "0" * 40)
    assert not (EMPTY.cancel_requested or EMPTY.leaving or EMPTY.newcomers or EMPTY.waiting)
    work = RoundWork()
    assert (work.auditors, work.half_time, work.beacon_armed, work.cut) == (0, 0, 0, None)
    assert not (work.replayed or work.absent or work.contradicted or work.disputed)


@pytest.mark.parametrize("reason", ["NoneAccepted", "NoQuorum", "TooFewProviders"])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_who_missed_an_audit_is_held_to_it_once_no_other_follows(reason: str, left: int) -> None:
    """`left` attempts remain. A quorum may still be found by the next audit."""
    job = ScriptedJob(make_manifest())
    job.open()
    job.until_audit()
    for _ in range(job.terms.attempts - 1 - left):
        for verifier in (0, 1, 2):
            job.ballot(verifier, range(4))
        job.resolve()
        job.void_no_quorum()
        job.draw()
    for verifier in (0, 1):
        job.ballot(verifier, range(4))
    job.resolve()
    before = set(job.view.work.faults)
    job.emit(ev.RoundVoided(*job.here, reason))
    missed = (Offence.VERIFIER_MISSED, 2) in set(job.view.work.faults) - before
    assert missed == (reason == "NoneAccepted" or (reason == "NoQuorum" and left == 0))
    state = job.view.state
    assert (state.phase, state.deadline, state.beacon_block) == (Phase.WAITING, 0, 0)
    assert (job.view.work.findings == {}) == (reason == "NoQuorum")


def test_a_trace_without_leaves_is_none() -> None:
    document, _ = make_trace(make_manifest())
    empty = TraceDocument(
        document.slot, document.seat, (), document.states[:1], document.state_roots[:1]
    )
    with pytest.raises(MalformedTrace, match="0 leaves"):
        TraceDocument.from_bytes(empty.to_bytes())


def test_exponents_are_by_what_a_tensor_is() -> None:
    of = manifest.TensorExponents(embedding=-1, matrix=-2, vector=-3).of
    assert [of("model.embed_tokens.weight"), of("lm_head.weight")] == [-1, -1]
    assert [of("model.norm.weight"), of("model.layers.0.input_layernorm.weight")] == [-3, -3]
    assert of("model.layers.0.mlp.up_proj.weight") == -2


def test_a_round_opens_with_the_seats_own_of_what_was_not_sent() -> None:
    """Of three fragments one is sent a round; a delayed job sends none in time."""
    codec = make_manifest().codec.model_copy(update={"fragments": 3})
    layers = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(4)]
    assert [codec.fragment_of(name) for name in (*layers, "lm_head.weight")] == [0, 1, 2, 0, 0]
    assert [codec.is_sent(layers[1], round_) for round_ in range(5)] == [
        False,
        True,
        False,
        False,
        True,
    ]
    opened = [[codec.is_local(layers[1], r) for r in range(4)]]
    delayed = codec.model_copy(update={"overlap": 1})
    opened.append([delayed.is_local(layers[1], r) for r in range(4)])
    assert opened == [[False, True, False, True], [False, True, True, True]]
