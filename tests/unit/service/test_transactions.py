"""Which transaction an operator's command is about."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.identities import address

from atoll.chain.call import Call
from atoll.chain.txfile import QUEUE_FILE
from atoll.chain.txrecords import TxState
from atoll.chain.txstore import TxStore
from atoll.errors import ChainError, ConfigError
from atoll.service import transactions
from atoll.service.lock import hold_folder
from atoll.service.transactions import change_transaction


async def test_an_ended_transaction_is_not_taken_for_the_next_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Call(address("stakes"), b"data", "deposit")
    with closing(TxStore(tmp_path / QUEUE_FILE, address("me"), 31337)) as store:
        store.add("1:Deposit", 0, call, 0)
        (first,) = store.all()
        store.end(first, TxState.FAILED, "deposit was withdrawn", None)
        store.add("1:Deposit", 1, call, 0)
    asked: list[str] = []

    async def ask(data_dir: Path, question: str, *, key: str) -> None:
        asked.append(f"{question} {key}")

    monkeypatch.setattr(transactions, "ask", ask)
    config = cast(Any, type("", (), {"data_dir": tmp_path}))
    with hold_folder(tmp_path):
        with pytest.raises(ChainError, match="under way as 1: it is failed") as ended:
            await change_transaction(config, 1, "cancel")
        with pytest.raises(ConfigError, match="has the number 7") as unknown:
            await change_transaction(config, 7, "cancel")
        for error in (ended.value, unknown.value):
            assert "atoll tx list --config" in str(error.next_step)
        assert asked == []
        await change_transaction(config, 2, "cancel")
    assert asked == ["tx-cancel 1:Deposit"]
