"""Hashes, trees, encodings and draws: SPEC.md sections 2 to 5, from nothing but Python and NumPy.

Rule of this package: it never imports atoll. It is a second reading of the law, written from the
text, in plain functions over plain dicts, bytes and arrays. Digests are 32 bytes, addresses 20.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count

import numpy as np

ZERO = bytes(32)
PIECE_BYTES = 1024
SHARD_BYTES = 1 << 20
Hash = Callable[[bytes], bytes]

# ------------------------------------------------------------------------------- hashes (section 2)

_RATE = 136
_WORD = (1 << 64) - 1


def _round_constants() -> list[int]:
    """The 24 constants of iota, by the linear feedback register of FIPS 202, section 3.2.5."""
    register, constants = 1, []
    for _ in range(24):
        constant = 0
        for power in range(7):
            constant |= (register & 1) << ((1 << power) - 1)
            register = ((register << 1) ^ ((register >> 7) * 0x171)) & 0xFF
        constants.append(constant)
    return constants


_ROUND_CONSTANTS = _round_constants()


def _moves() -> tuple[list[int], list[int]]:
    """Which lane rho and pi bring to each place, and how far it is turned (FIPS 202, 3.2.2-3)."""
    origin, turns = [0] * 25, [0] * 25
    (x, y), place = (1, 0), 1
    for t in range(24):
        x, y = y, (2 * x + 3 * y) % 5
        origin[x + 5 * y], turns[x + 5 * y] = place, (t + 1) * (t + 2) // 2 % 64
        place = x + 5 * y
    return origin, turns


_FROM, _TURNS = _moves()
_RHO_PI = list(zip(_FROM, _TURNS, strict=True))
_CHI = [(x + y, (x + 1) % 5 + y, (x + 2) % 5 + y) for y in range(0, 25, 5) for x in range(5)]
_BEFORE, _AFTER, _AFTER_NEXT = [4, 0, 1, 2, 3], [1, 2, 3, 4, 0], [2, 3, 4, 0, 1]
"""Columns x − 1, x + 1 and x + 2 of column x."""


def _turn(lane: int, bits: int) -> int:
    """A 64-bit word rotated left."""
    return ((lane << bits) | (lane >> (64 - bits))) & _WORD


def _permute(a):
    """Keccak-f[1600] of 25 lanes, lane (x, y) at x + 5y, as Python integers."""
    for constant in _ROUND_CONSTANTS:
        column = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        theta = [column[x - 1] ^ _turn(column[(x + 1) % 5], 1) for x in range(5)]
        moved = [
            ((lane << bits) | (lane >> (64 - bits))) & _WORD
            for lane, bits in ((a[i] ^ theta[i % 5], bits) for i, bits in _RHO_PI)
        ]
        a = [moved[i] ^ ((moved[j] ^ _WORD) & moved[k]) for i, j, k in _CHI]
        a[0] ^= constant
    return a


def _permute_each(lanes):
    """The same of every column of an array of uint64 [25, messages]."""
    turns = np.array(_TURNS, np.uint64)[:, None]
    back = (64 - turns) % 64  # a lane that is not turned is combined with itself
    for constant in _ROUND_CONSTANTS:
        column = np.bitwise_xor.reduce(lanes.reshape(5, 5, -1))
        after = column[_AFTER]
        theta = column[_BEFORE] ^ ((after << np.uint64(1)) | (after >> np.uint64(63)))
        moved = (lanes.reshape(5, 5, -1) ^ theta).reshape(25, -1)[_FROM]
        moved = ((moved << turns) | (moved >> back)).reshape(5, 5, -1)
        lanes = (moved ^ (~moved[:, _AFTER] & moved[:, _AFTER_NEXT])).reshape(25, -1)
        lanes[0] ^= np.uint64(constant)
    return lanes


def _padded(size: int) -> bytes:
    """What follows a message of this size: Keccak's own padding, not SHA-3's."""
    padding = bytearray(_RATE - size % _RATE)
    padding[0] |= 0x01
    padding[-1] |= 0x80
    return bytes(padding)


def keccak(message: bytes) -> bytes:
    """keccak-256, as Ethereum uses it."""
    message = bytes(message) + _padded(len(message))
    lanes = [0] * 25
    for start in range(0, len(message), _RATE):
        for i in range(_RATE // 8):
            at = start + 8 * i
            lanes[i] ^= int.from_bytes(message[at : at + 8], "little")
        lanes = _permute(lanes)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes[:4])


def keccak_each(messages: Sequence[bytes]) -> list[bytes]:
    """keccak-256 of many messages of one size, worked out side by side."""
    if not messages:
        return []
    if len({len(message) for message in messages}) != 1:
        raise ValueError("messages of different sizes")
    padding = _padded(len(messages[0]))
    words = np.frombuffer(b"".join(m + padding for m in messages), "<u8")
    words = words.reshape(len(messages), -1, _RATE // 8)
    lanes = np.zeros((25, len(messages)), np.uint64)
    for block in range(words.shape[1]):
        lanes[: _RATE // 8] ^= words[:, block].T
        lanes = _permute_each(lanes)
    digests = np.ascontiguousarray(lanes[:4].T).astype("<u8").tobytes()
    return [digests[at : at + 32] for at in range(0, len(digests), 32)]


def sha256(message: bytes) -> bytes:
    """SHA-256: the hash of content."""
    return hashlib.sha256(message).digest()


@cache
def tag(name: str) -> bytes:
    """keccak of a name, the first field of what is hashed under it."""
    return keccak(name.encode())


def abi(*fields) -> bytes:
    """The ABI encoding of static fields: integers, booleans, addresses and 32-byte words."""
    return b"".join(_word(field) for field in fields)


def _word(field) -> bytes:
    if isinstance(field, (bool, int)):
        return int(field).to_bytes(32, "big")
    if len(field) not in (20, 32):
        raise ValueError(f"{len(field)} bytes are neither an address nor a word")
    return bytes(field).rjust(32, b"\0")


def hashed(name: str, *fields) -> bytes:
    """The law's H(name; fields…) of section 3: keccak(abi.encode(tag(name), fields…))."""
    return keccak(abi(tag(name), *fields))


