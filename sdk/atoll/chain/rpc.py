"""JSON-RPC over HTTP to one chain through several endpoints.

Rule of this file: an endpoint that does not answer is passed over, an endpoint of another chain is
never used, and a node's refusal (a revert, a nonce) goes to the caller untouched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from web3.providers.async_base import AsyncJSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from atoll.errors import ChainError, ConfigError, RpcUnavailable, WrongChain

REQUEST_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
LIMIT_EXCEEDED = -32005
"""EIP-1474: this endpoint is busy with us; another may not be."""


class RpcRefused(ChainError):
    """A node understood a request and refused it.

    Attributes:
        code: JSON-RPC error code.
        data: what the node attached, as it came (revert data hides in here).
    """

    def __init__(self, method: str, error: dict[str, Any]) -> None:
        self.code = int(error.get("code", 0))
        self.data: Any = error.get("data")
        self.text = str(error.get("message", ""))
        super().__init__(f"{method} was refused: {self.text} (code {self.code})")


@dataclass(slots=True)
class _Endpoint:
    url: str
    checked: bool = False
    wrong_chain: int | None = None
    failures: int = 0
    paused_until: float = 0.0  # event loop time, seconds
    last_error: str = ""

    def pause(self, error: str, now: float) -> None:
        pause = min(FIRST_PAUSE_SECONDS * 2**self.failures, LONGEST_PAUSE_SECONDS)
        self.failures += 1
        self.paused_until = now + pause
        self.last_error = error


class _NoAnswer(Exception):
    """One endpoint did not answer usefully."""


class FailoverProvider(AsyncJSONBaseProvider):
    """A web3 provider that asks the first endpoint that works, in the order given.

    Args:
        urls: http(s) endpoints, the preferred one first.
        chain_id: every endpoint has to serve this chain; checked before its first use. None: the
            chain of whichever endpoint answers first.
    Raises:
        ConfigError: no endpoint, or one that is not http(s).
    """

    def __init__(
        self, urls: Sequence[str], chain_id: int | None, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        super().__init__()
        if not urls:
            raise ConfigError("no RPC endpoint is configured", next_step="set an RPC URL")
        for url in urls:
            if urlsplit(url).scheme not in {"http", "https"}:
                raise ConfigError(f"RPC endpoint {redact(url)!r} is not an http(s) URL")
        self.chain_id = chain_id
        self._endpoints = [_Endpoint(url) for url in urls]
        self._timeout = aiohttp.ClientTimeout(total=request_seconds)
        self._session: aiohttp.ClientSession | None = None

    @property
    def urls(self) -> list[str]:
        """The endpoints, the preferred one first."""
        return [endpoint.url for endpoint in self._endpoints]

    async def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """The first answer of any endpoint, be it a result or a refusal.

        Raises:
            RpcUnavailable: no endpoint answered; the message names each one's cause.
            WrongChain: every endpoint that answered serves another chain.
        """
        now = asyncio.get_running_loop().time()
        in_order = sorted(self._usable(), key=lambda endpoint: endpoint.paused_until > now)
        for endpoint in in_order:
            try:
                if not await self._serves_this_chain(endpoint):
                    continue
                response = await self._post(endpoint, method, params)
            except _NoAnswer as error:
                endpoint.pause(str(error), now)
                continue
            endpoint.failures, endpoint.paused_until = 0, 0.0
            return response
        raise self._nobody_answered()

    async def check_all(self) -> None:
        """Looks at every endpoint now, so that a wrong one is found at start and not in need.

        Raises:
            WrongChain: some endpoint serves another chain.
            RpcUnavailable: none answers.
        """
        answered = 0
        for endpoint in self._endpoints:
            try:
                if not await self._serves_this_chain(endpoint):
                    raise self._wrong_chain(endpoint)
                answered += 1
            except _NoAnswer as error:
                endpoint.pause(str(error), asyncio.get_running_loop().time())
        if not answered:
            raise self._nobody_answered()

    async def disconnect(self) -> None:
        """Closes the connections; the provider may be used again afterwards."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _usable(self) -> list[_Endpoint]:
        return [endpoint for endpoint in self._endpoints if endpoint.wrong_chain is None]

    async def _serves_this_chain(self, endpoint: _Endpoint) -> bool:
        if not endpoint.checked:
            response = await self._post(endpoint, RPCEndpoint("eth_chainId"), [])
            try:
                served = int(str(response["result"]), 16)
            except (KeyError, ValueError) as error:
                raise _NoAnswer(f"no chain id in {response}") from error
            self.chain_id = served if self.chain_id is None else self.chain_id
            endpoint.checked = True
            endpoint.wrong_chain = None if served == self.chain_id else served
        return endpoint.wrong_chain is None

    async def _post(self, endpoint: _Endpoint, method: RPCEndpoint, params: Any) -> RPCResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        body = self.encode_rpc_request(method, params)
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(endpoint.url, data=body, headers=headers) as reply:
                if reply.status == 429 or reply.status >= 500:
                    raise _NoAnswer(f"HTTP {reply.status}")
                response = json.loads(await reply.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _NoAnswer(str(error) or type(error).__name__) from error
        except ValueError as error:
            raise _NoAnswer("the answer is not JSON") from error
        if not isinstance(response, dict) or not ("result" in response or "error" in response):
            raise _NoAnswer("the answer is not a JSON-RPC response")
        refusal = response.get("error")
        if isinstance(refusal, dict) and refusal.get("code") == LIMIT_EXCEEDED:
            raise _NoAnswer(str(refusal.get("message", "limit exceeded")))
        return response  # type: ignore[return-value]  # checked above, field by field

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


def redact(url: str) -> str:
    """The URL without what may be a secret: user, password, path and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))


async def request(provider: AsyncJSONBaseProvider, method: str, params: Sequence[Any]) -> Any:
    """One call, its result.

    Raises:
        RpcRefused: the node refused.
        RpcUnavailable, WrongChain: as `FailoverProvider.make_request`.
    """
    response = await provider.make_request(RPCEndpoint(method), list(params))
    if response.get("error"):
        error: Any = response["error"]
        raise RpcRefused(method, error if isinstance(error, dict) else {"message": str(error)})
    return response["result"]
