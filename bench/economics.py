"""What verification costs and what cheats end with, from the law's own functions.

    python bench/economics.py                  # the tables of docs/attacks.md
    python bench/economics.py --json           # every figure
    python bench/economics.py --write          # writes the tables into docs/attacks.md

Costs are of honest jobs, in percent of the training's price: replays at the rates that a seat has
in each of its rounds, paid 1.1 times their cost, and signatures at what fetching and merging cost.
`costs` has the plan of the dial (`atoll.job.audit_budget.solve`, a tenth) for each size of job and
of model, `designs` bonds and margins by hand.

Profits are expected ones above those of honest work, in a round's pay: exact sums over rounds, no
trials. A round's work costs its whole pay, so that leaving it out saves the most; who is found
loses that round's pay, what is retained and the burnt part of its bond, and nothing else: the rest
of the bond is the winner's, who may be its other account, and pay of other open rounds is taken to
be safe. Two thirds of the auditors speak, where a row says no other share. `promised` are rows that
the law says lose; the others show where its promise ends, and by how much.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from atoll.job.audit_budget import (
    AuditPlan,
    Verified,
    always_false,
    signatures_part,
    solve,
    standings_by,
    verification_cost,
)
from atoll.job.compute_prices import (
    readiness,
    rented_flop_price,
    token_operations,
    token_price,
    unit_prices,
    usual_flop_price,
    weights_trained,
)
from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll.protocol.audit_fees import SIGNATURE_GAS, signature_fee
from atoll.protocol.audit_rates import (
    ALWAYS,
    RATES,
    SPEAKING,
    Incentive,
    at_loss,
)
from atoll.protocol.terms import WHOLE_BPS
from atoll.protocol.types import TOKEN

PAGE: Final = Path(__file__).parent.parent / "docs" / "attacks.md"
BEGIN, END = "<!-- written by bench/economics.py -->", "<!-- until here -->"
SEATS, ROUNDS, SLOTS = (4, 8, 16, 32, 64), (20, 50, 200, 500, 2000), 8
BUDGET: Final = Fraction(1, 10)
PAY: Final = 10**12
ROLLUP_GAS: Final = TOKEN * 15 // 1000
"""For a million gas: 0.005 gwei, and a coin of 3,000 dollars."""
BAIT: Final = Fraction(1, 50)
"""Share of seats' rounds that are bait."""


# --- models ---


def _eight_billion() -> JobSpec:
    """The shape of Llama-3-8B, and rounds as the presets have them."""
    shape = {"vocab": 128_256, "width": 4096, "layers": 32, "heads": 32, "kv_heads": 8}
    shape |= {"head_dim": 128, "ffn": 14_336, "seq": 4096}
    base = preset("llama-1b")
    assert base.model is not None
    model = base.model.model_copy(update=shape | {"tied": False})
    return base.model_copy(
        update={"model": model, "inner": base.inner.model_copy(update={"batch": 64})}
    )


MODELS: Final[Mapping[str, JobSpec]] = {
    "124M": preset("gpt2-small"),
    "1B": preset("llama-1b"),
    "8B": _eight_billion(),
}


def job_of(name: str, seats: int, rounds: int) -> Verified:
    """A job of a model, paid by its work."""
    spec = MODELS[name]
    assert spec.model is not None
    trained, flop_price = weights_trained(spec.model, None), usual_flop_price()
    tokens = spec.inner.steps * spec.inner.batch * spec.model.seq
    pay = tokens * token_price(token_operations(spec.model, None), flop_price)
    fee = signature_fee(readiness(seats, trained), unit_prices(flop_price))
    return Verified(rounds, seats, SLOTS, pay, fee)