# -------------------------------------------------------------------------------- trees (section 4)


def levels(leaves: Sequence[bytes], hash: Hash = keccak) -> list[list[bytes]]:
    """Every level of a tree, the nodes of its leaves first, the top alone last."""
    if not leaves:
        raise ValueError("an empty tree has no root")
    found = [_each(hash, [b"\0" + leaf for leaf in leaves])]
    while len(found[-1]) > 1:
        below = found[-1]
        pairs = [b"\1" + below[i] + below[i + 1] for i in range(0, len(below) - 1, 2)]
        found.append(_each(hash, pairs) + below[len(below) - len(below) % 2 :])
    return found


def _each(hash: Hash, messages: list[bytes]) -> list[bytes]:
    side_by_side = hash is keccak and len(messages) > 8 and len(set(map(len, messages))) == 1
    return keccak_each(messages) if side_by_side else [hash(message) for message in messages]


def root(leaves: Sequence[bytes], hash: Hash = keccak) -> bytes:
    """The root of a tree over these leaves, their number bound into it."""
    return hash(b"\2" + len(leaves).to_bytes(8, "big") + levels(leaves, hash)[-1][0])


def proof(leaves: Sequence[bytes], index: int, hash: Hash = keccak) -> list[bytes]:
    """The siblings of a leaf, from the bottom up; a node that is carried up has none."""
    siblings = []
    for level in levels(leaves, hash)[:-1]:
        if index ^ 1 < len(level):
            siblings.append(level[index ^ 1])
        index //= 2
    return siblings


def proves(
    leaf: bytes, index: int, width: int, top: bytes, siblings: Sequence[bytes], hash: Hash = keccak
) -> bool:
    """Whether the leaf is the tree's leaf `index` of `width`, all siblings used."""
    if not 0 <= index < width < 1 << 64:
        return False
    node, remaining, size = hash(b"\0" + leaf), list(siblings), width
    while size > 1:
        if index ^ 1 < size:
            if not remaining:
                return False
            sibling = remaining.pop(0)
            node = hash(b"\1" + (sibling + node if index % 2 else node + sibling))
        index, size = index // 2, (size + 1) // 2
    return not remaining and hash(b"\2" + width.to_bytes(8, "big") + node) == top


