"""Every attack of the library as an adversary of a whole run.

Rule of this file: colluders know the honest updates and the rule. Those that send a function of one
round's honest updates are in `updates`; here are those that need a run: wrong targets, broken
bytes, a search against the merge itself, patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.adversary.run import Adversary, Knowledge
from tests.adversary.updates import (
    ATTACKS,
    Attack,
    Rows,
    concentration,
    furthest_within,
    split_collusion,
)
from torch import Tensor

SCALES = (0.08, 0.2, 0.5, 1.2, 3.0)
"""From just inside the alignment limit to far outside every limit."""


def _every_round(attack: Attack) -> Adversary:
    return Adversary(lambda known: attack(known.honest, known.f, known.rng))


def _unchanged(targets: Tensor) -> Tensor:
    return targets


def _flipped(targets: Tensor) -> Tensor:
    return 255 - targets


def label_flip() -> Adversary:
    """Trains as everyone does, with byte 255 − y for y."""
    return Adversary(lambda known: known.trained, targets=_flipped)


def malformed_bytes() -> Adversary:
    """Sends −128, the one byte that is not on the grid."""
    return Adversary(
        lambda known: np.full((known.f, known.honest.shape[1]), -127.0),
        tamper=lambda data: data[:-1] + b"\x80",
    )


def adaptive() -> Adversary:
    """Tries directions and lengths against the merge itself and sends what costs most."""
    return Adversary(_most_damaging, targets=_unchanged)


def _most_damaging(known: Knowledge) -> Rows:
    return max(_candidates(known), key=known.damage)


def _candidates(known: Knowledge) -> Iterator[Rows]:
    """All alike, or each with the noise of honest training of its own, which no copy check sees."""
    mean, spread = known.honest.mean(axis=0), known.honest.std(axis=0)
    alike = np.tile(mean, (known.f, 1))
    for direction in (-mean, -np.sign(mean) * spread):
        for base in (alike, known.trained):
            yield from (base + scale * direction for scale in SCALES)
    for summed in (False, True):
        worst = furthest_within(known.honest, -np.sign(mean), summed=summed)
        yield np.tile(worst, (known.f, 1))
        yield known.trained + (worst - mean)
    yield concentration(known.honest, known.f, known.rng)
    yield split_collusion(known.honest, known.f, known.rng)


def slow_drift() -> Adversary:
    """Stays within the honest spread and pulls every coordinate the same way, round after round."""

    def submit(known: Knowledge) -> Rows:
        way = np.random.default_rng(1).choice([-1.0, 1.0], known.honest.shape[1])
        return np.tile(known.honest.mean(axis=0) + way * known.honest.std(axis=0), (known.f, 1))

    return Adversary(submit)


def late_sybil() -> Adversary:
    """Takes its seats at half time and then does its worst."""

    def submit(known: Knowledge) -> Rows | None:
        return None if 2 * known.round < known.rounds else _most_damaging(known)

    return Adversary(submit, targets=_unchanged)


ADVERSARIES: dict[str, Callable[[], Adversary]] = {
    **{name: (lambda attack=attack: _every_round(attack)) for name, attack in ATTACKS.items()},
    **{
        build.__name__: build
        for build in (label_flip, malformed_bytes, adaptive, slow_drift, late_sybil)
    },
}
