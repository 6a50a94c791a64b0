"""The tables that a manifest fixes: their bytes by SPEC.md's section 6, and who refuses others."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pytest
from tests.support.manifests import make_manifest

from atoll.errors import ManifestError
from atoll.numerics import schedule_tables
from atoll.numerics.decimals import rotary_tables
from atoll.numerics.pieces import piece_root
from atoll.numerics.schedule_tables import check_tables, schedule_of, tables_root
from atoll.protocol.hashing import keccak256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merkle import merkle_proof, merkle_root, verify_proof
from atoll.protocol.method_spec import InnerSpec

_DRAFT = make_manifest()
STEPS = _DRAFT.terms.rounds * _DRAFT.inner.steps
MANIFEST = _DRAFT.model_copy(update={"tables": tables_root(_DRAFT.model, _DRAFT.inner, STEPS)})


def filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 1024)


def written(manifest: Manifest) -> bytes:
    """The tables' bytes, number by number."""
    model, inner = manifest.model, manifest.inner
    schedule = schedule_of(inner, STEPS)
    rates = b"".join(struct.pack(">d", rate) for rate in schedule.rates)
    corrections = b"".join(struct.pack(">dd", *pair) for pair in schedule.corrections)
    cos, sin = rotary_tables(model.seq, model.head_dim, model.rope_base)
    turns = b"".join(
        struct.pack(">ff", cos[t, i], sin[t, i])
        for t in range(model.seq)
        for i in range(model.head_dim // 2)
    )
    return filled(rates) + filled(corrections) + filled(turns)


def test_the_root_is_over_rates_corrections_and_positions_each_from_a_piece_of_its_own() -> None:
    assert MANIFEST.tables == piece_root(written(MANIFEST))
    check_tables(MANIFEST)


def test_a_step_reads_what_stands_in_the_table() -> None:
    inner = MANIFEST.inner.model_copy(
        update={"warmup_steps": 4, "beta1": "0.9", "beta2": "0.99", "schedule": "constant"}
    )
    schedule = schedule_of(inner, 10)
    assert schedule.rates[0] == float(inner.lr) * (1 / 4)
    assert schedule.rates[9] == float(inner.lr)
    assert schedule.correction(1) == (1.0 / float(Decimal("0.1")), 1.0 / float(Decimal("0.01")))
    assert schedule.correction(3)[0] == 1.0 / float(1 - Decimal("0.729"))


def test_a_count_beyond_the_jobs_steps_reads_the_last_correction() -> None:
    """A forged state may count anything."""
    schedule = schedule_of(MANIFEST.inner, 10)
    assert schedule.correction(11) == schedule.correction(1 << 48) == schedule.correction(10)


def test_one_path_opens_one_rate() -> None:
    data, step = written(MANIFEST), STEPS - 1
    leaves = [keccak256(data[at : at + 1024]) for at in range(0, len(data), 1024)]
    piece = 8 * step // 1024
    proof = merkle_proof(leaves, piece)
    assert verify_proof(leaves[piece], piece, len(leaves), proof, MANIFEST.tables)
    assert merkle_root(leaves) == MANIFEST.tables
    at = 1024 * piece + 8 * step % 1024
    assert struct.unpack(">d", data[at : at + 8]) == (schedule_of(MANIFEST.inner, STEPS).rates[-1],)


def test_sgd_has_no_corrections() -> None:
    unused = {"beta1": "0", "beta2": "0", "eps": "0"}
    inner = InnerSpec.model_validate(MANIFEST.inner.model_dump() | {"optimizer": "sgd"} | unused)
    assert schedule_of(inner, 5).corrections.shape == (0, 2)
    assert tables_root(MANIFEST.model, inner, 5) != tables_root(MANIFEST.model, MANIFEST.inner, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"inner": MANIFEST.inner.model_copy(update={"lr": "0.0031"})},
        {"inner": MANIFEST.inner.model_copy(update={"beta2": "0.98"})},
        {"model": MANIFEST.model.model_copy(update={"rope_base": 10_001})},
        {"tables": bytes(32)},
    ],
    ids=["rate", "beta", "rotary", "root"],
)
def test_a_manifest_whose_tables_are_others_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ManifestError, match="tables"):
        check_tables(MANIFEST.model_copy(update=change))


def test_a_long_jobs_tables_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MANIFEST.inner.model_copy(update={"schedule": "cosine", "warmup_steps": 100})
    root = tables_root(MANIFEST.model, inner, 100_000)
    monkeypatch.setattr(schedule_tables, "cosine_fractions", None)
    assert tables_root(MANIFEST.model, inner, 100_000) == root
    assert np.count_nonzero(schedule_of(inner, 100_000).rates) == 100_000
