"""What every attack of tests/adversary costs a small DiLoCo run, merge by merge.

    python bench/attacks.py --json                                # 8 seats, the default pipeline
    python bench/attacks.py --n $(seq 4 16) --results FILE --markdown    # the bar, every attack
    python bench/attacks.py --n 4 5 8 16 32 --rounds 20 --attacks backdoors --markdown    # planted
    python bench/attacks.py --n 8 --f 2 --merges all --results FILE --markdown    # every rule
    python bench/attacks.py --codecs grid4 two_bit --merges default rule_alone    # other codecs
    python bench/attacks.py --mixes kinds --attacks none mimic    # seats with data of their own
    python bench/attacks.py --drift --n 5 8 16 --attacks none min_sum slow_drift    # round by round

A cell is the final held-out loss relative to that of the mean over the honest seats alone, which
train on the same draws without the colluders, in percent, averaged over the seeds; `null` where a
rule's condition on n and f does not hold. `none` has the colluders' seats empty too. Nobody is
audited: the colluders lie in every round, `first_…`, `sums_…` and `adaptive_moments` in what the
next round opens with. Backdoors (tests/adversary/backdoors.py) are judged by `planted` instead,
the chance of the payload after the trigger at the end, of the seed in which it is highest: their
loss is told beside it, and says nothing. A merge `checked_…` is the default pipeline with another
rule. --markdown prints the tables of docs/attacks.md. The last line is JSON: `cells`, the worst of
each merge, and `bar`: whether every attack on the default pipeline stays within 1 % with f =
⌊(n − 1)/4⌋, and every backdoor below 5 % with the ⌊n/4⌋ that a job bears, and which cells do not;
four seats have one colluder in both. With --results a run that was cut short goes on where it was.

With --drift it is what f permanent colluders do to a round, of the default pipeline: each round is
also merged as the mean of its honest seats, from where it opened, and what is told is how far the
two models are apart, in percent of what an honest round moves. `aside` is the mean distance;
`taken` the part of it that takes back what the honest moved; `adds_up` the distance that is left of
all rounds' together, a round: what points elsewhere each time cancels out. `loss_a_round` is the
percent of the held-out loss, over the honest-only run's, by rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.adversary.adversaries import ADVERSARIES
from tests.adversary.backdoors import BACKDOORS, TRIGGER, planted
from tests.adversary.codecs import CODECS, DEFAULT
from tests.adversary.corpus import Mix
from tests.adversary.merges import ALONE, MERGES, among_friends
from tests.adversary.run import Adversary, Memo, Run, Setting

from atoll.errors import ConfigError
from atoll.job.methods import DENSE_RULE
from atoll.job.spec import robust_f
from atoll.numerics.state import GlobalState
from atoll.train.probe import pin_torch

Cell = dict[str, Any]
"""`mix`, `codec`, `n`, `f`, `merge`, `attack`, the mean `percent`, each of the `seeds`, and the
largest chance `planted`, null where nobody plants anything."""
Outcome = dict[str, float | None]
"""`loss` of a run's last model in nats a byte, and what is `planted` there; null where the rule
does not take so few updates."""
HONEST_ONLY = "honest_only"
NONE = "none"
BAR_PERCENT = 1.0
BAR_PLANTED = 0.05


def usual_f(n: int, attack: str) -> int:
    """Colluders of the bar."""
    return robust_f(n, DENSE_RULE) if attack in BACKDOORS else max(1, (n - 1) // 4)


def adversary_of(attack: str, rounds: int) -> Adversary | None:
    """A new one for a run of so many rounds."""
    if attack in BACKDOORS:
        return BACKDOORS[attack].adversary(rounds)
    return None if attack == NONE else ADVERSARIES[attack]()


@dataclass(frozen=True)
class Case:
    """One run of the table."""

    setting: Setting
    merge: str
    attack: str

    @property
    def key(self) -> str:
        s = self.setting
        seats = f"{s.mix}:{s.codec}:n{s.n}:f{s.f}"
        return f"{seats}:seed{s.seed}:{s.rounds}x{s.steps}:{self.merge}:{self.attack}"

    def outcome(self, memo: Memo) -> Outcome:
        """What the last model is worth, and what is planted in it."""
        adversary = adversary_of(self.attack, self.setting.rounds)
        merge = among_friends if self.merge == HONEST_ONLY else MERGES[self.merge]
        run = Run(self.setting, merge, adversary, memo)
        try:
            *_, last = run.play()
        except ConfigError:
            return {"loss": None, "planted": None}
        backdoor = BACKDOORS.get(self.attack)
        chance = planted(last.state, backdoor.trigger if backdoor else TRIGGER)
        return {"loss": run.loss(last.state), "planted": chance}


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Every run, seed by seed, so that one cut short has whole tables of the first seeds."""
    for seed, mix, codec, n in product(range(args.seeds), args.mixes, args.codecs, args.n):
        by_f: dict[int, list[str]] = {}
        for attack in args.attacks:
            by_f.setdefault(usual_f(n, attack) if args.f is None else args.f, []).append(attack)
        for f, attacks in by_f.items():
            setting = Setting(n, f, seed, Mix(mix), args.rounds, args.steps, codec)
            yield Case(setting, HONEST_ONLY, NONE)
            for merge in args.merges:
                yield from (Case(setting, merge, attack) for attack in attacks)


