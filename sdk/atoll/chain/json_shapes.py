"""The shape of each JSON-RPC answer that web3.py may ask for, checked and left as it is.

Source: https://ethereum.github.io/execution-apis/. Rule of this file: a reader gives back what it
was given, and raises `ValueError`, `TypeError` or `KeyError` where that is not what was asked for.
A method whose answer hangs on one endpoint (filters, a node's own keys, its version) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from atoll.chain.response_checks import (
    block_receipts,
    counter,
    data,
    header,
    optional,
    quantity,
    raw_logs,
    receipt,
    tx_hash,
    word,
)
from atoll.protocol.hashing import keccak256

Check = Callable[[Any], object]

_QUANTITIES = (
    "balance baseFeePerGas blobGasPrice blobGasUsed blockNumber chainId cumulativeGasUsed"
    " difficulty effectiveGasPrice excessBlobGas gas gasLimit gasPrice gasUsed logIndex"
    " maxFeePerBlobGas maxFeePerGas maxPriorityFeePerGas nonce number r s size status timestamp"
    " totalDifficulty transactionIndex type v yParity"
)
_WORDS = (
    "blockHash codeHash hash mixHash parentBeaconBlockRoot parentHash receiptsRoot requestsHash"
    " sha3Uncles stateRoot storageHash transactionHash transactionsRoot withdrawalsRoot"
)
_DATA = "data extraData input logsBloom"
_ADDRESSES = "address contractAddress from miner to"
_TAGS: Final = frozenset({"latest", "safe", "finalized", "earliest"})


def reader_of(method: str, params: Sequence[Any]) -> Callable[[Any], Any] | None:
    """What checks a method's answer and gives it back; None for a method that is not here."""
    shape = _SHAPES.get(method)
    if shape is None:
        return None
    check = shape(params)

    def read(value: Any) -> Any:
        check(value)
        return value

    return read


def may_be_nothing(method: str) -> bool:
    """Whether an endpoint that is behind has nothing where another one has something."""
    return method in _OF_STATE_OR_BLOCK


def is_nothing(answer: Any) -> bool:
    """Whether it is null, no bytes or no logs."""
    return answer in (None, "0x", [])


def _address(value: Any) -> None:
    if len(data(value)) != 20:
        raise ValueError("an address is 20 bytes")


def _short_word(value: Any) -> None:
    """A slot of storage, whose zeros in front some nodes leave out."""
    quantity(value)


def _digits(value: Any) -> None:
    if not isinstance(value, str) or not value.isdecimal():
        raise ValueError("not a decimal number")


_KINDS: Final[Mapping[str, Check]] = {
    name: check
    for names, check in (
        (_QUANTITIES, quantity),
        (_WORDS, word),
        (_DATA, data),
        (_ADDRESSES, _address),
    )
    for name in names.split()
}


