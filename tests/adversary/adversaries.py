"""Every attack of the library as an adversary of a whole run.

Rule of this file: colluders know the honest updates and the rule. Those that send a function of one
round's honest updates are in `updates`; here are those that need a run: wrong targets, broken
bytes, a search against the merge itself, patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.adversary.codecs import DEFAULT
from tests.adversary.run import Adversary, Knowledge
from tests.adversary.updates import (
    ATTACKS,
    Attack,
    Rows,
    concentration,
    furthest_within,
    split_collusion,
    where_few_send,
    where_nobody_sends,
)
from torch import Tensor

from atoll.job.spec import kappa_for
from atoll.law.checks import name_odd
from atoll.law.manifest import SPARSE_CODECS
from atoll.law.words import SeatIndex

SCALES = (0.08, 0.2, 0.5, 1.2, 3.0)
"""From just inside the alignment limit to far outside every limit."""
HIDDEN_SHARES = (0.1, 0.3, 1.0)
"""Of the coordinates of a sparse update that nobody else sends."""


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
    """Sends −128, the one byte that is not on the int8 grid; of other codecs a byte too few."""
    return Adversary(
        lambda known: np.full((known.f, known.honest.shape[1]), -127.0),
        tamper=lambda data, codec: data[:-1] + (b"\x80" if codec == DEFAULT else b""),
    )


def concentrated() -> Adversary:
    """All budget on few coordinates; of a sparse codec on those with few other senders or none."""
    return Adversary(lambda known: max(_concentrations(known), key=known.damage))


def _concentrations(known: Knowledge) -> Iterator[Rows]:
    sparse = known.codec in SPARSE_CODECS
    for attack in (where_nobody_sends, where_few_send) if sparse else (concentration,):
        yield attack(known.honest, known.f, known.rng)


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
    for worst in _concentrations(known):
        yield worst
        if known.codec in SPARSE_CODECS:
            yield from (hidden(known, worst, share) for share in HIDDEN_SHARES)
    yield split_collusion(known.honest, known.f, known.rng)


def hidden(known: Knowledge, worst: Rows, share: float) -> Rows:
    """Honest sparse training that gives up a share of what nobody else sends for some of `worst`.

    What nobody else sends adds nothing to inner products, so that no check misses it.
    """
    rows, others = known.trained.copy(), known.honest.any(axis=0)
    for row, bad in zip(rows, worst, strict=True):
        lone = known.rng.permutation(np.flatnonzero((row != 0) & ~others))
        given_up = lone[: int(share * len(lone))]
        wanted = np.argsort(-np.abs(np.where(row == 0, bad, 0)), kind="stable")
        taken = wanted[: len(given_up)]
        row[given_up] = 0
        row[taken] = bad[taken]
    return rows


def slow_drift() -> Adversary:
    """Honest training less what was learnt so far, by as much as no check names, round by round.

    A shift of this kind is small in any one round and always points the same way.
    """
    learnt = np.zeros(1)

    def submit(known: Knowledge) -> Rows:
        nonlocal learnt
        mean = known.honest.mean(axis=0)
        learnt = learnt + mean / max(float(np.linalg.norm(mean)), 1.0)
        step = learnt * float(np.linalg.norm(mean) / np.linalg.norm(learnt))
        low, high = 0.0, 2.0
        for _ in range(8):
            middle = (low + high) / 2
            passes = not _named(known.arrives(known.trained - middle * step), known.honest)
            low, high = (middle, high) if passes else (low, middle)
        return known.trained - low * step

    return Adversary(submit, targets=_unchanged)


def _named(bad: Rows, honest: Rows) -> bool:
    """Whether a check names one of these, which hold the lowest seats."""
    rows = np.concatenate([bad, honest])
    gram_nn = (rows @ rows.T).astype(np.int64)
    seats = [SeatIndex(seat) for seat in range(len(rows))]
    found = name_odd(seats, [gram_nn.tolist()], kappa=kappa_for(len(rows)), f=len(bad))
    return any(named.seat < len(bad) for named in found)


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
    concentration.__name__: concentrated,  # of each codec its own
}
