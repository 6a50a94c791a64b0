"""Events of Stakes, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Address, Digest, Role


@dataclass(frozen=True, slots=True)
class Deposited:
    """An account has more stake.

    Attributes:
        amount: wei.
    """

    account: Address
    role: Role
    amount: int


@dataclass(frozen=True, slots=True)
class UnbondStarted:
    """Stake is on its way out.

    Attributes:
        id: of the exit, from 0 of an account's role.
        amount: wei.
        available_at: unix seconds after which it can be withdrawn.
    """

    account: Address
    role: Role
    id: int
    amount: int
    available_at: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """An exit is paid out.

    Attributes:
        id: of the exit.
        amount: wei.
    """

    account: Address
    role: Role
    id: int
    amount: int


@dataclass(frozen=True, slots=True)
class Locked:
    """Stake is a bond.

    Attributes:
        lock_id: of the bond.
        amount: wei.
    """

    account: Address
    role: Role
    lock_id: Digest
    amount: int


@dataclass(frozen=True, slots=True)
class Unlocked:
    """A bond is free stake again.

    Attributes:
        lock_id: of the bond.
        amount: wei.
    """

    account: Address
    role: Role
    lock_id: Digest
    amount: int


@dataclass(frozen=True, slots=True)
class Slashed:
    """Stake is gone.

    Attributes:
        fault_id: of what it was slashed for, once.
        amount: wei, of which the rest went to the beneficiary or was burnt.
        beneficiary_amount: wei.
        burned: wei.
    """

    account: Address
    role: Role
    fault_id: Digest
    amount: int
    beneficiary: Address
    beneficiary_amount: int
    burned: int
