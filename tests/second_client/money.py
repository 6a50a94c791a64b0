"""Terms, what rounds pay, penalties and last moments: SPEC-ROUNDS.md, sections 4, 6, 8, 10 and 12.

Rule of this file: integers of wei and seconds, from the manifest's terms as it writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.second_client.rounds import COMMITTEE, drawn_seats
from tests.second_client.words import abi, keccak

TERMS = (
    "rounds", "seats", "min_providers", "slots", "min_verifiers", "f", "share_bps",
    "train_seconds", "reveal_seconds", "merge_seconds", "audit_seconds", "open_seconds",
    "key_seconds", "window_seconds", "ready_seconds", "game_seconds", "move_seconds",
    "claim_seconds", "expiry", "steps", "segment_steps", "tokens_per_step", "price_per_token",
    "sign_fee", "duty_fee", "provider_bond", "verifier_bond", "program",
)  # fmt: skip
"""In the order of Types.sol."""
Terms = Mapping[str, Any]


def read_terms(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's terms: amounts are decimal strings there. Raises ValueError for other names."""
    if set(plain) != set(TERMS):
        raise ValueError("not the fields of terms")
    return {name: int(v) if isinstance(v, str) else v for name, v in plain.items()}


def terms_hash(terms: Terms) -> bytes:
    return keccak(abi(*(terms[name] for name in TERMS)))


def segment_pay(terms: Terms) -> int:
    """P."""
    return int(terms["segment_steps"] * terms["tokens_per_step"] * terms["price_per_token"])


def segments(terms: Terms) -> int:
    """S."""
    return int(terms["steps"] // terms["segment_steps"])


def budget(terms: Terms) -> int:
    seats, duty = terms["seats"], terms["duty_fee"]
    committee = min(COMMITTEE, terms["slots"]) * terms["sign_fee"]
    q = seats if terms["f"] == 0 else -(-terms["share_bps"] * seats // 10_000)
    a_round = seats * segments(terms) * segment_pay(terms) + committee + (q + terms["f"]) * duty
    return int(terms["rounds"] * a_round + 2 * seats * duty + committee)


def most_duties(terms: Terms, record: Mapping[str, int], audit_seed: bytes, last: bool) -> int:
    """Of all auditors, a seat's without any segment among them."""
    auditors = 2 if last and record["ready"].bit_count() > 1 else 1
    return auditors * len(drawn_seats(audit_seed, record, terms, last))


def may_earn(terms: Terms, record: Mapping[str, int], done: int, duties: int) -> int:
    """What a settled round may cost at most; `done` are its segments that earn."""
    fees = record["committee"].bit_count() * terms["sign_fee"] + duties * terms["duty_fee"]
    return int(done * segment_pay(terms) + fees)


def is_short(done: int, whole: int) -> bool:
    """Whether m of S segments are too few to be merged."""
    return 4 * done < 3 * whole


def filled(level: int, done: int, whole: int) -> int:
    """The level of an id's bucket behind a round that it revealed; 3 and more are a missed duty."""
    return level + 2 if is_short(done, whole) else max(0, level - 1)


def earning(done: Mapping[int, int], whole: int, merged: int | None) -> int:
    """The map of the revealed seats that a settled round may pay; `merged` is nothing without a
    certificate.
    """
    return sum(1 << s for s, m in done.items() if merged != 0 or not is_short(m, whole))


def penalty(bond: int, penalty_bps: int, others: int) -> int:
    """p(n) of section 6: what a missed duty costs after n others."""
    return min(bond // 8, -(-bond * penalty_bps // 10_000) << others)


def miss_costs(bond: int, penalty_bps: int, missed: Sequence[int], round: int) -> int:
    """What one more missed duty costs, behind those of these rounds."""
    total = penalty(bond, penalty_bps, _earlier(missed, round) + missed.count(round))
    for later in range(round + 1, round + 9):
        if count := missed.count(later):
            before = _earlier(missed, later)
            total += penalty(bond, penalty_bps, before + count)
            total -= penalty(bond, penalty_bps, before)
    return total


def _earlier(missed: Sequence[int], round: int) -> int:
    """E of a round: missed duties of the eight before it."""
    return sum(missed.count(back) for back in range(round - 8, round))


def audit_clock(
    terms: Terms, settled: int, record: Mapping[str, int], last: bool
) -> dict[str, int]:
    """Unix seconds at which the parts of an audit end."""
    times = 1
    if last:
        per = -(-2 * record["revealed"].bit_count() // record["ready"].bit_count())
        times = min(16, 1 + per)
    audit = settled + times * terms["audit_seconds"]
    opened = audit + terms["open_seconds"]
    keys = opened + terms["key_seconds"]
    half, whole = keys + terms["window_seconds"] // 2, keys + terms["window_seconds"]
    return {"audit": audit, "open": opened, "keys": keys, "half": half, "window": whole}


def last_moment(terms: Terms) -> int:
    windows = ("train_seconds", "reveal_seconds", "merge_seconds", "merge_seconds")
    return int(terms["expiry"] + sum(terms[name] for name in windows))


def absolute_end(terms: Terms, longest_game: int) -> int:
    windows = ("open_seconds", "key_seconds", "window_seconds")
    audit = 16 * terms["audit_seconds"] + sum(terms[name] for name in windows)
    return int(last_moment(terms) + audit + 6 * longest_game)
