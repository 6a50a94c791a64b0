"""What an RPC endpoint answers over HTTP costs whoever asked an answer, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from eth_abi.abi import encode
from tests.support.identities import JOB, address
from tests.unit.chain.test_full_blocks import Clock

from atoll.chain import replies, rpc
from atoll.chain.abi import registry
from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.replies import NoAnswer, Reply, result_of
from atoll.chain.response_checks import quantity, raw_logs
from atoll.chain.revert import ERROR_SELECTOR
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable, TransactionFailed
from atoll.protocol.types import Role

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
ROUNDS = address("rounds")
DEPLOYMENT = Deployment(1, 0, dict.fromkeys(REQUIRED, ROUNDS))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "TRIES", 1)


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    """A server that answers everything so; its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(answer: Answer) -> AsyncIterator[FailoverProvider]:
    """A provider with one endpoint, which answers so."""
    async with served(answer) as url:
        provider = FailoverProvider([url], None)
        try:
            yield provider
        finally:
            await provider.disconnect()


@asynccontextmanager
async def chain_that(says: Mapping[str, Any]) -> AsyncIterator[AtollChain]:
    """A chain whose one endpoint answers a method so: with an error, or else with a result."""

    async def answer(request: web.Request) -> web.Response:
        known = {"eth_chainId": hex(DEPLOYMENT.chain_id), **says}
        said = known[(await request.json())["method"]]
        return web.json_response({"error": said["error"]} if "error" in said else {"result": said})

    async with served(answer) as url:
        chain = AtollChain(url, DEPLOYMENT)
        try:
            yield chain
        finally:
            await chain.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_is_sent_on_to_another_host(status: int) -> None:
    asked: list[str] = []

    async def inner(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"jsonrpc": "2.0", "result": "0x1"})

    async with served(inner) as url:

        async def outer(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"{url}api/v0/shutdown"})

        async with asking(outer) as provider:
            with pytest.raises(RpcUnavailable, match=f"HTTP {status}"):
                await provider.ask("eth_chainId", [], quantity)
    assert asked == []


@pytest.mark.parametrize("length", [1 << 32, (1 << 63) - 1, 1 << 64, (1 << 256) - 1])
async def test_calls_that_do_not_decode_hide_no_certificate(length: int) -> None:
    """Anybody may call a contract with anything: it reverts, and stays in the block."""
    settle = registry().function("settle")
    verdict = (0, 0, bytes(32), b"", bytes(8), bytes(32))
    own = encode(settle.inputs, [JOB, b"", [], (verdict, [], b"certificate")])
    strange = own[:128] + length.to_bytes(32, "big") + own[160:]
    sent = [f"0x{(settle.selector + data).hex()}" for data in (strange, own)]
    block = {"transactions": [{"to": ROUNDS, "input": data} for data in sent]}
    async with chain_that({"eth_getBlockByNumber": block}) as chain:
        assert await chain.certificates(5, JOB) == [b"certificate"]
        assert chain.provider.useless_answers == 0


async def test_a_nonce_that_no_transaction_can_have_is_no_answer() -> None:
    async with chain_that({"eth_getTransactionCount": hex(1 << 62)}) as chain:
        with pytest.raises(RpcUnavailable, match="not a counter"):
            await chain.nonce(ROUNDS)


NO_TEXT = ERROR_SELECTOR + encode(["bytes"], [b"\xff\xfe"])  # laid out as a string is
TOO_LONG = ERROR_SELECTOR + (32).to_bytes(32, "big") + b"\xff" * 32


@pytest.mark.parametrize(
    "error",
    [
        {"code": 3, "message": "\ud800 reverted"},
        {"code": 3, "message": ["\ud800"], "data": "\ud800"},
        {"code": 3, "message": "execution reverted", "data": f"0x{NO_TEXT.hex()}"},
        {"code": 3, "message": "execution reverted", "data": f"0x{TOO_LONG.hex()}"},
    ],
)
async def test_a_reason_is_text_that_a_file_takes(error: dict[str, Any]) -> None:
    async with chain_that({"eth_call": {"error": error}}) as chain:
        with pytest.raises(TransactionFailed) as failed:
            await chain.stake(ROUNDS, Role.PROVIDER)
    assert str(failed.value).encode()
    assert all(str(value).encode() for value in failed.value.args_)


@pytest.mark.parametrize("error", [{"code": -1, "message": "\udc80"}, "\udc80", [["\udc80"]]])
async def test_an_endpoint_s_excuse_is_text_that_a_file_takes(error: Any) -> None:
    async with chain_that({"eth_getBalance": {"error": error}}) as chain:
        with pytest.raises(RpcUnavailable) as failed:
            await chain.native_balance(ROUNDS)
    assert str(failed.value).encode()


async def test_what_comes_packed_is_not_unpacked() -> None:
    """A few bytes could become any number of them."""
    accepted: list[str] = []

    async def packed(request: web.Request) -> web.Response:
        accepted.append(request.headers["Accept-Encoding"])
        body = gzip.compress(b'{"result": "0x1"}')
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with asking(packed) as provider:
        with pytest.raises(RpcUnavailable, match="not JSON"):
            await provider.ask("eth_chainId", [], quantity)
    assert accepted == ["identity"]


