"""What the fields of a manifest are made of.

Rules as in `manifest`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from atoll.protocol.canonical import is_cid
from atoll.protocol.types import Digest


def decimal_between(low: str, high: str, *, open_low: bool = False) -> Callable[[str], str]:
    """A validator of canonical decimal strings in [low, high], or (low, high] if `open_low`."""

    def check(text: str) -> str:
        value = Decimal(text)
        if not Decimal(low) <= value <= Decimal(high) or (open_low and value == Decimal(low)):
            raise ValueError(f"{text} is not in {'(' if open_low else '['}{low}, {high}]")
        return text

    return check


DecimalText = Annotated[
    str, StringConstraints(pattern=r"\A(0|[1-9][0-9]{0,9})(\.[0-9]{0,17}[1-9])?\z")
]
"""A number ≥ 0 without exponent or trailing zeros, so that each value has one spelling."""
UnitFraction = Annotated[DecimalText, AfterValidator(decimal_between("0", "1"))]
Beta = Annotated[DecimalText, AfterValidator(decimal_between("0", "0.999999"))]
Rate = Annotated[DecimalText, AfterValidator(decimal_between("0", "10000", open_low=True))]
Scale = Annotated[DecimalText, AfterValidator(decimal_between("0", "1000"))]
PositiveScale = Annotated[DecimalText, AfterValidator(decimal_between("0", "1000", open_low=True))]
Epsilon = Annotated[DecimalText, AfterValidator(decimal_between("0", "0.1", open_low=True))]
Stretch = Annotated[DecimalText, AfterValidator(decimal_between("1", "1000"))]


def _check_cid(cid: bytes) -> bytes:
    if not is_cid(cid):
        raise ValueError("not a binary CIDv1 of SHA-256")
    return cid


CidBytes = Annotated[bytes, AfterValidator(_check_cid)]
DigestBytes = Annotated[Digest, Field(min_length=32, max_length=32)]


class Spec(BaseModel):
    """A part of the manifest: frozen, of exact types, without unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
