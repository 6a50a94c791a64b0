"""What real endpoints say that is no answer and no verdict, by name; and what is a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Said:
    """One answer over HTTP; JSON gets the number of its question where it names none."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def error(code: int, message: str, status: int = 200, **more: Any) -> Said:
    return Said({"jsonrpc": "2.0", "error": {"code": code, "message": message, **more}}, status)


TROUBLE: Final[Mapping[str, Said]] = {
    "behind (geth)": error(-32000, "header not found"),
    "pruned (geth)": error(-32000, "missing trie node 5c8f: state 0x5c8f is not available"),
    "slow (geth)": error(-32000, "execution aborted (timeout = 5s)"),
    "behind (erigon)": error(-32000, "block with number tag not found: 19000000"),
    "behind (nethermind)": error(-32001, "19000000 could not be found"),
    "slow (besu)": error(-32000, "Timeout expired"),
    "behind (besu)": error(-32000, "World state unavailable"),
    "behind (reth)": error(-32001, "block not found: hash 0x5c8f"),
    "internal": error(-32603, "Internal error"),
    "busy (alchemy)": error(-32000, "Backend response too large or upstream request timeout"),
    "no key (infura)": error(-32002, "project ID required", 401),
    "no key (ankr)": error(-32051, "Unauthorized: You must authenticate your request", 401),
    "refused origin": error(-32000, "rejected due to project ID settings", 403),
    "no plan": error(-32052, "API key is not allowed to access blockchain", 403),
    "quota (infura)": error(
        -32005, "daily request count exceeded, request rate limited", 429,
        data={"rate": {"backoff_seconds": 0.01}, "see": "https://infura.io"},
    ),
    "rate (base)": error(-32016, "over rate limit"),
    "slow (nethermind)": error(-32016, "eth_estimateGas was canceled by timeout"),
    "a hash for data": error(-32000, "header not found", data={"block": "0x" + "5c" * 32}),
    "no credit": error(-32005, "insufficient balance, please recharge your account"),
    "no nonce": error(-32000, "failed to fetch nonce: upstream timeout"),
    "rate (quicknode)": error(-32007, "15/second request limit reached", 429),
    "rate (alchemy)": error(429, "Your app has exceeded its compute units per second capacity"),
    "limit": error(-32005, "limit exceeded"),
    "no method": error(-32601, "the method does not exist/is not available"),
    "no such method here": error(-32600, "Unsupported method on ETH_MAINNET"),
    "params": error(-32602, "invalid argument 1: hex string without 0x prefix"),
    "a number for data": error(-32000, "upstream failed", data="0x1f"),
    "a proxy's word": error(-32000, "execution reverted", 502),
    "stranger's code": error(-39999, "cosmic rays"),
    "out of gas": error(-32000, "gas required exceeds allowance (0)"),
    "odd error": Said({"error": ["out of order"]}),
    "no result": Said({"jsonrpc": "2.0"}),
    "null": Said({"jsonrpc": "2.0", "result": None}),
    "another question's": Said({"jsonrpc": "2.0", "id": "another", "result": "0x7"}),
    "a batch": Said([{"jsonrpc": "2.0", "id": 1, "result": "0x7"}]),
    "half": Said('{"jsonrpc":"2.0","id":1,"resu'),
    "html": Said("<html><body>Just a moment…</body></html>"),
    "html refusal": Said("<html>403 Forbidden</html>", 403),
    "unavailable": Said("upstream connect error", 503),
    "json refusal": Said({"message": "Invalid authentication credentials"}, 401),
    "a result nobody paid for": Said({"jsonrpc": "2.0", "result": "0x7"}, 402),
    "nothing": Said(""),
}  # fmt: skip
REVERTS: Final = (
    ("geth", {"code": 3, "message": "execution reverted: no", "data": "0x08c379a0"}),
    ("anvil", {"code": 3, "message": "execution reverted", "data": "0x"}),
    ("besu", {"code": -32000, "message": "Execution reverted", "data": "0x08c379a0"}),
    ("nethermind", {"code": -32015, "message": "VM error.", "data": "Reverted 0x08c379a0"}),
    ("ganache", {"code": -32000, "message": "VM Exception", "data": {"result": "0x08c379a0"}}),
    ("hardhat", {"code": -32603, "message": "VM Exception: reverted with reason string 'no'"}),
    ("no funds (geth)", {"code": -32000, "message": "insufficient funds for gas * price + value"}),
    ("no funds (nethermind)", {"code": -32000, "message": "insufficient funds for transfer"}),
    ("no funds (besu)", {"code": -32004, "message": "Upfront cost exceeds account balance"}),
    ("no gas", {"code": -32000, "message": "intrinsic gas too low: have 7, want 21000"}),
    ("data alone", {"code": -32000, "message": "execution error", "data": "0x01020304"}),
)  # fmt: skip
REFUSED: Final = {
    "nonce": (
        "nonce too low: next nonce 7, tx nonce 5", "Nonce too low", "OldNonce, Current nonce: 5",
        "nonce too high", "NonceGap, Future nonce", "Transaction nonce is too distant",
        "Nonce is too low", "invalid nonce", "NONCE_TOO_LOW",
        "the tx doesn't have the correct nonce. account has nonce of: 5 tx has nonce of: 4",
        "Nonce too high. Expected nonce to be 4 but got 5. Note that transactions can't be queued.",
    ),
    "known": (
        "already known", "Known transaction", "AlreadyKnown", "Transaction already imported",
        "ALREADY_EXISTS: already known", "INTERNAL_ERROR: existing tx with same hash",
        "tx already in mempool", "known transaction: 5c8f",
    ),
    "funds": (
        "insufficient funds for gas * price + value: balance 1, tx cost 2", "InsufficientFunds",
        "Upfront cost exceeds account balance", "sender account balance is too low",
        "insufficient balance for transfer",
    ),
    "gas": (
        "intrinsic gas too low", "intrinsic gas too low: gas 20999, minimum needed 21000",
        "GasLimitTooLow, intrinsic gas", "Intrinsic gas exceeds gas limit",
    ),
    "underpriced": (
        "transaction underpriced", "replacement transaction underpriced", "FeeTooLowToCompete",
        "Gas price below configured minimum gas price", "FeeTooLow, MaxFeePerGas too low",
        "max fee per gas less than block base fee: address 0x5c, maxFeePerGas: 1, baseFee: 7",
        "transaction underpriced: tip needed 3000000000, tip permitted 1000000000",
        "Transaction gas price supplied is too low",
    ),
}  # fmt: skip
NO_REFUSAL: Final = (
    "failed to fetch nonce: too many requests", "insufficient balance, recharge your account",
    "txpool is full", "exceeds block gas limit", "invalid sender", "unknown transaction type",
    "transaction type not supported", "oversized data", "upstream failed", "execution reverted",
)  # fmt: skip
