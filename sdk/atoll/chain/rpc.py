"""JSON-RPC over HTTP to one chain through several endpoints.

Rule of this file: it is the one boundary to endpoints. Whatever an endpoint says that is not the
answer asked for (an error, a null, HTML, half of a document, a block without a number) means that
this endpoint did not answer usefully, and the next one is asked. Only what a node says about a call
or a transaction itself (a revert, a nonce) goes to the caller, and an endpoint of another chain is
never used.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import json.scanner
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp

from atoll.chain.answers import quantity, text
from atoll.chain.urls import redact, require_endpoint
from atoll.errors import ChainError, ConfigError, RpcUnavailable, WrongChain
from atoll.nested import loads

T = TypeVar("T")
Read = Callable[[Any], T]
"""Makes a JSON value into what was asked for, and raises anything where it is not that."""

REQUEST_SECONDS = 10.0  # a second endpoint is asked long before a window of a round ends
DOUBLINGS: Final = 2
"""Of that, where an endpoint computes for longer and no other is at hand: asked anew in vain, it
would only be slower. Where there are others, who is silent holds nobody up for longer.
"""
SLOWEST: Final = 1 << 19
"""Bytes a second of a line that large answers come through: what has come buys as much time."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
TRIES: Final = 3
"""Of an endpoint that answers, but not usefully, before the question counts as unanswered."""
TRY_PAUSE_SECONDS = 0.1  # between tries of one question at one endpoint
MAX_ANSWER_BYTES: Final = 1 << 20
"""More than any contract's code as hexadecimal digits; an endless answer ends here."""
MAX_LARGE_ANSWER_BYTES: Final = 1 << 25
MAX_RECEIPTS_BYTES: Final = 1 << 26
"""More than the receipts of a block of 60 million gas, all of it spent on logs: a block that cannot
be read holds up everybody who follows the chain, and anybody can pay for one.
"""
LARGE_ANSWERS: Final = {
    "eth_getBlockByNumber": MAX_LARGE_ANSWER_BYTES,
    "eth_getBlockReceipts": MAX_RECEIPTS_BYTES,
    "eth_getLogs": MAX_LARGE_ANSWER_BYTES,
    "eth_getTransactionReceipt": MAX_LARGE_ANSWER_BYTES,
}
QUICK_BYTES: Final = 1 << 16
"""An answer of so many is read at once; a longer one in a thread."""
VALUE_BYTES: Final = 12
"""Of a long answer to a JSON value, at the least: it is of hashes and addresses. A value takes up
to 90 bytes of memory, however short it is.
"""
JUDGED: Final = frozenset({"eth_call", "eth_estimateGas", "eth_sendRawTransaction"})
"""Questions to which an error can be the answer."""
NO_JUDGEMENT: Final = frozenset({429, -32002, -32005, -32029, -32600, -32601, -32603, -32700})
"""Error codes of EIP-1474 and of common endpoints that speak of the endpoint: busy, broken, unable.
"""
UNSUPPORTED: Final = frozenset({-32601, -32004})
"""No such method, and a method that this node does not serve: trying again changes nothing."""


class RpcRefused(ChainError):
    """A node understood a call or a transaction and refused it.

    Attributes:
        code: JSON-RPC error code; 0 where the node gave none.
        data: what the node attached, as it came (revert data hides in here).
    """

    def __init__(self, method: str, error: Any) -> None:
        known = error if isinstance(error, dict) else {"message": error}
        code = known.get("code")
        self.code = code if isinstance(code, int) else 0
        self.data: Any = known.get("data")
        self.text = text(known.get("message", ""))
        super().__init__(f"{method} was refused: {self.text} (code {self.code})")

    @property
    def is_judgement(self) -> bool:
        """Whether it speaks of the call, and not of the endpoint that was to judge it."""
        return self.code not in NO_JUDGEMENT or "revert" in self.text.lower()


@dataclass(slots=True)
class _Endpoint:
    url: str
    checked: bool = False
    wrong_chain: int | None = None
    failures: int = 0
    paused_until: float = 0.0  # event loop time, seconds
    last_error: str = ""
    overdue: Counter[str] = field(default_factory=Counter)  # by method, since it was answered last

    def pause(self, now: float) -> None:
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures, 16), LONGEST_PAUSE_SECONDS)
        self.failures += 1
        self.paused_until = now + pause


