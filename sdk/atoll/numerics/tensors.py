"""Named tensors as canonical bytes, and their SHA-256 trees. Never pickle.

Rule of this file: one dict of tensors has one encoding and one root, and parsing refuses every
other spelling of it. A blob is

    b"ATOLLTN1" | uint32 little-endian header length | header | raw little-endian tensors

where the header is DAG-CBOR `{"fields": {...}, "kind": str, "tensors": [[name, dtype, shape]]}`,
names ascend strictly, and the raw tensors follow in that order with nothing between or after.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias, cast

import torch
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.kernels.freed_memory import let_go_of_pages
from atoll.numerics.shards import Shape, Shards, shapes_of
from atoll.numerics.state_layout import MAX_HEADER_BYTES
from atoll.protocol.canonical import Ipld, decode, encode
from atoll.protocol.hashing import sha256 as sha256_digest
from atoll.protocol.merkle import merkle_root
from atoll.protocol.types import ZERO_DIGEST, Digest

if sys.byteorder != "little":  # canonical bytes are the memory of a little-endian machine
    raise ImportError("atoll.train runs on little-endian machines only")

MAGIC = b"ATOLLTN1"
CHUNK_BYTES = 1 << 12
"""What a contract can be shown of a state: a leaf of this size is cheap to hash there."""
MAX_TENSORS = 1 << 16
MAX_DIMS = 4  # no model's tensor has more, and strangers write headers
DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "int64": torch.int64,
    "int8": torch.int8,
}
_DTYPE_NAMES = {torch.int32: "int32"} | {dtype: name for name, dtype in DTYPES.items()}
"""Of what is hashed; ids are in no blob."""
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,200}")
_CHUNK_TAG = "atoll.chunk.v1"

Allocate: TypeAlias = Callable[[str, Shape, torch.dtype], Tensor]
"""Makes the tensor that a blob's bytes of a name are read into."""
Fields: TypeAlias = dict[str, int | dict[str, int]]


@dataclass(frozen=True, slots=True)
class Blob:
    """A parsed blob: what its header says, and its tensors (fresh memory, 64-byte aligned).

    Attributes:
        is_whole: whether all tensors were wanted.
    """

    fields: Fields
    tensors: dict[str, Tensor]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ByteSource:
    """A blob's bytes as they come, so that a large one is never held beside its tensors.

    Attributes:
        length: how many bytes `parts` have in all.
    """

    length: int
    parts: Iterable[bytes | memoryview]


def raw_bytes(tensor: Tensor) -> memoryview:
    """The tensor's little-endian row-major bytes; shares memory when it is contiguous here."""
    whole = tensor.detach().cpu().contiguous()
    # One of a single element is contiguous whatever its strides are, and they stay.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).numpy().data


def tree_root(tensors: Mapping[str, Tensor]) -> Digest:
    """Root of the SHA-256 tree over 4 KiB chunks, tensors in ascending order of name.

    Every chunk is hashed behind its tensor's name, dtype, shape and its own index, so no two
    different dicts share leaves. No tensors at all: 32 zero bytes.
    """
    root = TreeRoot()
    root.add_all(tensors)
    return root.digest()


def chunk_leaves(tensors: Mapping[str, Tensor]) -> list[Digest]:
    """The leaves of the tree that `tree_root` is the root of."""
    found = (each for name in sorted(tensors) for each in _chunk_hashes(name, tensors[name]))
    return [Digest(leaf) for leaf in found]


def part_leaves(name: str, shape: Shape, part: Tensor, first: int) -> Iterator[bytes]:
    """The leaves of some whole rows of a tensor of this shape.

    Args:
        first: elements before the rows, whose bytes are a whole number of chunks.
    """
    prefix = sha256(chunk_prefix(name, _DTYPE_NAMES[part.dtype], shape))
    raw, before = raw_bytes(part), first * part.element_size() // CHUNK_BYTES
    for index, start in enumerate(range(0, max(len(raw), 1), CHUNK_BYTES), before):
        chunk = prefix.copy()
        chunk.update(index.to_bytes(8, "big"))
        chunk.update(raw[start : start + CHUNK_BYTES])
        yield chunk.digest()
    let_go_of_pages(part)


