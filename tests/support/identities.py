"""Digests, accounts and CIDs that nobody chose, by name; and the job that most tests are about."""

from __future__ import annotations

from hashlib import sha256

from eth_utils.address import to_checksum_address

from atoll.protocol.types import Address, Digest, Domain, JobId, RoundId, RoundIndex, SeatIndex


def digest(name: object) -> Digest:
    """32 bytes."""
    return Digest(sha256(str(name).encode()).digest())


def address(name: object) -> Address:
    return Address(to_checksum_address(digest(name)[:20]))


def accounts(name: str, count: int) -> list[Address]:
    return [address(f"{name} {i}") for i in range(count)]


def cid(name: object) -> bytes:
    return bytes.fromhex("01711220") + digest(name)  # version 1, DAG-CBOR, SHA-256 of 32 bytes


DOMAIN = Domain(31337, address("rounds"))
JOB = JobId(7)
ROUND_ID = RoundId(DOMAIN, JOB, RoundIndex(3))
SEAT = SeatIndex(2)
