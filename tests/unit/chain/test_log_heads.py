"""The head of a log is what SPEC-ROUNDS.md says, and tells every difference that matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_utils.crypto import keccak
from tests.support.identities import address
from tests.unit.chain.test_log_decode import log_of

from atoll.chain.abi import load_artifact, registry
from atoll.chain.decode import RawLog, event_topics
from atoll.chain.log_heads import BEHIND, EMITTERS, EMPTY, HeadFold, LogKey, behind_of, key_of
from atoll.protocol.events import CancelRequested, Closed, GatewayAnnounced, Leaked, Stopped
from atoll.protocol.types import Digest, JobId, JobStatus, RoundIndex, SeatIndex

ROUNDS, MEMBERS, AUDITS = address("rounds"), address("members"), address("audits")
BOTH = behind_of({"Rounds": ROUNDS, "Members": MEMBERS})
JOB = JobId(7)


def log(event: object, contract: str, block: int, time: int) -> RawLog:
    raw = log_of(event)  # type: ignore[arg-type]
    return replace(raw, address=contract, block_number=block, timestamp=time)  # type: ignore[arg-type]


SAID = log(GatewayAnnounced(address("a member"), "http://x"), MEMBERS, 5, 50)
ASKED = log(CancelRequested(JOB), MEMBERS, 5, 50)
CLOSED = log(Closed(JOB, JobStatus.DONE, 3, 60), ROUNDS, 6, 60)


def by_hand(before: bytes, other: bytes, raw: RawLog) -> bytes:
    assert raw.timestamp is not None
    words = [before, other, bytes(12) + bytes.fromhex(raw.address[2:])]
    words += [number.to_bytes(32, "big") for number in (raw.block_number, raw.timestamp)]
    words += [keccak(b"".join(raw.topics)), keccak(raw.data)]
    count = int.from_bytes(before[:4], "big") + 1
    return count.to_bytes(4, "big") + keccak(b"".join(words))[:28]


def test_it_is_the_hash_that_the_law_says() -> None:
    fold = HeadFold(BOTH)
    fold.fold_all([SAID, ASKED, CLOSED])
    said, asked = by_hand(EMPTY, EMPTY, SAID), by_hand(EMPTY, EMPTY, ASKED)
    assert fold.heads == {
        LogKey(0, MEMBERS): said,
        LogKey(JOB, MEMBERS): asked,
        LogKey(JOB, ROUNDS): by_hand(EMPTY, asked, CLOSED),
    }
    fold.fold(SAID)
    assert fold.heads[LogKey(0, MEMBERS)] == by_hand(said, EMPTY, SAID)


@pytest.mark.parametrize(
    "changed",
    [
        {"data": SAID.data + b"\0"}, {"topics": (SAID.topics[0],)}, {"block_number": 6},
        {"timestamp": 51},
    ],
)  # fmt: skip
def test_every_part_of_a_log_is_in_it(changed: dict[str, object]) -> None:
    heads = []
    for raw in (SAID, replace(SAID, **changed)):  # type: ignore[arg-type]
        fold = HeadFold(BOTH)
        fold.fold(raw)
        heads.append(fold.heads[LogKey(0, MEMBERS)])
    assert heads[0] != heads[1]


def test_what_ends_a_phase_is_behind_what_members_said_before_and_not_later() -> None:
    heads = []
    for order in ([ASKED, CLOSED], [CLOSED, ASKED]):
        fold = HeadFold(BOTH)
        fold.fold_all(order)
        heads.append(fold.heads[LogKey(JOB, ROUNDS)])
    assert heads[0] != heads[1]


def test_a_job_s_creation_is_in_the_log_of_what_belongs_to_none() -> None:
    topics = {abi.name: abi.topic for abi in registry().events.values()}
    word = JOB.to_bytes(32, "big")
    keys = {name: key_of(replace(SAID, topics=(topics[name], word))).job for name in topics}
    assert {keys[name] for name in ("JobCreated", "Kept", "Began", "Slashed")} == {0}
    assert {keys[name] for name in ("JobFunded", "Seated", "RoundOpened", "Struck")} == {JOB}


def test_the_contracts_that_are_read_are_those_that_events_are_folded_from_and_keep_heads() -> None:
    says = {name: load_artifact(name)["abi"] for name in EMITTERS}
    for name, abi in says.items():
        assert "logHead" in {item.get("name") for item in abi if item["type"] == "function"}, name
    events = {item["name"] for abi in says.values() for item in abi if item["type"] == "event"}
    known = {abi.name for abi in registry().events.values() if abi.topic in set(event_topics())}
    assert events == known
    rounds = {item["name"] for item in says["Rounds"] if item["type"] == "event"}
    assert rounds > BEHIND["Members"]
    seat = log(Stopped(JOB, MEMBERS, SeatIndex(1), RoundIndex(1), Digest(bytes(32))), ROUNDS, 6, 60)
    assert len(list(HeadFold(BOTH).needed(seat))) == 2


def test_what_is_said_of_a_round_is_behind_its_settlement_where_both_are_in_a_block() -> None:
    leaked = log(
        Leaked(JOB, MEMBERS, SeatIndex(1), RoundIndex(1), Digest(bytes(32))), AUDITS, 6, 60
    )
    heads = []
    for order in ([CLOSED, leaked], [leaked, CLOSED]):
        fold = HeadFold(BOTH)
        fold.fold_all(order)
        heads.append(fold.heads[LogKey(JOB, AUDITS)])
    assert heads[0] != heads[1]
