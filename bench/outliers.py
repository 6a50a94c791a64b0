"""How often honest updates are named, and the κ that keeps a target rate.

    python bench/outliers.py --json [--codec two_bit]

Sixty-four honest seats of tests/adversary train a small DiLoCo job; from the Gram matrices of every
round (of what moves the model, and of first moments), random subsets of n seats are checked as a
round of n would be. The last line is JSON: for each mix of data and n, the share of honest
seat-rounds that each check would name, and whose first moments would be excluded, if that were not
capped at f: in the round with the lowest mean cosine (`turbulent`) and in all others (`calm`). Then
the largest cosine and norm seen; and `kappa`: by target rate and n the smallest multiple of 1/4
with at most that share of distant updates where all draw from the same text, as in every job.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.adversary.codecs import CODECS, DEFAULT
from tests.adversary.corpus import Mix
from tests.adversary.merges import among_friends
from tests.adversary.run import Run, Setting

from atoll.aggregation.gram import Int64Matrix
from atoll.aggregation.passes import gram
from atoll.job.spec import KAPPA
from atoll.protocol.checks import (
    Check,
    Gram,
    distance_scores,
    lower_median,
    name_odd,
    other_directions,
)
from atoll.protocol.types import SeatIndex
from atoll.train.probe import pin_torch

SEATS = 64
SIZES = (3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
TARGETS = ("0.01", "0.001")
KAPPA_STEP = Fraction(1, 4)


@dataclass(frozen=True)
class Sample:
    """A round of n honest seats drawn from a larger one."""

    n: int
    turbulent: bool
    grams: Sequence[Int64Matrix]

    def named(self, kappa: str) -> dict[str, int]:
        """Seats that each check names without the cap."""
        seats, grams = [SeatIndex(seat) for seat in range(self.n)], [g.tolist() for g in self.grams]
        found = name_odd(seats, grams, [1] * self.n, kappa=kappa, f=self.n)
        return {str(check): sum(named.check is check for named in found) for check in Check}

    def momentum_excluded(self) -> int:
        """Seats whose first moments would not be merged, without the cap."""
        return len(other_directions([SeatIndex(seat) for seat in range(self.n)], self.of_first))

    @property
    def of_first(self) -> Gram:
        return self.grams[1].tolist()

    def ratios(self) -> list[float]:
        """Each seat's score over the median score, as a κ that would just not name it; the larger
        of its two sections'."""
        found = []
        for gram_nn in self.grams:
            scores = distance_scores(gram_nn.tolist())
            middle = lower_median(scores)
            found.append([(score / middle) ** 0.5 for score in scores])
        return [max(both) for both in zip(*found, strict=True)]


def grams(mix: Mix, seed: int, rounds: int, kind: str) -> list[tuple[Int64Matrix, Int64Matrix]]:
    """The Gram matrices of every round of an honest run with that codec."""
    run = Run(Setting(SEATS, 0, seed, mix, rounds, codec=kind), among_friends)
    found = []
    for record in run.play():
        parts = run.parts_of(record.updates, record.initial_state)
        delta, first = (gram([*rows.astype(np.int8)]) for rows in (parts.delta, parts.first))
        found.append((delta, first))
    return found


def mean_cosine(gram_nn: Int64Matrix) -> float:
    """Over all pairs of different seats."""
    unit = gram_nn / np.sqrt(np.outer(np.diag(gram_nn), np.diag(gram_nn)))
    return float((unit.sum() - len(unit)) / (unit.size - len(unit)))


