"""CAR version 1: many blocks in one stream (https://ipld.io/specs/transport/car/carv1/).

Reading is incremental and bounded by its caps; every block is checked against its CID. Which blocks
belong to what was asked for is the reader's caller to decide: a CAR may hold any valid block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from atoll.errors import CorruptBlock, TooLarge
from atoll.storage.block_links import cbor_links
from atoll.storage.cid import Cid
from atoll.storage.unixfs import MAX_BLOCK_BYTES
from atoll.storage.varint import MAX_VARINT_BYTES, decode_varint, encode_varint

_MAX_HEADER: Final = 4096  # a hundred roots; ours have one
_MAX_CID: Final = 36  # version, codec, hash and length in a byte each, and 32 of digest
_VERSION_1: Final = b"\x67version\x01"


def encode_car(roots: Iterable[Cid], blocks: Iterable[tuple[Cid, bytes]]) -> Iterator[bytes]:
    """The stream's pieces: the header, then each block with its length and CID before it."""
    yield encode_car_header(list(roots))
    for cid, block in blocks:
        name = cid.to_bytes()
        yield encode_varint(len(name) + len(block)) + name
        yield block


def encode_car_header(roots: list[Cid]) -> bytes:
    """DAG-CBOR of {"roots": roots, "version": 1}, with its length; at most 23 roots."""
    return encode_named_header([root.to_bytes() for root in roots])


def encode_named_header(roots: list[bytes]) -> bytes:
    """As `encode_car_header`, from binary CIDs of any hash."""
    if len(roots) > 23:
        raise ValueError(f"{len(roots)} roots: this header holds 23")
    body = b"\xa2\x65roots" + bytes([0x80 + len(roots)])
    for root in roots:
        name = b"\0" + root
        body += b"\xd8\x2a" + _bytes_head(len(name)) + name
    body += _VERSION_1
    return encode_varint(len(body)) + body


def _bytes_head(size: int) -> bytes:
    """The head of a CBOR byte string, in its shortest form."""
    return bytes([0x40 + size]) if size < 24 else bytes([0x58, size])


class CarReader:
    """Takes a CAR piece by piece and gives back its blocks.

    Args:
        max_bytes: the longest stream accepted, header and CIDs included.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._buffer = bytearray()
        self.roots: list[Cid] | None = None

    def feed(self, piece: bytes) -> Iterator[tuple[Cid, bytes]]:
        """The blocks that `piece` completes, each checked.

        Raises:
            TooLarge: the stream or one of its sections exceeds its cap.
            CorruptBlock: not a CAR, or a block that does not match its CID.
        """
        self._left -= len(piece)
        if self._left < 0:
            raise TooLarge("the CAR is longer than what was asked for can need")
        self._buffer += piece
        try:
            while (section := self._next_section()) is not None:
                if self.roots is None:
                    self.roots = _decode_header(section)
                    continue
                cid, start = Cid.read(section)
                block = section[start:]
                if not cid.matches(block):
                    raise CorruptBlock(f"the CAR calls {len(block)} other bytes {cid}")
                yield cid, block
        except ValueError as error:
            raise CorruptBlock(f"malformed CAR: {error}") from error

    def finish(self) -> None:
        """Call at the stream's end.

        Raises:
            CorruptBlock: it ended inside a block or before its header.
        """
        if self._buffer or self.roots is None:
            raise CorruptBlock("the CAR was cut short")

    def _next_section(self) -> bytes | None:
        head = self._buffer[:MAX_VARINT_BYTES]
        if not head or (head[-1] >= 0x80 and len(head) < MAX_VARINT_BYTES):
            return None
        size, start = decode_varint(bytes(head))
        if size > (_MAX_HEADER if self.roots is None else MAX_BLOCK_BYTES + _MAX_CID):
            raise TooLarge(f"a CAR section of {size} bytes")
        if size == 0:
            raise ValueError("an empty section")
        if len(self._buffer) < start + size:
            return None
        section = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return section


def _decode_header(section: bytes) -> list[Cid]:
    roots = list(cbor_links(section))
    if section[:1] != b"\xa2" or _VERSION_1 not in section or b"\x65roots" not in section:
        raise ValueError("not a CAR of version 1")
    return roots
