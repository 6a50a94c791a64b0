"""Every bound that SPEC gives a number: its least and its most are taken, one beyond is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from tests.unit.law.factories import make_terms

from atoll.errors import ManifestError
from atoll.law import manifest as m
from atoll.law.canonical import decode, encode
from atoll.law.terms import check_terms
from atoll.law.words import Terms

INTEGERS: list[tuple[type[BaseModel], str, int, int]] = [
    (m.ModelSpec, "vocab", 2, 2**20),
    (m.ModelSpec, "width", 8, 2**15),
    (m.ModelSpec, "layers", 1, 256),
    (m.ModelSpec, "heads", 1, 256),
    (m.ModelSpec, "kv_heads", 1, 256),
    (m.ModelSpec, "head_dim", 2, 2**15),
    (m.ModelSpec, "ffn", 8, 2**17),
    (m.ModelSpec, "seq", 2, 2**17),
    (m.ModelSpec, "rope_base", 2, 1_000_000_000),
    (m.RopeScalingSpec, "positions", 0, 2**24),
    (m.InitSpec, "seed", 0, 2**64 - 1),
    (m.DataSpec, "train_tokens", 2, 2**60 - 1),
    (m.DataSpec, "eval_tokens", 0, 2**60 - 1),
    (m.DataSpec, "eval_batches", 0, 2**16),
    (m.InnerSpec, "warmup_steps", 0, 2**32 - 1),
    (m.InnerSpec, "steps", 1, 2**32 - 1),
    (m.InnerSpec, "batch", 1, 2**20),
    (m.InnerSpec, "segment", 1, 2**32 - 1),
    (m.InnerSpec, "micro_batch", 1, 2**20),
    (m.OuterSpec, "period", 0, 256),
    (m.TensorExponents, "embedding", -60, 0),
    (m.TensorExponents, "matrix", -60, 0),
    (m.TensorExponents, "vector", -60, 0),
    (m.CodecSpec, "min_exponent", -60, 0),
    (m.CodecSpec, "max_exponent", -60, 0),
    (m.CodecSpec, "fragments", 1, 64),
    (m.CodecSpec, "overlap", 0, 2**32 - 1),
    (m.RobustSpec, "f", 0, 127),
    (m.Manifest, "created", 0, 2**63 - 1),
    (m.Manifest, "epoch", 1, 2**32 - 1),
]
DECIMALS: list[tuple[type[BaseModel], str, str, str]] = [
    (m.ModelSpec, "norm_eps", "0.00000000000000001", "0.1"),
    (m.RopeScalingSpec, "factor", "1", "1000"),
    (m.RopeScalingSpec, "low", "0", "1000"),
    (m.RopeScalingSpec, "high", "0", "1000"),
    (m.InnerSpec, "lr", "0.00000000000000001", "10000"),
    (m.InnerSpec, "momentum", "0", "0.999999"),
    (m.InnerSpec, "beta1", "0", "0.999999"),
    (m.InnerSpec, "beta2", "0", "0.999999"),
    (m.InnerSpec, "eps", "0", "0.1"),
    (m.InnerSpec, "weight_decay", "0", "1000"),
    (m.InnerSpec, "dropout", "0", "0.9"),
    (m.InnerSpec, "clip", "0.00000000000000001", "1000"),
    (m.OuterSpec, "lr", "0.00000000000000001", "1000"),
    (m.OuterSpec, "momentum", "0", "0.999999"),
    (m.OuterSpec, "beta2", "0", "0.999999"),
    (m.OuterSpec, "eps", "0", "0.1"),
    (m.CodecSpec, "feedback", "0", "1"),
    (m.CodecSpec, "mixing", "0", "0.999999"),
    (m.RobustSpec, "kappa", "1", "1000"),
]
LENGTHS: list[tuple[type[BaseModel], str, type, int, int]] = [
    (m.NumericsSpec, "code_digest", bytes, 32, 32),
    (m.NumericsSpec, "probe_digest", bytes, 32, 32),
    (m.Manifest, "name", str, 1, 64),
]
OTHERS = 60 + 30 + 40 + 100 + 30 + 30 + 2_000
"""Seconds of all windows of a round."""
SMALLEST = Decimal("0.00000000000000001")
ROOMY = make_terms(
    seats=256,
    min_providers=100,
    places=256,
    min_verifiers=3,
    f=0,
    steps=744,
    segment_steps=1,
    tokens_per_step=1,
    window_seconds=2_000,
    game_seconds=1_000,
)
"""Terms in which one number can be moved without meeting another's bound."""
TERMS = [
    ("rounds", 1, 2**24 - 2),
    ("seats", 100, 256),
    ("min_providers", 1, 256),
    ("places", 3, 256),
    ("min_verifiers", 1, 256),
    ("f", 0, 85),
    ("share_bps", 1, 10_000),
    *((f"{name}_seconds", 1, 60 * 86_400 - OTHERS + own) for name, own in (
        ("train", 60), ("reveal", 30), ("merge", 40), ("audit", 100), ("open", 30), ("key", 30)
    )),
    ("window_seconds", 2_000, 60 * 86_400 - OTHERS + 2_000),
    ("ready_seconds", 1, 2**32 - 1),
    ("game_seconds", 1, 1_000),
    ("move_seconds", 1, 2**32 - 1),
    ("claim_seconds", 1, 2**32 - 1),
    ("expiry", 0, 2**64 - 1),
    ("steps", 1, 1024),
    ("segment_steps", 1, 744),
    ("tokens_per_step", 1, (2**64 - 1) // 744),
    ("price_per_token", 0, 2**128 - 1),
    ("sign_fee", 0, 2**128 - 1),
    ("duty_fee", 0, 2**128 - 1),
    ("provider_bond", 80, 2**128 - 1),
    ("verifier_bond", 80, 2**128 - 1),
]  # fmt: skip


def reader(spec: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """Reads one field alone, without what its spec says of it and others."""
    field = spec.model_fields[name]
    kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(kind, config=ConfigDict(strict=True))


@pytest.mark.parametrize(("spec", "name", "low", "high"), INTEGERS)
def test_an_integer_is_within_its_bounds(
    spec: type[BaseModel], name: str, low: int, high: int
) -> None:
    read = reader(spec, name).validate_python
    assert (read(low), read(high)) == (low, high)
    for beyond in (low - 1, high + 1):
        with pytest.raises(ValidationError):
            read(beyond)


@pytest.mark.parametrize(("spec", "name", "low", "high"), DECIMALS)
def test_a_decimal_is_within_its_bounds(
    spec: type[BaseModel], name: str, low: str, high: str
) -> None:
    """The least above 0 that can be written stands for an open bound."""
    read = reader(spec, name).validate_python
    assert (read(low), read(high)) == (low, high)
    below = Decimal(low) - SMALLEST
    for beyond in (Decimal(high) + SMALLEST, *([below] if below >= 0 else [])):
        text = f"{beyond:f}".rstrip("0").rstrip(".") if beyond else "0"
        with pytest.raises(ValidationError, match="is not in"):
            read(text)


@pytest.mark.parametrize(("spec", "name", "kind", "low", "high"), LENGTHS)
def test_a_text_has_a_length_within_its_bounds(
    spec: type[BaseModel], name: str, kind: type, low: int, high: int
) -> None:
    read = reader(spec, name).validate_python

    def of(length: int) -> object:
        return bytes(length) if kind is bytes else "x" * length

    assert (read(of(low)), read(of(high))) == (of(low), of(high))
    for beyond in (*([low - 1] if low else []), high + 1):
        with pytest.raises(ValidationError):
            read(of(beyond))


def test_the_tables_name_every_number() -> None:
    specs = {spec for spec, *_ in (*INTEGERS, *DECIMALS)}
    kinds = (int, int | None)
    numbers = {(s, n) for s in specs for n, f in s.model_fields.items() if f.annotation in kinds}
    assert numbers == {(spec, name) for spec, name, *_ in INTEGERS}


@pytest.mark.parametrize(("name", "low", "high"), TERMS)
def test_a_term_is_within_its_bounds(name: str, low: int, high: int) -> None:
    for value in (low, high):
        check_terms(replace(ROOMY, **{name: value}))
    for beyond in (low - 1, high + 1):
        with pytest.raises(ManifestError):
            check_terms(replace(ROOMY, **{name: beyond}))


def test_segments_divide_a_round_and_can_be_opened_at_once() -> None:
    for segment, is_fine in ((372, True), (744, True), (5, False), (0, False), (1488, False)):
        terms = replace(ROOMY, steps=1488, segment_steps=segment)
        if is_fine:
            check_terms(terms)
        else:
            with pytest.raises(ManifestError, match="segment_steps"):
                check_terms(terms)


@pytest.mark.parametrize(("seats", "most"), [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2), (256, 85)])
def test_less_than_a_third_of_the_seats_may_be_bad(seats: int, most: int) -> None:
    terms = replace(ROOMY, seats=seats, min_providers=1)
    check_terms(replace(terms, f=most))
    with pytest.raises(ManifestError, match="f is"):
        check_terms(replace(terms, f=most + 1))


def test_the_table_names_every_term() -> None:
    assert {name for name, *_ in TERMS} == set(Terms.__dataclass_fields__) - {"program"}


def test_a_document_has_a_largest_size() -> None:
    data = encode([bytes(20)])
    assert decode(data, len(data)) == [bytes(20)]
    with pytest.raises(ValueError, match=f"at most {len(data) - 1} are allowed"):
        decode(data, len(data) - 1)
    with pytest.raises(ManifestError, match="at most 16384 are"):
        m.Manifest.from_bytes(bytes(16385))
