"""Events of Audits and LateVotes, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Address, Bitmap, Digest, HolderId, JobId, RoundIndex, SeatIndex


@dataclass(frozen=True, slots=True)
class AuditReportSealed:
    """A verifier is bound to its audit report of a round.

    Attributes:
        audit_report: hash of its body and salt.
    """

    job_id: JobId
    account: Address
    round: RoundIndex
    audit_report: Digest


@dataclass(frozen=True, slots=True)
class Opened:
    """A verifier opens its audit report.

    Attributes:
        body: 35 bytes a duty: seat, 0xffff or the first segment that differs, digest.
    """

    job_id: JobId
    account: Address
    id: HolderId
    round: RoundIndex
    body: bytes


@dataclass(frozen=True, slots=True)
class KeyShown:
    """The holder of a seat shows the key of its work tags' masks."""

    job_id: JobId
    account: Address
    round: RoundIndex
    key: Digest


@dataclass(frozen=True, slots=True)
class Leaked:
    """Another account showed a seat's key before the end of AUDIT, which burns its pay.

    Attributes:
        by: who showed it.
    """

    job_id: JobId
    by: Address
    seat: SeatIndex
    round: RoundIndex
    key: Digest


@dataclass(frozen=True, slots=True)
class Contested:
    """An opened duty does not hold what the seat's key gives.

    Attributes:
        by: who said so.
        id: of the verifier that opened it.
    """

    job_id: JobId
    by: Address
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class Withheld:
    """The fee of an opened *valid* waits for a game about what it is about.

    Attributes:
        id: of the verifier.
    """

    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex
    game: int


@dataclass(frozen=True, slots=True)
class ContestSettled:
    """A fee that waited is paid or lost.

    Attributes:
        id: of the verifier.
        wrong: whether its digest was a guess, or what it called valid false.
    """

    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex
    wrong: bool


@dataclass(frozen=True, slots=True)
class Struck:
    """A drawn seat showed no key in time, and loses the round's pay."""

    job_id: JobId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class Excused:
    """A verifier said nothing about a drawn seat, as most of the round's auditors: one of its three
    excuses in the job.

    Attributes:
        id: of the verifier.
    """

    job_id: JobId
    account: Address
    id: HolderId
    round: RoundIndex


@dataclass(frozen=True, slots=True)
class Dropped:
    """A verifier did not play what it said of a seat.

    Attributes:
        id: of the verifier.
    """

    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class Proven:
    """A seat was slashed that a verifier had said differs, which is paid its fee.

    Attributes:
        id: of the verifier.
    """

    job_id: JobId
    id: HolderId
    round: RoundIndex
    seat: SeatIndex


@dataclass(frozen=True, slots=True)
class LateVote:
    """A member of the pool has these updates by now, for their pay.

    Attributes:
        has: seats whose updates it has.
    """

    job_id: JobId
    account: Address
    round: RoundIndex
    id: HolderId
    has: Bitmap
