"""Only what is on a short list is the chain's word; all else is one endpoint's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from tests.unit.chain.test_endpoints import served
from tests.unit.chain.trouble import NO_REFUSAL, REFUSED, REVERTS, TROUBLE, Said

from atoll.chain import rpc
from atoll.chain.replies import Reply, rest_asked_s, result_of
from atoll.chain.response_checks import quantity
from atoll.chain.rpc import FailoverProvider, TooMuchAsked
from atoll.chain.verdicts import (
    JUDGED,
    SEND,
    RpcRefused,
    floor_of,
    is_of_base_fee,
    is_too_much,
    is_verdict,
    refusal_of,
)
from atoll.errors import RpcUnavailable

METHODS = (*sorted(JUDGED), "eth_getBalance", "eth_blockNumber")
GOOD = Said({"jsonrpc": "2.0", "result": "0x2a"})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "TRIES", 1)
    monkeypatch.setattr(rpc, "BUSY_SECONDS", 0.0)


@asynccontextmanager
async def asking(*said: Said, chain_id: int | None = None) -> AsyncIterator[FailoverProvider]:
    """Endpoints of one chain, each of which says so to whatever else it is asked."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(_saying(one))) for one in said]
        provider = FailoverProvider(urls, chain_id)
        stack.push_async_callback(provider.disconnect)
        yield provider


def _saying(said: Said) -> Any:
    async def answer(request: web.Request) -> web.Response:
        question = await request.json()
        known = {"jsonrpc": "2.0", "id": question["id"]}
        if question["method"] == "eth_chainId":
            return web.json_response({**known, "result": "0x1"})
        if isinstance(said.body, str):
            return web.Response(text=said.body, status=said.status, headers=said.headers)
        body = {**known, **said.body} if isinstance(said.body, dict) else said.body
        return web.json_response(body, status=said.status, headers=said.headers)

    return answer


@pytest.mark.parametrize("name", TROUBLE)
async def test_trouble_is_no_verdict_alone_and_the_good_one_s_answer_beside_one(name: str) -> None:
    for method in METHODS:
        async with asking(TROUBLE[name]) as alone:
            with pytest.raises(RpcUnavailable):
                await alone.ask(method, [], quantity)
        async with asking(TROUBLE[name], GOOD) as both:
            assert await both.ask(method, [], quantity) == 42


@pytest.mark.parametrize("name", sorted(set(TROUBLE) - {"no method", "no such method here"}))
async def test_who_is_in_trouble_is_asked_last(name: str) -> None:
    async with asking(TROUBLE[name], GOOD) as provider:
        first, second = provider.preferred()
        assert await provider.ask("eth_estimateGas", [], quantity) == 42
        assert provider.preferred() == [second, first]


@pytest.mark.parametrize("name", ["no method", "no such method here"])
async def test_who_does_not_serve_a_method_is_good_for_others(name: str) -> None:
    async with asking(TROUBLE[name], GOOD) as provider:
        before = provider.preferred()
        assert await provider.ask("eth_estimateGas", [], quantity) == 42
        assert provider.preferred() == before


@pytest.mark.parametrize(("node", "said"), REVERTS)
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_revert_is_a_verdict_of_calls(node: str, said: dict[str, Any], status: int) -> None:
    reverts = Said({"error": said}, status)
    for method in ("eth_call", "eth_estimateGas"):
        async with asking(reverts) as provider:
            with pytest.raises(RpcRefused):
                await provider.ask(method, [], quantity)
    async with asking(reverts) as provider:
        with pytest.raises(RpcUnavailable):
            await provider.ask("eth_getBalance", [], quantity)


@pytest.mark.parametrize("method", ["eth_call", "eth_estimateGas"])
async def test_a_revert_is_believed_only_where_nobody_says_otherwise(method: str) -> None:
    """The first one is behind: it judges by a state that is gone."""
    reverts = Said({"error": REVERTS[0][1]})
    async with asking(reverts, TROUBLE["html"], GOOD) as provider:
        assert await provider.ask(method, [], quantity) == 42
    async with asking(reverts, TROUBLE["html"]) as provider:
        with pytest.raises(RpcRefused):
            await provider.ask(method, [], quantity)


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in REFUSED.items() for t in texts])
def test_a_signed_transaction_is_refused_for_five_reasons(kind: str, text: str) -> None:
    refused = RpcRefused(SEND, {"code": -32000, "message": text})
    assert refusal_of(refused) == kind and is_verdict(SEND, refused)
    assert not is_verdict("eth_getBalance", refused)


@pytest.mark.parametrize("text", NO_REFUSAL)
def test_whatever_else_is_said_of_it_is_no_verdict(text: str) -> None:
    assert not is_verdict(SEND, RpcRefused(SEND, {"code": -32000, "message": text}))


