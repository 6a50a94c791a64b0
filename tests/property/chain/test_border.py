"""The border to strangers: whatever they write or answer, nothing but the declared errors comes in.

A log's topics and data, a gateway's address and an endpoint's answer are bytes of somebody who owes
us nothing.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.identities import DOMAIN, JOB, address
from tests.unit.protocol.script import Script

from atoll.chain import replies, response_checks
from atoll.chain.abi import EventAbi, registry
from atoll.chain.decode import RawLog, decode_log
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold
from atoll.chain.indexed import Indexed
from atoll.chain.rpc import FailoverProvider
from atoll.chain.verdicts import JUDGED, RpcRefused, is_verdict
from atoll.errors import RpcUnavailable, UndecodableLog
from atoll.protocol.events import EVENT_TYPES
from atoll.protocol.types import BlockRef, Digest
from atoll.storage.sources import normalise_gateway

EVENTS = sorted((e for e in registry().events.values() if e.name in EVENT_TYPES), key=str)
WORDS = st.binary(min_size=32, max_size=32)
SMALL = st.integers(0, 40).map(lambda value: value.to_bytes(32, "big"))
"""Job, seat and verifier numbers, offsets and lengths are small where a contract wrote them."""
BLOCK = BlockRef(9, Digest(bytes(32)), 1_000)
FEW = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def _logs(draw: st.DrawFn) -> RawLog:
    """Logs with the topic of an event and any bytes behind it."""
    abi: EventAbi = draw(st.sampled_from(EVENTS))
    indexed = [draw(SMALL | WORDS) for kind in abi.indexed if kind]
    topics = draw(st.just([abi.topic, *indexed]) | st.lists(WORDS, max_size=4))
    data = draw(st.binary(max_size=200) | st.lists(SMALL | WORDS, max_size=24).map(b"".join))
    return RawLog(address("a contract"), tuple(topics), data, 9, bytes(32), 0)


def _value(kind: str) -> st.SearchStrategy[Any]:
    """Any value of an ABI type; numbers small, so that they name jobs, seats and slots."""
    if kind.startswith("("):
        parts, depth, start = [], 0, 1
        for at, letter in enumerate(kind):
            depth += (letter == "(") - (letter == ")")
            if (letter == "," and depth == 1) or (letter == ")" and depth == 0 and at > 1):
                parts.append(kind[start:at])
                start = at + 1
        return st.tuples(*map(_value, parts))
    if kind == "bool":
        return st.booleans()
    if kind == "address":
        return st.sampled_from([address("provider 0"), address("verifier 0"), address("stranger")])
    if kind == "string":
        return st.text(max_size=20)
    if kind == "bytes":
        return st.binary(max_size=40)
    if kind.startswith("bytes"):
        return st.binary(min_size=int(kind[5:]), max_size=int(kind[5:]))
    bits = int(kind.removeprefix("uint"))
    return st.integers(0, 8) | st.integers(0, 2**bits - 1)


def _any_value(kind: str) -> st.SearchStrategy[Any]:
    if kind.endswith("[]"):
        return st.lists(_value(kind[:-2]), max_size=3)
    return _value(kind)


@st.composite
def _well_formed(draw: st.DrawFn) -> RawLog:
    """Logs that decode, of events that make no sense where they stand."""
    abi: EventAbi = draw(st.sampled_from(EVENTS))
    values = [draw(_any_value(kind)) for kind in abi.types]
    if abi.fields[0] in {"jobId", "job_id"}:
        values[0] = int(JOB)
    rows = list(zip(abi.types, abi.indexed, values, strict=True))
    topics = [encode([kind], [value]) for kind, indexed, value in rows if indexed]
    inside = [(kind, value) for kind, indexed, value in rows if not indexed]
    data = encode([kind for kind, _ in inside], [value for _, value in inside])
    return RawLog(address("a contract"), (abi.topic, *topics), data, 9, bytes(32), 0)


@pytest.fixture(scope="module")
def fold() -> Fold:
    """A job in the middle of a round."""
    script = Script.ready()
    script.honest_round()
    script.train()
    fold = Fold(Deployment(DOMAIN.chain_id, 0, {"Rounds": DOMAIN.rounds}), None)
    fold.fold_all(Indexed(event, block, i) for i, (event, block) in enumerate(script.net.log))
    assert fold.rejected == 0
    return fold


def test_any_log_decodes_or_is_undecodable_and_folds_or_is_passed_over(fold: Fold) -> None:
    """Some decode, some do not; some fold, some do not: else this would say little."""
    seen: set[str] = set()

    @FEW
    @given(log=_logs() | _well_formed())
    def look(log: RawLog) -> None:
        try:
            event = decode_log(log)
        except UndecodableLog:
            seen.add("undecodable")
            return
        if event is None:
            return
        before, rejected = fold.views[JOB], fold.rejected
        fold.fold_all([Indexed(event, BLOCK, 0)])
        if fold.rejected > rejected:
            assert fold.views[JOB] == before
        seen.add("rejected" if fold.rejected > rejected else "folded")
        fold.views[JOB] = before

    look()
    assert seen == {"undecodable", "rejected", "folded"}


@settings(max_examples=1000, deadline=None)
@given(
    st.text(max_size=40)
    | st.text(alphabet="htps:/[]@.:%#?\\1af_- \x00é", max_size=30).map(lambda t: f"http://{t}")
)
@example("http://[:]")  # which yarl takes apart, and writes as no URL
def test_any_text_is_a_gateway_or_none(text: str) -> None:
    url = normalise_gateway(text)
    if url is not None:
        assert text.isascii() and url.isprintable()
        assert normalise_gateway(url) == url


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["0x", "0x0", "0x1", "0x" + "ab" * 32, "0x" + "cd" * 20, "0x" + "00" * 256]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)  # fmt: skip
BLOCK_JSON = {
    "number": "0x9", "hash": "0x" + "ab" * 32, "parentHash": "0x" + "cd" * 32,
    "timestamp": "0x1", "logsBloom": "0x" + "00" * 256, "transactions": ["0x" + "ef" * 32],
    "baseFeePerGas": "0x1",
}  # fmt: skip
LOG_JSON = {
    "address": "0x" + "12" * 20, "topics": ["0x" + "34" * 32], "data": "0x", "blockNumber": "0x9",
    "blockHash": "0x" + "ab" * 32, "logIndex": "0x0", "removed": False,
    "transactionHash": "0x" + "cd" * 32,
}  # fmt: skip
RECEIPT_JSON = {
    "transactionHash": "0x" + "ef" * 32, "status": "0x1", "blockNumber": "0x9",
    "blockHash": "0x" + "ab" * 32, "gasUsed": "0x5208", "effectiveGasPrice": "0x1",
    "logs": [LOG_JSON],
}  # fmt: skip
QUESTIONS: list[tuple[str, Any, Any]] = [
    ("eth_getBlockByNumber", response_checks.header, BLOCK_JSON),
    ("eth_getBlockByNumber", response_checks.optional(response_checks.header), BLOCK_JSON),
    ("eth_getLogs", response_checks.raw_logs, [LOG_JSON]),
    ("eth_getBlockReceipts", response_checks.block_receipts, [RECEIPT_JSON]),
    ("eth_getTransactionReceipt", response_checks.receipt, RECEIPT_JSON),
    ("eth_getBalance", response_checks.quantity, "0x1"),
    ("eth_call", response_checks.data, "0x"),
    ("eth_estimateGas", response_checks.quantity, "0x5208"),
    ("eth_sendRawTransaction", response_checks.tx_hash, "0x" + "ef" * 32),
]


@st.composite
def _maimed(draw: st.DrawFn, value: Any) -> Any:
    """The value with any one part of it something else, or gone."""
    if isinstance(value, list) and value and draw(st.booleans()):
        return [draw(_maimed(value[0])), *value[1:]]
    if isinstance(value, dict) and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.booleans()):
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: draw(_maimed(value[name]))}
    return draw(JSON)


@st.composite
def _exchanges(draw: st.DrawFn) -> tuple[str, Any, bytes]:
    """A question and the body of the answer."""
    method, read, good = draw(st.sampled_from(QUESTIONS))
    response = draw(
        st.fixed_dictionaries({"id": st.sampled_from([0, 1]) | JSON, "result": _maimed(good)})
        | st.fixed_dictionaries({"error": JSON})
        | st.fixed_dictionaries(
            {"error": st.fixed_dictionaries({"code": JSON, "message": JSON, "data": JSON})}
        )
        | JSON
    )
    whole = json.dumps(response).encode()
    body = draw(st.just(whole) | st.binary(max_size=40) | st.just(whole[: len(whole) // 2]))
    return method, read, body


@FEW
@given(exchange=_exchanges())
def test_any_answer_is_an_answer_or_the_endpoint_s_failure(
    exchange: tuple[str, Any, bytes],
) -> None:
    method, read, body = exchange
    try:
        replies.useful(read, replies.result_of(replies.Reply(body), method), method)
    except replies.NoAnswer:
        pass
    except RpcRefused as refused:
        assert method in JUDGED
        assert is_verdict(method, refused) and str(refused)


@pytest.mark.parametrize("huge", ["0x" + "f" * 64, hex(1 << 62)])
@pytest.mark.parametrize(
    ("read", "good", "name"),
    [
        (response_checks.header, BLOCK_JSON, "number"),
        (response_checks.header, BLOCK_JSON, "timestamp"),
        (response_checks.raw_log, LOG_JSON, "blockNumber"),
        (response_checks.raw_log, LOG_JSON, "logIndex"),
        (response_checks.mined_receipt, RECEIPT_JSON, "blockNumber"),
        (response_checks.mined_receipt, RECEIPT_JSON, "gasUsed"),
    ],
)
def test_a_number_that_no_database_keeps_is_no_answer(
    read: Any, good: dict[str, Any], name: str, huge: str
) -> None:
    """The index writes them down: SQLite ends at 63 bits, with an error that nobody expects."""
    read({**good, name: hex((1 << 62) - 1)})
    with pytest.raises(replies.NoAnswer):
        replies.useful(read, {**good, name: huge}, "any")


@settings(max_examples=60, deadline=None)
@given(exchange=_exchanges(), head=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n\r\n"]))
def test_any_bytes_on_the_wire_are_an_answer_or_a_declared_error(
    exchange: tuple[str, Any, bytes], head: bytes
) -> None:
    method, read, body = exchange
    asyncio.run(_ask_over_http(method, read, head + body))


async def _ask_over_http(method: str, read: Any, response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    provider = FailoverProvider([url], None, request_seconds=2.0)
    provider._endpoints = [replace(item, checked=True) for item in provider._endpoints]
    async with server:
        try:
            await provider.ask(method, [], read)
        except RpcUnavailable:
            pass
        except RpcRefused:
            assert method in JUDGED
        finally:
            await provider.disconnect()
