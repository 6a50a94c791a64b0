"""What a node's answers must look like: JSON values to typed ones, by the Ethereum execution API.

Source: https://ethereum.github.io/execution-apis/. Rule of this file: a value that is not exactly
of its kind raises `ValueError`, `TypeError` or `KeyError`; `FailoverProvider.ask` makes these mean
that the endpoint did not answer.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from atoll.chain.decode import RawLog, checksummed
from atoll.protocol.types import BlockRef, Digest

T = TypeVar("T")

_QUANTITY = re.compile(r"0x[0-9a-fA-F]{1,64}")
_DATA = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
EMPTY_ROOT = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
"""Of a trie without entries (Yellow Paper 4.3)."""


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What is needed of a block.

    Attributes:
        parent: hash of the block before it.
        transactions: hashes, in order.
    """

    ref: BlockRef
    parent: Digest
    transactions: tuple[str, ...]
    base_fee: int


@dataclass(frozen=True, slots=True)
class TxReceipt:
    """What became of one transaction.

    Events follow from logs alone: what nodes leave out beside them, as before London or Byzantium,
    is None.

    Attributes:
        fee_price: wei a gas.
    """

    tx_hash: str
    succeeded: bool | None
    block_number: int
    block_hash: bytes
    gas_used: int | None
    fee_price: int | None
    logs: tuple[RawLog, ...]


def quantity(value: Any) -> int:
    """A number of up to 256 bits."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValueError(f"not a quantity: {reprlib.repr(value)}")
    return int(value, 16)


def counter(value: Any) -> int:
    """A number of up to 62 bits: heights, times, places, nonces and gas. A database keeps it, and
    those that are counted on from it.
    """
    number = quantity(value)
    if number >> 62:
        raise ValueError(f"not a counter: {number}")
    return number


def text(value: Any) -> str:
    """What it says, in a line of 1000 characters that can be printed.

    Others would steer the terminal of who reads it, or be settings of their own where a line is
    one, as for systemd; JSON can name halves of characters, too, which no file takes.
    """
    words = value if isinstance(value, str) else reprlib.repr(value)
    printable = (c if c.isprintable() else " " for c in words[:1000])
    return " ".join("".join(printable).split())


def data(value: Any) -> bytes:
    """Bytes."""
    if not isinstance(value, str) or not _DATA.fullmatch(value):
        raise ValueError(f"not data: {reprlib.repr(value)}")
    return bytes.fromhex(value[2:])


def word(value: Any) -> Digest:
    """32 bytes."""
    raw = data(value)
    if len(raw) != 32:
        raise ValueError(f"not 32 bytes: {reprlib.repr(value)}")
    return Digest(raw)


def tx_hash(value: Any) -> str:
    """A transaction's hash, as 0x and 64 lower-case digits."""
    return f"0x{word(value).hex()}"


def optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A reader that takes null for None."""
    return lambda value: None if value is None else read(value)


def header(value: Any) -> BlockHeader:
    """A block without its transactions' bodies; one that is still pending is none."""
    fields = _fields(value)
    # Before EIP-1559 a block names no base fee.
    base_fee = _or_none(fields, "baseFeePerGas", quantity) or 0
    number, timestamp = counter(fields["number"]), counter(fields["timestamp"])
    return BlockHeader(
        ref=BlockRef(number, word(fields["hash"]), timestamp),
        parent=word(fields["parentHash"]),
        transactions=tuple(map(tx_hash, _transactions(fields))),
        base_fee=base_fee,
    )


def _transactions(fields: dict[str, Any]) -> list[Any]:
    """Null is a list of none where the block says otherwise, too, that it has none."""
    if fields["transactions"] is None and fields.get("transactionsRoot") == EMPTY_ROOT:
        return []
    return _items(fields["transactions"])


def header_at(number: int) -> Callable[[Any], BlockHeader]:
    """A reader of the block of that height, which takes no other one."""

    def read(value: Any) -> BlockHeader:
        block = header(value)
        if block.ref.number != number:
            raise ValueError(f"block {block.ref.number} for block {number}")
        return block

    return read


def raw_log(value: Any) -> RawLog:
    """A log that is in a block."""
    fields = _fields(value)
    if fields.get("removed"):
        raise ValueError("a log that a reorg took back")
    account = data(fields["address"])
    if len(account) != 20:
        raise ValueError(f"an address of {len(account)} bytes")
    topics = tuple(bytes(word(topic)) for topic in _items(fields["topics"]))
    if len(topics) > 4:
        raise ValueError(f"{len(topics)} topics")
    return RawLog(
        address=checksummed(f"0x{account.hex()}"),
        topics=topics,
        data=data(fields["data"]),
        block_number=counter(fields["blockNumber"]),
        block_hash=bytes(word(fields["blockHash"])),
        index=counter(fields["logIndex"]),
        transaction=bytes(word(fields["transactionHash"])),
        timestamp=_or_none(fields, "blockTimestamp", counter),
    )


def raw_logs(value: Any) -> list[RawLog]:
    """Logs in chain order, each once."""
    logs = [raw_log(item) for item in _items(value)]
    logs.sort(key=lambda log: (log.block_number, log.index))
    places = {(log.block_number, log.index) for log in logs}
    if len(places) != len(logs):
        raise ValueError("two logs in one place")
    return logs


def receipt(value: Any) -> TxReceipt | None:
    """A receipt; None for a transaction that no block has."""
    if value is None:
        return None
    fields = _fields(value)
    if fields["blockNumber"] is None:
        return None
    return mined_receipt(fields)


def mined_receipt(value: Any) -> TxReceipt:
    """The receipt of a transaction in a block."""
    fields = _fields(value)
    return TxReceipt(
        tx_hash=tx_hash(fields["transactionHash"]),
        succeeded=_or_none(fields, "status", lambda status: quantity(status) == 1),
        block_number=counter(fields["blockNumber"]),
        block_hash=bytes(word(fields["blockHash"])),
        gas_used=_or_none(fields, "gasUsed", counter),
        fee_price=_or_none(fields, "effectiveGasPrice", quantity),
        logs=tuple(_logs_of(fields)),
    )


def _logs_of(receipt: dict[str, Any]) -> list[RawLog]:
    """A receipt's logs, whose place is the receipt's where they do not say it themselves."""
    of_receipt = ("blockNumber", "blockHash", "transactionHash")
    place = {name: receipt[name] for name in of_receipt}
    items = _or_none(receipt, "logs", _items) or []
    whole = []
    for index, item in enumerate(items):
        known = {name: value for name, value in _fields(item).items() if value is not None}
        whole.append({"logIndex": hex(index), **place, **known})
    return raw_logs(whole)


def block_receipts(value: Any) -> list[TxReceipt]:
    """The receipts of a whole block."""
    return [mined_receipt(item) for item in _items(value)]


def _or_none(fields: dict[str, Any], name: str, read: Callable[[Any], T]) -> T | None:
    """What a field says that need not be there."""
    value = fields.get(name)
    return None if value is None else read(value)


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {reprlib.repr(value)}")
    return value


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"not a list: {reprlib.repr(value)}")
    return value
