"""Logs on disk: which of them are read, which blocks are let go of, and whose folds are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.identities import address, digest

from atoll.chain.abi import registry
from atoll.chain.decode import RawLog
from atoll.chain.log_heads import NO_JOB
from atoll.chain.log_store import EVERY_LOG, FAR, PRUNED_AT_ONCE, LogFilter, LogStore
from atoll.protocol.types import Address, BlockRef

ME, OTHER, CONTRACT = address("me"), address("other"), address("members")
TOPICS = {abi.name: abi.topic for abi in registry().events.values()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = LogStore(tmp_path / "events.sqlite", {})
    yield opened
    opened.db.close()


def block(number: int) -> BlockRef:
    return BlockRef(number, digest(f"block {number}"), 1_000 + number)


def raw(number: int, job: int, account: Address = OTHER, *, in_data: bool = False) -> RawLog:
    word = bytes.fromhex(account[2:]).rjust(32, b"\0")
    named = TOPICS["GatewayAnnounced"] if job == NO_JOB else TOPICS["Seated"]
    topics = (named,) if job == NO_JOB else (named, job.to_bytes(32, "big"))
    topics, data = (topics, word) if in_data else ((*topics, word), b"")
    place = block(number)
    return RawLog(CONTRACT, topics, data, number, place.hash, 0, b"\1" * 32, place.timestamp)


def numbers(store: LogStore, which: LogFilter = EVERY_LOG, after: int = -1) -> list[int]:
    return [each.block_number for page in store.pages(after, FAR, which) for each in page]


def test_of_all_logs_those_are_read_that_are_asked_for(store: LogStore) -> None:
    logs = [raw(1, NO_JOB), raw(2, 7), raw(3, 8, ME), raw(4, 8), raw(5, 9, ME, in_data=True)]
    store.add(block(9), logs)
    mine = frozenset({ME})
    assert numbers(store) == [1, 2, 3, 4, 5]
    assert numbers(store, after=2) == [3, 4, 5]
    assert numbers(store, LogFilter.of_job(8)) == [1, 3, 4]
    assert numbers(store, LogFilter(frozenset(), mine)) == [3, 5]
    assert numbers(store, LogFilter(frozenset({7}), mine)) == [2, 3, 5]
    assert numbers(store, LogFilter(frozenset())) == []


def test_blocks_without_events_are_let_go_of_as_it_goes(store: LogStore) -> None:
    """Each look leaves a row; a year of them is ten million."""
    rows = []
    for number in range(1, 3 * PRUNED_AT_ONCE):
        store.add(block(number), [raw(number, 7)] if number % 100 == 0 else [])
        store.prune(number - 10)
        rows.append(store.db.execute("SELECT count(*) FROM read_blocks").fetchone()[0])
    assert max(rows) <= PRUNED_AT_ONCE + 10 + len(numbers(store))
    assert numbers(store) == list(range(100, 3 * PRUNED_AT_ONCE, 100))
    newest = store.tip()
    assert newest == block(3 * PRUNED_AT_ONCE - 1)


def test_a_fold_is_kept_for_its_code_and_while_its_block_stands(store: LogStore) -> None:
    for number in (5, 10, 15):
        store.add(block(number), [])
        store.note_checked(number)
        store.keep_fold(b"code", b"fold %d" % number)
    kept = store.kept_fold(b"code", FAR)
    assert kept is not None and (kept.number, kept.fold) == (15, b"fold 15")
    store.prune(15 + PRUNED_AT_ONCE)
    earlier = store.kept_fold(b"code", 14)
    assert earlier is not None and earlier.fold == b"fold 10"
    assert store.kept_fold(b"code", 9) is None  # two are kept
    assert store.kept_fold(b"other", FAR) is None
    store.drop_after(12)
    store.add(BlockRef(15, digest("another"), 2_000), [])
    left = store.kept_fold(b"code", FAR)
    assert left is not None and left.number == 10
    store.keep_fold(b"other", b"fold")
    assert store.kept_fold(b"code", FAR) is None
