"""Audit reports: what they commit to, the bytes of their bodies, and whose work_tags are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from eth_hash.auto import keccak
from tests.support.identities import address, digest

from atoll.protocol.audit_reports import (
    ENTRY_BYTES,
    VALID,
    AuditEntry,
    AuditReport,
    audit_report_hash,
    valid_digest,
)
from atoll.protocol.types import Domain, HolderId, JobId, RoundId, RoundIndex, SeatIndex

ROUND_ID = RoundId(Domain(1, address("rounds")), JobId(7), RoundIndex(3))
SEED, SALT = digest("audit"), digest("salt")
MEMBER, OTHER = address("member"), address("other")
TAGS = [digest(f"x {j}") for j in range(4)]
ENTRIES = tuple(AuditEntry.valid(SeatIndex(seat), MEMBER, TAGS) for seat in (1, 4, 255))
BODY = AuditReport(ENTRIES)


def test_a_valid_digest_is_of_the_address_and_every_work_tag() -> None:
    right = valid_digest(MEMBER, TAGS)
    assert right == keccak(bytes.fromhex(MEMBER[2:]) + b"".join(TAGS))
    wrong = [TAGS[:3], [*TAGS, TAGS[0]], [*TAGS[:3], digest("other")], TAGS[::-1]]
    assert right not in {valid_digest(MEMBER, work_tags) for work_tags in wrong}
    assert valid_digest(OTHER, TAGS) != right


def test_a_body_is_35_bytes_a_duty() -> None:
    mismatch = AuditEntry(SeatIndex(7), 3, digest("own"))
    data = AuditReport((ENTRIES[0], mismatch)).to_bytes()
    assert data[:3] == b"\x01\xff\xff"
    assert data[35:38] == b"\x07\x00\x03"
    assert data[38:] == digest("own")
    assert len(data) == 2 * ENTRY_BYTES
    assert AuditReport.from_bytes(data) == AuditReport((ENTRIES[0], mismatch))
    assert (ENTRIES[0].is_valid, mismatch.is_valid) == (True, False)
    assert ENTRIES[0].at == VALID


def test_what_is_said_of_a_seat_is_found() -> None:
    assert BODY.of(SeatIndex(4)) == ENTRIES[1]
    assert BODY.of(SeatIndex(5)) is None


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0, 2, 1)])
def test_seats_ascend_each_once(order: tuple[int, ...]) -> None:
    data = AuditReport(tuple(ENTRIES[i] for i in order)).to_bytes()
    with pytest.raises(ValueError, match="ascend"):
        AuditReport.from_bytes(data)


@pytest.mark.parametrize("size", [0, 1, 34, 36, 71])
def test_bytes_that_are_no_entries_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="no entries"):
        AuditReport.from_bytes(bytes(size))


def test_an_audit_report_binds_everything() -> None:
    whole: dict[str, Any] = {
        "round_id": ROUND_ID,
        "audit_seed": SEED,
        "auditor": HolderId(2),
        "account": MEMBER,
        "body": BODY.hash,
        "salt": SALT,
    }
    changes: list[dict[str, Any]] = [
        {"round_id": replace(ROUND_ID, round=RoundIndex(4))},
        {"audit_seed": digest("fork")},
        {"auditor": HolderId(3)},
        {"account": OTHER},
        {"body": AuditReport(ENTRIES[:2]).hash},
        {"salt": digest("pepper")},
    ]
    hashes = {audit_report_hash(**whole | change) for change in ({}, *changes)}
    assert len(hashes) == 7
