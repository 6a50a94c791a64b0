"""Events of Jobs, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.types import Address, Digest, HolderId, JobId, Params, Role, RoundIndex, Terms


@dataclass(frozen=True, slots=True)
class JobCreated:
    """A job exists, and is funded.

    Attributes:
        spec_digest: SHA-256 digest in the manifest's CID.
        spec_cid: the manifest's binary CID.
        policy: the contract that checks its certificates.
        funded: wei.
    """

    job_id: JobId
    submitter: Address
    spec_digest: Digest
    spec_cid: bytes
    terms_hash: Digest
    terms: Terms
    params: Params
    policy: Address
    funded: int


@dataclass(frozen=True, slots=True)
class JobFunded:
    """Somebody adds to a job's escrow.

    Attributes:
        amount: wei.
    """

    job_id: JobId
    funder: Address
    amount: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """No round opens any more once the one that runs has ended."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Claimed:
    """A holder's payee has its pay, but for what of it is retained.

    Attributes:
        to: the first round that is not paid yet.
        amount: wei.
        burnt: wei that a slash took of it.
    """

    job_id: JobId
    account: Address
    role: Role
    id: HolderId
    to: RoundIndex
    amount: int
    burnt: int


@dataclass(frozen=True, slots=True)
class Credited:
    """An account is owed something by a contest or for a key.

    Attributes:
        amount: wei.
    """

    job_id: JobId
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class CreditClaimed:
    """An account's payee has what the account was credited.

    Attributes:
        amount: wei.
    """

    job_id: JobId
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Kept:
    """An account's payee could not be sent its pay or its refund.

    Attributes:
        amount: wei.
    """

    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Collected:
    """An account's payee has what it could not be sent before.

    Attributes:
        amount: wei.
    """

    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class Burnt:
    """What was earned in rounds and is not paid is burnt.

    Attributes:
        to: the first round that is not burnt yet.
        amount: wei.
    """

    job_id: JobId
    to: RoundIndex
    amount: int


@dataclass(frozen=True, slots=True)
class Refunded:
    """What cannot be earned any more goes back to the submitter's payee.

    Attributes:
        amount: wei.
    """

    job_id: JobId
    to: Address
    amount: int


@dataclass(frozen=True, slots=True)
class OwnerProposed:
    """An account's owner names the next one, or zero for nobody."""

    account: Address
    owner: Address


@dataclass(frozen=True, slots=True)
class OwnerAccepted:
    """An account has another owner, which has its pay, too."""

    account: Address
    owner: Address


@dataclass(frozen=True, slots=True)
class PayeeSet:
    """An account's pay goes elsewhere."""

    account: Address
    payee: Address
