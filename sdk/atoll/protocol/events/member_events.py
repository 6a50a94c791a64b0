"""Events of Members, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import (
    Address,
    HolderId,
    JobId,
    MissedDuty,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
)


@dataclass(frozen=True, slots=True)
class Seated:
    """An account takes a seat.

    Attributes:
        id: of the holder.
        start: the first round that it counts in.
    """

    job_id: JobId
    account: Address
    seat: SeatIndex
    id: HolderId
    start: RoundIndex


@dataclass(frozen=True, slots=True)
class Retained:
    """A part of a seat's pay joins its bond.

    Attributes:
        amount: wei.
    """

    job_id: JobId
    account: Address
    id: HolderId
    amount: int


@dataclass(frozen=True, slots=True)
class Seasoned:
    """A seat's holder has so much to lose that it is drawn more rarely.

    Attributes:
        start: the first round that it is in.
        steps: entries of the table of rates, in all.
    """

    job_id: JobId
    account: Address
    id: HolderId
    start: RoundIndex
    steps: int


@dataclass(frozen=True, slots=True)
class SeatLeaving:
    """A seat will be free.

    Attributes:
        to: the first round that the holder does not count in.
    """

    job_id: JobId
    account: Address
    seat: SeatIndex
    id: HolderId
    to: RoundIndex


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An account takes a slot of the verifiers' pool.

    Attributes:
        id: of the holder.
        start: the first round that it may count in.
        bond: wei.
        ready_until: unix seconds by which it has to be ready.
    """

    job_id: JobId
    account: Address
    slot: SlotIndex
    id: HolderId
    start: RoundIndex
    bond: int
    ready_until: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A verifier holds manifest, data and model."""

    job_id: JobId
    account: Address
    slot: SlotIndex
    id: HolderId


@dataclass(frozen=True, slots=True)
class SlotLeaving:
    """A slot will be free.

    Attributes:
        to: the first round that the holder does not count in.
    """

    job_id: JobId
    account: Address
    slot: SlotIndex
    id: HolderId
    to: RoundIndex


@dataclass(frozen=True, slots=True)
class Missed:
    """A holder did not do what it owed, and part of its bond is gone; of missed duties an eighth at
    most.

    Attributes:
        penalty: wei of the bond.
    """

    job_id: JobId
    account: Address
    role: Role
    id: HolderId
    round: RoundIndex
    kind: MissedDuty
    penalty: int


@dataclass(frozen=True, slots=True)
class HolderSlashed:
    """A holder lost its bond to a game.

    Attributes:
        winner: whom a share of the bond goes to.
        lost_from: the first round whose pay is lost.
        slashed: wei.
    """

    job_id: JobId
    account: Address
    winner: Address
    role: Role
    id: HolderId
    lost_from: RoundIndex
    slashed: int


@dataclass(frozen=True, slots=True)
class Released:
    """A holder that owes nothing has what is left of its bond again."""

    job_id: JobId
    account: Address
    role: Role
    id: HolderId


@dataclass(frozen=True, slots=True)
class GatewayAnnounced:
    """Where an account serves its blocks; the last one said counts."""

    account: Address
    url: str