class _NoAnswer(Exception):
    """One endpoint did not answer usefully.

    Attributes:
        silent: it did not answer at all.
        code: of the JSON-RPC error that it answered with, if it did.
    """

    def __init__(self, message: str, *, silent: bool = False, code: int = 0) -> None:
        super().__init__(text(message))
        self.silent = silent
        self.code = code

    @property
    def is_lasting(self) -> bool:
        """Whether there is no use in asking again at once."""
        return self.silent or self.code in UNSUPPORTED


class FailoverProvider:
    """Asks the first endpoint that answers usefully, in the order given.

    Args:
        urls: http(s) endpoints, the preferred one first.
        chain_id: every endpoint has to serve this chain; checked before its first use. None: the
            chain of whichever endpoint answers first.
    Raises:
        ConfigError: no endpoint, or one that is not http(s).

    Attributes:
        useless_answers: how often an endpoint did not answer usefully.
    """

    def __init__(
        self, urls: Sequence[str], chain_id: int | None, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        if not urls:
            raise ConfigError("no RPC endpoint is configured", next_step="set an RPC URL")
        for url in urls:
            require_endpoint(url)
        self.chain_id = chain_id
        self.useless_answers = 0
        self._endpoints = [_Endpoint(url) for url in urls]
        self._request_seconds = request_seconds
        self._session: aiohttp.ClientSession | None = None
        self._ids = itertools.count(1)
        self._reads_long = asyncio.Lock()  # one at a time: they take memory

    @property
    def urls(self) -> list[str]:
        """The endpoints, the preferred one first."""
        return [endpoint.url for endpoint in self._endpoints]

    async def ask(self, method: str, params: Sequence[Any], read: Read[T]) -> T:
        """The first useful answer of any endpoint.

        Args:
            read: makes the answer's `result` into what was asked for; where it raises, the answer
                is of no use.

        Raises:
            RpcRefused: a node judged the call or the transaction (only for `JUDGED` methods).
            RpcUnavailable: no endpoint answered usefully; the message names each one's cause.
            WrongChain: every endpoint that answered serves another chain.
        """
        _, answer = await self._first(method, params, read)
        return answer

    async def ask_at(self, url: str, method: str, params: Sequence[Any], read: Read[T]) -> T:
        """As `ask`, of this one of the endpoints alone."""
        alone = [endpoint for endpoint in self._usable() if endpoint.url == url]
        _, answer = await self._first(method, params, read, alone)
        return answer

    async def ask_several(
        self, count: int, method: str, params: Sequence[Any], read: Read[T]
    ) -> list[T]:
        """As `ask`, and what others say, up to so many in all, as far as they are at hand."""
        first, answer = await self._first(method, params, read)
        said, now = [answer], asyncio.get_running_loop().time()
        for other in self._usable():
            if other is first or other.paused_until > now or len(said) == count:
                continue
            try:
                found = await self._ask_one(other, method, params, read)
            except _NoAnswer as error:
                self._note(other, error)
            else:
                said += found or ()
        return said

    async def ask_all(
        self,
        method: str,
        params: Sequence[Any],
        read: Read[T],
        is_enough: Callable[[Collection[T]], bool] = lambda _: False,
    ) -> dict[str, T]:
        """What each endpoint of this chain answers, by URL; of those that answer usefully at once.

        Args:
            is_enough: whether these answers are. Then nobody is asked who failed lately: one that
                is silent would be waited for each time.

        Raises:
            RpcRefused: as `ask`.
        """

        async def one(endpoint: _Endpoint) -> tuple[T] | None:
            try:
                return await self._ask_one(endpoint, method, params, read)
            except _NoAnswer as error:
                self._note(endpoint, error)
                return None

        now, said = asyncio.get_running_loop().time(), dict[str, T]()
        for is_paused in (False, True):
            asked = [each for each in self._usable() if (each.paused_until > now) == is_paused]
            if not is_enough(said.values()):
                found = zip(asked, await asyncio.gather(*map(one, asked)), strict=True)
                said |= {each.url: answer[0] for each, answer in found if answer is not None}
        return said

    async def tell_all(
        self, method: str, params: Sequence[Any], read: Read[object]
    ) -> list[RpcRefused]:
        """Says something to every endpoint of this chain; how those refused that did.

        Who failed lately is left out where there is another one.
        """

        async def one(endpoint: _Endpoint) -> list[RpcRefused]:
            try:
                await self._ask_one(endpoint, method, params, read)
            except RpcRefused as refused:
                return [refused]
            except _NoAnswer as error:
                self._note(endpoint, error)
            return []

        now = asyncio.get_running_loop().time()
        told = [each for each in self._usable() if each.paused_until <= now] or self._usable()
        return [refused for found in await asyncio.gather(*map(one, told)) for refused in found]

    def distrust(self, url: str, why: str) -> None:
        """Asks others first for a while: what this endpoint says is not what most say."""
        for endpoint in self._endpoints:
            if endpoint.url == url:
                self.useless_answers += 1
                endpoint.last_error = why
                now = asyncio.get_running_loop().time()
                endpoint.paused_until = now + LONGEST_PAUSE_SECONDS

    async def check_all(self) -> None:
        """Looks at every endpoint now, so that a wrong one is found at start and not in need.

        Raises:
            WrongChain: some endpoint serves another chain.
            RpcUnavailable: none answers.
        """
        await self.ask("eth_chainId", [], quantity)
        for endpoint in self._endpoints:
            try:
                if not await self._serves_this_chain(endpoint):
                    raise self._wrong_chain(endpoint)
            except _NoAnswer as error:
                self._note(endpoint, error)

    async def disconnect(self) -> None:
        """Closes the connections; the provider may be used again afterwards."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def preferred(self) -> list[str]:
        """The endpoints of this chain in the order in which they are asked."""
        return [endpoint.url for endpoint in self._in_order()]

    def _usable(self) -> list[_Endpoint]:
        return [endpoint for endpoint in self._endpoints if endpoint.wrong_chain is None]

    def _in_order(self) -> list[_Endpoint]:
        """Those of this chain; who failed lately is last."""
        now = asyncio.get_running_loop().time()
        return sorted(self._usable(), key=lambda endpoint: endpoint.paused_until > now)

    async def _first(
        self,
        method: str,
        params: Sequence[Any],
        read: Read[T],
        among: Sequence[_Endpoint] | None = None,
    ) -> tuple[_Endpoint, T]:
        """The first useful answer and whose it is, of all or these; raises as `ask`.

        An error that is no judgement is given to the caller where nobody has a better word, so that
        one call that every node chokes on does not look like a chain that is away.
        """
        left = self._in_order() if among is None else list(among)
        refusal: RpcRefused | None = None
        for attempt in range(TRIES):
            if attempt and left:
                await asyncio.sleep(TRY_PAUSE_SECONDS * 2 ** (attempt - 1))
            for endpoint in list(left):
                try:
                    answer = await self._ask_one(endpoint, method, params, read)
                except RpcRefused as error:
                    if error.is_judgement:
                        raise
                    refusal = error
                except _NoAnswer as error:
                    self._note(endpoint, error)
                    if error.is_lasting:
                        left.remove(endpoint)
                else:
                    if answer is not None:
                        return endpoint, answer[0]
                    left.remove(endpoint)
        raise refusal if refusal is not None else self._nobody_answered()

    def _note(self, endpoint: _Endpoint, error: _NoAnswer) -> None:
        self.useless_answers += 1
        endpoint.last_error = str(error)
        if error.code not in UNSUPPORTED:
            endpoint.pause(asyncio.get_running_loop().time())

    async def _ask_one(
        self, endpoint: _Endpoint, method: str, params: Sequence[Any], read: Read[T]
    ) -> tuple[T] | None:
        """One endpoint's answer; None where it serves another chain.

        Raises:
            RpcRefused, _NoAnswer.
        """
        if not await self._serves_this_chain(endpoint):
            return None
        answer = await self._answer(endpoint, method, params, read)
        endpoint.failures, endpoint.paused_until = 0, 0.0
        return (answer,)

    async def _serves_this_chain(self, endpoint: _Endpoint) -> bool:
        if not endpoint.checked:
            served = await self._chain_of(endpoint)
            if self.chain_id not in (None, served):
                # It costs the endpoint its place, so it has to say so twice.
                if await self._chain_of(endpoint) != served:
                    raise _NoAnswer("it names one chain and then another")
                endpoint.wrong_chain = served
            self.chain_id = served if self.chain_id is None else self.chain_id
            endpoint.checked = True
        return endpoint.wrong_chain is None

    async def _chain_of(self, endpoint: _Endpoint) -> int:
        return await self._answer(endpoint, "eth_chainId", [], quantity)

    async def _answer(
        self, endpoint: _Endpoint, method: str, params: Sequence[Any], read: Read[T]
    ) -> T:
        """What one endpoint answers.

        Raises:
            RpcRefused: an error, to a question that an error can answer.
            _NoAnswer: anything else.
        """
        body = await self._post(endpoint, method, params)
        if len(body) <= QUICK_BYTES:
            return _useful(read, _result_of(body, method), method)
        async with self._reads_long:
            return await asyncio.to_thread(lambda: _useful(read, _result_of(body, method), method))

    async def _post(self, endpoint: _Endpoint, method: str, params: Sequence[Any]) -> bytes:
        """The body of one answer. Raises _NoAnswer."""
        if self._session is None:
            # Packed, a few bytes could become any number of them.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),  # see below
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        asked = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(params)}
        patience_s = self._patience_s(endpoint, method)
        try:
            # Sent on, the question would go to whatever host the endpoint names: this machine, too.
            asking = self._session.post(endpoint.url, json=asked, allow_redirects=False)
            async with asyncio.timeout(patience_s) as patience, asking as reply:
                if 300 <= reply.status < 400 or reply.status == 429 or reply.status >= 500:
                    raise _NoAnswer(f"HTTP {reply.status}")
                body = await _read_whole(reply.content, method, patience)
                del endpoint.overdue[method]
                return body
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            endpoint.overdue[method] += method in JUDGED and isinstance(error, TimeoutError)
            raise _NoAnswer(str(error) or type(error).__name__, silent=True) from error
        # ValueError: aiohttp documents no closed list of what a malformed answer raises.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _NoAnswer(f"{type(error).__name__}: {error}"[:200]) from error

    def _patience_s(self, endpoint: _Endpoint, method: str) -> float:
        """How long an answer is waited for."""
        now = asyncio.get_running_loop().time()
        if any(other.paused_until <= now for other in self._usable() if other is not endpoint):
            return self._request_seconds
        return self._request_seconds * 2.0 ** min(endpoint.overdue[method], DOUBLINGS)

    def _nobody_answered(self) -> ChainError:
        if not self._usable():
            return self._wrong_chain(self._endpoints[0])
        causes = "; ".join(
            f"{redact(endpoint.url)}: {endpoint.last_error or 'serves another chain'}"
            for endpoint in self._endpoints
        )
        return RpcUnavailable(
            f"no RPC endpoint answered ({causes})",
            next_step="check that the node runs and that the RPC URL is right",
        )

    def _wrong_chain(self, endpoint: _Endpoint) -> WrongChain:
        return WrongChain(
            f"{redact(endpoint.url)} serves chain {endpoint.wrong_chain}, "
            f"but the deployment is on chain {self.chain_id}",
            next_step="use an RPC URL of the deployment's chain, or its own deployment file",
        )


class _PatientDecoder(json.JSONDecoder):
    """Reads JSON in Python: what does so in C lets no other thread run until it is through."""

    def __init__(self) -> None:
        super().__init__()
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]  # of no stub


async def _read_whole(
    stream: aiohttp.StreamReader, method: str, patience: asyncio.Timeout
) -> bytes:
    """An answer's bytes, each of which puts the end of patience off. Raises _NoAnswer."""
    limit = LARGE_ANSWERS.get(method, MAX_ANSWER_BYTES)
    pieces: list[bytes] = []
    size = 0
    async for piece in stream.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _NoAnswer(f"it sent more than {limit} bytes")
        until = patience.when()
        if until is not None and not patience.expired():
            patience.reschedule(until + len(piece) / SLOWEST)
    return b"".join(pieces)


def _result_of(body: bytes, method: str) -> Any:
    """The `result` of a JSON-RPC response. Raises RpcRefused, _NoAnswer."""
    is_long = len(body) > QUICK_BYTES
    if is_long and sum(map(body.count, (b",", b"[", b"{"))) > len(body) // VALUE_BYTES:
        raise _NoAnswer("the answer is of more values than it can have")
    try:
        response = loads(body, cls=_PatientDecoder if is_long else None)
    except ValueError as error:
        raise _NoAnswer("the answer is not JSON") from error
    if not isinstance(response, dict):
        raise _NoAnswer("the answer is not a JSON-RPC response")
    if response.get("error") is not None:
        refused = RpcRefused(method, response["error"])
        if method in JUDGED:
            raise refused
        raise _NoAnswer(str(refused), code=refused.code)
    if "result" not in response:
        raise _NoAnswer("the answer is not a JSON-RPC response")
    return response["result"]


def _useful(read: Read[T], result: Any, method: str) -> T:
    try:
        return read(result)
    except Exception as error:  # the value is an endpoint's, and may be anything
        raise _NoAnswer(f"it does not answer {method}: {error!r}"[:300]) from error
