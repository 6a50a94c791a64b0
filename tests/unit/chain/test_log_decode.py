"""Logs become the events of `atoll.protocol`, field by field."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from eth_abi.abi import encode

from atoll.chain.abi import EventAbi, load_artifact, registry
from atoll.chain.decode import RawLog, decode_log, event_topics, from_abi, to_abi
from atoll.chain.structs import RoundState
from atoll.errors import UndecodableLog
from atoll.protocol import types
from atoll.protocol.events import (
    EVENT_TYPES,
    AuditReportSealed,
    Closed,
    JobCreated,
    Revealed,
    Settled,
)
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    JobId,
    JobStatus,
    Params,
    Phase,
    Reveal,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    Terms,
    Verdict,
)

ACCOUNT = Address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")


def abi_of(name: str) -> EventAbi:
    return next(abi for abi in registry().events.values() if abi.name == name)


def log_of(event: Any) -> RawLog:
    """The log a contract would write for this event."""
    abi = abi_of(type(event).__name__)
    values = to_abi(event)
    rows = list(zip(abi.types, abi.indexed, values, strict=True))
    topics = [encode([kind], [value]) for kind, indexed, value in rows if indexed]
    in_data = [(kind, value) for kind, indexed, value in rows if not indexed]
    data = encode([kind for kind, _ in in_data], [value for _, value in in_data])
    return RawLog(ACCOUNT, (abi.topic, *topics), data, 7, bytes(32), 0)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


GAMES = ("UnbondStarted", "Withdrawn")
"""Whose id is of neither a seat nor a slot."""
ENTRY = ("Rounds", "Members", "Audits", "LateVotes", "Jobs", "Stakes", "Claims", "Game")


SLOTS = ("seat", "slot", "id")


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_event_is_found_by_its_job_its_accounts_and_its_seat(name: str) -> None:
    """contracts/EVENTS.md; a log has three topics beside the event's own."""
    abi = abi_of(name)
    found = dict(zip((snake(field) for field in abi.fields), abi.indexed, strict=True))
    kinds = dict(zip(found, abi.types, strict=True))
    for field, is_indexed in found.items():
        if field == "job_id" or (kinds[field] == "address" and field != "policy"):
            assert is_indexed, field
    slots = [found[field] for field in SLOTS if field in found and name not in GAMES]
    assert not slots or any(slots) or sum(found.values()) == 3


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_event_class_has_the_abi_s_fields_in_order(name: str) -> None:
    fields = [field.name for field in dataclasses.fields(EVENT_TYPES[name])]
    spelled = [snake(field).rstrip("_") for field in abi_of(name).fields]
    assert fields == ["start" if field == "from" else field for field in spelled]


def test_every_event_of_the_abi_has_its_class() -> None:
    contracts = [load_artifact(name)["abi"] for name in ENTRY]
    names = {item["name"] for abi in contracts for item in abi if item["type"] == "event"}
    assert names == set(EVENT_TYPES)
    assert len(event_topics()) == len(EVENT_TYPES)


def test_tuples_become_dataclasses_and_ints_become_enums() -> None:
    reveal = Reveal(
        update_root=Digest(b"\x02" * 32),
        key_hash=Digest(b"\x03" * 32),
        salt=Digest(b"\x04" * 32),
        checkpoint_commitments=b"\x05" * 64,
        update_cid=b"update",
    )
    revealed = Revealed(JobId(3), ACCOUNT, SeatIndex(5), RoundIndex(2), reveal)
    assert decode_log(log_of(revealed)) == revealed
    closed = Closed(JobId(3), JobStatus.EXPIRED, 4, 1_700_000_000)
    decoded = decode_log(log_of(closed))
    assert decoded == closed
    assert isinstance(decoded, Closed)
    assert decoded.status is JobStatus.EXPIRED


def test_a_settlement_survives_with_its_verdict_and_record() -> None:
    verdict = Verdict(Bitmap(0b10), 3, Digest(b"\x01" * 32), b"cid", b"\x02" * 8)
    record = RoundRecord(*(Digest(bytes([i]) * 32) for i in range(5)), *map(Bitmap, range(6)))
    where = (JobId(3), RoundIndex(2), Digest(b"\x0b" * 32))
    settled = Settled(*where, verdict, Bitmap(0b1111), Bitmap(0b11), record)
    assert decode_log(log_of(settled)) == settled


def test_terms_survive_the_way_there_and_back() -> None:
    program = Digest(b"\x0c" * 32)
    terms = Terms(*range(1, len(dataclasses.fields(Terms))), program=program)
    created = JobCreated(
        JobId(1),
        ACCOUNT,
        Digest(bytes(32)),
        b"cid",
        Digest(bytes(32)),
        terms,
        Params(1, 2, 3, 4, 5, 6, 7),
        ACCOUNT,
        10**18,
    )
    assert decode_log(log_of(created)) == created


def test_addresses_are_checksummed() -> None:
    account = Address(ACCOUNT.lower())
    log = log_of(AuditReportSealed(JobId(1), account, RoundIndex(0), Digest(bytes(32))))
    decoded = decode_log(log)
    assert isinstance(decoded, AuditReportSealed)
    assert decoded.account == ACCOUNT


def test_a_foreign_log_is_none_of_ours() -> None:
    assert decode_log(RawLog(ACCOUNT, (b"\xff" * 32,), b"", 1, bytes(32), 0)) is None
    assert decode_log(RawLog(ACCOUNT, (), b"", 1, bytes(32), 0)) is None


def test_a_truncated_log_is_refused() -> None:
    whole = log_of(Closed(JobId(3), JobStatus.DONE, 4, 5))
    with pytest.raises(UndecodableLog, match="Closed does not decode"):
        decode_log(dataclasses.replace(whole, data=whole.data[:-32]))


def test_an_unknown_enum_value_is_refused() -> None:
    whole = log_of(Closed(JobId(3), JobStatus.DONE, 4, 5))
    broken = dataclasses.replace(whole, data=(200).to_bytes(32, "big") + whole.data[32:])
    with pytest.raises(UndecodableLog, match="does not decode"):
        decode_log(broken)


@pytest.mark.parametrize("text", [b"http://x\xff", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_text_that_is_no_text_is_refused(text: bytes) -> None:
    abi = abi_of("GatewayAnnounced")
    topics = (abi.topic, encode(["address"], [ACCOUNT]))
    with pytest.raises(UndecodableLog, match="GatewayAnnounced does not decode"):
        decode_log(RawLog(ACCOUNT, topics, encode(["bytes"], [text]), 7, bytes(32), 0))


def test_round_state_has_the_abi_s_width() -> None:
    outputs = registry().function("state").outputs[0]
    assert len(outputs.strip("()").split(",")) == len(dataclasses.fields(RoundState))
    zero = from_abi(RoundState, tuple(
        bytes(32) if kind == "bytes32" else 0 for kind in outputs.strip("()").split(",")
    ))  # fmt: skip
    assert zero.phase is Phase.WAITING
    assert zero.status is types.JobStatus.NONE