def costs() -> Iterator[dict[str, Any]]:
    """The dial's plan for every size."""
    for name in MODELS:
        for seats in SEATS:
            for rounds in ROUNDS:
                job = job_of(name, seats, rounds)
                plan = solve(BUDGET, job, Incentive())
                yield {
                    "model": name, "seats": seats, "rounds": rounds,
                    "percent": _percent(plan.cost), "within": plan.is_within,
                    "signatures_percent": _percent(signatures_part(job)),
                    "bond_rounds": round(plan.bond / job.pay, 1),
                    "steps": plan.steps,
                }  # fmt: skip


def designs() -> Iterator[dict[str, Any]]:
    """Bonds, in rounds' pay, and margins by hand; replays alone."""
    for seats, rounds in ((8, 50), (64, 500)):
        job = Verified(rounds, seats, SLOTS, PAY)
        for bond in (30, 100):
            for margin in (2, 3, 4):
                terms = Incentive(margin=margin)
                cost = verification_cost(terms, job, bond * PAY)
                row = {"seats": seats, "rounds": rounds, "bond_rounds": bond, "margin": margin}
                yield row | {"percent": _percent(cost)}


def sizes() -> Iterator[dict[str, Any]]:
    """What a round of each model is paid, and what gas on a rollup would add."""
    for name, spec in MODELS.items():
        assert spec.model is not None
        job = job_of(name, 8, 50)
        million = 10**6 * token_operations(spec.model, None)
        gas = Fraction(SIGNATURE_GAS * ROLLUP_GAS, 10**6) * SLOTS / (job.seats * job.pay)
        yield {
            "model": name,
            "round_dollars": round(job.pay / TOKEN, 4),
            "million_dollars": round(token_price(million, usual_flop_price()) / TOKEN, 4),
            "rented_dollars": round(token_price(million, rented_flop_price()) / TOKEN, 4),
            "signatures_percent": _percent(signatures_part(job)),
            "gas_percent": _percent(gas),
        }


def _percent(part: Fraction) -> float:
    return round(100 * float(part), 2)


# --- strategies ---


@dataclass(frozen=True, slots=True)
class Seat:
    """What an honest seat has before each of its rounds, by its number; in rounds' pay.

    Attributes:
        chance: of a replay.
        stake: what a slash costs for certain.
        bond: of it, all.
        winner: part of the bond that a winner has.
        seats: of the job.
    """

    chance: tuple[float, ...]
    stake: tuple[float, ...]
    bond: float
    winner: float
    seats: int

    @classmethod
    def of(cls, plan: AuditPlan, rounds: int, seats: int) -> Seat:
        """Of a job with that plan, in wei of `PAY` a round."""
        terms = plan.incentive
        path = standings_by(terms, PAY, plan.bond, rounds)
        stakes = tuple(at_loss(terms, plan.bond, each.retained) / PAY for each in path)
        chance = tuple(RATES[each.rate] / ALWAYS for each in path)
        winner = 1 - terms.burnt_bps / WHOLE_BPS
        return cls(chance, stakes, plan.bond / PAY, winner, seats)

    def false_round(self, at: int, *, part: float = 1, speaking: float = float(SPEAKING)) -> float:
        """Expected gain of a round of which such a part is left out."""
        return part - self.found(at, speaking) * (self.stake[at] + 1)

    def found(self, at: int, speaking: float = float(SPEAKING)) -> float:
        """The chance that a false round is found."""
        return self.chance[at] * speaking


SPOKEN = float(SPEAKING)


def _lived(seat: Seat, parts: Callable[[int], float]) -> float:
    """Gain of a seat that leaves such a part out of each round until it is slashed."""
    alive, gain = 1.0, 0.0
    for at in range(len(seat.chance)):
        if part := parts(at):
            gain += alive * seat.false_round(at, part=part)
            alive *= 1 - seat.found(at)
    return gain


def _from_then_on(seat: Seat, speaking: float = SPOKEN) -> list[float]:
    """By the round from which on all are false: the gain."""
    gains, behind = [], 0.0
    for at in reversed(range(len(seat.chance))):
        now = seat.false_round(at, speaking=speaking)
        behind = now + (1 - seat.found(at, speaking)) * behind
        gains.append(behind)
    return gains[::-1]


