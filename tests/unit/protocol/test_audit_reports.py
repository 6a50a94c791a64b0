"""Audit reports: what they commit to, the bytes of their bodies, and whose words are right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_hash.auto import keccak
from tests.support.identities import address, digest

from atoll.protocol.audit_reports import DUTY_BYTES, FINE, Body, Duty, audit_report_hash, fine_word
from atoll.protocol.words import Domain, HolderId, JobId, RoundIndex, SeatIndex, Slot

SLOT = Slot(Domain(1, address("rounds")), JobId(7), RoundIndex(3))
SEED, SALT = digest("audit"), digest("salt")
MEMBER, OTHER = address("member"), address("other")
WORDS = [digest(f"x {j}") for j in range(4)]
DUTIES = tuple(Duty.fine(SeatIndex(seat), MEMBER, WORDS) for seat in (1, 4, 255))
BODY = Body(DUTIES)


def test_a_fine_word_is_of_the_address_and_every_word() -> None:
    right = fine_word(MEMBER, WORDS)
    assert right == keccak(bytes.fromhex(MEMBER[2:]) + b"".join(WORDS))
    wrong = [WORDS[:3], [*WORDS, WORDS[0]], [*WORDS[:3], digest("other")], WORDS[::-1]]
    assert right not in {fine_word(MEMBER, words) for words in wrong}
    assert fine_word(OTHER, WORDS) != right


def test_a_body_is_35_bytes_a_duty() -> None:
    differs = Duty(SeatIndex(7), 3, digest("own"))
    data = Body((DUTIES[0], differs)).to_bytes()
    assert data[:3] == b"\x01\xff\xff"
    assert data[35:38] == b"\x07\x00\x03"
    assert data[38:] == digest("own")
    assert len(data) == 2 * DUTY_BYTES
    assert Body.from_bytes(data) == Body((DUTIES[0], differs))
    assert (DUTIES[0].is_fine, differs.is_fine) == (True, False)
    assert DUTIES[0].at == FINE


def test_what_is_said_of_a_seat_is_found() -> None:
    assert BODY.of(SeatIndex(4)) == DUTIES[1]
    assert BODY.of(SeatIndex(5)) is None


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0, 2, 1)])
def test_seats_ascend_each_once(order: tuple[int, ...]) -> None:
    data = Body(tuple(DUTIES[i] for i in order)).to_bytes()
    with pytest.raises(ValueError, match="ascend"):
        Body.from_bytes(data)


@pytest.mark.parametrize("size", [0, 1, 34, 36, 71])
def test_bytes_that_are_no_duties_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="no duties"):
        Body.from_bytes(bytes(size))


def test_an_audit_report_binds_everything() -> None:
    whole = (SLOT, SEED, (HolderId(2), MEMBER), BODY.hash, SALT)
    changes = (
        (0, replace(SLOT, round=RoundIndex(4))),
        (1, digest("fork")),
        (2, (HolderId(3), MEMBER)),
        (2, (HolderId(2), OTHER)),
        (3, Body(DUTIES[:2]).hash),
        (4, digest("pepper")),
    )
    others = [(*whole[:i], value, *whole[i + 1 :]) for i, value in changes]
    hashes = {audit_report_hash(*fields) for fields in (whole, *others)}  # type: ignore[arg-type]
    assert len(hashes) == 7