class Results:
    """Outcomes by case, appended to a file as they come where one is named."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Outcome] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._found |= json.loads(line)

    def __contains__(self, case: Case) -> bool:
        return case.key in self._found

    def add(self, case: Case, outcome: Outcome) -> None:
        self._found[case.key] = outcome
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({case.key: outcome}) + "\n")

    def excess(self, case: Case) -> float | None:
        """Percent above the honest-only mean of the same setting."""
        loss = self._found[case.key]["loss"]
        base = self._found[Case(case.setting, HONEST_ONLY, NONE).key]["loss"]
        return None if loss is None or base is None else 100 * (loss / base - 1)

    def planted(self, case: Case) -> float | None:
        """The chance of the payload after the trigger."""
        return self._found[case.key]["planted"]


def table(done: list[Case], results: Results) -> list[Cell]:
    """One entry for each setting without its seed, merge and attack."""
    grouped: dict[tuple[object, ...], list[Case]] = {}
    for case in done:
        if case.merge != HONEST_ONLY:
            s = case.setting
            key = (str(s.mix), s.codec, s.n, s.f, case.merge, case.attack)
            grouped.setdefault(key, []).append(case)
    names = ("mix", "codec", "n", "f", "merge", "attack")
    return [
        dict(zip(names, key, strict=True)) | _figures(seeds, results)
        for key, seeds in grouped.items()
    ]


def _figures(seeds: list[Case], results: Results) -> Cell:
    """Of one cell, from its runs with several seeds."""
    values = [results.excess(case) for case in seeds]
    chances = [chance for case in seeds if (chance := results.planted(case)) is not None]
    return {
        "percent": _mean(values),
        "seeds": [_rounded(value) for value in values],
        "planted": round(max(chances), 4) if len(chances) == len(seeds) else None,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 2) if len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def summary(cells: list[Cell]) -> dict[str, object]:
    """The worst attack on each merge, and whether the default pipeline meets the bar."""
    attacked = [cell for cell in cells if cell["attack"] != NONE and cell["percent"] is not None]
    judged = [cell for cell in attacked if _is_judged(cell)]
    missed = [cell for cell in judged if not _holds(cell)]
    bar = {
        "percent": BAR_PERCENT,
        "planted": BAR_PLANTED,
        "holds": not missed if judged else None,
        "cells": len(judged),
        "worst": _worst(judged),
        "missed": missed,
    }
    merges = dict.fromkeys(cell["merge"] for cell in attacked)
    worst = {m: _worst([cell for cell in attacked if cell["merge"] == m]) for m in merges}
    return {"worst": worst, "bar": bar}


def _worst(cells: list[Cell]) -> dict[str, Cell | None]:
    """By each of the two measures."""
    lossy = [cell for cell in cells if cell["attack"] not in BACKDOORS]
    planting = [cell for cell in cells if cell["attack"] in BACKDOORS]
    return {
        "percent": max(lossy, key=lambda cell: cell["percent"], default=None),
        "planted": max(planting, key=lambda cell: cell["planted"], default=None),
    }


def _holds(cell: Cell) -> bool:
    if cell["attack"] in BACKDOORS:
        return bool(cell["planted"] < BAR_PLANTED)
    return bool(cell["percent"] <= BAR_PERCENT)


def _is_judged(cell: Cell) -> bool:
    """Whether the bar is for this cell: the default pipeline, codec, data and colluders."""
    usual = cell["merge"] == "default" and cell["codec"] == DEFAULT and cell["mix"] == Mix.SHARED
    return usual and cell["f"] == usual_f(cell["n"], cell["attack"])


def markdown(cells: list[Cell]) -> str:
    """Tables of attacks by codec where there are several, by n where there is one merge, else by
    merge: alone, and behind NNM."""
    by_codec = len({cell["codec"] for cell in cells}) > 1
    by_n = not by_codec and len({cell["merge"] for cell in cells}) == 1
    tables: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for cell in cells:
        column = str(cell["codec" if by_codec else "n" if by_n else "merge"])
        setting: tuple[str, ...] = (str(cell["mix"]),)
        if by_codec:
            setting += (f"n = {cell['n']}", f"f = {cell['f']}", str(cell["merge"]))
        elif not by_n:
            behind = "behind NNM" if column.startswith("nnm_") else "alone"
            setting += (f"n = {cell['n']}", f"f = {cell['f']}", behind)
        rows = tables.setdefault(setting, {})
        rows.setdefault(cell["attack"], {})[column] = _told(cell, 2 if by_n else 1)
    return "\n\n".join(
        "\n".join([f"{', '.join(setting)}:", "", *_lines(rows)]) for setting, rows in tables.items()
    )


def _told(cell: Cell, digits: int) -> str:
    """A cell of a table: percent of loss, and of a backdoor what is planted before it."""
    percent = _shown(cell["percent"], digits)
    if cell["attack"] not in BACKDOORS or cell["planted"] is None:
        return percent
    return f"{cell['planted']:.3f} ({percent})"


def _shown(percent: float | None, digits: int) -> str:
    return "-" if percent is None else f"{percent:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _lines(rows: dict[str, dict[str, str]]) -> Iterator[str]:
    columns = list(next(iter(rows.values())))
    yield f"| attack | {' | '.join(columns)} |"
    yield f"| {' | '.join(['---'] * (len(columns) + 1))} |"
    for attack, found in rows.items():
        yield f"| {attack} | {' | '.join(found.get(column, '-') for column in columns)} |"


def flat(state: GlobalState) -> Tensor:
    return torch.cat([state.params[name].flatten() for name in sorted(state.params)]).double()


def drift_of(setting: Setting, attack: str, memo: Memo) -> dict[str, float]:
    """What the colluders do to a round, over one run; percent."""
    run = Run(setting, MERGES["default"], adversary_of(attack, setting.rounds), memo)
    aside, taken, moved, all_of_it = [], [], 0.0, torch.zeros(1)
    for record in run.play():
        honest = {seat: data for seat, data in record.updates.items() if seat in setting.honest}
        initial_state = flat(record.initial_state)
        step = flat(among_friends(run.arrived(record.initial_state, honest))) - initial_state
        off = flat(record.state) - initial_state - step
        aside.append(float(off.norm() / step.norm()))
        taken.append(float(-(off @ step) / (step @ step)))
        moved, all_of_it = moved + float(step.norm()), all_of_it + off
    base = Run(setting, among_friends, None, memo).final_loss()
    loss = run.loss(record.state) / base - 1
    shares = {
        "aside": fmean(aside),
        "taken": fmean(taken),
        "adds_up": float(all_of_it.norm()) / moved,
        "loss_a_round": loss / setting.rounds,
    }
    return {name: 100 * share for name, share in shares.items()}


def drift(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One entry for each number of seats and attack: the mean over the seeds, and each seed's."""
    found: dict[tuple[int, int, str], list[dict[str, float]]] = {}
    memos: dict[Setting, Memo] = {}
    for seed, n in product(range(args.seeds), args.n):
        for attack in args.attacks:
            f = usual_f(n, attack) if args.f is None else args.f
            setting = Setting(n, f, seed, rounds=args.rounds, steps=args.steps)
            memo = memos.setdefault(setting, {})
            found.setdefault((n, f, attack), []).append(drift_of(setting, attack, memo))
    return [
        {"n": n, "f": f, "attack": attack}
        | {name: round(fmean(seed[name] for seed in seeds), 2) for name in seeds[0]}
        | {"seeds": [{name: round(x, 2) for name, x in seed.items()} for seed in seeds]}
        for (n, f, attack), seeds in found.items()
    ]


