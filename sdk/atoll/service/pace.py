"""How long a member's work of a round takes a machine of a measured pace, and how long it has.

Rule of this file: pure; seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, comb
from typing import Final

from atoll.protocol.audit_rates import ALWAYS, RATES, rate_in
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Role, Terms

MERGE_SECONDS: Final = 5e-8
"""Of one number of one update: decoding, distances, rule (bench/aggregate.py)."""
EVALUATED_PART: Final = 0.5
"""A batch of held-out text takes so large a part of a step at most, which runs backwards, too."""
HOUR: Final = 3600
UNLIKELY: Final = Fraction(1, 10**6)
"""Rounds that draw more than an audit's window has room for: a duty is missed then."""
TRACE_STEPS: Final = 20
"""So many times as long as a step its trace takes at most, whose every tensor is hashed: 9 times
the preset `nano`, 18 times `demo`, on one core."""


OPERATIONS_A_SECOND: Final = 5e10
"""Of a machine that nobody timed: a few cores of a CPU."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured (`atoll.train.measure_pace`); seconds on this machine, bytes.

    Attributes:
        step_seconds: of a step of the whole batch, its generation too.
        generation_seconds: of these, what a step's rollouts take; 0 where text is learned.
        token_seconds: what the trace of one sampled token takes a side of a game, and token_moves
            the moves of both sides that it adds at most; 0 where text is learned, and of moves
            where nothing was measured.
        segment_seconds: what a segment costs besides its steps.
        timed_parameters: of the model that was timed: a smaller one where the job's is too large, 0
            where none was.
        kept: share of a first update's squared length that the job's first grid says; None where it
            was not asked: members do not.
    """

    step_seconds: float
    segment_seconds: float
    parameters: int
    timed_parameters: int
    update_bytes: int
    kept: float | None = None
    generation_seconds: float = 0.0
    token_seconds: float = 0.0
    token_moves: int = 0

    def by(self, part: float) -> Pace:
        """That of a machine that takes such a part of the seconds."""
        names = ("step_seconds", "segment_seconds", "generation_seconds", "token_seconds")
        return replace(self, **{name: part * getattr(self, name) for name in names})

    @property
    def source(self) -> str:
        """How the seconds were found, in words."""
        if not self.timed_parameters:
            return f"not measured: {OPERATIONS_A_SECOND / 10**9:.0f} billion operations a second"
        if self.timed_parameters == self.parameters:
            return "measured here"
        return f"scaled by operations from {self.timed_parameters:,} parameters measured here"


@dataclass(frozen=True, slots=True)
class Load:
    """Work of one round, and the window that there is for it, seconds.

    Attributes:
        name: `train`, `audit`, `merge` or `game`; text: what is done.
    """

    name: str
    needed: float
    window: int
    text: str


def loads_of(role: Role, manifest: Manifest, pace: Pace) -> tuple[Load, ...]:
    """What the role costs its bond, a penalty or a fee for want of time: a seat's training, or what
    one of the fewest auditors has to replay in AUDIT; the merge, to which a verifier adds the
    held-out loss; and a side's own run in a game.
    """
    terms, once = manifest.terms, train_seconds(manifest, pace)
    rounds = "a round" if manifest.reset_period == 1 else f"{manifest.reset_period} rounds"
    traces = "a step's trace" if manifest.task is None else "the traces of a step and of a token"
    what = f"to run {rounds}, a segment and {traces} for a game"
    game = Load("game", game_seconds(manifest, pace), terms.game_seconds, what)
    merging = merge_seconds(manifest, pace)
    if role is Role.PROVIDER:
        merge = Load("merge", merging, terms.merge_seconds, "to merge the updates")
        return Load("train", once, terms.train_seconds, "to train a round"), merge, game
    duties = most_duties(terms)
    what = f"to replay {duties} {'seat' if duties == 1 else 'seats'} of {rounds}"
    audit = Load("audit", duties * manifest.reset_period * once, terms.audit_seconds, what)
    evaluated = evaluation_seconds(manifest, pace)
    what = "to merge the updates" + (", and for the held-out loss" if evaluated else "")
    return audit, Load("merge", merging + evaluated, terms.merge_seconds, what), game


