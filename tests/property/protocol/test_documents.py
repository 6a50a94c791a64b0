"""Manifests: one encoding each, and nothing malformed gets in or crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.border import bent, replaced
from tests.support.manifests import make_manifest, make_terms

from atoll.errors import ManifestError
from atoll.protocol.manifest import Manifest
from atoll.protocol.terms import AMOUNTS, most_borne, terms_to_json_value

MANIFEST = make_manifest()
MANIFEST_BYTES = MANIFEST.to_bytes()


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    seats, slots = draw(st.integers(1, 256)), draw(st.integers(1, 256))
    segment, count = draw(st.integers(1, 20)), draw(st.integers(1, 64))
    f = draw(st.integers(0, most_borne(seats)))
    names = ("train", "reveal", "merge", "audit", "open", "key", "ready")
    windows = {f"{name}_seconds": draw(st.integers(1, 86_400)) for name in names}
    amounts = {name: draw(st.integers(80, 2**128 - 1)) for name in sorted(AMOUNTS)}
    terms = make_terms(
        rounds=draw(st.integers(1, 4096 // (segment * count) + 1)),
        seats=seats,
        min_providers=draw(st.integers(1, seats)),
        slots=slots,
        min_verifiers=draw(st.integers(1, slots)),
        f=f,
        audit_rate=(rate := draw(st.integers(0, 15))),
        last_rate=draw(st.integers(0, 15)),
        rate_steps=draw(st.integers(0, 15 - rate)) if f and rate else 0,
        steps=segment * count,
        segment_steps=segment,
        **windows,
        **amounts,
    )
    return make_manifest(
        {
            "terms": terms_to_json_value(terms),
            "robust.f": f,
            "inner.steps": segment * count,
            "inner.segment": segment,
            "init.seed": draw(st.integers(0, 2**63 - 1)),
            "name": draw(st.text(min_size=1, max_size=64).filter(lambda name: name.isprintable())),
        }
    )


@given(manifests())
def test_any_valid_manifest_is_read_back_and_written_the_same(manifest: Manifest) -> None:
    data = manifest.to_bytes()
    read = Manifest.from_bytes(data)
    assert read == manifest
    assert read.to_bytes() == data


@given(st.integers(0, len(MANIFEST_BYTES) * 8 - 1))
def test_one_bit_makes_another_manifest_or_none(bit: int) -> None:
    data = bytearray(MANIFEST_BYTES)
    data[bit // 8] ^= 1 << bit % 8
    try:
        changed = Manifest.from_bytes(bytes(data))
    except ManifestError:
        return
    assert changed != MANIFEST
    assert changed.to_bytes() == bytes(data)
    assert changed.digest() != MANIFEST.digest()


@given(st.binary(max_size=300))
def test_noise_is_no_manifest(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)


@settings(max_examples=300)
@given(replaced(MANIFEST_BYTES) | bent(MANIFEST_BYTES))
def test_a_bent_manifest_is_taken_as_written_or_refused(data: bytes) -> None:
    try:
        read = Manifest.from_bytes(data)
    except ManifestError:
        return
    assert read.to_bytes() == data
