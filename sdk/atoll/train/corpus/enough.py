"""Whether there is text enough for what a job does with it, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.prepare import PreparedData

MOST_READINGS: Final = 100
"""How often a job may read its text: beyond it a model learns its text by heart."""
LEAST_TARGETS: Final = 0.01
"""The least share of masked data that is learned: below it a step pays for almost nothing."""


@dataclass(frozen=True, slots=True)
class Appetite:
    """What a job reads.

    Attributes:
        seq: tokens of a sequence.
        sequences: that all seats draw in all steps of all rounds.
    """

    seq: int
    sequences: int


def check_enough(data: PreparedData, appetite: Appetite) -> None:
    """Raises DataUnusable, with how much is missing, where data is too little for a job."""
    seq = appetite.seq
    for name, held in (("train", data.train_tokens), ("evaluate", data.eval_tokens)):
        if held <= seq:
            raise DataUnusable(
                f"{held} tokens to {name} on, {seq + 1} are the least for sequences of {seq}: "
                f"{seq + 1 - held} are missing",
                next_step="give more text, hold out another share, or take shorter sequences",
            )
    wanted = appetite.sequences * seq
    least = -(-wanted // MOST_READINGS)
    if data.train_tokens < least:
        raise DataUnusable(
            f"the job reads {wanted} tokens, {wanted / data.train_tokens:.0f} times the "
            f"{data.train_tokens} that there are; {MOST_READINGS} times is the most: "
            f"{least - data.train_tokens} are missing",
            next_step="give more text, or take fewer rounds, steps or sequences a step",
        )
    if data.train_targets < LEAST_TARGETS * data.train_tokens or not data.eval_targets:
        raise DataUnusable(
            f"{data.train_targets} of {data.train_tokens} tokens to train on are answers, and "
            f"{data.eval_targets} of {data.eval_tokens} to evaluate on; "
            f"{LEAST_TARGETS:.0%} and one are the least",
            next_step="shorten what stands before the answers, or hold out a larger share",
        )
