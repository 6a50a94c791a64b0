"""The terms of a job: what the contract checks at creation, and how a manifest spells them.

Rule of this file: a job that `check_terms` refuses would be refused by `Jobs.create`, for the rules
that do not depend on the deployment's own parameters (floors of bonds and windows, the clock). The
program may be zero here alone, in drafts: it follows from the manifest that has the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Final

from atoll.errors import ManifestError
from atoll.protocol.types import ZERO_DIGEST, Digest, Params, Terms

MAX_SEATS: Final = 256
MAX_SLOTS: Final = 256
MAX_SEGMENTS: Final = 1024
"""Of a round; a manifest has fewer."""
MAX_SHOWN: Final = 32_768
"""Bytes that a game's first move may show of a segment: its holder has to get them into a block."""
_STEP_BYTES, _LOSS_BYTES, _DRAWN_BYTES = 40, 4, 8
WHOLE_BPS: Final = 10_000
LOWEST_RATE: Final = 15
"""The last entry of the table of audits' rates."""
MIN_BOND: Final = 80
"""Wei: an eighth of less could be nothing."""
LONGEST_SECONDS: Final = 60 * 24 * 3600
"""All windows of a round together."""
MOVES: Final = 40
"""Of a game, at most."""
MIN_MOVES: Final = 10
"""That either side's allowance in a game has time for."""
MAX_ROUNDS: Final = (1 << 24) - 2
"""A holder's first and last are numbers of 24 bits, the largest of which is none."""
_U8, _U16, _U32, _U64, _U128 = (1 << n for n in (8, 16, 32, 64, 128))
_WIDTHS: Final[dict[str, int]] = {
    "rounds": _U32,
    "seats": _U16,
    "min_providers": _U16,
    "slots": _U16,
    "min_verifiers": _U16,
    "f": _U8,
    "audit_rate": _U8,
    "last_rate": _U8,
    "rate_steps": _U8,
    "train_seconds": _U32,
    "reveal_seconds": _U32,
    "merge_seconds": _U32,
    "audit_seconds": _U32,
    "open_seconds": _U32,
    "key_seconds": _U32,
    "window_seconds": _U32,
    "ready_seconds": _U32,
    "game_seconds": _U32,
    "move_seconds": _U32,
    "claim_seconds": _U32,
    "expiry": _U64,
    "steps": _U32,
    "segment_steps": _U32,
    "tokens_per_step": _U64,
    "segment_pay": _U128,
    "sign_fee": _U128,
    "duty_fee": _U128,
    "provider_bond": _U128,
    "verifier_bond": _U128,
}
AMOUNTS: Final = frozenset(name for name, width in _WIDTHS.items() if width == _U128)
"""Fields in wei. A manifest writes them as decimal strings: DAG-CBOR integers end at 64 bits."""
WINDOWS: Final = (
    "train_seconds",
    "reveal_seconds",
    "merge_seconds",
    "audit_seconds",
    "open_seconds",
    "key_seconds",
    "window_seconds",
)
"""Of a round; together they are bounded."""


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
    others = ("ready_seconds", "game_seconds", "move_seconds", "claim_seconds", "tokens_per_step")
    for name in (*WINDOWS, *others):
        _require(getattr(terms, name) >= 1, f"{name} is 0")
    for name, low, high in (
        ("rounds", 1, MAX_ROUNDS),
        ("seats", 1, MAX_SEATS),
        ("min_providers", 1, terms.seats),
        ("slots", 1, MAX_SLOTS),
        ("min_verifiers", 1, terms.slots),
        ("f", 0, most_borne(terms.seats)),
        ("audit_rate", 0, LOWEST_RATE),
        ("last_rate", 0, LOWEST_RATE),
        ("rate_steps", 0, _most_steps(terms)),
        ("segment_steps", 1, min(terms.steps, MAX_SHOWN // shown_bytes(1, 1))),
        ("window_seconds", 2 * terms.game_seconds, _U32 - 1),
        ("provider_bond", MIN_BOND, _U128 - 1),
        ("verifier_bond", MIN_BOND, _U128 - 1),
    ):
        value = getattr(terms, name)
        _require(low <= value <= high, f"{name} is {value}, not in [{low}, {high}]")
    _require(terms.steps % terms.segment_steps == 0, "segment_steps does not divide steps")
    _require(terms.segments <= MAX_SEGMENTS, f"{terms.segments} segments, above {MAX_SEGMENTS}")
    tokens = terms.steps * terms.tokens_per_step
    _require(tokens < _U64, f"{tokens} tokens a seat and round do not fit in 64 bits")
    together = sum(getattr(terms, name) for name in WINDOWS)
    _require(together <= LONGEST_SECONDS, f"windows of {together} s, above {LONGEST_SECONDS}")


def _most_steps(terms: Terms) -> int:
    """Where everybody is audited, nothing is won by what is retained."""
    return LOWEST_RATE - terms.audit_rate if terms.f and terms.audit_rate else 0


def clock_floors(params: Params) -> dict[str, int]:
    """The least seconds that a deployment takes, by field of the terms.

    Whoever is late in a game loses a bond. So a game's allowance, which it has once, is as long as
    the chain may stand still or keep a transaction out; a move's own seconds need not be.
    """
    windows = dict.fromkeys((*WINDOWS, "ready_seconds", "claim_seconds"), params.min_window)
    game = max(MIN_MOVES * params.min_move, params.min_window, params.min_punishable)
    return windows | {"move_seconds": params.min_move, "game_seconds": game}


def shown_bytes(segment: int, micro_batches: int, *, is_sampled: bool = False) -> int:
    """What a game's first move shows of a segment: of each step a digest, a norm and the losses.

    Where tokens are sampled, with each loss what was drawn.
    """
    return segment * (_STEP_BYTES + loss_bytes(is_sampled=is_sampled) * micro_batches)


def loss_bytes(*, is_sampled: bool) -> int:
    """Of a micro-batch in a step's result."""
    return _LOSS_BYTES + _DRAWN_BYTES * is_sampled


def most_borne(seats: int) -> int:
    """The largest f that so many seats can have: 3f below the seats, 0 of fewer than four."""
    return (seats - 1) // 3 if seats >= 4 else 0


def terms_to_json_value(terms: Terms) -> dict[str, int | str | bytes]:
    """The terms as a manifest writes them: integers, amounts as decimal strings, the program."""
    return {k: str(v) if k in AMOUNTS else v for k, v in asdict(terms).items()}


def terms_from_json_value(plain: Mapping[str, object]) -> Terms:
    """The inverse of `terms_to_json_value`. Raises ValueError on missing, unknown or misspelt
    fields."""
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
