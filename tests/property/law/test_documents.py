"""Manifests and traces: one encoding each, and nothing malformed gets in or crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.border import bent, replaced
from tests.unit.law.factories import make_manifest, make_trace

from atoll.errors import MalformedTrace, ManifestError
from atoll.job.groups import Members, Money, Windows
from atoll.law.manifest import Manifest
from atoll.law.trace import TraceDocument

MANIFEST = make_manifest()
MANIFEST_BYTES = MANIFEST.to_bytes()
TRACE, _ = make_trace(MANIFEST)
TRACE_BYTES = TRACE.to_bytes()


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    seats = draw(st.integers(1, 256))
    max_verifiers = draw(st.integers(1, 32))
    denominator = draw(st.integers(1, 2**16 - 1))
    members = Members(
        seats=seats,
        min_providers=draw(st.integers(1, seats)),
        min_verifiers=draw(st.integers(1, max_verifiers)),
        max_verifiers=max_verifiers,
        quorum_numerator=draw(st.integers(denominator // 2 + 1, denominator)),
        quorum_denominator=denominator,
        auditors=draw(st.integers(1, max_verifiers)),
        attempts=draw(st.integers(1, 8)),
    )
    amounts = st.integers(0, 2**128 - 1)
    segment, count = draw(st.integers(1, 20)), draw(st.integers(1, 64))
    free = ("price_per_token", "verifier_fee", "provider_bond", "verifier_bond")
    money = {name: draw(amounts) for name in free}
    phases = ("train", "reveal", "report", "confirm", "attest", "dispute")
    return make_manifest(
        {
            "members": members,
            "money": Money(**money, report_bond=draw(st.integers(1, 2**128 - 1))),
            "windows": Windows(**{name: draw(st.integers(1, 2**32 - 1)) for name in phases}),
            "inner.steps": segment * count,
            "inner.segment": segment,
            "rounds": draw(st.integers(1, 4096 // (segment * count) + 1)),
            "init.seed": draw(st.integers(0, 2**63 - 1)),
            "name": draw(st.text(min_size=1, max_size=64).filter(lambda name: name.isprintable())),
            "audit.coverage": draw(st.decimals(0, 1, places=9)),
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
def test_noise_is_neither_a_manifest_nor_a_trace(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)
    with pytest.raises(MalformedTrace):
        TraceDocument.from_bytes(data)


@settings(max_examples=300)
@given(replaced(MANIFEST_BYTES) | bent(MANIFEST_BYTES))
def test_a_bent_manifest_is_taken_as_written_or_refused(data: bytes) -> None:
    try:
        read = Manifest.from_bytes(data)
    except ManifestError:
        return
    assert read.to_bytes() == data


@settings(max_examples=300)
@given(replaced(TRACE_BYTES) | bent(TRACE_BYTES))
def test_a_bent_trace_is_taken_as_written_or_refused(data: bytes) -> None:
    try:
        read = TraceDocument.from_bytes(data)
    except MalformedTrace:
        return
    assert read.to_bytes() == data


@given(st.integers(0, len(TRACE_BYTES) * 8 - 1))
def test_one_bit_of_a_trace_is_noticed(bit: int) -> None:
    data = bytearray(TRACE_BYTES)
    data[bit // 8] ^= 1 << bit % 8
    try:
        changed = TraceDocument.from_bytes(bytes(data))
    except MalformedTrace:
        return
    assert changed != TRACE
    assert changed.to_bytes() == bytes(data)
