"""Every bound that SPEC gives a number: its least and its most are taken, one beyond is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from tests.unit.protocol.bounds import (
    DECIMALS,
    INTEGERS,
    LENGTHS,
    ROOMY,
    SMALLEST,
    TASK_INTEGERS,
    TASK_LENGTHS,
    TERMS,
)

from atoll.errors import ManifestError
from atoll.protocol import manifest, method_spec, model_spec, task_spec
from atoll.protocol.canonical import decode, encode
from atoll.protocol.manifest import Manifest
from atoll.protocol.terms import check_terms
from atoll.protocol.types import Terms


def reader(spec: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """Reads one field alone, without what its spec says of it and others.

    The modules are named, so that mutants of them know this test for one of theirs.
    """
    module = next(
        m for m in (manifest, method_spec, model_spec, task_spec) if hasattr(m, spec.__name__)
    )
    current: type[BaseModel] = getattr(module, spec.__name__)
    field = current.model_fields[name]
    kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(kind, config=ConfigDict(strict=True))


@pytest.mark.parametrize(("spec", "name", "low", "high"), INTEGERS + TASK_INTEGERS)
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


@pytest.mark.parametrize(("spec", "name", "kind", "low", "high"), LENGTHS + TASK_LENGTHS)
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
    for segment, is_valid in ((372, True), (744, True), (5, False), (0, False), (1488, False)):
        terms = replace(ROOMY, steps=1488, segment_steps=segment)
        if is_valid:
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
        Manifest.from_bytes(bytes(16385))
