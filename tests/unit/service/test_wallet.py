"""What an operator sends goes through the running service's queue, and to the network alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import address

from atoll.chain.call import Call
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.txrecords import TxState
from atoll.errors import TransactionFailed
from atoll.service.control import Refused, listening
from atoll.service.lock import hold_folder
from atoll.service.outside import answers_of
from atoll.service.wallet import Send, sending

STAKES = address("stakes")
CALL = Call(STAKES, b"data", "deposit")


class Queue:
    """Takes calls; each is looked at twice before it is in a block, or refused."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Call]] = []
        self.ends: TxState = TxState.MINED
        self.looks = 0

    async def submit(self, key: str, call: Call, *, retry_failed: bool) -> None:
        assert retry_failed
        self.taken.append((key, call))

    def status(self, key: str) -> Any:
        if key not in dict(self.taken):
            return None
        self.looks += 1
        state = TxState.SENT if self.looks < 3 else self.ends
        return SimpleNamespace(state=state, message="no stake")


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
async def send(tmp_path: Path, queue: Queue) -> AsyncIterator[Send]:
    deployment = Deployment(31337, 0, dict.fromkeys(REQUIRED, STAKES))
    context = SimpleNamespace(queue=queue, chain=SimpleNamespace(deployment=deployment))
    service = SimpleNamespace(effects=SimpleNamespace(context=context))
    config = cast(Any, SimpleNamespace(data_dir=tmp_path))
    with hold_folder(tmp_path):
        async with listening(tmp_path, answers_of(cast(Any, service))), sending(config) as send:
            yield send


async def test_a_running_service_sends_and_is_waited_for(send: Send, queue: Queue) -> None:
    await send("deposit:provider:0", CALL)
    assert queue.taken == [("operator:deposit:provider:0", CALL)]
    assert queue.looks == 3


@pytest.mark.parametrize("end", [TxState.FAILED, TxState.REVERTED])
async def test_what_failed_is_told(send: Send, queue: Queue, end: TxState) -> None:
    queue.ends = end
    with pytest.raises(TransactionFailed, match="no stake"):
        await send("deposit:provider:0", CALL)


async def test_what_others_did_before_is_done(send: Send, queue: Queue) -> None:
    queue.ends = TxState.MOOT
    await send("release:1:0:1", CALL)


async def test_only_contracts_of_the_network_are_called(send: Send, queue: Queue) -> None:
    with pytest.raises(Refused, match="no contract of this network"):
        await send("anything", Call(address("elsewhere"), b"data", "deposit"))
    assert queue.taken == []