def game_load(role: Role, manifest: Manifest, pace: Pace) -> Load:
    """What a side's own run in a game takes."""
    return next(load for load in loads_of(role, manifest, pace) if load.name == "game")


def train_seconds(manifest: Manifest, pace: Pace) -> float:
    """A seat's steps of a round, or their replay, on a machine like this one."""
    return manifest.inner.steps * pace.step_seconds + manifest.segments * pace.segment_seconds


def game_seconds(manifest: Manifest, pace: Pace) -> float:
    """A side's own run in a game: what leads to the segment, the segment for its steps' digests,
    the trace of the disputed step, and of the disputed token where there is one.
    """
    segment = manifest.inner.segment * pace.step_seconds + pace.segment_seconds
    traces = TRACE_STEPS * pace.step_seconds + pace.token_seconds
    return manifest.reset_period * train_seconds(manifest, pace) + segment + traces


def merge_seconds(manifest: Manifest, pace: Pace) -> float:
    """The merge of a round's updates, once they are here."""
    return manifest.terms.seats * pace.parameters * MERGE_SECONDS


def evaluation_seconds(manifest: Manifest, pace: Pace) -> float:
    """The held-out loss of one model: as many batches as the submitter likes."""
    if not manifest.data.is_evaluated:
        return 0.0
    return manifest.data.eval_batches * EVALUATED_PART * pace.step_seconds


def round_earnings(role: Role, terms: Terms) -> int:
    """Wei that a whole round pays a seat; or one of the fewest verifiers, on average, its duties
    and its signature.
    """
    if role is Role.PROVIDER:
        return terms.segments * terms.segment_pay
    duties = terms.seats * RATES[rate_in(terms, is_last=False)] * terms.duty_fee
    return duties // (ALWAYS * terms.min_verifiers) + terms.sign_fee


def million_pay(terms: Terms) -> int:
    """Units that a million trained tokens are paid, rounded up: what pays something is no gift."""
    return -(-terms.segment_pay * 10**6 // terms.segment_tokens)


def longest_round(terms: Terms) -> int:
    """Seconds of a round that uses its windows up, until the next one begins."""
    return terms.train_seconds + terms.reveal_seconds + terms.merge_seconds


def promised_per_hour(role: Role, terms: Terms) -> int:
    """Wei that the terms alone promise for an hour of rounds at their longest."""
    return round_earnings(role, terms) * HOUR // longest_round(terms)


def round_lasts(role: Role, manifest: Manifest, pace: Pace) -> float:
    """Seconds that a round is taken to last: half of its windows and half of our work together.

    Members who come before their windows are over wait for nobody, and one can have all others
    wait.
    """
    work = sum(load.needed for load in loads_of(role, manifest, pace) if load.name != "game")
    return (work + longest_round(manifest.terms)) / 2


def earned_per_hour(role: Role, manifest: Manifest, pace: Pace) -> int:
    """Wei that an hour in the job earns this machine."""
    earned = round_earnings(role, manifest.terms)
    return int(earned * HOUR / round_lasts(role, manifest, pace))


def most_duties(terms: Terms) -> int:
    """Seats that an auditor replays where there are as few as may be."""
    rate = rate_in(terms, is_last=False)
    return ceil(most_drawn(terms.seats, rate, terms.f) / terms.min_verifiers)


def most_drawn(seats: int, rate: int, f: int) -> int:
    """Seats that a round draws but for one round in a million, and one that is excluded."""
    chance, count, passed = Fraction(RATES[rate], ALWAYS), 0, Fraction(0)
    for count in range(seats + 1):
        passed += comb(seats, count) * chance**count * (1 - chance) ** (seats - count)
        if 1 - passed < UNLIKELY:
            break
    return min(seats, count + (f > 0))
