"""What an operator has a service's account send: by the service where it runs, else by itself.

Rule of this file: a key has one writer. Where the service runs, its queue sends; where it does not,
the folder is held while its queue is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from atoll.chain.call import Call
from atoll.chain.deployment import Deployment
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import ENDED_WITHOUT_EFFECT, TxState
from atoll.errors import ConfigError, TransactionFailed
from atoll.protocol.types import Address
from atoll.service.background_tasks import background_tasks
from atoll.service.config import ServiceConfig
from atoll.service.control import ask
from atoll.service.lock import holder_of
from atoll.service.transactions import opened_queue

LOOK_SECONDS: Final = 0.3
OURS: Final = "operator:"
"""What keys of these transactions begin with, so that no duty's is among them."""
Send = Callable[[str, Call], Awaitable[None]]
"""Sends a call once a key, and waits until it is in a block; raises TransactionFailed."""


@asynccontextmanager
async def sending(config: ServiceConfig) -> AsyncIterator[Send]:
    """How a service's account sends something now.

    Raises:
        ConfigError, KeystoreError, ChainError: the queue cannot be used.
    """
    if holder_of(config.data_dir) is not None:
        yield _through(config.data_dir)
        return
    async with opened_queue(config) as queue, background_tasks([queue.run()]):
        yield sending_with(queue)


def sending_with(queue: TxQueue) -> Send:
    """How a queue that is at work sends."""

    async def send(key: str, call: Call) -> None:
        await queue.submit(OURS + key, call, retry_failed=True)
        await queue.wait(OURS + key)

    return send


def _through(data_dir: Path) -> Send:
    async def send(key: str, call: Call) -> None:
        asked = {
            "key": OURS + key,
            "to": call.to,
            "data": call.data.hex(),
            "label": call.label,
            "permissionless": call.permissionless,
        }
        await ask(data_dir, "tx-send", **asked)
        while True:
            sent = await ask(data_dir, "tx-state", key=OURS + key)
            if sent["state"] == TxState.MINED or sent["state"] == TxState.MOOT:
                return
            if sent["state"] in ENDED_WITHOUT_EFFECT:
                raise TransactionFailed(sent["message"] or f"{call.label} failed")
            await asyncio.sleep(LOOK_SECONDS)

    return send


async def send_in(queue: TxQueue, deployment: Deployment, arguments: dict[str, Any]) -> None:
    """Has a running service's queue send what its operator asks for.

    Raises:
        ConfigError: the call is to no contract of the deployment.
    """
    to = Address(str(arguments["to"]))
    if to not in deployment.addresses.values():
        raise ConfigError(f"{to} is no contract of this network")
    data = bytes.fromhex(str(arguments["data"]))
    call = Call(to, data, str(arguments["label"]), bool(arguments["permissionless"]))
    await queue.submit(str(arguments["key"]), call, retry_failed=True)


def state_in(queue: TxQueue, key: str) -> dict[str, Any]:
    """Where such a transaction stands. Raises ConfigError where none was asked for."""
    status = queue.status(key)
    if status is None:
        raise ConfigError(f"no transaction was asked for as {key!r}")
    return {"state": str(status.state), "message": status.message}
