"""Whose an account is: who moves its stake, and whom its pay is sent to, by the contracts' events.

Rule of this file: pure. No round asks it: an account joins, speaks and is slashed whoever owns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from atoll.protocol import events as ev
from atoll.protocol.types import Address

NOBODY = Address("0x" + "00" * 20)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Each is the account itself, unless somebody else was named.

    Attributes:
        owner: who alone moves its stake, and says whom it pays.
        payee: where its pay goes.
        proposed: who may accept to be the owner; None for nobody.
    """

    owner: Address
    payee: Address
    proposed: Address | None = None


def owners_of(events: Iterable[ev.ContractEvent]) -> dict[Address, Ownership]:
    """What events make of every account that they name, oldest first."""
    ownerships: dict[Address, Ownership] = {}
    for event in events:
        enter(ownerships, event)
    return ownerships


def enter(found: dict[Address, Ownership], event: ev.ContractEvent) -> None:
    """One event. Who accepts is paid, too: the payee of an owner before is not its own."""
    if not isinstance(event, ev.OwnerProposed | ev.OwnerAccepted | ev.PayeeSet):
        return
    now = ownership_of(found, event.account)
    match event:
        case ev.OwnerProposed():
            proposed = None if event.owner == NOBODY else event.owner
            now = replace(now, proposed=proposed)
        case ev.OwnerAccepted():
            now = Ownership(event.owner, event.owner)
        case ev.PayeeSet():
            now = replace(now, payee=event.payee)
    found[event.account] = now


def ownership_of(found: Mapping[Address, Ownership], account: Address) -> Ownership:
    """Whose the account is, among those that `owners_of` found."""
    return found.get(account, Ownership(account, account))


def payee_of(found: Mapping[Address, Ownership], account: Address) -> Address:
    """Where the account's pay goes."""
    return ownership_of(found, account).payee
