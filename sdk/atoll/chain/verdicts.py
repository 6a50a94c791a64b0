"""Which of a node's errors are the chain's word; all others are that endpoint's trouble.

Rule of this file: the list of verdicts is short and closed. Providers invent codes and texts
without end ("header not found", "missing trie node", "execution timeout", "project id required"),
so nothing counts as a verdict for lack of a better explanation. A call is refused by a revert, for
funds that it lacks or for gas that is too little to begin with; a signed transaction for these two,
its nonce, its price, or because it is known already.

Sources: go-ethereum `core/txpool/errors.go`, `core/error.go`; Erigon, Nethermind
`AcceptTxResult.cs`, Besu `TransactionInvalidReason.java`, reth `rpc-eth-types`; the public
endpoints' own error pages.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

from atoll.chain.response_checks import text
from atoll.errors import ChainError

CALLS: Final = frozenset({"eth_call", "eth_estimateGas"})
SEND: Final = "eth_sendRawTransaction"
JUDGED: Final = CALLS | {SEND}
"""Questions to which an error can be the answer."""
REVERT_CODE: Final = 3
UNSUPPORTED: Final = frozenset({-32601, -32004})
"""No such method, and a method that this node does not serve."""
NO_WORD: Final = frozenset({401, 402, 403, 407, 408, 429, 502, 503, 504})
"""HTTP statuses under which whatever the body says is not a node's."""
SELECTOR_BYTES: Final = 4
_GWEI: Final = 10**9
_MOST_WEI: Final = 1 << 96
"""A gas; no node means more."""


class RpcRefused(ChainError):
    """A node judged a call or a transaction, and refused it.

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


class Refusal(StrEnum):
    """Why a node does not take a signed transaction."""

    KNOWN = "known"
    """It has it already, or a block has."""
    NONCE = "nonce"
    FUNDS = "funds"
    GAS = "gas"
    """Its gas limit is below what it costs before its first step."""
    UNDERPRICED = "underpriced"


_REFUSALS: Final = {
    Refusal.KNOWN: re.compile(
        r"already.?known|\bknown transaction|already imported|already exist|existing tx"
        r"|already in (the )?(mem|tx)?.?pool"
    ),
    # Not each text that has the word: who cannot fetch a nonce is in trouble.
    Refusal.NONCE: re.compile(
        r"nonce.{0,12}too.?(low|high|small|large|distant|far)|nonce.?gap|nonce has already been"
        r"|(old|invalid|incorrect|correct|bad|future|expected).?nonce"
    ),
    Refusal.FUNDS: re.compile(
        r"insufficient.?funds|insufficient.?balance for|exceeds.{0,20}balance"
        r"|balance.{0,8}too low|out of balance|not enough (funds|balance)"
    ),
    # Before what is underpriced, since more money for each gas does not help.
    Refusal.GAS: re.compile(r"intrinsic.?gas|gas ?limit.{0,24}(too low|intrinsic)"),
    Refusal.UNDERPRICED: re.compile(
        r"underpriced|fee.?too.?low|(price|fee|tip|gas)\b.{0,24}(too low|below|less than)"
        r"|less than.{0,12}base.?fee|minimum needed"
    ),
}
_OF_CALLS: Final = re.compile(r"insufficient.?funds.{0,4}for\b|upfront cost exceeds|intrinsic.?gas")
"""Of these a call is refused as a transaction is; "insufficient balance" alone may be a customer's
at whoever runs the endpoint.
"""
_FLOOR: Final = re.compile(
    r"(?:minimum|needed|required|at least|floor|base.?fee|<)[^\d.]{0,24}(\d{1,30}(?:\.\d{1,9})?)"
    r"(?:\s*(gwei))?"
)
_ABOUT_RATE: Final = re.compile(
    r"\brate|per.?second|/second|throttl|quota|credit|compute unit|request (limit|count)|capacity"
)
_TOO_MUCH: Final = re.compile(
    r"range|too (many|large|big|long|wide)|limited to|exceed|more than|response size|time.?out"
    r"|timed out|result limit|max(imum)? .{0,20}(blocks|results|logs)"
)
_UNSERVED: Final = re.compile(
    r"not (found|supported|available|allowed|whitelisted|exist|implemented)|unsupported|unknown"
)


def is_verdict(method: str, refused: RpcRefused) -> bool:
    """Whether it speaks of the call or the transaction, and not of the endpoint."""
    if method in CALLS:
        is_said = refused.code == REVERT_CODE or "revert" in refused.text.lower()
        return is_said or revert_data(refused.data) is not None or is_of_account(refused)
    return method == SEND and refusal_of(refused) is not None


def is_of_account(refused: RpcRefused) -> bool:
    """Whether a call was refused before its first step, for its account's money or its gas."""
    is_run = refused.code == REVERT_CODE or "revert" in refused.text.lower()
    return not is_run and _OF_CALLS.search(refused.text.lower()) is not None


def refusal_of(refused: RpcRefused) -> Refusal | None:
    """Why a signed transaction was not taken; None where that is no verdict."""
    words = refused.text.lower()
    return next((kind for kind, named in _REFUSALS.items() if named.search(words)), None)


def floor_of(refused: RpcRefused) -> int | None:
    """The least that a node takes, wei a gas, where its refusal names it.

    Of several numbers the largest: some say what was bid, too, which is less.
    """
    floors = (
        int(number) if not unit else int(float(number) * _GWEI)
        for number, unit in _FLOOR.findall(refused.text.lower())
        if unit or "." not in number
    )
    return max((floor for floor in floors if 0 < floor < _MOST_WEI), default=None)


def is_of_base_fee(refused: RpcRefused) -> bool:
    """Whether what is too low is the most that is paid in all, and not the builder's part."""
    return re.search(r"base.?fee", refused.text.lower()) is not None


def is_too_much(refused: RpcRefused) -> bool:
    """Whether an endpoint says that it would answer, were less asked for."""
    words = f"{refused.text} {text(refused.data)}".lower()
    return _TOO_MUCH.search(words) is not None and _ABOUT_RATE.search(words) is None


def is_unsupported(refused: RpcRefused) -> bool:
    """Whether an endpoint does not serve such questions at all."""
    words = refused.text.lower()
    return refused.code in UNSUPPORTED or ("method" in words and bool(_UNSERVED.search(words)))


def rest_of(refused: RpcRefused) -> float | None:
    """Seconds for which an endpoint asks to be left alone, where an error names them."""
    data = refused.data if isinstance(refused.data, dict) else {}
    rate = data.get("rate") if isinstance(data.get("rate"), dict) else data
    seconds = rate.get("backoff_seconds") if isinstance(rate, dict) else None
    is_one = isinstance(seconds, int | float) and seconds >= 0
    return float(seconds) if is_one and seconds is not None else None


def revert_data(data: Any) -> bytes | None:
    """What a contract gave back, out of whatever shape a node wraps it in; None for no such thing.

    Anvil and Geth put it into `error.data` as text, Ganache into `error.data.result`, Nethermind
    behind "Reverted". Less than a selector no contract of ours gives, and an error's number is.
    """
    if isinstance(data, dict):
        data = data.get("result", data.get("data"))
    if not isinstance(data, str):
        return None
    match = re.fullmatch(r"(?:Reverted )?0x((?:[0-9a-fA-F]{2})*)", data)
    raw = b"" if match is None else bytes.fromhex(match[1])
    return raw if len(raw) >= SELECTOR_BYTES else None