def log(index: int) -> dict[str, Any]:
    word = f"0x{index:064x}"
    places = {"blockNumber": "0x1", "logIndex": hex(index)}
    names = {"address": f"0x{index:040x}", "blockHash": word, "transactionHash": word}
    return {**names, **places, "topics": [word] * 4, "data": "0x", "removed": False}


async def test_a_long_answer_is_read_beside_the_loop_and_a_short_one_in_it() -> None:
    readers: list[int] = []

    def read(value: Any) -> int:
        readers.append(threading.get_ident())
        return len(raw_logs(value))

    for count in (1, 2000):
        async with chain_that({"eth_getLogs": [log(index) for index in range(count)]}) as chain:
            assert await chain.provider.ask("eth_getLogs", [], read) == count
    short, long = readers
    assert short == threading.get_ident() != long


async def test_an_answer_is_as_long_as_the_question_lets_it_be() -> None:
    said = "0x" + "00" * (replies.MAX_ANSWER_BYTES // 2)
    async with chain_that({"eth_getLogs": said, "eth_call": said}) as chain:
        assert await chain.provider.ask("eth_getLogs", [], len) == len(said)
        with pytest.raises(RpcUnavailable, match="it sent more than"):
            await chain.provider.ask("eth_call", [], len)


@pytest.mark.parametrize("value", [[], {}, 1, {"": 1}])
async def test_an_answer_that_takes_more_room_than_it_has_bytes_is_not_read(value: Any) -> None:
    async with chain_that({"eth_getLogs": [value] * replies.QUICK_BYTES}) as chain:
        with pytest.raises(RpcUnavailable, match="more values than it can have"):
            await chain.provider.ask("eth_getLogs", [], list)


@pytest.mark.parametrize("result", [None, True, -1.5e3, "é 😀", {"a": [{}, [], [{"b": None}]]}])
def test_long_json_means_what_short_json_means(result: Any) -> None:
    for room in ("", " " * replies.QUICK_BYTES):
        body = f'{{"result": {json.dumps(result)}{room}}}'.encode()
        assert result_of(Reply(body), "eth_getLogs") == result


@pytest.mark.parametrize("room", ["", " " * replies.QUICK_BYTES])
@pytest.mark.parametrize("text", ["", "{", "[" * 5_000, '{"result": 1', '{"result": 1}}', "NaN1"])
def test_what_is_no_json_is_no_answer_at_any_length(text: str, room: str) -> None:
    with pytest.raises(NoAnswer, match="not JSON"):
        result_of(Reply(f"{text}{room}".encode()), "eth_getLogs")


class Slow:
    """Computes for so long, as whoever asks sees it."""

    def __init__(self, clock: Clock) -> None:
        self.takes_s = 0.0
        self._clock = clock

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self._clock.ahead += self.takes_s
        for _ in range(3):  # the loop looks at its clock
            await asyncio.sleep(0)
        return web.json_response({"jsonrpc": "2.0", "result": "0x1"})


async def is_answered(provider: FailoverProvider, method: str) -> bool:
    try:
        return await provider.ask(method, [], quantity) == 1
    except RpcUnavailable:
        return False


async def test_who_computes_for_long_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up after ten seconds and asked anew each time, a busy node never comes to an end."""
    clock = Clock(asyncio.get_running_loop())
    monkeypatch.setattr(asyncio.get_running_loop(), "time", clock)
    slow, longest = Slow(clock), rpc.REQUEST_SECONDS * 2**rpc.DOUBLINGS
    async with asking(slow.answer) as provider:
        assert await is_answered(provider, "eth_chainId")
        slow.takes_s = rpc.REQUEST_SECONDS * 1.5
        found = [await is_answered(provider, "eth_estimateGas") for _ in range(3)]
        assert found == [False, True, False]  # once it answered, it is as quick as any other again
        assert not any([await is_answered(provider, "eth_blockNumber") for _ in range(3)])
        slow.takes_s = longest * 1.5
        assert not any([await is_answered(provider, "eth_estimateGas") for _ in range(4)])
        slow.takes_s = longest / 1.5
        assert await is_answered(provider, "eth_estimateGas")


async def test_where_another_answers_nobody_is_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first of several endpoints would hold up a transaction four times as long."""
    clock = Clock(asyncio.get_running_loop())
    monkeypatch.setattr(asyncio.get_running_loop(), "time", clock)
    slow = Slow(clock)

    async def quick(request: web.Request) -> web.Response:
        chain = (await request.json())["method"] == "eth_chainId"
        result = "0x1" if chain else "0x2"
        return web.json_response({"jsonrpc": "2.0", "result": result})

    async with served(slow.answer) as first, served(quick) as second:
        provider = FailoverProvider([first, second], None)
        try:
            await provider.check_all()
            slow.takes_s = rpc.REQUEST_SECONDS * 1.5
            for _ in range(4):
                clock.ahead += rpc.LONGEST_PAUSE_SECONDS
                assert provider.preferred()[0] == first
                assert await provider.ask("eth_estimateGas", [], quantity) == 2
        finally:
            await provider.disconnect()