def every_round(seat: Seat) -> float:
    return _from_then_on(seat)[0]


def every_round_and_back(seat: Seat) -> float:
    """With a new bond after each slash, as a newcomer."""
    rounds, value = len(seat.chance), [0.0]
    for left in range(1, rounds + 1):
        alive, gain = 1.0, 0.0
        for at in range(left):
            gain += alive * (seat.false_round(at) + seat.found(at) * value[left - at - 1])
            alive *= 1 - seat.found(at)
        value.append(gain)
    return value[-1]


def best_moment(seat: Seat) -> float:
    return max(_from_then_on(seat))


def last_round(seat: Seat) -> float:
    return _from_then_on(seat)[-1]


def best_burst(seat: Seat, *, open_pay: float = 1) -> float:
    """From the best round on for as long as it pays, at least once, and honest again."""
    behind, best = 0.0, -float("inf")
    for at in reversed(range(len(seat.chance))):
        now = 1 - seat.found(at) * (seat.stake[at] + open_pay)
        behind = now + (1 - seat.found(at)) * max(0.0, behind)
        best = max(best, behind)
    return best


def one_in(count: int) -> Callable[[Seat], float]:
    return lambda seat: _lived(seat, lambda at: at % count == count - 1)


def rarest_that_pays(seat: Seat) -> float:
    """One round in 2, 3, …, 20: whatever is best."""
    return max(one_in(count)(seat) for count in range(2, 21))


def part_of_segments(part: float) -> Callable[[Seat], float]:
    return lambda seat: _lived(seat, lambda at: part)


def smallest_part(seat: Seat) -> float:
    """A half, a quarter, … of a 64th of each round's segments, whatever is best."""
    return max(part_of_segments(2.0**-k)(seat) for k in range(1, 7))


def leave_and_return(seat: Seat) -> float:
    """Honest for half of the job, paid out what was retained, back as a newcomer and false."""
    half = len(seat.chance) // 2
    return _from_then_on(replace(seat, chance=seat.chance[:half], stake=seat.stake[:half]))[0]


def fresh_beside_seasoned(seat: Seat) -> float:
    """A second, new seat of a seasoned owner is false for as long as is best, at least once."""
    gain, alive, best = 0.0, 1.0, -float("inf")
    for at in range(len(seat.chance)):
        gain += alive * seat.false_round(at)
        alive *= 1 - seat.found(at)
        best = max(best, gain)
    return best


def slash_oneself(seat: Seat) -> float:
    """Its other account is first with the game, and no pay of open rounds is lost."""
    return best_burst(seat, open_pay=0)


def speaking(part: float) -> Callable[[Seat], float]:
    return lambda seat: max(_from_then_on(seat, part))


def bribes(seat: Seat) -> float:
    """Whoever is drawn gets what it would win by speaking: in the round in which that is least."""
    prices = (chance * seat.winner * seat.bond for chance in seat.chance)
    return max(1 - price for price in prices)


def bought(part: float) -> Callable[[Seat], float]:
    """Such a part of the pool is its own: silent, and paid for replays that it left out."""

    def gain(seat: Seat) -> float:
        honest, behind, best = (1 - part) * SPOKEN, 0.0, -float("inf")
        for at in reversed(range(len(seat.chance))):
            fees = seat.chance[at] * part
            now = seat.false_round(at, speaking=honest) + fees
            behind = now + (1 - seat.found(at, honest)) * behind
            best = max(best, behind)
        return best

    return gain


