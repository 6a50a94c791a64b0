"""What a submitter leaves open, computed: windows, audits, amounts, each with its reason.

Rule of this file: pure; from a spec, measurements and the network's floors to a spec that lacks
nothing. What is written down is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Self

from atoll.errors import ConfigError
from atoll.job.compute_prices import (
    readiness,
    token_operations,
    token_price,
    unit_prices,
    usual_flop_price,
    weights_trained,
)
from atoll.job.groups import duration_text, tokens_text
from atoll.job.incentives import bond_for, found_part
from atoll.job.spec import (
    MILLION,
    JobSpec,
    audit_rate,
    method_chosen,
    reset_period_chosen,
    robust_f,
    segment_pay,
)
from atoll.job.verification import Duties, affordable, chance_text, rate_within, steps_within
from atoll.protocol.audit_fees import MEGA, REPLAY_MARGIN, SIGNATURE_GAS, signature_fee
from atoll.protocol.audit_rates import ALWAYS, RATES, Incentive, most_of
from atoll.protocol.committee_draws import COMMITTEE
from atoll.protocol.method_spec import reset_period_of
from atoll.protocol.terms import MIN_BOND, MIN_MOVES, clock_floors
from atoll.protocol.token_units import MOST_DECIMALS, parts_of
from atoll.protocol.types import Params
from atoll.service.pace import EVALUATED_PART, MERGE_SECONDS, TRACE_STEPS, Pace, most_drawn
from atoll.service.policy import MOVE_SECONDS

CLOCK = MOVE_SECONDS
BRINGING_PART = 0.75
"""Of MERGE, in which a provider brings its update to the committee: votes end then."""
DAY = 86_400
SIGN_PART = 10
"""A signature earns at most so large a part of a replay's fee. Of models so small that fetching
their updates costs more, an auditor fetches them anyway."""


@dataclass(frozen=True, slots=True)
class BondFloors:
    """What a network asks for: the least bonds, in parts of a token as a job file has them; the
    part of a slashed one, in basis points, that goes to who won it and is not burnt; the decimals
    of its token, in whose units computed amounts are rounded up; and the least seconds of clocks,
    by field of the terms.
    """

    provider_bond: int = 0
    verifier_bond: int = 0
    winner_share_bps: int = 0
    decimals: int = MOST_DECIMALS
    clocks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, params: Params, decimals: int) -> Self:
        """Of a deployment's parameters, which are in units of its token."""
        parts = parts_of(decimals)
        return cls(
            provider_bond=params.min_provider_bond * parts,
            verifier_bond=params.min_verifier_bond * parts,
            winner_share_bps=params.winner_share_bps,
            decimals=decimals,
            clocks=clock_floors(params),
        )

    def clock(self, name: str) -> int:
        """The least seconds of `windows.` this name."""
        return self.clocks.get(f"{name}_seconds", 0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One computed value: its key path, how a file writes it, and why."""

    path: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a round, for the slowest member that the job allows."""

    step: float
    segment: float
    fetch_update: float
    fetch_model: float
    token_trace: float

    @classmethod
    def of(cls, spec: JobSpec, pace: Pace) -> Costs:
        """From measurements, or from `windows.step_seconds`."""
        slower, stated = Fraction(spec.windows.slower), spec.windows.step_seconds
        bytes_a_second = spec.windows.megabits * 125_000
        step = float(stated) if stated else float(slower) * pace.step_seconds
        besides = pace.segment_seconds * step / pace.step_seconds
        return cls(
            step=step,
            segment=spec.inner.segment * step + besides,
            fetch_update=pace.update_bytes / bytes_a_second,
            fetch_model=4 * pace.parameters / bytes_a_second,
            token_trace=pace.token_seconds * step / pace.step_seconds,
        )


def filled(spec: JobSpec) -> JobSpec:
    """The spec with something that the contract takes wherever it leaves something out."""
    left_out = spec.left_out()
    least = dict.fromkeys(left_out, 1)
    game = spec.windows.game or 1
    more = {
        "windows.window": 2 * game,
        "money.provider_bond": MIN_BOND,
        "money.verifier_bond": MIN_BOND,
    }
    return spec.but({path: more.get(path, value) for path, value in least.items()})


def complete(
    spec: JobSpec, pace: Pace, floors: BondFloors | None = None
) -> tuple[JobSpec, tuple[Figure, ...]]:
    """The spec with everything that was left out, and a figure for each of these.

    Raises:
        ConfigError: the budget does not pay for the work.
    """
    figures: list[Figure] = []
    for group in (_audits, _windows, _prices, _bonds, _lifetime):
        spec, chosen = _with(spec, group(spec.as_method(), pace, floors or BondFloors()))
        figures += chosen
    return spec, tuple(figures)


def priced(spec: JobSpec, floors: BondFloors | None = None) -> tuple[JobSpec, tuple[Figure, ...]]:
    """The spec with a rate of audits, a price and fees, which follow from what it says and no
    machine's pace.

    Raises:
        ConfigError: there is no model to price, or the budget does not pay for the work.
    """
    spec, rates = _with(spec, _audits(spec.as_method()))
    spec, amounts = _with(spec, _prices(spec.as_method(), None, floors or BondFloors()))
    return spec, rates + amounts


def _with(spec: JobSpec, figured: Figured) -> tuple[JobSpec, tuple[Figure, ...]]:
    """The spec with those of the values that it leaves out, and their figures."""
    left_out = set(spec.left_out())
    chosen = {path: item for path, item in figured.items() if path in left_out}
    figures = tuple(Figure(p, _text(p, value), why) for p, (value, why) in chosen.items())
    return spec.but({path: value for path, (value, _) in chosen.items()}), figures


Figured = Mapping[str, tuple[Any, str]]


def _text(path: str, value: Any) -> str:
    if path.startswith("money."):
        return f"{tokens_text(value)} tokens"
    return duration_text(value) if isinstance(value, int) else str(value)


def _windows(spec: JobSpec, pace: Pace, floors: BondFloors) -> Figured:
    costs, members = Costs.of(spec, pace), spec.members
    line = f"{spec.windows.megabits} Mbit/s"
    speed = f"a step takes {costs.step:.3g} s"
    speed += " as written" if spec.windows.step_seconds else (
        f" ({spec.windows.slower} times {pace.step_seconds:.3g} s, {pace.source})"
    )  # fmt: skip
    count, seats = spec.segments, members.seats
    train = count * costs.segment + costs.fetch_model
    duties = ceil(drawn_seats(spec) / members.min_verifiers)
    numbers = seats * pace.parameters
    # A seat's update is brought over the same line, in REVEAL and so large a part of MERGE.
    merge = max(seats * costs.fetch_update, costs.fetch_update / BRINGING_PART)
    merge += numbers * MERGE_SECONDS * float(spec.windows.slower)
    evaluated = spec.evaluate.batches * EVALUATED_PART * costs.step
    most = reset_period_rounds(spec)
    whole = "a replay of the round" if most == 1 else f"a replay of {most} rounds"
    # The disputed segment is run for its steps' digests, and again up to the step.
    traces = TRACE_STEPS * costs.step + costs.token_trace
    work = ceil(most * train + costs.segment + traces) + MIN_MOVES * CLOCK
    traced = "a step's trace" if spec.task is None else "a step's trace and a token's"
    game = max(work, floors.clock("game"))
    rests = ", and the chain may take no transaction for so long" if game > work else ""
    chosen: dict[str, tuple[int, str]] = {
        "windows.train": (
            _window(train),
            f"{_many(count, 'segment')} of {_many(spec.inner.segment, 'step')}; {speed}; "
            f"the model over {line}",
        ),
        "windows.reveal": (_window(0), f"one transaction, {CLOCK} s"),
        "windows.merge": (
            _window(merge + evaluated),
            f"{seats} updates of {pace.update_bytes:,} bytes over {line}, their merge, and the "
            f"loss on {_many(spec.evaluate.batches, 'batch', 'es')} of held-out text",
        ),
        "windows.audit": (
            _window(duties * most * train),
            f"{duties * most} {'round of a seat' if duties * most == 1 else 'rounds of seats'} "
            f"replayed whole by each of {members.min_verifiers} verifiers",
        ),
        "windows.open": (_window(0), f"one transaction, {CLOCK} s"),
        "windows.key": (_window(CLOCK), "one transaction, some blocks after the openings"),
        "windows.window": (2 * game, "a dispute's clock, twice"),
        "windows.ready": (_window(train), "the data and the model over that line"),
        "windows.game": (
            game,
            f"{whole}, a segment of it again, {traced}, ten minutes{rests}",
        ),
        "windows.move": (CLOCK, "one transaction"),
        "windows.claim": (30 * DAY, "a month to take what is left"),
    }
    return {
        path: (max(seconds, floors.clock(path.removeprefix("windows."))), why)
        for path, (seconds, why) in chosen.items()
    }


def _window(seconds: float) -> int:
    """Room for the chain, and rounded up: to 10 s below ten minutes, to minutes above."""
    whole = ceil(seconds) + CLOCK
    unit = 10 if whole < 600 else 60
    return int(-(-whole // unit) * unit)


def drawn_seats(spec: JobSpec) -> int:
    """Seats that are replayed in a round at most, but for the last one."""
    f = _borne(spec)
    return most_drawn(spec.members.seats, audit_rate(spec.audit, f), f)


def _many(count: int, what: str, more: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else more}"


def _borne(spec: JobSpec) -> int:
    return robust_f(spec.members.seats, method_chosen(spec.method).rule)


def reset_period_rounds(spec: JobSpec) -> int:
    """Rounds that a duty replays at most: those since a seat opened from public data."""
    return reset_period_of(
        method_chosen(spec.method).codec, min(reset_period_chosen(spec.method), spec.rounds)
    )


def _mean_replay(spec: JobSpec) -> Fraction:
    """Rounds that a duty replays on average: every place in a reset period is as frequent."""
    return Fraction(1 + reset_period_rounds(spec), 2)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is paid for.

    Attributes:
        segments, tokens: of a seat's round, and of one of its segments.
        duty, signature: of a replay and of a signature, as parts of the pay of a seat's round.
        operations: of one token.
    """

    segments: int
    tokens: int
    duty: Fraction
    signature: Fraction
    operations: int

    @classmethod
    def of(cls, spec: JobSpec) -> _Work:
        assert spec.model is not None  # what is priced has a model
        tokens = spec.inner.segment * spec.inner.batch * spec.model.seq
        duty = REPLAY_MARGIN * _mean_replay(spec)
        operations = token_operations(spec.model, spec.lora)
        ready = readiness(spec.members.seats, weights_trained(spec.model, spec.lora))
        # By usual prices: a job whose tokens are worth less pays as much more of them for a merge.
        usual = usual_flop_price()
        fee = Fraction(signature_fee(ready, unit_prices(usual)), token_price(operations, usual))
        signature = min(fee / (spec.segments * tokens), duty / SIGN_PART)
        return cls(spec.segments, tokens, duty, signature, operations)

    def pay(self, price_per_million: int, decimals: int) -> int:
        """Of a seat's round, in parts of a token."""
        units = segment_pay(price_per_million, self.tokens, decimals)
        return self.segments * units * parts_of(decimals)


def _audits(spec: JobSpec, *_: object) -> Figured:
    """The lowest rate that the guard allows, or the least bond that a budget pays for; and how far
    a seat comes down from it.
    """
    audit, members = spec.audit, spec.members
    if not _borne(spec):
        reason = "a merge that bears nobody has everybody replayed"
        return {"audit.rate": ("1", reason), "audit.lowest": ("1", reason)}
    incentive = Incentive(margin=audit.margin, guard=audit.guard)
    if audit.budget is None:
        rate, reason = (
            rate_within(incentive, spec.rounds),
            f"the lowest that finds a seat which lies in every round within {audit.guard} rounds, "
            "with a bond of no more than half of what the job pays a seat",
        )
    else:
        work = _Work.of(spec)
        rate = affordable(
            incentive,
            Duties(spec.rounds, members.seats, members.slots, Fraction(0)),
            Fraction(audit.budget),
            replay=work.duty,
            signature=work.signature,
        )
        reason = f"the least bond with which {audit.budget} of the training's price pays for audits"
    steps = steps_within(incentive, rate, spec.rounds)
    why = "nothing is retained: no honest seat would come down before the job ends"
    if steps:
        why = "half of a seat's pay is retained until it has so much to lose"
    return {
        "audit.rate": (chance_text(rate), reason),
        "audit.lowest": (chance_text(rate + steps), why),
    }


def _prices(spec: JobSpec, _pace: Pace | None, floors: BondFloors) -> Figured:
    money, work, unit = spec.money, _Work.of(spec), parts_of(floors.decimals)
    price, reason = money.price_per_million, "written"
    if price is None and money.budget is not None:
        price = _price_of(spec, money.budget, work, unit)
        reason = f"what {tokens_text(money.budget)} tokens pay for in {spec.rounds} rounds"
    if price is None:
        flop_price = usual_flop_price() if money.flop_price is None else money.flop_price
        price = token_price(MILLION * work.operations, flop_price)
        reason = (
            f"{work.operations:,} operations a token, at {tokens_text(flop_price)} tokens for "
            "10^18 of them"
        )
    why = f"{float(REPLAY_MARGIN):g} times the price of the round that is replayed"
    pay = work.pay(price, floors.decimals)
    sign = _whole_units(work.signature * pay + _gas(spec), unit)
    return {
        "money.price_per_million": (price, reason),
        "money.duty_fee": (_whole_units(work.duty * pay, unit), why),
        "money.sign_fee": (sign, "what it costs to fetch and merge the updates, and gas"),
    }


def _gas(spec: JobSpec) -> int:
    """What a signature is paid for gas, in parts of a token."""
    return SIGNATURE_GAS * spec.money.gas_price // MEGA


def _whole_units(amount: Fraction | int, unit: int) -> int:
    """Up to whole units of the token."""
    return ceil(Fraction(amount) / unit) * unit


def _price_of(spec: JobSpec, budget: int, work: _Work, unit: int) -> int:
    """For a million tokens, such that the rounds cost no more than the budget."""
    rounds, members, money = spec.rounds, spec.members, spec.money
    signatures = (rounds + 1) * min(COMMITTEE, members.slots)
    borne, paid = _borne(spec), members.seats * work.segments
    rate = audit_rate(spec.audit, borne)
    last = 0 if spec.audit.last == "all" else rate
    mean = Fraction(((rounds - 1) * RATES[rate] + RATES[last]) * members.seats, ALWAYS)
    replays = most_of(mean, rounds * members.seats) + rounds * (borne > 0)
    segments, fees = Fraction(rounds * paid), 0
    for count, each, fee, besides in (
        (replays, work.duty, money.duty_fee, 0),
        (signatures, work.signature, money.sign_fee, _gas(spec)),
    ):
        segments += count * each * work.segments if fee is None else 0
        # A fee that follows is rounded up by less than a unit.
        fees += count * (besides + unit if fee is None else fee)
    most = (budget - fees) // (segments * unit)
    if most < 1:
        raise ConfigError(
            f"a budget of {tokens_text(budget)} tokens leaves no unit of the token for each of "
            f"{paid:,} segments a round of {spec.rounds} rounds",
            next_step="raise money.budget, or ask for fewer rounds, seats or steps",
        )
    return most * unit * MILLION // work.tokens


def _bonds(spec: JobSpec, pace: Pace, floors: BondFloors) -> Figured:
    """So much that leaving out a round costs more than it saves, and a false one more than it is
    likely to be worth (`incentives`).
    """
    assert spec.model is not None
    assert spec.money.price_per_million is not None  # `_prices` came first
    pay = _Work.of(spec).pay(spec.money.price_per_million, floors.decimals)
    margin = spec.audit.margin
    found = found_part(audit_rate(spec.audit, _borne(spec)))
    least = bond_for(Fraction(pay), found, floors.winner_share_bps, margin)
    unit = parts_of(floors.decimals)
    provider = _whole_units(max(_rounded(least), floors.provider_bond), unit)
    verifier = _whole_units(max(provider, floors.verifier_bond), unit)
    return {
        "money.provider_bond": (
            provider,
            f"what is burnt of it is {margin} times what leaving out a round saves, "
            f"{tokens_text(pay)} tokens, over the chance of {float(found):.0%} to be found while a "
            f"third of the auditors look away; the network's least is "
            f"{tokens_text(floors.provider_bond)}",
        ),
        "money.verifier_bond": (verifier, "a verifier can do as much harm as a provider"),
    }


def _rounded(wei: Fraction) -> int:
    """Up, to two digits."""
    whole = max(1, ceil(wei))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return int(-(-whole // unit) * unit)


def _lifetime(spec: JobSpec, pace: Pace, floors: BondFloors) -> Figured:
    longest = spec.rounds * sum_of_windows(spec)
    reason = "a day until members come, and every round at its longest"
    return {"lifetime": (min(DAY + longest, (1 << 32) - 1), reason)}


def sum_of_windows(spec: JobSpec) -> int:
    """Seconds of a round that uses its windows up, until the next one begins."""
    windows = spec.windows
    return sum(seconds or 0 for seconds in (windows.train, windows.reveal, windows.merge))
