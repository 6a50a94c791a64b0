"""Logs and return values to the dataclasses of `atoll.protocol`, and back to ABI values.

Rule of this file: everything is built by position from the ABI and by the dataclass's own
annotations, so that a field added on both sides needs no line here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from eth_abi.abi import decode as abi_decode
from eth_utils.address import to_checksum_address

from atoll.chain.abi import EventAbi, registry
from atoll.errors import UndecodableLog
from atoll.protocol.events import EVENT_TYPES, ContractEvent
from atoll.protocol.types import Address

T = TypeVar("T")
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RawLog:
    """One log as a node gives it; `transaction` is the hash of the one that wrote it.

    Attributes:
        timestamp: of its block; None where the node does not say it.
    """

    address: Address
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: bytes
    index: int
    transaction: bytes = b""
    timestamp: int | None = dataclasses.field(default=None, compare=False)


def decode_log(log: RawLog) -> ContractEvent | None:
    """The event a log stands for, or None where it is none of Atoll's (a token's Transfer).

    Raises:
        UndecodableLog: the log does not have the shape its topic promises; nothing else is raised.
    """
    if not log.topics:
        return None
    abi = registry().events.get(log.topics[0])
    event_type = EVENT_TYPES.get(abi.name) if abi else None
    if abi is None or event_type is None:
        return None
    try:
        return from_abi(event_type, _log_values(abi, log))
    except Exception as error:  # the bytes are a stranger's, and eth-abi documents no closed list
        raise UndecodableLog(f"a log of {abi.name} does not decode: {error!r}"[:300]) from error


def event_topics() -> list[bytes]:
    """First topics of every event that `decode_log` knows."""
    return [abi.topic for abi in registry().events.values() if abi.name in EVENT_TYPES]


def from_abi(kind: type[T], values: tuple[Any, ...]) -> T:
    """A dataclass from the values of a tuple, by position.

    Ints become their enums, addresses EIP-55 text, nested tuples their own dataclasses.

    Raises:
        ValueError: another number of values than fields, or an int outside its enum.
    """
    converters = _field_converters(cast(Hashable, kind))
    if len(values) != len(converters):
        raise ValueError(f"{kind.__name__} has {len(converters)} fields, got {len(values)} values")
    return kind(*(convert(value) for convert, value in zip(converters, values, strict=True)))


def to_abi(value: Any) -> Any:
    """Dataclasses to tuples, enums to ints, sequences to lists, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(to_abi(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, list | tuple):
        return [to_abi(item) for item in value]
    return value


def _log_values(abi: EventAbi, log: RawLog) -> tuple[Any, ...]:
    """Field values in ABI order; indexed ones (always one word here) come from the topics."""
    in_data = [kind for kind, indexed in zip(abi.types, abi.indexed, strict=True) if not indexed]
    in_topics = [kind for kind, indexed in zip(abi.types, abi.indexed, strict=True) if indexed]
    words = log.topics[1:]
    if len(words) != len(in_topics):
        raise ValueError(f"{len(words)} topics for {len(in_topics)} indexed fields")
    data, topics = iter(abi_decode(in_data, log.data)), iter(abi_decode(in_topics, b"".join(words)))
    return tuple(next(topics if indexed else data) for indexed in abi.indexed)


@cache
def _field_converters(kind: Any) -> tuple[Convert, ...]:
    hints = get_type_hints(kind)
    return tuple(converter(hints[field.name]) for field in dataclasses.fields(kind))


@lru_cache(maxsize=1 << 14)
def checksummed(address: str) -> Address:
    """EIP-55's text. A chain names few accounts, each many times, and a checksum is a hash."""
    return Address(to_checksum_address(address))


def converter(hint: Any) -> Convert:
    """What makes a value of this type of an ABI value."""
    if hint is Address:
        return checksummed
    if hasattr(hint, "__supertype__"):
        return converter(hint.__supertype__)
    if get_origin(hint) is tuple:
        item = converter(get_args(hint)[0])
        return lambda values: tuple(item(value) for value in values)
    if dataclasses.is_dataclass(hint):
        # a type, as an annotation is
        return lambda values: from_abi(hint, values)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint
    return lambda value: value