@pytest.mark.parametrize(
    ("text", "floor", "of_base"),
    [
        ("transaction underpriced: gas tip cap 7, minimum needed 25000000000", 25 * 10**9, False),
        ("transaction gas price below minimum: gas tip cap 7, minimum needed 30", 30, False),
        ("transaction underpriced: tip needed 3000000000, tip permitted 1", 3 * 10**9, False),
        ("FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20", 20, False),
        ("gas price too low: minimum is 1.5 gwei", 15 * 10**8, False),
        ("max fee per gas less than block base fee: address 0x71, maxFeePerGas: 1, baseFee: 9", 9,
         True),
        ("transaction underpriced", None, False),
        ("replacement transaction underpriced", None, False),
        (f"minimum needed {10**29}", None, False),
        ("minimum needed 0", None, False),
    ],
)  # fmt: skip
def test_the_floor_that_a_node_names_is_read(text: str, floor: int | None, of_base: bool) -> None:
    refused = RpcRefused(SEND, {"code": -32000, "message": text})
    assert (floor_of(refused), is_of_base_fee(refused)) == (floor, of_base)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"code": -32005, "message": "query returned more than 10000 results"}, True),
        ({"code": -32602, "message": "range 1000000 exceeds limit of 10000"}, True),
        ({"code": -32602, "message": "Log response size exceeded."}, True),
        ({"code": -32614, "message": "eth_getLogs is limited to a 10,000 range"}, True),
        ({"code": -32602, "message": "invalid params",
          "data": {"payload": "range 9009594 is bigger than range limit 2000"}}, True),
        ({"code": -32000, "message": "query timeout exceeded"}, True),
        ({"code": -32005, "message": "limit exceeded"}, True),
        ({"code": -32005, "message": "daily request count exceeded, request rate limited"}, False),
        ({"code": -32007, "message": "15/second request limit reached"}, False),
        ({"code": -32000, "message": "header not found"}, False),
    ],
)  # fmt: skip
async def test_who_wants_less_to_be_asked_says_so(said: dict[str, Any], expected: bool) -> None:
    assert is_too_much(RpcRefused("eth_getLogs", said)) is expected
    async with asking(Said({"error": said})) as provider:
        with pytest.raises(RpcUnavailable) as failed:
            await provider.ask("eth_getLogs", [], list)
        assert isinstance(failed.value, TooMuchAsked) is expected


@pytest.mark.parametrize(
    ("status", "said", "seconds"),
    [(429, "7", 7.0), (503, "7", 7.0), (429, "", 1.0), (429, "soon", 1.0), (503, "", None),
     (200, "\u0667", None), (503, "Mon, 99 Jan 9999 99:99:99 GMT", None)],
)  # fmt: skip
def test_retry_after_is_read_in_seconds(status: int, said: str, seconds: float | None) -> None:
    assert rest_asked_s(status, {"Retry-After": said}) == seconds


def test_retry_after_is_read_as_a_date() -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    found = rest_asked_s(503, {"Retry-After": format_datetime(until, usegmt=True)})
    assert found is not None and 3500 < found <= 3600
    settled_round = format_datetime(until - timedelta(days=1), usegmt=True)
    assert rest_asked_s(503, {"Retry-After": settled_round}) == 0.0


@pytest.mark.parametrize("status", [429, 503])
async def test_who_names_a_time_is_left_alone_until_then(status: int) -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status, headers={"Retry-After": "3600"})

    async with served(answer) as url:
        provider = FailoverProvider([url], None)
        for _ in range(3):
            with pytest.raises(RpcUnavailable, match=f"HTTP {status}"):
                await provider.ask("eth_blockNumber", [], quantity)
        await provider.disconnect()
    assert asked == 1


async def test_who_is_asked_too_often_is_waited_for_and_seldom_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers three at once; whoever asked sixteen would be refused most of the time."""
    monkeypatch.setattr(rpc, "BUSY_SECONDS", 600.0)
    waiting, given, refused = 0, 0, 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal waiting, given, refused
        question = await request.json()
        if waiting >= 3:
            refused += 1
            data = {"rate": {"backoff_seconds": 0.05}}
            error = {"code": -32005, "message": "request rate limited", "data": data}
            return web.json_response({"id": question["id"], "error": error}, status=429)
        waiting += 1
        await asyncio.sleep(0.01)
        waiting, given = waiting - 1, given + 1
        return web.json_response({"id": question["id"], "result": "0x1"})

    async with served(answer) as url:
        provider = FailoverProvider([url], 1)
        asked = (provider.ask("eth_blockNumber", [], quantity) for _ in range(48))
        assert await asyncio.gather(*asked) == [1] * 48
        await provider.disconnect()
    assert 0 < refused < given


def test_an_answer_to_another_question_is_none() -> None:
    body = b'{"jsonrpc": "2.0", "id": %s, "result": "0x1"}'
    for number in (b"7", b'"7"', b"null"):
        assert result_of(Reply(body % number, 7), "eth_call") == "0x1"
    for number in (b"6", b'"x"', b"{}"):
        with pytest.raises(Exception, match="another question"):
            result_of(Reply(body % number, 7), "eth_call")
