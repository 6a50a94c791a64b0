"""How good a model is: what joins its losses, and what a verifier signs of it (SPEC.md, 20)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from eth_utils.address import is_checksum_address

from atoll.law.canonical import decode, encode
from atoll.law.hashing import hash_fields, tag
from atoll.law.trace import float_bytes
from atoll.law.words import Address, Digest, Domain, JobId

KIND: Final = "atoll.held-out.v1"
MAX_REPORT_BYTES: Final = 1024
_FIELDS: Final = frozenset(
    {"kind", "chain_id", "rounds", "job", "merged", "model", "loss", "signature"}
)
_TYPES: Final = ("bytes32", "uint256", "address", "uint256", "uint32", "bytes32", "bytes8")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A model's held-out loss.

    Attributes:
        merged: rounds that were merged into the model; 0 is the initial one.
        model: the model's digest.
        loss: nats a target, 8 bytes of binary64, as `loss_bytes` writes them.
    """

    domain: Domain
    job: JobId
    merged: int
    model: Digest
    loss: bytes

    @property
    def digest(self) -> Digest:
        """What is signed."""
        domain = self.domain
        values = (domain.chain_id, domain.rounds, self.job, self.merged, self.model, self.loss)
        return hash_fields(_TYPES, (tag(KIND), *values))

    @property
    def name(self) -> str:
        """Where a gateway has the report."""
        return note_name(self.job, self.merged)

    def to_bytes(self, signature: bytes) -> bytes:
        """The report: canonical DAG-CBOR."""
        return encode(
            {
                "kind": KIND,
                "chain_id": self.domain.chain_id,
                "rounds": self.domain.rounds,
                "job": self.job,
                "merged": self.merged,
                "model": self.model,
                "loss": self.loss,
                "signature": signature,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[Self, bytes]:
        """What a report says, and its signature, unchecked. Raises ValueError on anything else."""
        plain = decode(data, MAX_REPORT_BYTES)
        if not isinstance(plain, dict) or set(plain) != _FIELDS or plain["kind"] != KIND:
            raise ValueError("no report of a held-out loss")
        rounds = plain["rounds"]
        if not isinstance(rounds, str) or not is_checksum_address(rounds):
            raise ValueError("the contract is no checksummed address")
        chain, job, merged = (_natural(plain[name]) for name in ("chain_id", "job", "merged"))
        signature, loss = _bytes(plain["signature"], 65), _bytes(plain["loss"], 8)
        loss_of(loss)
        model = Digest(_bytes(plain["model"], 32))
        return cls(Domain(chain, Address(rounds)), JobId(job), merged, model, loss), signature


def note_name(job: int, merged: int) -> str:
    """The name of a job's report in `/notes/` of a verifier's gateway."""
    return f"{job}/held-out/{merged}"


def loss_bytes(loss: float) -> bytes:
    """The binary64, big-endian, as documents have it; every NaN is the one NaN."""
    return float_bytes(">d", loss)


def loss_of(data: bytes) -> float:
    """What `loss_bytes` wrote. Raises ValueError where it could not have."""
    loss = float(struct.unpack(">d", data)[0])
    if math.isinf(loss) or loss_bytes(loss) != data:
        raise ValueError(f"{data.hex()} is no held-out loss")
    return loss


def join(parts: Iterable[tuple[Sequence[float], Sequence[int]]]) -> float:
    """The held-out loss of the losses and counts of every batch, in order."""
    losses: list[float] = []
    counts: list[int] = []
    for some_losses, some_counts in parts:
        losses.extend(some_losses)
        counts.extend(some_counts)
    return mean_loss(losses, counts)


def mean_loss(losses: Sequence[float], counts: Sequence[int]) -> float:
    """Σ count·loss / Σ count, rounded once; NaN where a loss is not finite or nothing counts.

    Args:
        losses: of each micro-batch, the mean over its targets; values of binary32.
        counts: how many targets each has.
    """
    total = sum(counts)
    if not total or not all(map(math.isfinite, losses)):
        return math.nan
    weighted = (count * Fraction(loss) for loss, count in zip(losses, counts, strict=True))
    return float(sum(weighted, Fraction(0)) / total)


def _natural(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError("a count is not a natural number below 2^32")
    return value


def _bytes(value: object, length: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != length:
        raise ValueError(f"not {length} bytes")
    return value
