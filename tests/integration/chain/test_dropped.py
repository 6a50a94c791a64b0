"""An endpoint that takes transactions and passes them on to nobody holds none up for long."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil
from tests.unit.chain.test_endpoints import served

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.txconfig import QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.protocol.types import Address
from atoll.service.background_tasks import background_tasks

SOMEONE = Address("0x000000000000000000000000000000000000bEEF")
EAGER = QueueConfig(poll_seconds=0.02, rebroadcast_seconds=0.0, replace_seconds=3600.0)


@asynccontextmanager
async def dropping(target: str, *, says_known: bool) -> AsyncIterator[str]:
    """An endpoint that answers as another one does, and keeps what is sent to itself."""
    kept: set[str] = set()

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        asked = json.loads(body)
        if asked["method"] == "eth_sendRawTransaction":
            name = f"0x{keccak(hexstr=asked['params'][0]).hex()}"
            if name in kept and says_known:
                return web.json_response({"error": {"code": -32000, "message": "already known"}})
            kept.add(name)
            return web.json_response({"result": name})
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(target, data=body, headers=headers) as reply,
        ):
            return web.Response(body=await reply.read(), headers=headers)

    async with served(answer) as url:
        yield url


@pytest.mark.parametrize("says_known", [False, True])
async def test_what_an_endpoint_passes_on_to_nobody_is_shown_to_the_others(
    anvil: Anvil,
    deployment: Deployment,
    accounts: list[LocalAccount],
    says_known: bool,
    tmp_path: Path,
) -> None:
    async with dropping(anvil.url, says_known=says_known) as url:
        chain = await AtollChain.connect([url, anvil.url], deployment)
        with closing(TxQueue(chain, accounts[0], tmp_path / "tx.sqlite", EAGER)) as queue:
            async with background_tasks([queue.run()]):
                status = await queue.execute("pay", chain.calls.transfer(SOMEONE, 5))
        assert status.has_effect
        assert await chain.token_balance(SOMEONE) == 5
        await chain.close()
