"""What the parts of the model share: words, hashes, a member, a settled round."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, isqrt

from eth_hash.auto import keccak
from tests.support.identities import DOMAIN, JOB

from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    Domain,
    JobId,
    MissedDuty,
    Reveal,
    Role,
    RoundRecord,
    Terms,
)

FOREVER = 0xFFFFFFFF
PENALTY_BPS = 100
WINNER_BPS = 3_000
ZERO = bytes(32)


class Refused(Exception):
    """The contracts would have reverted."""


def need(condition: object, why: str) -> None:
    if not condition:
        raise Refused(why)


def word(value: int) -> bytes:
    return value.to_bytes(32, "big")


def hashed(*parts: bytes | int) -> Digest:
    """keccak of words one after another: addresses and numbers fill theirs from the left."""
    return Digest(keccak(b"".join(word(p) if isinstance(p, int) else p for p in parts)))


def tagged(
    name: str, round: int, *parts: bytes | int, where: tuple[Domain, JobId] = (DOMAIN, JOB)
) -> Digest:
    """H of SPEC-ROUNDS.md, with the round id of a round of the one job."""
    domain, job = where
    round_id = (domain.chain_id, int(domain.rounds, 16), job, round)
    return hashed(keccak(name.encode()), *round_id, *parts)


def smallest(seed: bytes, numbers: set[int], count: int, *before: int) -> set[int]:
    return set(sorted(numbers, key=lambda n: (hashed(seed, *before, n), n))[:count])


def bitmap(numbers: set[int]) -> Bitmap:
    return Bitmap(sum(1 << n for n in numbers))


def numbers(bits: int) -> set[int]:
    return {i for i in range(256) if bits >> i & 1}


@dataclass
class Member:
    id: int
    role: Role
    account: Address
    index: int
    start: int
    bond: int
    to: int = FOREVER
    ready_until: int = 0
    slashed: bool = False
    lost_from: int = FOREVER
    claimed_to: int = 0
    released: bool = False
    penalties: set[tuple[int, MissedDuty]] = field(default_factory=set)
    penalised: int = 0
    bound_until: int = 0
    retained: int = 0
    seasoned: list[tuple[int, int]] = field(default_factory=list)

    def steps_in(self, round: int) -> int:
        return max((steps for start, steps in self.seasoned if start <= round), default=0)


@dataclass
class Past:
    """A settled round, as the contracts and everybody who reads calldata know it."""

    at: int
    ends: dict[str, int]
    record: RoundRecord
    digest: Digest
    state: Digest
    holders: dict[int, int]
    slots: dict[int, int]
    done: dict[int, int]
    reveals: dict[int, Reveal]
    drawn: set[int]
    auditors: dict[int, set[int]]
    signed: set[int]
    absent: set[int]
    pay: set[int]
    unearned: set[int]
    audit_reports: dict[int, Digest] = field(default_factory=dict)
    opened_reports: dict[int, bytes] = field(default_factory=dict)
    keys: dict[int, Digest] = field(default_factory=dict)
    shown_at: dict[int, int] = field(default_factory=dict)
    in_time: set[int] = field(default_factory=set)
    struck: set[int] = field(default_factory=set)
    contests: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    votes: dict[int, int] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    leaked: set[int] = field(default_factory=set)
    dropped: set[tuple[int, int]] = field(default_factory=set)
    proven: set[tuple[int, int]] = field(default_factory=set)


def chance_of(rate: int) -> int:
    """2^32 · 2^(-rate/2), rounded up."""
    squared = (1 << 64) >> rate
    return isqrt(squared) + (isqrt(squared) ** 2 < squared)


def stake_for(terms: Terms, steps: int) -> int:
    """What has to be at stake for so many steps down the table, by the burnt part of the bond."""
    burnt = terms.provider_bond * (10_000 - WINNER_BPS) // 10_000
    root = isqrt(2 << 62) + 1  # of 2, in 2^-31, rounded up
    return ((burnt * root >> 31) + 1 if steps % 2 else burnt) << steps // 2


def most_duties(terms: Terms) -> int:
    """Audits that the escrow pays for, beside one of an excluded seat a round."""
    if not terms.f:
        return terms.rounds * terms.seats
    chances = (terms.rounds - 1) * chance_of(terms.audit_rate) + chance_of(terms.last_rate)
    mean = ceil(Fraction(chances * terms.seats, 1 << 32))
    return min(terms.rounds * terms.seats, mean + 6 * (isqrt(mean) + 1))
