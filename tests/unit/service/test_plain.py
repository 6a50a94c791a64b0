"""Entries as JSON: what is read back is what was written."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.types import Digest, Role, SeatIndex
from atoll.service.serialization import JournalError, from_json, to_json


@dataclass(frozen=True, slots=True)
class Everything:
    number: int
    big: int
    ratio: float
    flag: bool
    text: str
    data: bytes
    maybe: bytes | None
    pair: tuple[int, bytes]
    many: tuple[AuditEntry, ...]
    role: Role


VALUE = Everything(
    number=-3,
    big=10**60,
    ratio=0.1,
    flag=True,
    text="β",
    data=b"\x00\xff",
    maybe=None,
    pair=(1, b"a"),
    many=(AuditEntry(SeatIndex(1), 2, Digest(bytes(32))),),
    role=Role.VERIFIER,
)


def test_a_value_is_read_back_as_it_was() -> None:
    assert from_json(Everything, to_json(VALUE)) == VALUE


@pytest.mark.parametrize(
    ("find", "put"),
    [
        ('"number":-3', '"number":"x"'),
        ('"data":"00ff"', '"data":"0g"'),
        ('"role":1', '"role":99'),
        ('"flag":true,', ""),
        ('[1,"61"]', "[1]"),
    ],
)
def test_text_with_one_thing_wrong_is_refused(find: str, put: str) -> None:
    text = to_json(VALUE)
    assert find in text
    with pytest.raises(JournalError, match="cannot read a Everything"):
        from_json(Everything, text.replace(find, put))


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        to_json([1])
