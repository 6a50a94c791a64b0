"""Every attack of the library as an adversary of a whole run, section by section.

Rule of this file: colluders know the honest updates and the rule. Those that send a function of one
round's honest updates are in `updates`; here are those that need a run: wrong targets, broken
bytes, a search against the merge itself, patience. Who attacks one section sends the others as its
own honest training gave them, or as the honest mean is where it did not train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.adversary.codecs import Parts
from tests.adversary.run import Adversary, Knowledge, Text
from tests.adversary.updates import ATTACKS, Attack, Rows, furthest_within, split_collusion

from atoll.job.spec import KAPPA
from atoll.protocol.checks import name_odd, other_directions
from atoll.protocol.types import SeatIndex

SCALES = (0.08, 0.2, 0.5, 1.2)
"""From just inside the alignment limit to far outside every limit."""


def unchanged(_round: int, drawn: Text) -> Text:
    """What everybody trains on."""
    return drawn


def _flipped(_round: int, drawn: Text) -> Text:
    inputs, targets = drawn
    return inputs, 255 - targets


# ------------------------------------------------------------------------- what moves the model


def _every_round(attack: Attack) -> Adversary:
    def submit(known: Knowledge) -> Parts:
        return known.honest.mean(known.f).but(delta=attack(known.honest.delta, known.f, known.rng))

    return Adversary(submit)


def label_flip() -> Adversary:
    """Trains as everyone does, with byte 255 − y for y."""
    return Adversary(lambda known: known.trained, text=_flipped)


def malformed_bytes() -> Adversary:
    """Sends a byte too few."""
    return Adversary(lambda known: known.honest.mean(known.f), tamper=lambda data: data[:-1])


def adaptive() -> Adversary:
    """Tries directions and lengths against the merge itself and sends what costs most."""
    return Adversary(_most_damaging, text=unchanged)


def _most_damaging(known: Knowledge) -> Parts:
    return max(_candidates(known), key=known.damage)


def _candidates(known: Knowledge) -> Iterator[Parts]:
    """All alike, or each with the noise of honest training of its own, which no copy check sees."""
    honest, own, f = known.honest.delta, known.trained, known.f
    mean, spread = honest.mean(axis=0), honest.std(axis=0)
    alike = np.tile(mean, (f, 1))
    for direction in (-mean, -np.sign(mean) * spread):
        for base in (alike, own.delta):
            yield from (own.but(delta=base + scale * direction) for scale in SCALES)
    for summed in (False, True):
        worst = furthest_within(honest, -np.sign(mean), summed=summed)
        yield own.but(delta=np.tile(worst, (f, 1)))
        yield own.but(delta=own.delta + (worst - mean))
    yield own.but(delta=ATTACKS["concentration"](honest, f, known.rng))
    yield own.but(delta=split_collusion(honest, f, known.rng))


def slow_drift() -> Adversary:
    """Honest training less what was learnt so far, by as much as no check names, round by round.

    A shift of this kind is small in any one round and always points the same way.
    """
    learnt = np.zeros(1)

    def submit(known: Knowledge) -> Parts:
        nonlocal learnt
        mean = known.honest.delta.mean(axis=0)
        learnt = learnt + mean / max(float(np.linalg.norm(mean)), 1.0)
        step = learnt * float(np.linalg.norm(mean) / np.linalg.norm(learnt))
        low, high = 0.0, 2.0
        for _ in range(8):
            middle = (low + high) / 2
            shifted = known.trained.but(delta=known.trained.delta - middle * step)
            passes = not is_named(known.arrives(shifted), known.honest)
            low, high = (middle, high) if passes else (low, middle)
        return known.trained.but(delta=known.trained.delta - low * step)

    return Adversary(submit, text=unchanged)


def is_named(bad: Parts, honest: Parts) -> bool:
    """Whether a check names one of these, which hold the lowest seats."""
    seats = [SeatIndex(seat) for seat in range(len(bad) + len(honest))]
    both = Parts.stacked([bad, honest])
    grams = [(rows @ rows.T).astype(np.int64).tolist() for rows in (both.delta, both.first)]
    found = name_odd(seats, grams, [1] * len(seats), kappa=KAPPA, f=len(bad))
    return any(named.seat < len(bad) for named in found)


def late_sybil() -> Adversary:
    """Takes its seats at half time and then does its worst."""

    def submit(known: Knowledge) -> Parts | None:
        return None if 2 * known.round < known.rounds else _most_damaging(known)

    return Adversary(submit, text=unchanged)


# ------------------------------------------------------------ what the next round opens with


def on_first_moments(attack: Attack) -> Adversary:
    """An attack of the library on the section of first moments; the rest is honest training."""

    def submit(known: Knowledge) -> Parts:
        return known.trained.but(first=attack(known.honest.first, known.f, known.rng))

    return Adversary(submit, text=unchanged)


def first_aligned() -> Adversary:
    """As far against the others' first moments as excludes nobody's momentum and names nobody."""

    def submit(known: Knowledge) -> Parts:
        return known.trained.but(first=_least_aligned(known))

    return Adversary(submit, text=unchanged)


def _least_aligned(known: Knowledge) -> Rows:
    own, first = known.trained.first, known.honest.first
    mean = first.mean(axis=0)
    worst = furthest_within(first, -np.sign(mean)) - mean
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        sent = known.arrives(known.trained.but(first=own + middle * worst))
        is_heard = not is_named(sent, known.honest) and not is_momentum_excluded(sent, known.honest)
        low, high = (middle, high) if is_heard else (low, middle)
    return own + low * worst


def is_momentum_excluded(bad: Parts, honest: Parts) -> bool:
    """Whether first moments of these, which hold the lowest seats, are not merged."""
    rows = np.concatenate([bad.first, honest.first])
    seats = [SeatIndex(seat) for seat in range(len(rows))]
    found = other_directions(seats, (rows @ rows.T).astype(np.int64).tolist())
    return any(seat < len(bad) for seat in found)


def on_sums(change: Callable[[Rows], Rows]) -> Adversary:
    """Other sums than those of the colluders' own second moments."""
    return Adversary(
        lambda known: known.trained.but(factored=change(known.trained.factored)), text=unchanged
    )


