"""What a job will cost and ask of each role: amounts, hours, bytes, memory, disk.

Rule of this file: pure arithmetic over a draft; "at most" is a bound, "about" an expectation, and
the words say which.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from atoll.job.compute_prices import rented_flop_price, token_operations, token_price
from atoll.job.draft import Draft
from atoll.job.incentives import Incentives
from atoll.job.quote_warnings import warnings_of
from atoll.job.role_needs import RoleNeeds, member_needs, round_seconds, submitter_needs
from atoll.job.verification import expected_fees
from atoll.numerics.state_layout import param_count
from atoll.protocol.audit_rates import rate_in
from atoll.protocol.clocks import AuditClock, last_audits
from atoll.protocol.manifest import Manifest
from atoll.protocol.pay import budget
from atoll.protocol.token_units import parts_of
from atoll.protocol.types import Terms
from atoll.service.pace import HOUR, Pace, game_seconds, most_drawn, train_seconds

SUBMIT_GAS = {"approve": 60_000, "announceGateway": 60_000, "create": 700_000}
"""Gas at most of what a submission sends; `tests/integration/chain/test_client.py` measures it."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What is to be known before paying.

    Attributes:
        budget_wei: escrowed, and the most that can be spent; `training_wei` and `fees_wei` of it.
        verification_wei: of the fees, what an honest job spends.
        rented_wei: what the same training costs on a rented GPU, a token taken for a dollar.
        gas, gas_wei: of the submission at most, at the fee cap.
        seconds_expected: members like this machine, nobody missing.
        seconds_at_most: until the job may be closed unfinished.
        pay_final_seconds: from a round's settlement until its pay is sure; result_final_seconds:
            from the last one's until the result is.
        found_share: the chance that a false round is found, while a third of the auditors look
            away; `deterred_wei` what it may be worth to who sends it before it pays.
        kept_share: of a first update's squared length, what its grid and codec keep.
        lasts_rounds: until a seat that lies in every round is found, on average; `loses_wei` what
            it loses then, that round's pay and the burnt part of its bond.
        cheat_cost_wei: what as many permanent cheats as the merge bears lose a round, on average.
        seat_hours: of this machine, for all of a seat's rounds; generation_hours those of them that
            generate, where a job has a task.
        game_hours: of this machine, a side's own run in a dispute at most; token_hours those of
            them that trace one sampled token, which adds token_moves moves of both sides at most.
    """

    parameters: int
    train_tokens: int
    rounds: int
    budget_wei: int
    training_wei: int
    fees_wei: int
    verification_wei: int
    rented_wei: int
    gas: int
    gas_wei: int
    seconds_expected: int
    seconds_at_most: int
    pay_final_seconds: int
    result_final_seconds: int
    found_share: float
    deterred_wei: int
    lasts_rounds: float
    loses_wei: int
    cheat_cost_wei: int
    kept_share: float | None
    seat_hours: float
    generation_hours: float
    game_hours: float
    token_hours: float
    token_moves: int
    warnings: tuple[str, ...]
    roles: tuple[RoleNeeds, ...]

    def to_json_value(self) -> dict[str, Any]:
        """For JSON: amounts in wei as text."""
        plain = asdict(self)
        return {k: str(v) if k.endswith("_wei") else v for k, v in plain.items()}


def quote(draft: Draft, pace: Pace, fee_cap: int) -> Quote:
    """The quote of a draft; `fee_cap` is wei a gas that the queue never exceeds."""
    manifest, terms = draft.manifest, draft.manifest.terms
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    gas = sum(SUBMIT_GAS.values())
    deters = Incentives.of(terms, draft.floors.winner_share_bps)
    return Quote(
        parameters=param_count(manifest.model),
        train_tokens=manifest.data.train_tokens,
        rounds=terms.rounds,
        budget_wei=budget(terms),
        training_wei=trained,
        fees_wei=budget(terms) - trained,
        verification_wei=expected_fees(terms, draft.floors.winner_share_bps),
        rented_wei=_rented(manifest, draft.floors.decimals),
        gas=gas,
        gas_wei=gas * fee_cap,
        seconds_expected=ceil(_expected(draft, pace)),
        seconds_at_most=terms.expiry - manifest.created,
        pay_final_seconds=AuditClock.of(terms, 0).window_end,
        result_final_seconds=_last_clock(terms).window_end,
        found_share=float(deters.chance),
        deterred_wei=deters.bears,
        lasts_rounds=float(deters.lasts),
        loses_wei=deters.pay + deters.burnt,
        cheat_cost_wei=deters.cheat_cost,
        kept_share=pace.kept,
        seat_hours=terms.rounds * train_seconds(manifest, pace) / HOUR,
        generation_hours=terms.rounds * manifest.inner.steps * pace.generation_seconds / HOUR,
        game_hours=game_seconds(manifest, pace) / HOUR,
        token_hours=pace.token_seconds / HOUR,
        token_moves=pace.token_moves,
        warnings=warnings_of(draft, pace, deters),
        roles=(
            submitter_needs(draft, pace),
            member_needs("provider", manifest, pace),
            member_needs("verifier", manifest, pace),
        ),
    )


def _rented(manifest: Manifest, decimals: int) -> int:
    """Units of all of the job's training in bf16, where nobody has to agree on its bits."""
    terms = manifest.terms
    tokens = terms.rounds * terms.seats * terms.steps * terms.tokens_per_step
    operations = tokens * token_operations(manifest.model, manifest.lora)
    dollars = token_price(operations, rented_flop_price())
    return -(-dollars // parts_of(decimals))


def _expected(draft: Draft, pace: Pace) -> float:
    """Seconds of all rounds, and of the last one's audit."""
    terms = draft.manifest.terms
    return terms.rounds * round_seconds(draft.manifest, pace) + _last_clock(terms).window_end


def _last_clock(terms: Terms) -> AuditClock:
    """Behind the last round, whose seats are audited by as few as may be."""
    drawn = most_drawn(terms.seats, rate_in(terms, is_last=True), terms.f)
    return AuditClock.of(terms, 0, audits=last_audits(drawn, terms.min_verifiers))
