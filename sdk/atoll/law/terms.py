"""The terms of a job: what the contract checks at creation, and how a manifest spells them.

Rule of this file: a job that `check_terms` refuses would be refused by `Jobs.create`, for the rules
that do not depend on the deployment's own parameters (bond floors, unbonding delay, the clock).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Final

from atoll.errors import ManifestError
from atoll.law.words import ZERO_DIGEST, Digest, Terms

MAX_SEATS: Final = 256
MAX_VERIFIERS: Final = 32
MAX_ATTEMPTS: Final = 8
MAX_BEACON_DELAY: Final = 64
MAX_REPORTS: Final = 256
_U16, _U32, _U64, _U128 = (1 << n for n in (16, 32, 64, 128))
_WIDTHS: Final[dict[str, int]] = {
    "rounds": _U32,
    "seats": _U16,
    "min_providers": _U16,
    "min_verifiers": _U16,
    "max_verifiers": _U16,
    "quorum_numerator": _U16,
    "quorum_denominator": _U16,
    "attempts": _U16,
    "auditors": _U16,
    "beacon_delay": _U16,
    "train_seconds": _U32,
    "reveal_seconds": _U32,
    "report_seconds": _U32,
    "confirm_seconds": _U32,
    "attest_seconds": _U32,
    "dispute_seconds": _U32,
    "expiry": _U64,
    "steps": _U32,
    "tokens_per_step": _U64,
    "price_per_token": _U128,
    "verifier_fee": _U128,
    "provider_bond": _U128,
    "verifier_bond": _U128,
    "report_bond": _U128,
}
AMOUNTS: Final = frozenset(name for name, width in _WIDTHS.items() if width == _U128)
"""Fields in wei. A manifest writes them as decimal strings: DAG-CBOR integers end at 64 bits."""
WINDOWS: Final = tuple(name for name in _WIDTHS if name.endswith("_seconds"))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ManifestError(f"terms: {message}", next_step="correct the terms in the manifest")


def check_terms(terms: Terms) -> None:
    """Raises ManifestError, naming the field, where the contract would refuse these terms."""
    for name, width in _WIDTHS.items():
        value = getattr(terms, name)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        _require(is_integer and 0 <= value < width, f"{name} is {value!r}, not in [0, {width})")
    is_root = isinstance(terms.program, bytes) and len(terms.program) == len(ZERO_DIGEST)
    _require(is_root, f"program is {terms.program!r}, not 32 bytes")
    for name in (*WINDOWS, "steps", "tokens_per_step", "report_bond"):
        _require(getattr(terms, name) >= 1, f"{name} is 0")
    for name, low, high in (
        ("rounds", 1, _U32 - 2),
        ("seats", 1, MAX_SEATS),
        ("min_providers", 1, terms.seats),
        ("max_verifiers", 1, MAX_VERIFIERS),
        ("min_verifiers", 1, terms.max_verifiers),
        ("attempts", 1, MAX_ATTEMPTS),
        ("auditors", 1, terms.max_verifiers),
        ("beacon_delay", 1, MAX_BEACON_DELAY),
        ("quorum_numerator", terms.quorum_denominator // 2 + 1, terms.quorum_denominator),
    ):
        value = getattr(terms, name)
        _require(low <= value <= high, f"{name} is {value}, not in [{low}, {high}]")
    tokens = terms.steps * terms.tokens_per_step
    _require(tokens < _U64, f"{tokens} tokens a seat and round do not fit in 64 bits")


def budget(terms: Terms) -> int:
    """Wei that a job must hold at creation: every round at its dearest."""
    tokens = terms.seats * terms.steps * terms.tokens_per_step
    fees = terms.max_verifiers * terms.verifier_fee
    return terms.rounds * (tokens * terms.price_per_token + fees)


def is_quorum(weight: int, total_weight: int, terms: Terms) -> bool:
    """weight ÷ total ≥ numerator ÷ denominator, in integers as the contract compares."""
    return weight * terms.quorum_denominator >= total_weight * terms.quorum_numerator


def terms_to_plain(terms: Terms) -> dict[str, int | str | bytes]:
    """The terms as a manifest writes them: integers, amounts as decimal strings, the program."""
    return {k: str(v) if k in AMOUNTS else v for k, v in asdict(terms).items()}


def terms_from_plain(plain: Mapping[str, object]) -> Terms:
    """The inverse of `terms_to_plain`. Raises ValueError on missing, unknown or misspelt fields."""
    names = [field.name for field in fields(Terms)]
    if set(plain) != set(names):
        raise ValueError(f"terms: fields differ by {sorted(set(plain) ^ set(names))}")
    numbers = {name: _integer(name, plain[name]) for name in _WIDTHS}
    program = plain["program"]
    if not isinstance(program, bytes):
        raise ValueError("terms: program is not bytes")
    return Terms(**numbers, program=Digest(program))


def _integer(name: str, value: object) -> int:
    if name not in AMOUNTS:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ValueError(f"terms: {name} is not an integer")
    if not isinstance(value, str) or not value.isascii() or not value.isdigit():
        raise ValueError(f"terms: {name} is not a decimal string")
    if len(value) > len(str(_U128)) or str(int(value)) != value:
        raise ValueError(f"terms: {name} is not written canonically")
    return int(value)