def told_words(bait: float) -> Callable[[Seat], float]:
    """An auditor believes what it is told, and saves its replays; a bait costs half of its bond."""

    def gain(seat: Seat) -> float:
        duties = seat.seats * sum(seat.chance) / SLOTS
        return duties * (1 - bait * seat.bond / 2)

    return gain


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to gain from work that was not done.

    Attributes:
        is_promised: that it ends below honest work.
    """

    name: str
    profit: Callable[[Seat], float]
    is_promised: bool = True


STRATEGIES: Final = (
    Strategy("false in every round", every_round),
    Strategy("every round, and back with a new bond each time", every_round_and_back),
    Strategy("from the best moment on", best_moment),
    Strategy("the last round alone", last_round),
    Strategy("the best run of rounds, then honest again", best_burst),
    Strategy("a tenth of the rounds", one_in(10)),
    Strategy("one round in as many as is best", rarest_that_pays),
    Strategy("an eighth of each round's segments", part_of_segments(1 / 8)),
    Strategy("as few segments as is best", smallest_part),
    Strategy("leave when seasoned, return as a newcomer", leave_and_return),
    Strategy("a fresh seat beside a seasoned one", fresh_beside_seasoned),
    Strategy("slash oneself first", slash_oneself),
    Strategy("a half of the auditors speak", speaking(1 / 2)),
    Strategy("a third speak", speaking(1 / 3)),
    Strategy("a quarter speak", speaking(1 / 4)),
    Strategy("a sixth speak", speaking(1 / 6)),
    Strategy("a tenth speak", speaking(1 / 10), is_promised=False),
    Strategy("whoever is drawn is bribed", bribes),
    Strategy("half of the pool is bought", bought(1 / 2)),
    Strategy("two thirds of the pool are bought", bought(2 / 3)),
    Strategy("nine tenths of the pool are bought", bought(9 / 10), is_promised=False),
    Strategy("an auditor takes told words, 2 % bait", told_words(float(BAIT))),
    Strategy("an auditor takes told words, no bait", told_words(0.0), is_promised=False),
)
SETTINGS: Final = ((8, 50, 4), (64, 500, 4), (8, 50, 7), (64, 500, 7))
"""Seats, rounds, margin."""


def seat_of(seats: int, rounds: int, margin: int) -> Seat:
    """Of the dial's plan for a job of that size whose signatures cost nothing."""
    plan = solve(BUDGET, Verified(rounds, seats, SLOTS, PAY), Incentive(margin=margin))
    return Seat.of(plan, rounds, seats)


def profits() -> Iterator[dict[str, Any]]:
    """Of each strategy in each setting, in rounds' pay."""
    for seats, rounds, margin in SETTINGS:
        seat = seat_of(seats, rounds, margin)
        for strategy in STRATEGIES:
            gain = strategy.profit(seat)
            yield {
                "strategy": strategy.name, "seats": seats, "rounds": rounds, "margin": margin,
                "profit": round(gain, 2), "below_honest": gain < 0,
                "promised": strategy.is_promised,
            }  # fmt: skip


# --- the page ---


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _signed(value: float) -> str:
    places = 0 if abs(value) >= 10 else 1 if abs(value) >= 0.1 else 2
    digits = f"{abs(value):.{places}f}"
    return ("−" if value < 0 else "+") + digits if value else "0"


def _cost_table() -> list[str]:
    cells = {(row["model"], row["seats"], row["rounds"]): row for row in costs()}
    rows = [
        [f"{name}, {seats}"]
        + [
            f"{row['percent']:.1f}" + (f" ({row['bond_rounds']:.0f})" if row["within"] else " †")
            for row in (cells[name, seats, rounds] for rounds in ROUNDS)
        ]
        for name in MODELS
        for seats in SEATS
    ]
    return _table(["model, seats", *(f"{rounds} rounds" for rounds in ROUNDS)], rows)


def _design_table() -> list[str]:
    found = list(designs())
    rows = []
    for seats, rounds in ((8, 50), (64, 500)):
        row = [f"{seats} × {rounds}"]
        for bond in (30, 100):
            wanted = {"seats": seats, "rounds": rounds, "bond_rounds": bond}.items()
            row.append(" / ".join(f"{r['percent']:.1f}" for r in found if wanted <= r.items()))
        rows.append(row)
    return _table(["seats × rounds", "bond 30, M 2 / 3 / 4", "bond 100, M 2 / 3 / 4"], rows)


