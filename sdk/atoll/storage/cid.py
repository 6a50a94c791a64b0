"""Content identifiers: what a block is called, and whether bytes are that block.

Multiformats' CID specification (https://github.com/multiformats/cid), restricted to SHA-256: every
block Atoll writes or accepts is named by its SHA-256 digest. Only a link of a block of somebody
else's may be an identity CID, which has the block's bytes in its name (`ipfs add --inline`).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Final

from atoll.storage.varint import decode_varint, encode_varint

RAW: Final = 0x55
DAG_PB: Final = 0x70
DAG_CBOR: Final = 0x71
CODEC_NAMES: Final = {RAW: "raw", DAG_PB: "dag-pb", DAG_CBOR: "dag-cbor"}

SHA2_256: Final = 0x12
DIGEST_BYTES: Final = 32
IDENTITY: Final = 0x00
MAX_INLINE_BYTES: Final = 128
"""Of a block in its name; Kubo takes no more either."""
_V0_PREFIX: Final = bytes([SHA2_256, DIGEST_BYTES])
_MAX_TEXT: Final = 128
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, order=True)
class Cid:
    """The name of one block.

    Attributes:
        codec: how the block's bytes are to be read: RAW, DAG_PB or DAG_CBOR.
        digest: SHA-256 of the block's bytes, 32 bytes.
        version: 1, or 0 for the legacy form (always DAG_PB).
        inline: the block's bytes, where the name has them. The digest is theirs as well, so that
            who writes such a name cannot have it taken for that of another block.
    """

    codec: int
    digest: bytes
    version: int = 1
    inline: bytes | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODEC_NAMES:
            raise ValueError(f"unsupported CID codec 0x{self.codec:x}")
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"a SHA-256 digest has 32 bytes, not {len(self.digest)}")
        if self.version not in (0, 1) or (self.version == 0 and self.codec != DAG_PB):
            raise ValueError(f"no CID of version {self.version} with codec 0x{self.codec:x}")
        if self.inline is not None:
            self._check_inline(self.inline)

    def _check_inline(self, block: bytes) -> None:
        if len(block) > MAX_INLINE_BYTES:
            raise ValueError(f"an identity CID has {MAX_INLINE_BYTES} bytes, not {len(block)}")
        if self.version != 1 or not self.matches(block):
            raise ValueError("the digest is not that of the block in the name")

    @classmethod
    def of(cls, block: bytes | memoryview, codec: int = RAW) -> Cid:
        """The CIDv1 of a block's bytes."""
        return cls(codec, hashlib.sha256(block).digest())

    @classmethod
    def from_bytes(cls, data: bytes) -> Cid:
        """Decodes a binary CID that fills `data` exactly.

        Raises:
            ValueError: not a CID, or not one of SHA-256 and a supported codec.
        """
        cid, end = cls.read(data)
        if end != len(data):
            raise ValueError(f"{len(data) - end} bytes follow the CID")
        return cid

    @classmethod
    def from_link(cls, data: bytes) -> Cid:
        """Decodes a binary CID that fills `data` exactly, which may be an identity CID.

        Raises:
            ValueError: as `from_bytes`, or more than `MAX_INLINE_BYTES` in the name.
        """
        if data[:1] != b"\x01":
            return cls.from_bytes(data)
        codec, offset = decode_varint(data, 1)
        hash_code, offset = decode_varint(data, offset)
        if hash_code != IDENTITY:
            return cls.from_bytes(data)
        length, offset = decode_varint(data, offset)
        block = data[offset:]
        if len(block) != length:
            raise ValueError(f"an identity CID says {length} bytes and has {len(block)}")
        return cls(codec, hashlib.sha256(block).digest(), inline=block)

    @classmethod
    def read(cls, data: bytes | memoryview, offset: int = 0) -> tuple[Cid, int]:
        """Decodes the binary CID at `offset`; returns it and the offset after it.

        Raises:
            ValueError: as `from_bytes`.
        """
        if bytes(data[offset : offset + 2]) == _V0_PREFIX:
            end = offset + 2 + DIGEST_BYTES
            return cls(DAG_PB, bytes(data[offset + 2 : end]), 0), end
        version, offset = decode_varint(data, offset)
        if version != 1:
            raise ValueError(f"unsupported CID version {version}")
        codec, offset = decode_varint(data, offset)
        hash_code, offset = decode_varint(data, offset)
        length, offset = decode_varint(data, offset)
        if (hash_code, length) != (SHA2_256, DIGEST_BYTES):
            raise ValueError(f"unsupported hash 0x{hash_code:x} of {length} bytes: SHA-256 only")
        end = offset + DIGEST_BYTES
        return cls(codec, bytes(data[offset:end])), end

    @classmethod
    def parse(cls, text: str) -> Cid:
        """Decodes the text form: `Qm…`, or multibase b, B, z, f or F.

        Raises:
            ValueError: as `from_bytes`.
        """
        if len(text) > _MAX_TEXT:
            raise ValueError(f"a CID has at most {_MAX_TEXT} characters, not {len(text)}")
        if len(text) == 46 and text.startswith("Qm"):
            return cls.from_bytes(_base58_decode(text))
        cid = cls.from_bytes(_multibase_decode(text))
        if cid.version == 0:
            raise ValueError("a CIDv0 has no multibase prefix")
        return cid

    def to_bytes(self) -> bytes:
        """The binary form: 36 bytes, or 34 for version 0; an identity CID as long as it is."""
        if self.version == 0:
            return _V0_PREFIX + self.digest
        if self.inline is not None:
            hashed = encode_varint(IDENTITY) + encode_varint(len(self.inline)) + self.inline
            return b"\x01" + encode_varint(self.codec) + hashed
        return b"\x01" + encode_varint(self.codec) + _V0_PREFIX + self.digest

    def __str__(self) -> str:
        if self.version == 0:
            return _base58_encode(self.to_bytes())
        return "b" + base64.b32encode(self.to_bytes()).decode().rstrip("=").lower()

    def __repr__(self) -> str:
        return f"Cid({self})"

    @property
    def codec_name(self) -> str:
        """`raw`, `dag-pb` or `dag-cbor`."""
        return CODEC_NAMES[self.codec]

    def to_v1(self) -> Cid:
        """The same block named by a CIDv1 of its SHA-256."""
        return Cid(self.codec, self.digest)

    def matches(self, block: bytes | memoryview) -> bool:
        """Whether these bytes are the block this CID names."""
        return hashlib.sha256(block).digest() == self.digest


