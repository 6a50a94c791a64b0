"""Whose an account is, folded from events."""

from __future__ import annotations

from tests.support.identities import address

from atoll.protocol import events as ev
from atoll.protocol.owners import Ownership, owners_of, ownership_of, payee_of
from atoll.protocol.types import Address, HolderId, JobId, Role, RoundIndex

ME, COLD, WALLET, NEXT = (address(name) for name in ("me", "cold", "wallet", "next"))
ZERO = Address("0x0000000000000000000000000000000000000000")


def claimed(amount: int) -> ev.Claimed:
    return ev.Claimed(JobId(1), ME, Role.PROVIDER, HolderId(1), RoundIndex(2), amount, 0)


def test_an_account_is_its_own_until_somebody_accepts() -> None:
    assert ownership_of(owners_of([]), ME) == Ownership(ME, ME)
    proposed = [ev.OwnerProposed(ME, COLD)]
    assert ownership_of(owners_of(proposed), ME) == Ownership(ME, ME, COLD)
    assert ownership_of(owners_of([*proposed, ev.OwnerProposed(ME, ZERO)]), ME) == Ownership(ME, ME)
    accepted = [*proposed, ev.OwnerAccepted(ME, COLD)]
    assert ownership_of(owners_of(accepted), ME) == Ownership(COLD, COLD)
    assert ownership_of(owners_of(accepted), COLD) == Ownership(COLD, COLD)


def test_the_payee_of_an_owner_before_is_not_the_next_ones() -> None:
    events = [ev.OwnerAccepted(ME, COLD), ev.PayeeSet(ME, WALLET), ev.OwnerProposed(ME, NEXT)]
    assert ownership_of(owners_of(events), ME) == Ownership(COLD, WALLET, NEXT)
    assert ownership_of(owners_of([*events, ev.OwnerAccepted(ME, NEXT)]), ME) == Ownership(
        NEXT, NEXT
    )


def test_where_pay_goes() -> None:
    owners = owners_of([ev.PayeeSet(ME, WALLET), claimed(3)])
    assert (payee_of(owners, ME), payee_of(owners, COLD)) == (WALLET, COLD)
