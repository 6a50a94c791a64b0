"""int4, 2-bit, sign and fp32 updates: values, canonical bytes, feedback, refusals."""

from dataclasses import replace
from math import floor

import numpy as np
import pytest
import torch

from atoll.errors import ConfigError, MalformedUpdate
from atoll.numerics.codec.block_steps import SIGN, STEPS, two_bit
from atoll.numerics.codec.dense import GRID4
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.feedback import encode_with_feedback
from atoll.numerics.codec.fp32 import FP32
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.packing import pack, packed_length, unpack
from atoll.numerics.codec.update_codec import PIECE, UpdateCodec
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.hashing import keccak256, sha256

EXPONENTS = {"w": -1}
VALUES = [0.0, 0.25, -0.75, 1.0, -1.0, 100.0, -100.0]
DELTA = {"w": torch.tensor(VALUES)}
LAYOUT = Layout.of_tensors(DELTA)
DITHER = DitherKey(sha256(b"data seed"), 5)
TWO_BIT = two_bit(DITHER)
CODECS = [GRID4, TWO_BIT, SIGN]
BLOCKWISE = [(TWO_BIT, 2, 3, 16), (SIGN, 1, 2, 5)]
"""Codecs, their levels, reach and share."""


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (GRID4, [0, 0, -2, 2, -2, 7, -7]),
        # Two of seven are far out; none may saturate at two bits, one with a sign.
        (TWO_BIT, [-23, 20, 2, 2, -24, 88, -87]),
        (SIGN, [28, 28, -28, 28, -28, 28, -28]),
    ],
)
def test_values(codec: UpdateCodec, expected: list[int]):
    data = codec.encode(DELTA, EXPONENTS)
    assert len(data) == codec.encoded_length(LAYOUT)
    assert codec.decode_flat(data, LAYOUT, EXPONENTS).tolist() == expected


@pytest.mark.parametrize(
    ("codec", "body"), [(GRID4, "7795e500"), (TWO_BIT, "08a90d"), (SIGN, "082b")]
)
def test_bytes_are_pinned(codec: UpdateCodec, body: str):
    assert codec.encode(DELTA, EXPONENTS)[42:].hex() == body


STEPS_BY_SPEC = (1, 2, 4, 5, 7, 10, 14, 20, 28)


def plain_step(block: list[float], reach: int, share: int) -> int:
    """The index of a block's step by the definition in SPEC-MERGE.md, 2."""
    fits = (
        index
        for index, s in enumerate(STEPS_BY_SPEC)
        if sum(abs(x) > reach * s for x in block) <= len(block) // share
        and max(map(abs, block)) <= 2 * reach * s
    )
    return next(fits, len(STEPS_BY_SPEC) - 1)