def piece_root(data: bytes) -> bytes:
    """The root over the keccak of every 1024 bytes; the last piece may be shorter."""
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    whole = len(data) // PIECE_BYTES
    return root(keccak_each(pieces[:whole]) + [keccak(piece) for piece in pieces[whole:]])


def shard_nodes(data: bytes) -> list[bytes]:
    """The nodes of the piece tree over every MiB of a data set (SPEC-BYTES.md, 2)."""
    return [_shard_node(data[at : at + SHARD_BYTES]) for at in range(0, len(data), SHARD_BYTES)]


def _shard_node(shard: bytes) -> bytes:
    pieces = [shard[at : at + PIECE_BYTES] for at in range(0, len(shard), PIECE_BYTES)]
    whole = len(shard) // PIECE_BYTES
    hashes = keccak_each(pieces[:whole]) + [keccak(piece) for piece in pieces[whole:]]
    return levels(hashes, keccak)[-1][0]


def root_of_nodes(nodes: Sequence[bytes], size: int) -> bytes:
    """The piece root of so many bytes, from the nodes over every MiB of them."""
    row = list(nodes)
    while len(row) > 1:
        pairs = [row[at : at + 2] for at in range(0, len(row), 2)]
        row = [keccak(b"\1" + pair[0] + pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    pieces = -(-size // PIECE_BYTES)
    return keccak(b"\2" + pieces.to_bytes(8, "big") + row[0])


# ------------------------------------------------------------ content (section 2, SPEC-BYTES.md 2)

LEAF_BYTES, NODE_LINKS = 1 << 20, 1024
RAW, DAG_PB = 0x55, 0x70


def cid_of(codec: int, block: bytes) -> bytes:
    """The CIDv1 of a block."""
    return bytes([0x01, codec, 0x12, 0x20]) + sha256(block)


def file_cid(data: bytes) -> bytes:
    """Of a UnixFS file: raw leaves of 1 MiB under balanced nodes, or the one leaf that it is."""
    starts = range(0, max(len(data), 1), LEAF_BYTES)
    leaves = [data[at : at + LEAF_BYTES] for at in starts]
    # Of each node: CID, bytes of the file below it, bytes of all blocks below it.
    row = [(cid_of(RAW, leaf), len(leaf), len(leaf)) for leaf in leaves]
    while len(row) > 1:
        row = [_file_node(row[at : at + NODE_LINKS]) for at in range(0, len(row), NODE_LINKS)]
    return row[0][0]


def _file_node(links: Sequence[tuple[bytes, int, int]]) -> tuple[bytes, int, int]:
    """A dag-pb node: links first, then the UnixFS message of a file (type 2)."""
    size = sum(length for _, length, _ in links)
    unixfs = b"\x08\x02\x18" + _varint(size)
    unixfs += b"".join(b"\x20" + _varint(length) for _, length, _ in links)
    block = b""
    for cid, _, total in links:
        link = b"\x0a" + _varint(len(cid)) + cid + b"\x12\x00\x18" + _varint(total)
        block += b"\x12" + _varint(len(link)) + link
    block += b"\x0a" + _varint(len(unixfs)) + unixfs
    return cid_of(DAG_PB, block), size, len(block) + sum(total for _, _, total in links)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


# ------------------------------------------------------------------------ documents (section 2)

_MAX_DEPTH = 32
_SIMPLE = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}


def encode_cbor(item) -> bytes:
    """Canonical DAG-CBOR of maps, lists, text, bytes, integers, booleans and null."""
    if item is None or isinstance(item, bool):
        return _SIMPLE[item]
    if isinstance(item, int):
        return _cbor_head(0, item) if item >= 0 else _cbor_head(1, -1 - item)
    if isinstance(item, bytes):
        return _cbor_head(2, len(item)) + item
    if isinstance(item, str):
        return _cbor_head(3, len(item.encode())) + item.encode()
    if isinstance(item, (list, tuple)):
        return _cbor_head(4, len(item)) + b"".join(map(encode_cbor, item))
    keys = sorted(item, key=_key_order)
    body = b"".join(encode_cbor(key) + encode_cbor(item[key]) for key in keys)
    return _cbor_head(5, len(item)) + body


def _key_order(key: str) -> tuple[int, bytes]:
    return len(key.encode()), key.encode()


def _cbor_head(major: int, value: int) -> bytes:
    if value < 24:
        return bytes([major << 5 | value])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << 8 * size:
            return bytes([major << 5 | code]) + value.to_bytes(size, "big")
    raise ValueError(f"{value} is beyond 64 bits")


def decode_cbor(data: bytes):
    """The item with these bytes. Raises ValueError on any other spelling than the canonical."""
    item, end = _cbor_item(data, 0, 0)
    if end != len(data) or encode_cbor(item) != data:
        raise ValueError("not canonical DAG-CBOR")
    return item


def _cbor_item(data: bytes, at: int, depth: int):
    major, code, value, at = _read_cbor_head(data, at)
    if major == 7:
        if code not in (20, 21, 22):
            raise ValueError("a float or an unknown simple value")
        return {20: False, 21: True, 22: None}[code], at
    if major in (0, 1):
        return (value if major == 0 else -1 - value), at
    if major in (2, 3):
        text = data[at : at + value]
        if len(text) < value:
            raise ValueError("the document ends early")
        return (text if major == 2 else text.decode()), at + value
    if major == 6 or depth >= _MAX_DEPTH:
        raise ValueError("a link, or nested too deep")
    items = []
    for _ in range(value * (major - 3)):  # a map has two items an entry
        item, at = _cbor_item(data, at, depth + 1)
        items.append(item)
    if major == 4:
        return items, at
    if any(not isinstance(key, str) for key in items[::2]):
        raise ValueError("a key that is not text")
    return dict(zip(items[::2], items[1::2], strict=True)), at


def _read_cbor_head(data: bytes, at: int) -> tuple[int, int, int, int]:
    if at >= len(data):
        raise ValueError("the document ends early")
    major, code = data[at] >> 5, data[at] & 31
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(code, 0)
    if code > 27 or at + 1 + size > len(data):
        raise ValueError("an indefinite length, or the document ends early")
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else code
    return major, code, value, at + 1 + size


# -------------------------------------------------------------------------------- draws (section 5)


class Stream:
    """Draws from a tag and a key: SHA-256 in counter mode, four big-endian words a block."""

    def __init__(self, tag: str, key: bytes) -> None:
        self._words = _stream_words(tag.encode() + key)

    def draw(self, below: int) -> int:
        """An integer in [0, below): words that would favour the small ones are passed over."""
        limit = (1 << 64) - (1 << 64) % below
        return next(word for word in self._words if word < limit) % below


def _stream_words(prefix: bytes) -> Iterator[int]:
    for block in count():
        digest = sha256(prefix + block.to_bytes(4, "big"))
        yield from (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16, 24))


def u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


def step_draws(data_seed: bytes, seat: int, step: int, size: int, below: int) -> list[int]:
    """What a step draws for its batch; `step` counts within the round."""
    stream = Stream("atoll.batch.v1", data_seed + u16(seat) + u32(step))
    return [stream.draw(below) for _ in range(size)]


def dropout_key(data_seed: bytes, seat: int) -> tuple[int, int]:
    """The two words that key a round's dropout masks."""
    return _philox_key("atoll.dropout.v1", data_seed, seat)


def sample_key(data_seed: bytes, seat: int) -> tuple[int, int]:
    """The two words that key what a seat samples in a round."""
    return _philox_key("atoll.sample.v1", data_seed, seat)


def _philox_key(name: str, data_seed: bytes, seat: int) -> tuple[int, int]:
    stream = Stream(name, data_seed + u16(seat))
    return stream.draw(1 << 32), stream.draw(1 << 32)


def bits(bitmap: int) -> list[int]:
    """The indices of a bitmap's set bits, ascending."""
    return [i for i in range(bitmap.bit_length()) if bitmap >> i & 1]