def samples(
    rounds: Sequence[tuple[Int64Matrix, Int64Matrix]], draws: int, seed: int
) -> Iterator[Sample]:
    """About `draws` seats of every size from every round, each subset without replacement."""
    rng = np.random.default_rng(seed)
    calmest_first = sorted(range(len(rounds)), key=lambda i: -mean_cosine(rounds[i][0]))
    for i, both in enumerate(rounds):
        for n in SIZES:
            for _ in range(1 if n == SEATS else -(-draws // n)):
                chosen = np.sort(rng.choice(SEATS, n, replace=False))
                turbulent = i == calmest_first[-1]
                yield Sample(n, turbulent, [gram_nn[np.ix_(chosen, chosen)] for gram_nn in both])


def rates(taken: Sequence[Sample], kappa: str) -> dict[str, float]:
    """Share of honest seat-rounds that each check names, in percent."""
    seats = sum(sample.n for sample in taken)
    named = [sample.named(kappa) for sample in taken]
    found = {kind: sum(n[kind] for n in named) for kind in map(str, Check)}
    found["momentum_excluded"] = sum(sample.momentum_excluded() for sample in taken)
    return {kind: round(100 * count / seats, 3) for kind, count in found.items()}


def kappa_of(ratios: Sequence[float], target: str) -> str:
    """The smallest multiple of 1/4, at least 1, that at most the target share exceeds."""
    limit, kappa = float(target) * len(ratios), Fraction(1)
    while sum(ratio > kappa for ratio in ratios) > limit:
        kappa += KAPPA_STEP
    return f"{float(kappa):g}"


def extremes(rounds: Sequence[Int64Matrix]) -> dict[str, float]:
    """The largest cosine of two honest updates, and norm over the median norm."""
    cosines, norms = [], []
    for gram_nn in rounds:
        squares = np.diag(gram_nn).astype(float)
        unit = gram_nn / np.sqrt(np.outer(squares, squares)) - 2 * np.eye(len(gram_nn))
        cosines.append(float(unit.max()))
        norms.append(isqrt(int(squares.max())) / isqrt(lower_median(squares.astype(int).tolist())))
    return {"cosine": round(max(cosines), 3), "norm": round(max(norms), 2)}


def measure(args: argparse.Namespace) -> dict[str, object]:
    """All mixes."""
    mixes: dict[str, object] = {}
    kappa: dict[str, dict[int, str]] = {}
    for mix in Mix:
        runs = [grams(mix, seed, args.rounds, args.codec) for seed in range(args.seeds)]
        taken = [
            sample for seed, run in enumerate(runs) for sample in samples(run, args.draws, seed)
        ]
        by_n = {n: [sample for sample in taken if sample.n == n] for n in SIZES}
        percent = {
            n: {
                "calm": rates([s for s in some if not s.turbulent], args.kappa),
                "turbulent": rates([s for s in some if s.turbulent], args.kappa),
            }
            for n, some in by_n.items()
        }
        cosines = [round(mean_cosine(delta), 2) for delta, _ in runs[0]]
        extreme = extremes([delta for run in runs for delta, _ in run])
        mixes[str(mix)] = {"mean_cosines": cosines, "largest": extreme, "percent_named": percent}
        if mix is Mix.SHARED:
            ratios = {n: [r for s in some for r in s.ratios()] for n, some in by_n.items()}
            kappa = {t: {n: kappa_of(ratios[n], t) for n in SIZES} for t in TARGETS}
        if not args.json:
            print(f"{mix}: {json.dumps(mixes[str(mix)])}", flush=True)
    return {"kappa": kappa, "mixes": mixes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=400, help="seats drawn a round and size")
    parser.add_argument("--codec", choices=CODECS, default=DEFAULT)
    parser.add_argument("--kappa", default=KAPPA, help="what `distant` is counted with")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("of the rounds one is called turbulent and the others calm: at least 2")
    pin_torch()
    started = time.process_time()
    result = measure(args)
    names = ("rounds", "seeds", "draws", "codec")
    settings = {name: getattr(args, name) for name in names} | {"counted_with": args.kappa}
    cost = {"cpu_seconds": round(time.process_time() - started, 1)}
    print(json.dumps(settings | cost | result))


if __name__ == "__main__":
    main()