def _nowhere_but_seldom(sums: Rows) -> Rows:
    """Honest where many seats see a row, and a million times as much where hardly any does."""
    small = sums < np.quantile(sums, 0.25, axis=1, keepdims=True)
    return np.where(small, sums * 1e6 + 1e-12, sums)


def everywhere() -> Adversary:
    """As far as honest updates are, in the sections of both grids, and no second moments at all."""

    def submit(known: Knowledge) -> Parts:
        worst = (
            np.tile(furthest_within(rows, -np.sign(rows.mean(axis=0))), (known.f, 1))
            for rows in (known.honest.delta, known.honest.first)
        )
        return Parts(*worst, known.trained.factored * 0)

    return Adversary(submit, text=unchanged)


def adaptive_moments() -> Adversary:
    """Tries moments against the merge and the round that opens with them; sends the worst."""

    def submit(known: Knowledge) -> Parts:
        return max(_moment_candidates(known), key=known.lasting)

    return Adversary(submit, text=unchanged)


def _moment_candidates(known: Knowledge) -> Iterator[Parts]:
    own, first = known.trained, known.honest.first
    mean = first.mean(axis=0)
    worst = furthest_within(first, -np.sign(mean)) - mean
    for sums in (own.factored, own.factored * 0, own.factored * 1e6):
        yield own.but(first=own.first + worst, factored=sums)
        yield own.but(first=own.first - 0.5 * mean, factored=sums)
    yield own.but(first=-10 * own.first)
    yield own.but(first=_least_aligned(known))


ON_MOMENTS: dict[str, Callable[[], Adversary]] = {
    **{
        f"first_{name}": (lambda name=name: on_first_moments(ATTACKS[name]))
        for name in ("scaled_flip", "largest_payload", "a_little_is_enough", "min_max", "zero")
    },
    "sums_inflated": lambda: on_sums(lambda sums: sums * 1e6 + 1.0),
    "sums_zero": lambda: on_sums(lambda sums: sums * 0),
    "sums_seldom": lambda: on_sums(_nowhere_but_seldom),
    first_aligned.__name__: first_aligned,
    everywhere.__name__: everywhere,
    adaptive_moments.__name__: adaptive_moments,
}
ADVERSARIES: dict[str, Callable[[], Adversary]] = {
    **{name: (lambda attack=attack: _every_round(attack)) for name, attack in ATTACKS.items()},
    **{
        build.__name__: build
        for build in (label_flip, malformed_bytes, adaptive, slow_drift, late_sybil)
    },
    **ON_MOMENTS,
}
