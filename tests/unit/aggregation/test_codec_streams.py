"""Every codec's bytes and integers as streams: the same as whole, in the memory of a few pieces."""

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from atoll.aggregation.chunks import blocks
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.block_steps import BlockStepBody
from atoll.numerics.codec.dense import GRID8
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.header import header
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.update_codec import PIECE, UpdateCodec
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.codecs import CODECS as KINDS
from atoll.protocol.types import ZERO_DIGEST

SHAPES = [
    {"w": (1,)},
    {"a": (63,), "b": (65, 2)},
    {"w": (PIECE,)},
    {"a": (PIECE - 1,), "b": (3, 5), "c": (2 * PIECE + 4097,)},
]
EVERY = pytest.mark.parametrize("kind", CODECS)


def codec_named(kind: str) -> UpdateCodec:
    return CODECS[kind].under(DitherKey(ZERO_DIGEST, 3))


def delta_of(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def exponents_of(kind: str, names: Iterator[str]) -> dict[str, int]:
    return {name: -40 if kind == "fp32" else -4 - at for at, name in enumerate(sorted(names))}


@EVERY
@pytest.mark.parametrize("shapes", SHAPES)
def test_streams_are_what_is_written_and_read_whole(kind: str, shapes: dict[str, tuple[int, ...]]):
    delta, codec = delta_of(shapes), codec_named(kind)
    layout, exponents = Layout.of_tensors(delta), exponents_of(kind, iter(delta))
    data = b"".join(codec.encode_stream(delta, exponents))
    assert data == codec.encode(delta, exponents)
    assert len(data) == codec.encoded_length(layout)
    whole, opened = codec.decode_flat(data, layout, exponents), codec.open(data, layout, exponents)
    assert len(opened) == len(whole)
    spans = [slice(0, None), slice(0, PIECE), slice(PIECE - 1, PIECE + 1), slice(-1, None)]
    for span in (*spans, slice(PIECE, 2 * PIECE), slice(3, 3)):
        assert np.array_equal(opened[span], whole[span]), span


def test_the_tensors_of_a_piece_are_decoded_with_it_once(monkeypatch: pytest.MonkeyPatch):
    """A model of thousands of small ones would have hundreds of seats' rows decoded for each."""
    shapes = {f"t{at:03}": (256,) for at in range(600)}
    delta, codec = delta_of(shapes), codec_named("two_bit")
    layout, exponents = Layout.of_tensors(delta), dict.fromkeys(shapes, -4)
    row = codec.open(codec.encode(delta, exponents), layout, exponents)
    decoded, decode = [], BlockStepBody.decode

    def counted(body: BlockStepBody, data: memoryview, length: int, start: int):
        decoded.append(start)
        return decode(body, data, length, start)

    monkeypatch.setattr(BlockStepBody, "decode", counted)
    for _, _, span in layout.spans():
        assert len(row[span]) == 256
    assert decoded == [0, PIECE, 2 * PIECE]


@EVERY
def test_what_is_cut_off_or_added_is_refused(kind: str):
    delta, codec = delta_of(SHAPES[-1]), codec_named(kind)
    layout, exponents = Layout.of_tensors(delta), exponents_of(kind, iter(delta))
    data = codec.encode(delta, exponents)
    for wrong, message in (
        (data[:-1], "bytes where the layout asks"),
        (data[:30], "bytes where the layout asks"),
        (b"", "bytes where the layout asks"),
        (data + b"\0", "bytes where the layout asks"),
        (b"x" + data[1:], "magic"),
    ):
        with pytest.raises(MalformedUpdate, match=message):
            codec.open(wrong, layout, exponents)


@EVERY
def test_a_value_that_is_not_finite_ends_the_stream(kind: str):
    delta = delta_of(SHAPES[-1])
    delta["c"][-1] = torch.nan
    with pytest.raises(NonFiniteDeltaError, match="tensor c"):
        for _ in codec_named(kind).encode_stream(delta, exponents_of(kind, iter(delta))):
            pass


@pytest.mark.parametrize(("kind", "share"), [("grid8", 0), ("grid4", 0), ("two_bit", 0.25)])
def test_memory_does_not_grow_with_the_model(kind: str, share: float):
    """Beyond a few pieces there is only what waits: of two bits, the codes behind the steps."""
    delta, codec = {"w": torch.zeros(40 * PIECE)}, codec_named(kind)
    tracemalloc.start()
    try:
        for _ in codec.encode_stream(delta, {"w": -4}):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * PIECE + share * 40 * PIECE


class Zeros:
    """The bytes of an update that are made when they are read."""

    def __init__(self, head: bytes, length: int) -> None:
        self._head, self._length = head, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> bytes:
        start, stop, _ = span.indices(self._length)
        return self._head[start:stop] + bytes(stop - max(start, len(self._head)))


def test_what_is_merged_is_held_a_block_at_a_time():
    """However many seats there are, and however large the model."""
    shapes, seats = {"w": (16 * PIECE,)}, 64
    layout, exponents = Layout.of(shapes), {"w": -4}
    head = header(KINDS["grid8"].number, layout, exponents)
    update = Zeros(head, GRID8.encoded_length(layout))
    tracemalloc.start()
    try:
        rows = [GRID8.open(update, layout, exponents) for _ in range(seats)]
        _, opened = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for span in blocks(rows, seats * PIECE):
            assert sum(len(row[span]) for row in rows) == seats * PIECE
        _, read = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert opened < 5 * 16 * PIECE
    assert read < 8 * PIECE


@pytest.mark.parametrize("codec", ["grid8", "fp32"])
def test_of_little_models_a_row_holds_no_more_bytes_than_a_piece_has_coordinates(codec: str):
    layout, exponents, seats = Layout.of({"w": (PIECE,)}), {"w": -40}, 32
    opens = codec_named(codec)
    update = Zeros(header(KINDS[codec].number, layout, exponents), opens.encoded_length(layout))
    tracemalloc.start()
    try:
        rows = [opens.open(update, layout, exponents) for _ in range(seats)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(row) for row in rows] == [PIECE] * seats
    assert held < 1.1 * seats * PIECE