def _size_table() -> list[str]:
    head = ["model", "a round's pay", "a million tokens", "rented, in bf16", "signatures", "gas"]
    rows = [
        [
            row["model"], f"{row['round_dollars']:g}", f"{row['million_dollars']:g}",
            f"{row['rented_dollars']:g}", f"{row['signatures_percent']:g} %",
            f"{row['gas_percent']:g} %",
        ]
        for row in sizes()
    ]  # fmt: skip
    return _table(head, rows)


def _profit_table() -> list[str]:
    cells = {(r["strategy"], r["seats"], r["rounds"], r["margin"]): r for r in profits()}
    head = ["strategy", *(f"{n} × {r}, M {m}" for n, r, m in SETTINGS)]
    rows = [
        [strategy.name + ("" if strategy.is_promised else " ‡")]
        + [_signed(cells[strategy.name, *setting]["profit"]) for setting in SETTINGS]
        for strategy in STRATEGIES
    ]
    return _table(head, rows)


COSTS: Final = 0.8
"""Of an honest provider, as a part of its pay, for what it needs in cash."""


def deepest_need(plan: AuditPlan, rounds: int) -> float:
    """Rounds' pay that an honest provider is down at most while pay is retained; no bond in it."""
    path = standings_by(plan.incentive, PAY, plan.bond, rounds + 1)
    cash = (n * (1 - COSTS) - each.retained / PAY for n, each in enumerate(path))
    return -min(0.0, *cash)


def _large() -> AuditPlan:
    """Of 64 seats and 500 rounds."""
    return solve(BUDGET, Verified(500, 64, SLOTS, PAY), Incentive())


def _lasting() -> str:
    plan = _large()
    fresh, seasoned = (always_false(plan.incentive, PAY, plan.bond, n) for n in (0, 500))
    down = deepest_need(plan, 500)
    return (
        f"A seat that is false in every round lasts {float(fresh.lasts):.0f} rounds as a newcomer "
        f"and {float(seasoned.lasts):.0f} when it is seasoned, and loses {fresh.loses / PAY:.0f} "
        f"and {seasoned.loses / PAY:.0f} rounds' pay. An honest provider whose costs are {COSTS:g} "
        f"of its pay is down {down:.0f} rounds' pay at most, and has its bond locked."
    )


def page() -> str:
    """What stands in docs/attacks.md between the marks."""
    parts = [
        ["Verification, percent of the training's price, and in brackets the bond in rounds' pay,",
         "where the dial is at a tenth (†: the cheapest that there is):", "", *_cost_table()],
        ["Replays alone, bond and margin by hand:", "", *_design_table()],
        ["What a round is paid and what it costs rented, dollars, of 8 seats; signatures of 8",
         "verifiers, and their gas on a rollup, in percent of the training's price:", "",
         *_size_table()],
        ["Expected profit above honest work, in rounds' pay:", "", *_profit_table()],
        [_lasting()],
    ]  # fmt: skip
    return "\n\n".join("\n".join(part) for part in parts)


def written(text: str) -> str:
    """The page's text with the tables as they are now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{page()}\n\n{END}{rest.split(END)[1]}"


def everything() -> dict[str, Any]:
    """Every figure, and whether what is promised holds."""
    gains = list(profits())
    return {
        "costs": list(costs()),
        "designs": list(designs()),
        "sizes": list(sizes()),
        "deepest_need": deepest_need(
            solve(BUDGET, Verified(500, 64, SLOTS, PAY), Incentive()), 500
        ),
        "profits": gains,
        "holds": all(row["below_honest"] for row in gains if row["promised"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    elif options.json:
        sys.stdout.write(json.dumps(everything()) + "\n")
    else:
        sys.stdout.write(page() + "\n")


if __name__ == "__main__":
    main()