def plain_noise(piece: int, count: int) -> bytes:
    """Keccak in counter mode by the same section."""
    place = DITHER.seat.to_bytes(2, "big") + b"\0" + piece.to_bytes(4, "big")
    key = keccak256(DITHER.data_seed + place)
    blocks = (keccak256(key + i.to_bytes(4, "big")) for i in range(count // 32 + 1))
    return b"".join(blocks)[:count]


def plain_piece(piece: int, values: list[float], levels: int, reach: int, share: int) -> list[int]:
    """The values of at most 65536 coordinates by the same definition; dithered with two levels."""
    noise, sent = plain_noise(piece, len(values)), []
    chosen = [plain_step(values[at : at + 32], reach, share) for at in range(0, len(values), 32)]
    for at, (x, b) in enumerate(zip(values, noise, strict=True)):
        s = STEPS_BY_SPEC[chosen[at // 32]]
        d = ((2 * b + 1) * s + 128) // 256 - s if levels == 2 else 0
        y = (np.float32(x) + np.float32(d)) / np.float32(s)
        code = floor(max(-2.0 * levels, min(2.0 * levels - 1, float(y))) / 2) + levels
        sent.append((2 * code - 2 * levels + 1) * s - d)
    return sent


@pytest.mark.parametrize(("codec", "levels", "reach", "share"), BLOCKWISE)
@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 1000, 70_000])
def test_blocks_choose_their_scale(
    codec: UpdateCodec, levels: int, reach: int, share: int, size: int
):
    rng = np.random.default_rng(size)
    scales = np.exp2(rng.uniform(-3, 9, size // 64 + 1)).repeat(64)[:size]
    steps = (rng.laplace(size=size) * scales).astype(np.float32)
    steps[:5] = np.array([0.0, -0.0, 2.0, -2.0, np.inf])[: len(steps[:5])]
    finite = np.nan_to_num(steps, posinf=np.float32(3e38))
    layout = Layout.of({"w": (size,)})
    data = codec.encode({"w": torch.from_numpy(finite)}, {"w": 0})
    assert len(data) == codec.encoded_length(layout)
    values = codec.decode_flat(data, layout, {"w": 0})
    pieces = [finite[at : at + PIECE].tolist() for at in range(0, size, PIECE)]
    assert values.tolist() == [
        v
        for piece, part in enumerate(pieces)
        for v in plain_piece(piece, part, levels, reach, share)
    ]


@pytest.mark.parametrize(("codec", "levels", "reach", "share"), BLOCKWISE)
def test_two_bits_suit_updates_of_any_size_and_shape(
    codec: UpdateCodec, levels: int, reach: int, share: int
):
    """The error stays near the least that so many levels can have (Max 1960), at any scale; two
    bits add noise to cut off less."""
    rng = np.random.default_rng(0)
    for draw, least in ((rng.standard_normal, (0.363, 0.119)), (rng.laplace, (0.5, 0.196))):
        steps = draw(size=1 << 14)
        for scale in (8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 40.0):
            delta = {"w": torch.from_numpy((steps * scale).astype(np.float32))}
            layout = Layout.of_tensors(delta)
            sent = codec.decode_flat(codec.encode(delta, {"w": 0}), layout, {"w": 0})
            lost = np.mean((sent - delta["w"].numpy()) ** 2) / np.mean(delta["w"].numpy() ** 2)
            assert lost < (1.15 if codec is SIGN else 1.6) * least[levels - 1]


@pytest.mark.parametrize(("codec", "levels", "reach", "share"), BLOCKWISE)
def test_an_unknown_step_and_filling_bits_are_refused(
    codec: UpdateCodec, levels: int, reach: int, share: int
):
    data = bytearray(codec.encode(DELTA, EXPONENTS))
    for wrong, message in ((0x09, "step 9"), (0x15, "after the last")):
        data[42] = wrong
        with pytest.raises(MalformedUpdate, match=message):
            codec.decode_flat(bytes(data), LAYOUT, EXPONENTS)


def test_dither_leaves_no_pattern_in_the_error():
    """Of a matrix with one direction, rounding alone leaves an error three fifths of which is one;
    of noise in so large a matrix it is an eighth."""
    rng = np.random.default_rng(0)
    update = 10 * np.tanh(np.outer(rng.standard_normal(256), rng.standard_normal(256)))
    delta = {"w": torch.from_numpy(update.astype(np.float32))}
    layout = Layout.of_tensors(delta)
    sent = TWO_BIT.decode_flat(TWO_BIT.encode(delta, {"w": 0}), layout, {"w": 0})
    error = sent.reshape(256, 256) - update
    assert np.linalg.norm(error, 2) < 0.2 * np.linalg.norm(error)


def test_the_dither_is_of_the_seat_the_round_and_the_piece():
    """Read under another key, an update says something else; two pieces alike do not."""
    layout, delta = Layout.of({"w": (2 * PIECE,)}), {"w": torch.zeros(2 * PIECE)}
    data = TWO_BIT.encode(delta, {"w": 0})
    own = TWO_BIT.decode_flat(data, layout, {"w": 0})
    assert (own[:PIECE] != own[PIECE:]).any()
    for other in (replace(DITHER, seat=6), replace(DITHER, data_seed=sha256(b"next"))):
        assert (two_bit(other).decode_flat(data, layout, {"w": 0}) != own).any()
        assert two_bit(other).encode(delta, {"w": 0}) != data


def test_values_of_different_steps_are_different_integers():
    assert not {3 * int(step) for step in STEPS} & {int(step) for step in STEPS}


def test_sizes():
    layout = Layout.of({"w": (1_000_000,)})
    assert TWO_BIT.encoded_length(layout) < 0.266 * 1_000_000
    assert SIGN.encoded_length(layout) < 0.141 * 1_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_every_vector_has_one_encoding(codec: UpdateCodec):
    """Bytes are refused, or say something that no other bytes tried here say."""
    layout = Layout.of({"w": (261,)})
    data = codec.encode({"w": torch.arange(-130, 131) * 0.5}, {"w": 0})
    seen = {codec.decode_flat(data, layout, {"w": 0}).tobytes()}
    for at in range(len(data)):
        for bit in (1, 4, 0x80):
            broken = bytearray(data)
            broken[at] ^= bit
            try:
                other = codec.decode_flat(bytes(broken), layout, {"w": 0}).tobytes()
            except MalformedUpdate:
                continue
            assert other not in seen
            seen.add(other)
    assert len(seen) > 1


def test_set_filling_bits_and_minus_eight_are_refused():
    data = bytearray(GRID4.encode(DELTA, EXPONENTS))
    data[-1] |= 0x10
    with pytest.raises(MalformedUpdate, match="after the last"):
        GRID4.decode_flat(bytes(data), LAYOUT, EXPONENTS)
    data = bytearray(GRID4.encode(DELTA, EXPONENTS))
    data[-4] = 0xFF
    with pytest.raises(MalformedUpdate, match="not on the grid"):
        GRID4.decode_flat(bytes(data), LAYOUT, EXPONENTS)


@pytest.mark.parametrize("codec", CODECS)
def test_other_codecs_bytes_and_lengths_are_refused(codec: UpdateCodec):
    data = codec.encode(DELTA, EXPONENTS)
    with pytest.raises(MalformedUpdate):
        codec.decode_flat(data + b"\0", LAYOUT, EXPONENTS)
    for other in CODECS:
        if other is not codec:
            with pytest.raises(MalformedUpdate):
                other.decode_flat(data, LAYOUT, EXPONENTS)


@pytest.mark.parametrize("codec", CODECS)
def test_feedback_carries_what_was_not_sent(codec: UpdateCodec):
    delta = {"w": torch.tensor([0.3, -0.2, 1.1])}
    layout = Layout.of_tensors(delta)
    residual = {"w": torch.zeros(3)}
    sent = np.zeros(3)
    for _ in range(400):
        data, residual = encode_with_feedback(codec, delta, residual, EXPONENTS, 1.0)
        sent += codec.decode_flat(data, layout, EXPONENTS) * 0.5
    # what was sent and what is left add up to what was wanted
    assert np.allclose(sent + residual["w"].numpy(), np.array([0.3, -0.2, 1.1]) * 400, atol=0.01)
    assert residual["w"].abs().max() < 3


def test_feedback_decays_and_must_fit():
    residual = {"w": torch.full((7,), 8.0)}
    faded, _ = encode_with_feedback(GRID4, DELTA, residual, EXPONENTS, 0.0)
    assert faded == GRID4.encode(DELTA, EXPONENTS)
    with pytest.raises(ConfigError):
        encode_with_feedback(GRID4, DELTA, {"w": torch.zeros(6)}, EXPONENTS, 1.0)
    with pytest.raises(ConfigError):
        encode_with_feedback(GRID4, DELTA, residual, EXPONENTS, 1.5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_cannot_be_encoded(value: float):
    delta = {"w": torch.tensor([value])}
    for encode in (GRID4.encode, TWO_BIT.encode, SIGN.encode, FP32.encode):
        with pytest.raises(NonFiniteDeltaError):
            encode(delta, {"w": 0})


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("count", range(18))
def test_packing_round_trips(width: int, count: int):
    codes = (np.arange(count) * 7 % (1 << width)).astype(np.uint8)
    data = pack(codes, width)
    assert len(data) == packed_length(count, width)
    assert unpack(data, count, width).tolist() == codes.tolist()


def test_fp32_is_exact_and_canonical():
    delta = {"w": torch.tensor([-0.0, 1e-45, -3.5e38 / 2, 0.1])}
    layout = Layout.of_tensors(delta)
    data = FP32.encode(delta, EXPONENTS)
    assert len(data) == FP32.encoded_length(layout)
    assert torch.equal(FP32.decode(data, layout, EXPONENTS)["w"], delta["w"])
    for bad in (float("nan"), float("inf"), -0.0):
        broken = data[:-4] + np.float32(bad).tobytes()
        with pytest.raises(MalformedUpdate):
            FP32.decode(broken, layout, EXPONENTS)
    with pytest.raises(MalformedUpdate):
        FP32.decode(data[:-1], layout, EXPONENTS)
