"""When things may be done: deadlines of a round's audit, and the last moments of a job.

Rule of this file: unix seconds; windows are half-open, from the start to, but not at, the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from atoll.protocol.types import Terms

MAX_AUDITS: Final = 16
"""Times auditSeconds, the longest that a job's last audit takes."""
GAMES_BEHIND: Final = 6
"""Longest games that may follow the end of a window one after another."""
SIGNING_PART: Final = 4
"""So large a part of mergeSeconds, at a committee draw's end, takes no votes any more."""

SEED_PATIENCE: Final = 30
"""Seconds: of 256 blocks, which a chain remembers, there are fewer in it on any known chain."""


@dataclass(frozen=True, slots=True)
class AuditClock:
    """Deadlines behind a settled round; several rounds' run at once.

    Attributes:
        audit_end: of audit reports; openings follow.
        open_end: of openings; keys follow.
        keys_end: when a key is owed.
        half: when a key that is still missing loses the bond.
        window_end: of challenges and contests.
    """

    settled_at: int
    audit_end: int
    open_end: int
    keys_end: int
    half: int
    window_end: int

    @classmethod
    def of(cls, terms: Terms, settled_at: int, *, audits: int = 1) -> Self:
        """Of a round that was settled then; `audits` is `last_audits` in the job's last round."""
        audit_end = settled_at + terms.audit_seconds * audits
        open_end = audit_end + terms.open_seconds
        keys_end = open_end + terms.key_seconds
        half = keys_end + terms.window_seconds // 2
        window_end = keys_end + terms.window_seconds
        return cls(settled_at, audit_end, open_end, keys_end, half, window_end)

    def is_auditing(self, now: int) -> bool:
        """Whether audit reports are taken."""
        return self.settled_at <= now < self.audit_end

    def is_opening(self, now: int) -> bool:
        """Whether audit reports are opened."""
        return self.audit_end <= now < self.open_end

    def takes_challenges(self, now: int) -> bool:
        """Whether games about the round may be asked for."""
        return self.audit_end <= now < self.window_end


def last_audits(drawn: int, ready: int) -> int:
    """How many times auditSeconds the last round's AUDIT takes: as many as an auditor has seats."""
    return min(MAX_AUDITS, max(1, -(-drawn // ready)))


def votes_end(terms: Terms, deadline: int) -> int:
    """When a committee draw's votes are fixed: its last quarter is there to sign over them, and to
    settle.

    Args:
        deadline: of the committee draw.
    """
    return deadline - terms.merge_seconds // SIGNING_PART


def seed_due(terms: Terms, merging_since: int) -> int:
    """When somebody should ask for the audit seed, where no vote has: a chain forgets the block.

    Sooner it is as well known, but each vote may bring it along.
    """
    return merging_since + min(SEED_PATIENCE, terms.merge_seconds // 2)


def last_moment(terms: Terms) -> int:
    """From then on nothing is committed or settled, and no reveal and no vote counts.

    A round that opens just before expiry has its phases, and mergeSeconds more to be settled late.
    """
    last_round = terms.train_seconds + terms.reveal_seconds + terms.merge_seconds
    return terms.expiry + last_round + terms.merge_seconds


MOST_DRAWS: Final = 60_000
"""Of committee draws, whose number is of 16 bits."""


def draws_of_a_stall(terms: Terms) -> int:
    """How many committee draws may end without a settlement where somebody wants to leave.

    They take 2 mergeSeconds and a window; the last one's votes then say what is paid.
    """
    window = terms.audit_seconds + terms.open_seconds + terms.key_seconds + terms.window_seconds
    return min(MOST_DRAWS, 2 + -(-window // terms.merge_seconds))


def longest_leave(terms: Terms, longest_game: int) -> int:
    """Seconds within which whoever asks to leave has its bond again, whatever anybody does.

    Its round has just opened; each phase and committee draw that may be repeated is.
    """
    phases = max(terms.train_seconds, terms.reveal_seconds) * MOST_REPEATS
    phases += terms.train_seconds + terms.reveal_seconds
    draws = (draws_of_a_stall(terms) + MOST_REPEATS) * terms.merge_seconds
    behind = AuditClock.of(terms, phases + draws, audits=MAX_AUDITS).window_end
    return behind + GAMES_BEHIND * longest_game


MOST_REPEATS: Final = 3
"""How often phases of a round are repeated, and a committee draw's silence counts for nobody, where
fewer than half of those who owe something do it."""


def absolute_end(terms: Terms, longest_game: int) -> int:
    """When the last lock of the job opens, whatever anybody does.

    Args:
        longest_game: the deployment's, in seconds.
    """
    behind = AuditClock.of(terms, last_moment(terms), audits=MAX_AUDITS).window_end
    return behind + GAMES_BEHIND * longest_game
