"""What the queue's file keeps of a transaction that is asked for, or signed, again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.law.factories import address

from atoll.chain.calls import Call
from atoll.chain.txstore import SignedTransaction, TxStore

CALL = Call(address("stakes"), b"data", "deposit")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TxStore]:
    with closing(TxStore(tmp_path / "tx.sqlite", address("me"), 31337)) as opened:
        yield opened


def test_what_was_signed_last_is_the_newest_also_where_it_is_not_new(store: TxStore) -> None:
    store.add("pay", 0, CALL, 0)
    (intent,) = store.all()
    first = SignedTransaction("0x01", intent.id, b"raw", 8, 1, cancels=False)
    second = replace(first, tx_hash="0x02", max_fee=10)
    for signed in (first, second, first):
        store.sign(intent, 4, 21_000, signed)
        assert store.signed(intent)[0] == signed
    assert store.signed(intent) == [first, second]
