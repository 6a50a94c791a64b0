"""Checkpoints: every log of a deployment up to a block, as bytes that a stranger may have made.

Rule of this file: what is read is bounded at each step before room is taken for it, and whether it
is true these bytes do not say: `atoll.chain.checkpoint` holds them against the words of
state. What those words do not cover is not in it: hashes of blocks and of transactions, and where
in its block a log is. SPEC-ROUNDS.md has the format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from eth_utils.address import to_checksum_address

from atoll.chain.decode import RawLog
from atoll.errors import ChainError
from atoll.protocol.types import ZERO_DIGEST, Address, BlockRef, Digest, Domain

MAGIC: Final = b"atoll.logs.v1\n"
MOST_BYTES: Final = 1 << 30
"""Of all logs, once they are no longer compressed."""
MOST_DATA: Final = 1 << 18
"""Of one log: twice what a transaction may carry."""
MOST_TOPICS: Final = 4
_HEADER: Final = struct.Struct(">Q20sQ32sQI")
_LOG: Final = struct.Struct(">QQ20sBI")
_PIECE: Final = 1 << 16


class CheckpointRefused(ChainError):
    """A checkpoint is not what it says, or of no use; what it would have told is read instead."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Every log of a deployment up to a block, oldest first.

    Attributes:
        logs: each is of a block whose hash is not known, and of an unknown transaction.
    """

    domain: Domain
    block: BlockRef
    logs: tuple[RawLog, ...]


def write_snapshot(
    domain: Domain, block: BlockRef, count: int, pages: Iterable[Iterable[RawLog]]
) -> Iterator[bytes]:
    """The bytes, in pieces.

    Args:
        pages: so many logs in all, oldest first, of blocks up to that one.
    """
    yield MAGIC
    deflate = zlib.compressobj(6)
    rounds = bytes.fromhex(domain.rounds[2:])
    about = (domain.chain_id, rounds, block.number, block.hash, block.timestamp, count)
    yield deflate.compress(_HEADER.pack(*about))
    for page in pages:
        yield deflate.compress(b"".join(map(_to_bytes, page)))
    yield deflate.flush()


def _to_bytes(raw: RawLog) -> bytes:
    assert raw.timestamp is not None  # see `LogReader`
    emitter = bytes.fromhex(raw.address[2:])
    sizes = (len(raw.topics), len(raw.data))
    head = _LOG.pack(raw.block_number, raw.timestamp, emitter, *sizes)
    return head + b"".join(raw.topics) + raw.data


def read_snapshot(data: bytes, domain: Domain) -> LogSnapshot:
    """Reads them back. Raises CheckpointRefused."""
    if not data.startswith(MAGIC):
        raise CheckpointRefused("the file is no checkpoint of logs")
    inflate = _Inflating(data[len(MAGIC) :])
    chain_id, rounds, number, hash_, timestamp, count = _HEADER.unpack(inflate.take(_HEADER.size))
    if Domain(chain_id, Address(to_checksum_address(rounds))) != domain:
        raise CheckpointRefused("the checkpoint is of another deployment")
    block, logs, place = BlockRef(number, Digest(hash_), timestamp), list[RawLog](), (-1, 0)
    for _ in range(count):
        raw, place = _read_log(inflate, place)
        if raw.block_number > number:
            raise CheckpointRefused("the checkpoint has logs of blocks behind its own")
        logs.append(raw)
    inflate.end()
    return LogSnapshot(domain, block, tuple(logs))


def _read_log(inflate: _Inflating, before: tuple[int, int]) -> tuple[RawLog, tuple[int, int]]:
    """The next log, and its place: its block, and how many of that block come before it."""
    number, timestamp, emitter, topic_count, size = _LOG.unpack(inflate.take(_LOG.size))
    if number < before[0]:
        raise CheckpointRefused("the checkpoint's logs are not in the order of their blocks")
    if not 1 <= topic_count <= MOST_TOPICS or size > MOST_DATA:
        raise CheckpointRefused("the checkpoint has what no log can be")
    words = inflate.take(32 * topic_count)
    topics = tuple(words[at : at + 32] for at in range(0, len(words), 32))
    index = before[1] + 1 if number == before[0] else 0
    address = Address(to_checksum_address(emitter))
    data = inflate.take(size)
    raw = RawLog(address, topics, data, number, ZERO_DIGEST, index, b"", timestamp)
    return raw, (number, index)


class _Inflating:
    """Bytes that are inflated as they are asked for: a bomb of them never is."""

    def __init__(self, data: bytes) -> None:
        self._inflate = zlib.decompressobj()
        self._left, self._ready, self._total = data, b"", 0

    def take(self, size: int) -> bytes:
        """The next bytes. Raises CheckpointRefused where there are not so many."""
        while len(self._ready) < size:
            piece = self._next()
            if not piece:
                raise CheckpointRefused("the checkpoint ends in the middle")
            self._ready += piece
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken

    def end(self) -> None:
        """Raises CheckpointRefused where anything is left."""
        if self._ready or self._next() or not self._inflate.eof or self._inflate.unused_data:
            raise CheckpointRefused("the checkpoint has more than it says, or lacks its end")

    def _next(self) -> bytes:
        try:
            piece = self._inflate.decompress(self._left, _PIECE)
        except zlib.error as error:
            raise CheckpointRefused(f"the checkpoint is damaged: {error}") from error
        self._left = self._inflate.unconsumed_tail
        self._total += len(piece)
        if self._total > MOST_BYTES:
            raise CheckpointRefused(f"the checkpoint is larger than {MOST_BYTES} bytes")
        return piece
