"""What the queue's file keeps of a transaction that is asked for, or signed, again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.law.factories import address

from atoll.chain.calls import Call
from atoll.chain.txstore import SignedTransaction, TxState, TxStore

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


def test_what_used_no_nonce_starts_over_in_its_place(store: TxStore) -> None:
    store.add("pay", 0, CALL, 0)
    (first,) = store.all()
    store.end(first, TxState.FAILED, "no gas", "NoGas")
    call = Call(address("game"), b"other", "move", permissionless=True)
    store.add_again(store.all()[0], call, 7)
    assert store.all() == [replace(first, call=call, value=7)]


def test_what_used_a_nonce_stays_and_another_comes_after_it(store: TxStore) -> None:
    store.add("pay", 0, CALL, 0)
    (first,) = store.all()
    store.sign(first, 4, 21_000, SignedTransaction("0x01", first.id, b"raw", 8, 1, cancels=True))
    store.end(first, TxState.FAILED, "withdrawn", None)
    (ended,) = store.all()
    store.add_again(ended, CALL, 0)
    assert store.all() == [ended, replace(first, id=2, generation=1)]
