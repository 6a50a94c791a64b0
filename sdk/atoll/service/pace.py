"""How long a member's work of a round takes a machine of a measured pace, and how long it has.

Rule of this file: pure; seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from atoll.law.manifest import Manifest
from atoll.law.pay import most_drawn
from atoll.law.words import Role, Terms

TAPE_STEPS: Final = 20
"""So many times as long as a step its tape takes at most, whose every tensor is hashed: 9 times the
preset `nano`, 18 times `demo`, on one core."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured (`atoll.train.pace`); seconds on this machine, bytes.

    Attributes:
        step_seconds: of a step of the whole batch.
        segment_seconds: what a segment costs besides its steps.
        timed_parameters: of the model that was timed, where the job's is too large.
    """

    step_seconds: float
    segment_seconds: float
    parameters: int
    timed_parameters: int
    update_bytes: int

    @property
    def source(self) -> str:
        """How the seconds were found, in words."""
        if self.timed_parameters == self.parameters:
            return "measured here"
        return f"scaled by operations from {self.timed_parameters:,} parameters measured here"


@dataclass(frozen=True, slots=True)
class Load:
    """Work of one round, and the window that there is for it, seconds.

    Attributes:
        name: `train`, `audit` or `game`; text: what is done.
    """

    name: str
    needed: float
    window: int
    text: str


def loads_of(role: Role, manifest: Manifest, pace: Pace) -> tuple[Load, ...]:
    """What the role costs its bond or a cut for want of time: a seat's training, or what one of the
    fewest auditors has to replay in AUDIT; and a side's own run in a game.
    """
    terms, once = manifest.terms, train_seconds(manifest, pace)
    rounds = "a round" if manifest.epoch == 1 else f"{manifest.epoch} rounds"
    segment = manifest.inner.segment * pace.step_seconds + pace.segment_seconds
    needed = manifest.epoch * once + segment + TAPE_STEPS * pace.step_seconds
    what = f"to run {rounds}, a segment and a step's tape for a game"
    game = Load("game", needed, terms.game_seconds, what)
    if role is Role.PROVIDER:
        return Load("train", once, terms.train_seconds, "to train a round"), game
    duties = most_duties(terms)
    what = f"to replay {duties} {'seat' if duties == 1 else 'seats'} of {rounds}"
    return Load("audit", duties * manifest.epoch * once, terms.audit_seconds, what), game


def train_seconds(manifest: Manifest, pace: Pace) -> float:
    """A seat's steps of a round, or their replay, on a machine like this one."""
    return manifest.inner.steps * pace.step_seconds + manifest.segments * pace.segment_seconds


def most_duties(terms: Terms) -> int:
    """Seats that an auditor replays where there are as few as may be."""
    drawn = min(terms.seats, most_drawn(terms) + terms.f)
    return ceil(drawn / terms.min_verifiers)
