"""JSON-RPC over HTTP to one chain through several endpoints.

Rule of this file: it is the one boundary to endpoints. Whatever an endpoint says that is not the
answer asked for (an error, a null, HTML, half of a document, a block without a number, the answer
to another question) means that this endpoint did not answer usefully: the next one is asked, and
this one rests. Only what a node says about a call or a transaction itself (`atoll.chain.verdicts`)
goes to the caller, and that only where no endpoint at hand says otherwise: one that is behind
judges by a state that is gone. An endpoint of another chain is never used.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp

from atoll.chain.replies import (
    QUICK_BYTES,
    NoAnswer,
    Read,
    Reply,
    read_whole,
    rest_asked_s,
    result_of,
    useful,
)
from atoll.chain.response_checks import quantity
from atoll.chain.urls import redact, require_endpoint
from atoll.chain.verdicts import JUDGED, RpcRefused
from atoll.errors import ChainError, ConfigError, RpcUnavailable, WrongChain
from atoll.proxies import proxy_of

T = TypeVar("T")

REQUEST_SECONDS = 10.0  # a second endpoint is asked long before a window of a round ends
DOUBLINGS: Final = 2
"""Of that, where an endpoint computes for longer and no other is at hand: asked anew in vain, it
would only be slower. Where there are others, who is silent holds nobody up for longer.
"""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
TRIES: Final = 3
"""Of an endpoint that answers, but not usefully, before the question counts as unanswered."""
TRY_PAUSE_SECONDS = 0.1  # between tries of one question at one endpoint
BUSY_SECONDS: Final = 20.0
"""For so long one question waits in all for endpoints that say when to come back."""
FIRST_SPACE_SECONDS, LONGEST_SPACE_SECONDS = 0.05, 2.0
SPACE_DECAY: Final = 0.98
"""Between two questions to an endpoint that was asked too often: doubled whenever it says so, and
a little less with each answer. Else all that wait for it asked at once, and most were refused.
"""


class TooMuchAsked(RpcUnavailable):
    """No endpoint answered, and one of them would, were less asked for."""


@dataclass(slots=True)
class _Endpoint:
    url: str
    checked: bool = False
    wrong_chain: int | None = None
    failures: int = 0
    paused_until: float = 0.0  # event loop time, seconds
    ready_at: float = 0.0  # before which it is not to be asked; of the same clock
    space: float = 0.0  # seconds between two questions to it
    last_error: str = ""
    overdue: Counter[str] = field(default_factory=Counter)  # by method, since it was answered last

    def pause(self, now: float) -> None:
        """Has others asked first for a while; what fails meanwhile is the same failure."""
        if now < self.paused_until:
            return
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures, 16), LONGEST_PAUSE_SECONDS)
        self.failures += 1
        self.paused_until = now + pause

    def rest(self, now: float, seconds: float) -> None:
        """Leaves it alone for as long as it asks for, within bounds: it may ask for a year."""
        if now >= self.ready_at:
            self.space = min(max(2 * self.space, FIRST_SPACE_SECONDS), LONGEST_SPACE_SECONDS)
        until = now + min(max(seconds, self.space), LONGEST_PAUSE_SECONDS)
        self.ready_at, self.paused_until = max(self.ready_at, until), max(self.paused_until, until)

    def is_at_hand(self, now: float) -> bool:
        """Whether it neither failed lately nor asked to be left alone."""
        return max(self.paused_until, self.ready_at) <= now

    def answered(self) -> None:
        self.failures, self.paused_until = 0, 0.0
        self.space = self.space * SPACE_DECAY if self.space > FIRST_SPACE_SECONDS / 16 else 0.0


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
            RpcRefused: a node judged the call or the transaction (only for `JUDGED` methods), and
                no endpoint at hand said otherwise.
            RpcUnavailable: no endpoint answered usefully; the message names each one's cause.
            TooMuchAsked: the same, and one would answer, were less asked for.
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
        answers, now = [answer], asyncio.get_running_loop().time()
        for other in self._usable():
            if other is first or not other.is_at_hand(now) or len(answers) == count:
                continue
            try:
                another = await self._ask_one(other, method, params, read)
            except NoAnswer as error:
                self._note(other, error)
            else:
                answers += another or ()
        return answers

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

        async def answer_of(endpoint: _Endpoint) -> tuple[T] | None:
            try:
                return await self._ask_one(endpoint, method, params, read)
            except NoAnswer as error:
                self._note(endpoint, error)
                return None

        now, answers = asyncio.get_running_loop().time(), dict[str, T]()
        for is_paused in (False, True):
            asked = [
                each
                for each in self._usable()
                if each.ready_at <= now and (each.paused_until > now) == is_paused
            ]
            if not is_enough(answers.values()):
                pairs = zip(asked, await asyncio.gather(*map(answer_of, asked)), strict=True)
                answers |= {each.url: answer[0] for each, answer in pairs if answer is not None}
        return answers

    async def tell_all(
        self, method: str, params: Sequence[Any], read: Read[object]
    ) -> list[RpcRefused]:
        """Says something to every endpoint of this chain; how those refused that did.

        Who failed lately is excluded where there is another one.
        """

        async def refusals_of(endpoint: _Endpoint) -> list[RpcRefused]:
            try:
                await self._ask_one(endpoint, method, params, read)
            except RpcRefused as refused:
                return [refused]
            except NoAnswer as error:
                self._note(endpoint, error)
            return []

        now = asyncio.get_running_loop().time()
        listeners = [each for each in self._usable() if each.is_at_hand(now)] or self._usable()
        return [
            refused
            for refusals in await asyncio.gather(*map(refusals_of, listeners))
            for refused in refusals
        ]

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
            except NoAnswer as error:
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
        """The first useful answer and whose it is, of all or these; raises as `ask`."""
        left = self._in_order() if among is None else list(among)
        loop, tries, is_too_much = asyncio.get_running_loop(), 0, False
        verdict: RpcRefused | None = None
        until = loop.time() + BUSY_SECONDS
        while left and verdict is None and tries < TRIES and await self._one_is_ready(left, until):
            if tries:
                await asyncio.sleep(TRY_PAUSE_SECONDS * 2 ** (tries - 1))
            has_failed = False
            for endpoint in [each for each in left if each.ready_at <= loop.time()]:
                if endpoint.ready_at > loop.time():
                    continue  # another question had its turn meanwhile
                if verdict is not None and not endpoint.is_at_hand(loop.time()):
                    continue
                try:
                    answer = await self._ask_one(endpoint, method, params, read)
                except RpcRefused as error:
                    verdict = verdict or error
                except NoAnswer as error:
                    self._note(endpoint, error)
                    has_failed |= error.rest_s is None
                    is_too_much |= error.too_much
                    if error.is_lasting:
                        left.remove(endpoint)
                else:
                    if answer is not None:
                        return endpoint, answer[0]
                    left.remove(endpoint)
            tries += has_failed
        raise self._nobody_answered(is_too_much=is_too_much) if verdict is None else verdict

    async def _one_is_ready(self, endpoints: Sequence[_Endpoint], until: float) -> bool:
        """Waits for the first that may be asked; False where that is later than `until`."""
        loop = asyncio.get_running_loop()
        while (soonest := min(each.ready_at for each in endpoints)) > loop.time():
            if soonest > until:
                return False
            await asyncio.sleep(soonest - loop.time())
        return True

    def _note(self, endpoint: _Endpoint, error: NoAnswer) -> None:
        self.useless_answers += 1
        endpoint.last_error = str(error)
        now = asyncio.get_running_loop().time()
        if error.rest_s is not None:
            endpoint.rest(now, error.rest_s)
        elif not error.too_much and not error.unserved:
            endpoint.pause(now)

    async def _ask_one(
        self, endpoint: _Endpoint, method: str, params: Sequence[Any], read: Read[T]
    ) -> tuple[T] | None:
        """One endpoint's answer; None where it serves another chain.

        Raises:
            RpcRefused, NoAnswer.
        """
        if not await self._serves_this_chain(endpoint):
            return None
        if endpoint.space:
            endpoint.ready_at = asyncio.get_running_loop().time() + endpoint.space
        answer = await self._answer(endpoint, method, params, read)
        endpoint.answered()
        return (answer,)

    async def _serves_this_chain(self, endpoint: _Endpoint) -> bool:
        if not endpoint.checked:
            served = await self._chain_of(endpoint)
            if self.chain_id not in (None, served):
                # It costs the endpoint its place, so it has to say so twice.
                if await self._chain_of(endpoint) != served:
                    raise NoAnswer("it names one chain and then another")
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
            NoAnswer: anything else.
        """
        reply = await self._post(endpoint, method, params)
        if len(reply.body) <= QUICK_BYTES:
            return useful(read, result_of(reply, method), method)
        async with self._reads_long:
            return await asyncio.to_thread(lambda: useful(read, result_of(reply, method), method))

    async def _post(self, endpoint: _Endpoint, method: str, params: Sequence[Any]) -> Reply:
        """What comes of one question. Raises NoAnswer."""
        if self._session is None:
            # Packed, a few bytes could become any number of them.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),  # see below
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        number = next(self._ids)
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)}
        patience_s = self._patience_s(endpoint, method)
        try:
            # Sent on, the question would go to whatever host the endpoint names: this machine, too.
            asking = self._session.post(
                endpoint.url, json=asked, allow_redirects=False, proxy=proxy_of(endpoint.url)
            )
            async with asyncio.timeout(patience_s) as patience, asking as reply:
                if 300 <= reply.status < 400:
                    raise NoAnswer(f"HTTP {reply.status}")
                body = await read_whole(reply.content, method, patience)
                del endpoint.overdue[method]
                return Reply(body, number, reply.status, rest_asked_s(reply.status, reply.headers))
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            endpoint.overdue[method] += method in JUDGED and isinstance(error, TimeoutError)
            raise NoAnswer(str(error) or type(error).__name__, silent=True) from error
        # ValueError: aiohttp documents no closed list of what a malformed answer raises.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:200]) from error

    def _patience_s(self, endpoint: _Endpoint, method: str) -> float:
        """How long an answer is waited for."""
        now = asyncio.get_running_loop().time()
        if any(other.paused_until <= now for other in self._usable() if other is not endpoint):
            return self._request_seconds
        return self._request_seconds * 2.0 ** min(endpoint.overdue[method], DOUBLINGS)

    def _nobody_answered(self, *, is_too_much: bool = False) -> ChainError:
        if not self._usable():
            return self._wrong_chain(self._endpoints[0])
        causes = "; ".join(
            f"{redact(endpoint.url)}: {endpoint.last_error or 'serves another chain'}"
            for endpoint in self._endpoints
        )
        kind = TooMuchAsked if is_too_much else RpcUnavailable
        return kind(
            f"no RPC endpoint answered ({causes})",
            next_step="check that the node runs and that the RPC URL is right",
        )

    def _wrong_chain(self, endpoint: _Endpoint) -> WrongChain:
        return WrongChain(
            f"{redact(endpoint.url)} serves chain {endpoint.wrong_chain}, "
            f"but the deployment is on chain {self.chain_id}",
            next_step="use an RPC URL of the deployment's chain, or its own deployment file",
        )