def cid_text(data: bytes) -> str:
    """A binary CID as text; what is none, which strangers may write, as hexadecimal digits."""
    try:
        return str(Cid.from_bytes(data))
    except ValueError:
        return f"not a CID: {data.hex()}"


def _multibase_decode(text: str) -> bytes:
    prefix, body = text[:1], text[1:]
    if prefix == "z":
        return _base58_decode(body)
    if prefix in ("f", "F"):
        decoded = bytes.fromhex(body) if body.isalnum() else b""
        spelled = decoded.hex() if prefix == "f" else decoded.hex().upper()
    elif prefix in ("b", "B"):
        decoded = base64.b32decode(body.upper() + "=" * (-len(body) % 8))
        spelled = base64.b32encode(decoded).decode().rstrip("=")
        spelled = spelled.lower() if prefix == "b" else spelled
    else:
        raise ValueError(f"not a CID: {text[:16]!r}")
    if spelled != body:  # unused bits, mixed case, padding: one block, one spelling
        raise ValueError(f"not a canonical CID: {text[:16]!r}")
    return decoded


def _base58_encode(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    out = ""
    while number:
        number, digit = divmod(number, 58)
        out = _BASE58[digit] + out
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + out


def _base58_decode(text: str) -> bytes:
    number = 0
    for character in text:
        digit = _BASE58.find(character)
        if digit < 0:
            raise ValueError(f"not a base58 character: {character!r}")
        number = number * 58 + digit
    body = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return b"\0" * (len(text) - len(text.lstrip("1"))) + body
