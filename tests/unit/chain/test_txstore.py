"""What the queue's file keeps of a transaction that is asked for, or signed, again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.identities import address

from atoll.chain.call import Call
from atoll.chain.database import Database, Parameters
from atoll.chain.txrecords import GasUse, Intent, Receipt, SignedTransaction, TxState
from atoll.chain.txstore import TxStore

CALL = Call(address("stakes"), b"data", "deposit")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TxStore]:
    with closing(open_in(tmp_path)) as opened:
        yield opened


def open_in(folder: Path) -> TxStore:
    return TxStore(folder / "tx.sqlite", address("me"), 31337)


def mine(store: TxStore, key: str, block: int, gas: int, label: str = "deposit") -> Intent:
    """A transaction in a block, of a fee that no 64 bits hold."""
    store.add(key, 0, replace(CALL, label=label), 0)
    intent = found(store, key)
    signed = SignedTransaction(f"0x{intent.id:x}", intent.id, b"raw", 8, 1, cancels=False)
    store.sign(intent, intent.id, 21_000, signed)
    receipt = Receipt(signed.tx_hash, True, block, b"hash", gas, gas << 64)
    store.mined(intent, receipt, TxState.MINED)
    return found(store, key)


def found(store: TxStore, key: str) -> Intent:
    intent = store.find(key)
    assert intent is not None
    return intent


def gas_of_all(store: TxStore) -> dict[str, GasUse]:
    """What `gas_by_label` is to say, from every intent."""
    used: dict[str, list[Intent]] = {}
    for intent in store.all():
        if intent.gas_used:
            used.setdefault(intent.call.label, []).append(intent)
    return {
        label: GasUse(
            transactions=len(intents),
            gas=sum(i.gas_used or 0 for i in intents),
            highest=max(i.gas_used or 0 for i in intents),
            fees=sum(i.fee_wei or 0 for i in intents),
        )
        for label, intents in used.items()
    }


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


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_gas_is_read_of_what_is_not_final(
    tmp_path: Path, is_opened_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_in(tmp_path)
    for block in range(50):
        mine(store, f"pay:{block}", block, 21_000 + block)
    if is_opened_again:
        store.finalise(39)
        store.close()
        store = open_in(tmp_path)
        store.gas_by_label()
    else:
        store.gas_by_label()
        store.finalise(39)
    read, rows = 0, Database.rows

    def counted(database: Database, statement: str, parameters: Parameters = ()) -> list[Any]:
        nonlocal read
        told = rows(database, statement, parameters)
        read += len(told)
        return told

    monkeypatch.setattr(Database, "rows", counted)
    for _ in range(2):
        assert store.gas_by_label() == gas_of_all(store)
    assert read == 2 * 10
    store.finalise(49)
    assert (store.gas_by_label(), read) == (gas_of_all(store), 2 * 10 + 10)
    store.close()


def test_gas_of_a_block_that_a_reorg_took_back_is_not_counted(store: TxStore) -> None:
    store.gas_by_label()
    kept, gone = mine(store, "kept", 4, 30_000), mine(store, "gone", 9, 50_000)
    store.finalise(4)
    assert store.gas_by_label()["deposit"].gas == 80_000
    store.unmined(gone)
    assert store.gas_by_label() == {"deposit": GasUse(1, 30_000, 30_000, kept.fee_wei or 0)}
    store.requeue(gone)
    store.end(gone, TxState.FAILED, "withdrawn", None)
    store.finalise(9)
    assert store.gas_by_label() == gas_of_all(store)


@pytest.mark.parametrize("seed", range(5))
def test_gas_is_that_of_every_intent_whatever_became_of_them(tmp_path: Path, seed: int) -> None:
    chance, store, block = random.Random(seed), open_in(tmp_path), 0
    for number in range(60):
        block += chance.randrange(3)
        label, gas = chance.choice(["commit", "reveal"]), chance.randrange(1, 1 << 20)
        intent = mine(store, f"key:{number}", block, gas, label)
        fate = chance.randrange(6)
        if fate == 0:
            store.unmined(intent)
        elif fate == 1:
            receipt = Receipt("0x01", False, block + 1, b"other", 2 * gas, 3 * gas)
            store.mined(intent, receipt, TxState.REVERTED)
        elif fate == 2:
            store.finalise(block)
            store.add_again(replace(intent, state=TxState.REVERTED), intent.call, 0)
        elif fate == 3:
            store.finalise(chance.randrange(block + 1))
        elif fate == 4:
            store.close()
            store = open_in(tmp_path)
        assert store.gas_by_label() == gas_of_all(store)
    store.close()