def _well_formed(value: Any) -> None:
    """That each field known by its name is of its kind, however deep it is, or null."""
    if isinstance(value, list):
        for item in value:
            _well_formed(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if item is not None:
                _KINDS.get(name, _well_formed)(item)


def _same(value: Any, wanted: object, what: str) -> None:
    """That an answer is of what was asked for, in whatever case."""
    if str(value).lower() != str(wanted).lower():
        raise ValueError(f"{what} {value!r:.80} for {wanted!r:.80}")


def _transaction(value: Any) -> None:
    """One in a block, or, with null for its place, one that waits."""
    tx_hash(value["hash"])
    _address(value["from"])
    counter(value["nonce"])
    quantity(value["value"])
    data(value["input"])
    if value.get("blockNumber") is not None:
        word(value["blockHash"])
        counter(value["transactionIndex"])
    _well_formed(value)


def _block(value: Any) -> None:
    """A block whose transactions are hashes, or whole."""
    items = value["transactions"]
    if isinstance(items, list) and items and isinstance(items[0], dict):
        for each in items:
            _transaction(each)
        header({**value, "transactions": [each["hash"] for each in items]})
    else:
        header(value)
    _well_formed(value)


def _pending_block(value: Any) -> None:
    """Of some nodes it has neither hash nor number yet."""
    word(value["parentHash"])
    counter(value["timestamp"])
    _well_formed(value)


def _block_by_hash(params: Sequence[Any]) -> Check:
    def check(value: Any) -> None:
        _block(value)
        _same(value["hash"], params[0], "block")

    return optional(check)


def _block_by_number(params: Sequence[Any]) -> Check:
    asked = params[0]
    if asked == "pending":
        return _pending_block
    if asked in _TAGS:
        return _block  # every chain has these

    def check(value: Any) -> None:
        _block(value)
        _same(counter(value["number"]), counter(asked), "block")

    return optional(check)


def _transaction_by_hash(params: Sequence[Any]) -> Check:
    def check(value: Any) -> None:
        _transaction(value)
        _same(value["hash"], params[0], "transaction")

    return optional(check)


def _receipt_by_hash(params: Sequence[Any]) -> Check:
    def check(value: Any) -> None:
        _same(value["transactionHash"], params[0], "the receipt of")
        receipt(value)
        _well_formed(value)

    return optional(check)


def _taken(params: Sequence[Any]) -> Check:
    """The hash of what was sent: a node can name no other."""
    sent = f"0x{keccak256(data(params[0])).hex()}"
    return lambda value: _same(tx_hash(value), sent, "transaction")


def _logs(value: Any) -> None:
    raw_logs(value)
    _well_formed(value)


def _receipts(value: Any) -> None:
    block_receipts(value)
    _well_formed(value)


def _fee_history(value: Any) -> None:
    quantity(value["oldestBlock"])
    fees = [*value["baseFeePerGas"], *(tip for tips in value.get("reward") or () for tip in tips)]
    for fee in fees:
        quantity(fee)
    if any(not isinstance(ratio, int | float) for ratio in value["gasUsedRatio"]):
        raise ValueError("shares of gas that are no numbers")


def _access_list(value: Any) -> None:
    quantity(value["gasUsed"])
    for item in value["accessList"]:
        _address(item["address"])
        for key in item["storageKeys"]:
            word(key)


def _proof(value: Any) -> None:
    for name in ("balance", "nonce", "codeHash", "storageHash"):
        _KINDS[name](value[name])
    for node in value["accountProof"]:
        data(node)
    for slot in value["storageProof"]:
        quantity(slot["value"])
        for node in slot["proof"]:
            data(node)


def _always(check: Check) -> Callable[[Sequence[Any]], Check]:
    return lambda params: check


_SHAPES: Final[Mapping[str, Callable[[Sequence[Any]], Check]]] = {
    **dict.fromkeys(
        (
            "eth_blobBaseFee", "eth_blockNumber", "eth_chainId", "eth_estimateGas", "eth_gasPrice",
            "eth_getBalance", "eth_getTransactionCount", "eth_maxPriorityFeePerGas",
        ),
        _always(quantity),
    ),
    **dict.fromkeys(
        ("eth_getBlockTransactionCountByHash", "eth_getBlockTransactionCountByNumber"),
        _always(optional(quantity)),
    ),
    **dict.fromkeys(
        (
            "eth_getTransactionByBlockHashAndIndex",
            "eth_getTransactionByBlockNumberAndIndex",
        ),
        _always(optional(_transaction)),
    ),
    "eth_call": _always(data),
    "eth_createAccessList": _always(_access_list),
    "eth_feeHistory": _always(_fee_history),
    "eth_getBlockByHash": _block_by_hash,
    "eth_getBlockByNumber": _block_by_number,
    "eth_getBlockReceipts": _always(optional(_receipts)),
    "eth_getCode": _always(data),
    "eth_getLogs": _always(_logs),
    "eth_getProof": _always(_proof),
    "eth_getRawTransactionByHash": _always(optional(data)),
    "eth_getStorageAt": _always(_short_word),
    "eth_getTransactionByHash": _transaction_by_hash,
    "eth_getTransactionReceipt": _receipt_by_hash,
    "eth_sendRawTransaction": _taken,
    "net_version": _always(_digits),
}  # fmt: skip
"""By method: makes a question's parameters into what checks its answer."""
_OF_STATE_OR_BLOCK: Final = {"eth_call", "eth_getCode", "eth_getLogs"} | {
    name for name in _SHAPES if "Block" in name or "TransactionBy" in name or "Receipt" in name
}
