"""Numbers that the law states: those that the contracts state too, and those it begins with."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from tests.support.identities import DOMAIN, JOB
from tests.support.manifests import make_manifest

from atoll.numerics.codec import sparse
from atoll.protocol import (
    audit_rates,
    audit_reports,
    certificates,
    checkpoint_commitments,
    checks,
    claims,
    clocks,
    committee_draws,
    manifest,
    merge_inputs,
    method_spec,
    missed_duties,
    model_spec,
    obligations,
    pay,
    terms,
    views,
)
from atoll.protocol.games import judge, trees
from atoll.protocol.rules import MDA_SUBSETS
from atoll.protocol.types import ZERO_DIGEST, BlockRef, JobStatus, Phase
from atoll.protocol.views import JobView

CONTRACTS = Path(__file__).parents[3] / "contracts" / "src"
SHARED = {
    "libraries/TermsCheck.sol": {
        "MAX_MEMBERS": terms.MAX_SEATS,
        "MAX_SEGMENTS": terms.MAX_SEGMENTS,
        "LOWEST_RATE": terms.LOWEST_RATE,
        "MAX_MOVES": terms.MOVES,
    },
    "libraries/Draws.sol": {"COMMITTEE": committee_draws.COMMITTEE},
    "rounds/RoundsBase.sol": {
        "CHECKPOINT_COMMITMENT_BYTES": checkpoint_commitments.CHECKPOINT_COMMITMENT_BYTES,
        "MAX_AUDITS": clocks.MAX_AUDITS,
        "MAX_STREAK": views.EMPTY_ROUNDS,
    },
    "Rounds.sol": {"LONGEST_GAMES": clocks.GAMES_BEHIND},
    "Audits.sol": {"ENTRY_BYTES": audit_reports.ENTRY_BYTES},
    "Members.sol": {"RETAINED_PART": audit_rates.RETAINED_PART},
    "rounds/RoundsSettlement.sol": {"LOWEST_RATE": terms.LOWEST_RATE},
    "Jobs.sol": {"COMMITTEE": committee_draws.COMMITTEE},
    "rounds/RoundsMembership.sol": {"SIGNING_PART": clocks.SIGNING_PART},
    "EcdsaPolicy.sol": {
        "MAP_BYTES": certificates.MAP_BYTES,
        "SIGNATURE_BYTES": certificates.SIGNATURE_BYTES,
    },
    "judge/GameQueue.sol": {"MAX_OPEN": claims.MAX_OPEN},
    "judge/Claims.sol": {"BOND_SHARE": claims.BOND_SHARE},
    "judge/Openings.sol": {"PIECE": trees.PIECE, "CHUNK": trees.CHUNK},
    "judge/Judge.sol": {"MAX_OPENINGS": judge.MAX_OPENINGS},
    "judge/UpdateProofSteps.sol": {
        "CHUNK": sparse.CHUNK,
        "KEPT_OF_A_CHUNK": sparse.KEPT,
        "QUARTER": sparse.QUARTER,
        "QUARTERS": sparse.QUARTERS,
    },
    "judge/Game.sol": {"LAYER_LEVELS": trees.LAYER_LEVELS},
    "judge/ProgramReader.sol": {"MOST_SHOWN": terms.MAX_SHOWN},
}


@pytest.mark.parametrize("file", SHARED)
def test_a_constant_is_the_contracts(file: str) -> None:
    declared = re.findall(r"constant (\w+) = (\w+);", (CONTRACTS / file).read_text("utf-8"))
    numbers = {name: int(value.replace("_", ""), 0) for name, value in declared}
    assert SHARED[file] == {name: numbers[name] for name in SHARED[file]}


def test_the_numbers_that_only_the_text_states() -> None:
    """As SPEC has them: changing one changes who is paid or what is merged."""
    assert (checks.NORM_CAP, checks.COPY_SHARE) == (3, 64)
    assert Fraction(3, 4) == checks.ALIGNMENT
    assert (checks.RIGHT_ANGLE, pay.MOST_CLAIMED) == (1 << 64, 3_000)
    assert merge_inputs.PARTIAL == (3, 4)
    assert (missed_duties.MOST, terms.MIN_BOND, terms.LONGEST_SECONDS) == (8, 80, 5_184_000)
    assert (terms.MAX_SLOTS, audit_reports.VALID, terms.LOWEST_RATE) == (256, 0xFFFF, 15)
    assert (manifest.MANIFEST_VERSION, manifest.MAX_MANIFEST_BYTES) == (1, 16_384)
    assert (model_spec.INNER_LIMIT, model_spec.ELEMENTS_LIMIT) == (133_144, 2_147_483_647)
    assert (manifest.MAX_STEPS, model_spec.MAX_ROTARY) == (1_048_576, 16_777_216)
    assert (MDA_SUBSETS, method_spec.MAX_SEGMENTS) == (200_000, 64)


def test_a_step_shows_a_digest_a_norm_and_its_losses() -> None:
    assert terms.shown_bytes(1, 1) == 32 + 8 + 4
    assert terms.shown_bytes(3, 2) == 3 * (32 + 8 + 2 * 4)


def test_what_has_no_end_yet_ends_with_the_chains_clock() -> None:
    assert obligations.WHENEVER == 2**64 - 1


def test_a_view_begins_with_nothing() -> None:
    empty = JobView.of(DOMAIN, JOB)
    assert (empty.status, empty.phase, empty.round) == (JobStatus.NONE, Phase.WAITING, 0)
    assert empty.block == BlockRef(0, ZERO_DIGEST, 0)
    assert (empty.funded, empty.refunded, empty.burnt, empty.closed_at) == (0, 0, 0, 0)
    assert (empty.submitter, empty.policy) == ("0x" + "0" * 40, "0x" + "0" * 40)
    assert (empty.open, empty.model, empty.model_cid) == (None, ZERO_DIGEST, b"")
    assert not (empty.cancel_requested or empty.providers or empty.verifiers or empty.settled)
    assert not empty.is_advance_due(1 << 60)


def test_exponents_are_by_what_a_tensor_is() -> None:
    of = method_spec.TensorExponents(embedding=-1, matrix=-2, vector=-3).of
    assert [of("model.embed_tokens.weight"), of("lm_head.weight")] == [-1, -1]
    assert [of("model.norm.weight"), of("model.layers.0.input_layernorm.weight")] == [-3, -3]
    assert of("model.layers.0.mlp.up_proj.weight") == -2


def test_of_three_fragments_one_is_sent_a_round() -> None:
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
