"""What to bid for a transaction. Source: EIP-1559; nodes replace a transaction for 10 % more.

Rule of this file: pure arithmetic in wei a gas.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fees:
    """Wei a gas: the most to pay in all, and what of it goes to the block's builder."""

    max_fee: int
    priority_fee: int


def bid(base_fee: int, priority_fee: int, cap: int) -> Fees | None:
    """A bid that survives a few rising blocks; None where the base fee alone passes the cap."""
    if base_fee + 1 > cap:
        return None
    return Fees(min(2 * base_fee + priority_fee, cap), min(priority_fee, cap - base_fee))


def raise_bid(old: Fees, base_fee: int, priority_fee: int, cap: int) -> Fees | None:
    """A bid that replaces `old` (12.5 % more at least); None where that passes the cap."""
    max_fee = max(old.max_fee + old.max_fee // 8 + 1, 2 * base_fee + priority_fee)
    raised = max(old.priority_fee + old.priority_fee // 8 + 1, priority_fee)
    if old.max_fee + old.max_fee // 8 + 1 > cap:
        return None
    max_fee = min(max_fee, cap)
    return Fees(max_fee, min(raised, max_fee))