class TreeRoot:
    """`tree_root` of tensors that are shown one after another, in ascending order of name."""

    def __init__(self) -> None:
        self._leaves: list[bytes] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """Takes in the next tensor."""
        self._leaves.extend(_chunk_hashes(name, tensor))

    def add_all(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        """Takes in all of these, behind whatever comes before the prefix; those who hold shards
        hash them.
        """
        if isinstance(tensors, Shards):
            self._leaves.extend(tensors.chunk_hashes(prefix))
            return
        for name in sorted(tensors):
            self.add(f"{prefix}{name}", tensors[name])

    def digest(self) -> Digest:
        """The root of all so far; 32 zero bytes of none."""
        return merkle_root(self._leaves, sha256_digest) if self._leaves else ZERO_DIGEST


def chunk_count(size: int) -> int:
    """Chunks of a tensor of so many bytes."""
    return max(1, -(-size // CHUNK_BYTES))


def _chunk_hashes(name: str, tensor: Tensor) -> Iterator[bytes]:
    return part_leaves(name, tuple(tensor.shape), tensor, 0)


@lru_cache(maxsize=4096)
def chunk_prefix(name: str, dtype: str, shape: Shape) -> bytes:
    """What each chunk of a tensor is hashed behind, before the chunk's index."""
    return encode([_CHUNK_TAG, name, dtype, list(shape)])


def write_blob(
    kind: str, fields: Fields, tensors: Mapping[str, Tensor]
) -> Iterator[bytes | memoryview]:
    """The blob in pieces, so that a large state is never copied whole."""
    layout = {n: (_DTYPE_NAMES[t.dtype], tuple(t.shape)) for n, t in tensors.items()}
    return write_lazily(kind, fields, layout, tensors.__getitem__)


def write_lazily(
    kind: str,
    fields: Fields,
    shapes: Mapping[str, tuple[str, Shape]],
    read: Callable[[str], Tensor],
) -> Iterator[bytes | memoryview]:
    """The blob in pieces; each tensor, of this dtype and shape, is read when its turn is."""
    names = sorted(shapes)
    layout: list[Ipld] = [[name, shapes[name][0], list(shapes[name][1])] for name in names]
    document: Ipld = {"fields": cast(Ipld, fields), "kind": kind, "tensors": layout}
    header = encode(document)
    yield MAGIC + len(header).to_bytes(4, "little") + header
    for name in names:
        tensor = read(name)
        yield raw_bytes(tensor)
        let_go_of_pages(tensor)


def in_memory(_name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
    """Memory of the process."""
    return torch.empty(shape, dtype=dtype)  # kernels may depend on alignment


def read_blob(
    kind: str,
    data: bytes | memoryview | ByteSource,
    wanted: Callable[[str], bool] = lambda _: True,
    *,
    allocate: Allocate = in_memory,
    into: Callable[[str], MutableMapping[str, Tensor] | None] = lambda _: None,
) -> Blob:
    """Parses one blob of that kind, and keeps the tensors whose names are wanted.

    Args:
        into: what takes the tensors of a group, whose name stands before theirs, as they come; None
            leaves them to the blob.

    Raises:
        MalformedState: on anything but the exact bytes that `write_blob` would give.
    """
    source = data if isinstance(data, ByteSource) else ByteSource(memoryview(data).nbytes, [data])
    reader, fields, layout = _opened(kind, source)
    tensors: dict[str, Tensor] = {}
    is_whole = True
    for name, dtype, shape in layout:
        if not wanted(name):
            reader.skip(_size(dtype, shape))
            is_whole = False
            continue
        tensor = allocate(name, shape, DTYPES[dtype])
        _fill(reader, tensor)
        group, _, rest = name.partition("/")
        taker = into(group) if rest else None
        if taker is None:
            tensors[name] = tensor
        else:
            taker[rest] = tensor
    reader.end()
    return Blob(fields, tensors, is_whole)


@dataclass(frozen=True, slots=True)
class LazyBlob:
    """A blob whose tensors are read one after another, in ascending order of name.

    Attributes:
        layout: dtype and shape by name.
    """

    fields: Fields
    layout: dict[str, tuple[str, Shape]]
    tensors: Iterator[tuple[str, Tensor]]


def read_lazily(kind: str, source: ByteSource) -> LazyBlob:
    """As `read_blob`, holding no more than a tensor.

    Raises:
        MalformedState: as `read_blob`; of what follows the header, when its turn is.
    """
    reader, fields, layout = _opened(kind, source)

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, dtype, shape in layout:
            tensor = in_memory(name, shape, DTYPES[dtype])
            _fill(reader, tensor)
            yield name, tensor
        reader.end()

    return LazyBlob(fields, {name: (dtype, shape) for name, dtype, shape in layout}, tensors())


def _opened(kind: str, source: ByteSource) -> tuple[_Reader, Fields, list[tuple[str, str, Shape]]]:
    """What stands behind the header, and what it says."""
    reader = _Reader(kind, source)
    fields, layout = _read_header(kind, reader)
    asked = sum(_size(dtype, shape) for _, dtype, shape in layout)
    if reader.left != asked:
        asked += source.length - reader.left
        raise MalformedState(f"{kind}: {source.length} bytes, header asks for {asked}")
    return reader, fields, layout


def _size(dtype: str, shape: Shape) -> int:
    return math.prod(shape) * DTYPES[dtype].itemsize


def _fill(reader: _Reader, tensor: Tensor) -> None:
    if tensor.numel():
        reader.fill(tensor.view(-1).view(torch.uint8).numpy().data)
    let_go_of_pages(tensor)


class _Reader:
    """A source in portions of any size. Raises MalformedState where it has other than its length.

    Attributes:
        left: bytes to come, by the source's word.
    """

    def __init__(self, kind: str, source: ByteSource) -> None:
        self._kind, self.left = kind, source.length
        self._parts, self._part = iter(source.parts), memoryview(b"")

    def fill(self, buffer: memoryview) -> None:
        done = 0
        for part in self._portions(buffer.nbytes):
            buffer[done : done + part.nbytes] = part
            done += part.nbytes

    def skip(self, count: int) -> None:
        for _ in self._portions(count):
            pass

    def read(self, count: int) -> bytes:
        return b"".join(self._portions(count))

    def end(self) -> None:
        if self._part.nbytes or any(memoryview(part).nbytes for part in self._parts):
            raise MalformedState(f"{self._kind}: more bytes than were said")

    def _portions(self, count: int) -> Iterator[memoryview]:
        self.left -= count
        while count:
            while not self._part.nbytes:
                part = next(self._parts, None)
                if part is None:
                    raise MalformedState(f"{self._kind}: fewer bytes than were said")
                self._part = memoryview(part).cast("B")
            portion = self._part[:count]
            self._part = self._part[portion.nbytes :]
            count -= portion.nbytes
            yield portion


def _read_header(kind: str, reader: _Reader) -> tuple[Fields, list[tuple[str, str, Shape]]]:
    start = len(MAGIC) + 4
    prefix = reader.read(min(start, reader.left))
    if len(prefix) < start or prefix[: len(MAGIC)] != MAGIC:
        raise MalformedState(f"{kind}: does not begin with {MAGIC!r}")
    length = int.from_bytes(prefix[len(MAGIC) :], "little")
    if length > MAX_HEADER_BYTES or length > reader.left:
        raise MalformedState(f"{kind}: header of {length} bytes does not fit")
    try:
        header = decode(reader.read(length), MAX_HEADER_BYTES)
    except ValueError as error:
        raise MalformedState(f"{kind}: header is {error}") from error
    if not isinstance(header, dict):
        raise MalformedState(f"{kind}: header is not a map")
    if set(header) != {"fields", "kind", "tensors"} or header["kind"] != kind:
        raise MalformedState(f"{kind}: header names another kind of document")
    return _read_fields(kind, header["fields"]), _read_layout(kind, header["tensors"])


def _read_fields(kind: str, fields: object) -> Fields:
    if not isinstance(fields, dict):
        raise MalformedState(f"{kind}: fields is not a map")
    for key, value in fields.items():
        values = list(value.values()) if isinstance(value, dict) else [value]
        if not all(type(item) is int and abs(item) < 1 << 63 for item in values):
            raise MalformedState(f"{kind}: field {key!r} is not made of 64-bit integers")
    return fields


def _read_layout(kind: str, layout: object) -> list[tuple[str, str, Shape]]:
    if not isinstance(layout, list) or len(layout) > MAX_TENSORS:
        raise MalformedState(f"{kind}: tensors is not a list of at most {MAX_TENSORS}")
    entries = [_read_entry(kind, entry) for entry in layout]
    names = [name for name, _, _ in entries]
    if any(left >= right for left, right in pairwise(names)):
        raise MalformedState(f"{kind}: tensor names do not ascend strictly")
    return entries


def _read_entry(kind: str, entry: object) -> tuple[str, str, Shape]:
    if isinstance(entry, list) and len(entry) == 3:
        name, dtype, shape = entry
        is_named = isinstance(name, str) and _NAME.fullmatch(name) is not None
        # A list cannot be looked up among the types: ask for text first.
        is_typed = isinstance(dtype, str) and dtype in DTYPES
        if is_named and is_typed and _is_shape(shape):
            return str(name), str(dtype), tuple(shape)
    raise MalformedState(f"{kind}: a tensor entry is not [name, dtype, shape]")


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= MAX_DIMS
        and all(type(size) is int and 0 < size < 1 << 40 for size in shape)
    )


def check_layout(
    kind: str, tensors: Mapping[str, Tensor], expected: Mapping[str, Sequence[int]]
) -> None:
    """Raises MalformedState unless the tensors have exactly these names and shapes."""
    found = shapes_of(tensors)
    if found != {name: tuple(shape) for name, shape in expected.items()}:
        odd = sorted(set(found.items()) ^ {(n, tuple(s)) for n, s in expected.items()})[0]
        raise MalformedState(f"{kind}: tensors are not those of the job's model, first {odd}")
