"""Bids stay under the cap, and a replacement is always dear enough to replace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.chain.fees import Fees, bid, raise_bid

WEI = st.integers(0, 10**13)


def test_a_bid_survives_a_doubled_base_fee() -> None:
    assert bid(100, 10, 1_000) == Fees(210, 10)
    assert bid(100, 10, 150) == Fees(150, 10)
    assert bid(100, 60, 150) == Fees(150, 50)
    assert bid(100, 10, 100) is None


@given(base=WEI, priority=WEI, cap=WEI)
def test_no_bid_passes_the_cap(base: int, priority: int, cap: int) -> None:
    fees = bid(base, priority, cap)
    assert fees is None or (fees.max_fee <= cap and fees.priority_fee <= fees.max_fee)
    assert (fees is None) == (base >= cap)


@given(base=WEI, priority=st.integers(1, 10**10), cap=st.integers(1, 10**13))
def test_a_replacement_is_a_tenth_dearer_or_is_none(base: int, priority: int, cap: int) -> None:
    old = bid(base, priority, cap)
    if old is None:
        return
    new = raise_bid(old, base, priority, cap)
    if new is not None:
        assert new.max_fee <= cap
        assert new.priority_fee <= new.max_fee
        assert 10 * new.max_fee >= 11 * old.max_fee
        assert 10 * new.priority_fee >= 11 * old.priority_fee
