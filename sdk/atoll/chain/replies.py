"""What one endpoint's answer over HTTP is: a result, a verdict, or nothing of use.

Rule of this file: bytes and statuses are a stranger's. They become what was asked for, `RpcRefused`
or `NoAnswer`, whatever they are, at a bounded cost in memory and time.
"""

from __future__ import annotations

import asyncio
import json
import json.scanner
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import aiohttp

from atoll.chain.response_checks import text
from atoll.chain.verdicts import (
    NO_WORD,
    RpcRefused,
    is_too_much,
    is_unsupported,
    is_verdict,
    rest_of,
)
from atoll.nested import loads

T = TypeVar("T")
Read = Callable[[Any], T]
"""Makes a JSON value into what was asked for, and raises anything where it is not that."""

MAX_ANSWER_BYTES: Final = 1 << 20
"""More than any contract's code as hexadecimal digits; an endless answer ends here."""
MAX_LARGE_ANSWER_BYTES: Final = 1 << 25
MAX_RECEIPTS_BYTES: Final = 1 << 26
"""More than the receipts of a block of 60 million gas, all of it spent on logs: a block that cannot
be read holds up everybody who follows the chain, and anybody can pay for one.
"""
LARGE_ANSWERS: Final = {
    "eth_getBlockByHash": MAX_LARGE_ANSWER_BYTES,
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
OF_RANGES: Final = frozenset({"eth_getLogs"})
"""Questions of which less can be asked."""
TOO_LARGE: Final = 413
SLOWEST: Final = 1 << 19
"""Bytes a second of a line that large answers come through: what has come buys as much time."""
BUSY: Final = 429
RATE_PAUSE_SECONDS: Final = 1.0
"""For so long an endpoint is left alone that was asked too often and does not say for how long."""


class NoAnswer(Exception):
    """One endpoint did not answer usefully.

    Attributes:
        silent: it did not answer at all.
        unserved: it does not serve such questions: trying again changes nothing.
        rest_s: for how long it asks to be left alone; None where it does not.
        too_much: it says that it would answer, were less asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        silent: bool = False,
        unserved: bool = False,
        rest_s: float | None = None,
        too_much: bool = False,
    ) -> None:
        super().__init__(text(message))
        self.silent = silent
        self.unserved = unserved
        self.rest_s = rest_s
        self.too_much = too_much

    @property
    def is_lasting(self) -> bool:
        """Whether there is no use in asking again at once."""
        return self.silent or self.too_much or self.unserved


@dataclass(frozen=True, slots=True)
class Reply:
    """What came over HTTP.

    Attributes:
        asked: number of the question.
    """

    body: bytes
    asked: int = 0
    status: int = 200
    rest_s: float | None = None


class _PatientDecoder(json.JSONDecoder):
    """Reads JSON in Python: what does so in C lets no other thread run until it is through."""

    def __init__(self) -> None:
        super().__init__()
        # of no stub
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


async def read_whole(stream: aiohttp.StreamReader, method: str, patience: asyncio.Timeout) -> bytes:
    """An answer's bytes, each of which puts the end of patience off. Raises NoAnswer."""
    limit = LARGE_ANSWERS.get(method, MAX_ANSWER_BYTES)
    pieces: list[bytes] = []
    size = 0
    async for piece in stream.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise NoAnswer(f"it sent more than {limit} bytes", too_much=method in OF_RANGES)
        until = patience.when()
        if until is not None and not patience.expired():
            patience.reschedule(until + len(piece) / SLOWEST)
    return b"".join(pieces)


def rest_asked_s(status: int, headers: Mapping[str, str]) -> float | None:
    """Seconds for which an endpoint asks to be left alone; None where it does not (RFC 9110)."""
    said = headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    try:
        until = parsedate_to_datetime(said)
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except Exception:  # a stranger's text, and `email` documents no closed list
        return RATE_PAUSE_SECONDS if status == BUSY else None


def result_of(reply: Reply, method: str) -> Any:
    """The `result` of a JSON-RPC response. Raises RpcRefused, NoAnswer."""
    body, status = reply.body, "" if reply.status < 300 else f"HTTP {reply.status}: "
    is_long = len(body) > QUICK_BYTES
    if is_long and sum(map(body.count, (b",", b"[", b"{"))) > len(body) // VALUE_BYTES:
        raise NoAnswer(f"{status}the answer is of more values than it can have")
    try:
        response = loads(body, cls=_PatientDecoder if is_long else None)
    except ValueError as error:
        what = f"{status}the answer is not JSON"
        raise NoAnswer(what, rest_s=reply.rest_s, too_much=reply.status == TOO_LARGE) from error
    if not isinstance(response, dict):
        raise NoAnswer(f"{status}the answer is not a JSON-RPC response", rest_s=reply.rest_s)
    if response.get("id") is not None and str(response["id"]) != str(reply.asked):
        raise NoAnswer(f"{status}it answers another question than it was asked")
    if response.get("error") is not None:
        raise _error_of(RpcRefused(method, response["error"]), reply, method, status)
    if status or "result" not in response:
        raise NoAnswer(f"{status}the answer is not a JSON-RPC response", rest_s=reply.rest_s)
    return response["result"]


def _error_of(refused: RpcRefused, reply: Reply, method: str, status: str) -> Exception:
    """The verdict, or that this is none."""
    if reply.status not in NO_WORD and is_verdict(method, refused):
        return refused
    rest_s = reply.rest_s if reply.rest_s is not None else rest_of(refused)
    if rest_s is None and refused.code == BUSY:
        rest_s = RATE_PAUSE_SECONDS
    too_much = method in OF_RANGES and rest_s is None and is_too_much(refused)
    unserved = is_unsupported(refused)
    return NoAnswer(f"{status}{refused}", unserved=unserved, rest_s=rest_s, too_much=too_much)


def useful(read: Read[T], result: Any, method: str) -> T:
    try:
        return read(result)
    except Exception as error:  # the value is an endpoint's, and may be anything
        raise NoAnswer(f"it does not answer {method}: {error!r}"[:300]) from error
