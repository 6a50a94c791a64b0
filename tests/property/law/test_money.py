"""Settlement conserves: what is claimed is tokens times the price, and the fees."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.law.factories import address, make_manifest

from atoll.law.settlement import RoundEvidence, compute_settlement, is_diverging
from atoll.law.terms import budget, is_quorum
from atoll.law.words import Address, Bitmap, SeatIndex, VerifierIndex, bits

TERMS = make_manifest({"members.seats": 256, "members.max_verifiers": 32}).terms
ACCOUNTS = st.integers(0, 12).map(address)


@st.composite
def evidence(draw: st.DrawFn) -> RoundEvidence:
    accepted = Bitmap(draw(st.integers(0, 2**256 - 1)))
    dutiful = Bitmap(draw(st.integers(0, 2**32 - 1)))
    seed = draw(st.integers(0, 2**32))
    seats = [SeatIndex(seat) for seat in range(256)]
    return RoundEvidence(
        accepted=accepted,
        dutiful=dutiful,
        steps={seat: (seed + 7 * seat) % (TERMS.steps + 1) for seat in seats},
        providers={seat: address((seed + seat) % 13) for seat in seats},
        verifiers={VerifierIndex(v): address((seed + 3 * v) % 13) for v in range(32)},
    )


@given(evidence(), st.dictionaries(ACCOUNTS, st.integers(0, 10**24)))
def test_claims_grow_by_tokens_times_price_and_fees(
    round_: RoundEvidence, before: dict[Address, int]
) -> None:
    settlement = compute_settlement(TERMS, round_, before)
    fees = round_.dutiful.bit_count() * TERMS.verifier_fee
    earned = settlement.tokens_total * TERMS.price_per_token + fees
    assert settlement.cumulative_total == sum(before.values()) + earned
    assert sum(settlement.pay.values()) == earned
    assert all(settlement.claims[a] >= amount for a, amount in before.items())


@given(evidence())
def test_a_round_never_costs_more_than_its_share_of_the_budget(round_: RoundEvidence) -> None:
    settlement = compute_settlement(TERMS, round_, {})
    assert settlement.cumulative_total * TERMS.rounds <= budget(TERMS)
    highest = round_.accepted.bit_count() * TERMS.steps * TERMS.tokens_per_step
    assert settlement.tokens_total <= highest


@given(evidence(), st.integers(0, 255))
def test_rejecting_a_rival_earns_nobody_anything(round_: RoundEvidence, seat: int) -> None:
    with_it = Bitmap(round_.accepted | 1 << seat)
    without = Bitmap(with_it & ~(1 << seat))
    paid = compute_settlement(TERMS, _accepting(round_, with_it), {})
    unpaid = compute_settlement(TERMS, _accepting(round_, without), {})
    rival = round_.providers[SeatIndex(seat)]
    for account in set(paid.claims) | set(unpaid.claims):
        if account != rival:
            assert paid.claims.get(account, 0) == unpaid.claims.get(account, 0)
    assert paid.tokens[:seat] + paid.tokens[seat + 1 :] == (
        unpaid.tokens[:seat] + unpaid.tokens[seat + 1 :]
    )


def _accepting(round_: RoundEvidence, accepted: Bitmap) -> RoundEvidence:
    return RoundEvidence(accepted, round_.dutiful, round_.steps, round_.providers, round_.verifiers)


@given(st.integers(0, 2**16), st.integers(1, 2**16), st.integers(1, 2**16 - 1), st.data())
def test_a_quorum_is_the_fraction_it_says(
    weight: int, total: int, denominator: int, data: st.DataObject
) -> None:
    numerator = data.draw(st.integers(denominator // 2 + 1, denominator))
    quorum = {"numerator": numerator, "denominator": denominator}
    changes = {f"members.quorum_{name}": value for name, value in quorum.items()}
    terms = make_manifest(changes).terms
    assert is_quorum(weight, total, terms) == (
        Fraction(weight, total) >= Fraction(numerator, denominator)
    )


@given(evidence())
def test_a_job_diverges_only_on_verified_evidence(round_: RoundEvidence) -> None:
    revealed = round_.accepted
    finite = dict.fromkeys(round_.steps, TERMS.steps)
    assert not is_diverging(revealed, round_.accepted, finite, TERMS)
    assert not is_diverging(revealed, Bitmap(0), round_.steps, TERMS)
    broken = {SeatIndex(seat): 0 for seat in bits(round_.accepted)}
    assert is_diverging(revealed, round_.accepted, broken, TERMS) == bool(round_.accepted)