def drift_markdown(found: list[dict[str, Any]]) -> str:
    names = ("aside", "taken", "adds_up", "loss_a_round")
    lines = [f"| n, f | attack | {' | '.join(names)} |", f"| {' | '.join(['---'] * 6)} |"]
    for item in found:
        shown = " | ".join(_shown(item[name], 2 if name == names[-1] else 1) for name in names)
        lines.append(f"| {item['n']}, {item['f']} | {item['attack']} | {shown} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[8], help="seats")
    parser.add_argument("--f", type=int, help="colluders; those of the bar if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mixes", nargs="+", choices=list(Mix), default=[Mix.SHARED])
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=[DEFAULT])
    parser.add_argument("--merges", nargs="+", choices=["all", *MERGES], default=["default"])
    parser.add_argument(
        "--attacks",
        nargs="+",
        choices=["all", "backdoors", NONE, *ADVERSARIES, *BACKDOORS],
        default=["all"],
        help="all: all that are judged by loss; backdoors: all that are judged by what is planted",
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--drift", action="store_true", help="what colluders do to a round")
    parser.add_argument("--results", type=Path, help="file to go on from and to append to")
    parser.add_argument("--markdown", action="store_true", help="print the tables too")
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    if "all" in args.merges:
        args.merges = ["default", *ALONE]
    groups = {"all": (NONE, *ADVERSARIES), "backdoors": tuple(BACKDOORS)}
    named = [name for given in args.attacks for name in groups.get(given, (given,))]
    args.attacks = list(dict.fromkeys(named))
    return args


def main() -> None:
    args = parse()
    pin_torch()
    settings = {"rounds": args.rounds, "steps": args.steps, "seeds": args.seeds}
    if args.drift:
        found = drift(args)
        if args.markdown:
            print(drift_markdown(found))
        print(json.dumps(settings | {"drift": found}))
        return
    results, done, started = Results(args.results), list(cases(args)), time.process_time()
    memo: Memo = {}
    for case in done:
        if case.merge == HONEST_ONLY:
            memo.clear()  # another setting
        if case not in results:
            results.add(case, case.outcome(memo))
        if not args.json:
            excess, chance = results.excess(case), results.planted(case)
            shown = "-" if excess is None else f"{excess:+.2f} %, planted {chance:.4f}"
            print(f"{case.key:80} {shown}", flush=True)
    cells = table(done, results)
    if args.markdown:
        print(markdown(cells))
    cost = {"runs": len(done), "cpu_seconds": round(time.process_time() - started, 1)}
    print(json.dumps(settings | cost | summary(cells) | {"cells": cells}))


if __name__ == "__main__":
    main()
