"""web3.py in front of our endpoints: its contracts and coding, our failover.

Rule of this file: what reaches web3.py is right in shape and answers what was asked, since readers
of each method's shape run inside the failover: its formatters make exceptions of their own of what
one endpoint says wrongly, and the next one is not asked then. A method without a reader is not
passed on: filters live in one node, and what a node signs by itself could be sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from web3.providers.async_base import AsyncJSONBaseProvider

from atoll.chain.json_shapes import is_nothing, may_be_nothing, reader_of
from atoll.chain.rpc import FailoverProvider
from atoll.chain.verdicts import SEND, Refusal, RpcRefused, refusal_of, revert_data
from atoll.errors import ChainError
from atoll.nested import loads
from atoll.protocol.hashing import keccak256

if TYPE_CHECKING:
    from web3.types import RPCEndpoint, RPCResponse

NOT_PASSED_ON: Final = -32601
"""JSON-RPC's "method not found", which web3.py raises as MethodUnavailable."""


class FailoverWeb3Provider(AsyncJSONBaseProvider):
    """Asks what web3.py asks of our endpoints.

    Raises:
        RpcUnavailable, WrongChain: as `FailoverProvider.ask`; web3.py lets them through.
    """

    # EIP-3668: a contract would have this machine fetch whatever URL it names.
    global_ccip_read_enabled = False

    def __init__(self, endpoints: FailoverProvider) -> None:
        super().__init__()
        self._endpoints = endpoints

    async def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        # web3.py's own coding makes bytes and mappings into JSON's.
        asked = loads(self.encode_rpc_request(method, params))
        read = reader_of(method, asked["params"])
        if read is None:
            message = f"{method} is not passed on: its answer would hang on one endpoint"
            reply: dict[str, Any] = {"error": {"code": NOT_PASSED_ON, "message": message}}
        else:
            try:
                reply = {"result": await self._ask(method, asked["params"], read)}
            except RpcRefused as refused:
                reply = {"error": _error_of(refused)}
        return cast("RPCResponse", {"jsonrpc": "2.0", "id": asked["id"], **reply})

    async def make_batch_request(
        self, requests: list[tuple[RPCEndpoint, Any]]
    ) -> list[RPCResponse] | RPCResponse:
        return list(await asyncio.gather(*(self.make_request(*each) for each in requests)))

    async def is_connected(self, show_traceback: bool = False) -> bool:
        try:
            await self._endpoints.check_all()
        except ChainError:
            if show_traceback:
                raise
            return False
        return True

    async def _ask(self, method: str, params: Sequence[Any], read: Callable[[Any], Any]) -> Any:
        """The first useful answer; nothing only where no other endpoint has something."""
        endpoints = self._endpoints
        try:
            answer = await endpoints.ask(method, params, read)
        except RpcRefused as refused:
            sent = await self._sent(params[0]) if _may_be_sent(method, refused) else None
            if sent is None:
                raise
            return sent
        if may_be_nothing(method) and is_nothing(answer) and len(endpoints.urls) > 1:
            with suppress(RpcRefused):
                others = await endpoints.ask_all(method, params, read, bool)
                return next((each for each in others.values() if not is_nothing(each)), answer)
        return answer

    async def _sent(self, raw: str) -> str | None:
        """The hash of a transaction that an endpoint took without saying so to us."""
        sent, method = f"0x{keccak256(bytes.fromhex(raw[2:])).hex()}", "eth_getTransactionByHash"
        read = cast(Callable[[Any], Any], reader_of(method, [sent]))
        return None if is_nothing(await self._ask(method, [sent], read)) else sent


def _may_be_sent(method: str, refused: RpcRefused) -> bool:
    return method == SEND and refusal_of(refused) in {Refusal.KNOWN, Refusal.NONCE}


def _error_of(refused: RpcRefused) -> dict[str, Any]:
    """The node's code and words, and what a contract gave back, whatever a node wraps that in."""
    error = {"code": refused.code, "message": refused.text}
    given_back = revert_data(refused.data)
    if given_back is not None:
        return {**error, "data": f"0x{given_back.hex()}"}
    return error if not isinstance(refused.data, str) else {**error, "data": refused.data}
