"""Terms, what rounds pay, penalties and last moments: SPEC-ROUNDS.md, sections 4, 6, 8, 10 and 12.

Rule of this file: integers of wei and seconds, from the manifest's terms as it writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

from tests.second_client.rounds import COMMITTEE, chance_of
from tests.second_client.words import abi, keccak

TERMS = (
    "rounds", "seats", "min_providers", "slots", "min_verifiers", "f", "audit_rate",
    "last_rate", "rate_steps", "train_seconds", "reveal_seconds", "merge_seconds",
    "audit_seconds", "open_seconds", "key_seconds", "window_seconds", "ready_seconds",
    "game_seconds", "move_seconds", "claim_seconds", "expiry", "steps", "segment_steps",
    "tokens_per_step", "segment_pay", "sign_fee", "duty_fee", "provider_bond", "verifier_bond",
    "program",
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


def segments(terms: Terms) -> int:
    """S."""
    return int(terms["steps"] // terms["segment_steps"])


def rate_of(terms: Terms, *, last: bool) -> int:
    """Of a round's newcomers."""
    return int(terms["last_rate" if last else "audit_rate"]) if terms["f"] else 0


def most_duties(terms: Terms) -> int:
    """U: duties that the escrow holds for draws by seeds."""
    rounds, seats = terms["rounds"], terms["seats"]
    rates = rate_of(terms, last=False), rate_of(terms, last=True)
    chances = (rounds - 1) * chance_of(rates[0]) + chance_of(rates[1])
    mean = -(-chances * seats // 2**32)
    return int(min(rounds * seats, mean + 6 * (isqrt(mean) + 1)))


def stake_of(bond: int, steps: int) -> int:
    """W(n): what has to be at stake for n steps, by the burnt part of the bond."""
    half = (bond * (isqrt(2**63) + 1) >> 31) + 1 if steps % 2 else bond
    return half << steps // 2


def retained(bond: int, most_steps: int, claims: Sequence[int]) -> tuple[int, int]:
    """Wei that are retained of a holder after these claims, and the steps that it has come down."""
    kept, steps = 0, 0
    for earned in claims:
        kept += min(earned // 2, stake_of(bond, most_steps) - bond - kept)
    while stake_of(bond, steps + 1) <= bond + kept:
        steps += 1
    return kept, steps


def round_budget(terms: Terms) -> int:
    """Of one round, but for what its seed draws."""
    committee = min(COMMITTEE, terms["slots"]) * terms["sign_fee"]
    sure = terms["duty_fee"] if terms["f"] else 0
    return int(terms["seats"] * segments(terms) * terms["segment_pay"] + committee + sure)


def budget(terms: Terms) -> int:
    held = most_duties(terms) * terms["duty_fee"]
    committee = min(COMMITTEE, terms["slots"]) * terms["sign_fee"]
    return int(terms["rounds"] * round_budget(terms) + held + committee)


def may_earn(terms: Terms, record: Mapping[str, int], done: int, duties: int) -> int:
    """What a settled round may cost at most; `done` are its segments that earn."""
    fees = record["committee"].bit_count() * terms["sign_fee"] + duties * terms["duty_fee"]
    return int(done * terms["segment_pay"] + fees)


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


def is_excused(excuses: Sequence[int], open_end: int, key_seconds: int) -> bool:
    """Whether one of these, ends of OPEN, is for the standstill of a round whose OPEN ends then."""
    return any(abs(open_end - end) < key_seconds for end in excuses)


def _earlier(missed: Sequence[int], round: int) -> int:
    """E of a round: missed duties of the eight before it."""
    return sum(missed.count(back) for back in range(round - 8, round))


def audit_clock(
    terms: Terms, settled: int, record: Mapping[str, int], last: bool
) -> dict[str, int]:
    """Unix seconds at which the parts of an audit end."""
    times = 1
    if last:
        per = -(-record["drawn"].bit_count() // record["ready"].bit_count())
        times = min(16, max(1, per))
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
