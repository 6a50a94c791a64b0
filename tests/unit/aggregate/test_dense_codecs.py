"""int4, 2-bit, sign and fp32 updates: values, canonical bytes, feedback, refusals."""

import numpy as np
import pytest
import torch

from atoll.aggregate import fp32
from atoll.aggregate.dense import GRID4, SIGN, TWO_BIT, DenseCodec
from atoll.aggregate.feedback import encode_with_feedback
from atoll.aggregate.grid import NonFiniteDeltaError
from atoll.aggregate.layout import Layout
from atoll.aggregate.packing import pack, packed_length, unpack
from atoll.errors import ConfigError, MalformedUpdate

EXPONENTS = {"w": -1}
VALUES = [0.0, 0.25, -0.75, 1.0, -1.0, 100.0, -100.0]
DELTA = {"w": torch.tensor(VALUES)}
LAYOUT = Layout.of_tensors(DELTA)
CODECS = [GRID4, TWO_BIT, SIGN]


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (GRID4, [0, 0, -2, 2, -2, 7, -7]),
        (TWO_BIT, [1, 1, -1, 3, -1, 3, -3]),
        (SIGN, [1, 1, -1, 1, -1, 1, -1]),
    ],
)
def test_values(codec: DenseCodec, expected: list[int]):
    data = codec.encode(DELTA, EXPONENTS)
    assert len(data) == codec.encoded_length(LAYOUT)
    assert codec.decode_flat(data, LAYOUT, EXPONENTS).tolist() == expected


@pytest.mark.parametrize(("codec", "body"), [(GRID4, "7795e500"), (TWO_BIT, "da0d"), (SIGN, "2b")])
def test_bytes_are_pinned(codec: DenseCodec, body: str):
    assert codec.encode(DELTA, EXPONENTS)[42:].hex() == body


@pytest.mark.parametrize("codec", CODECS)
def test_every_code_has_one_encoding(codec: DenseCodec):
    values = torch.arange(-130, 131) * 0.5
    exponents = {"w": 0}
    layout = Layout.of({"w": (261,)})
    data = codec.encode({"w": values}, exponents)
    decoded = codec.decode_flat(data, layout, exponents)
    assert codec.encode({"w": torch.from_numpy(decoded.astype(np.float32))}, exponents) == data
    for at in range(len(data)):
        for bit in (1, 0x80):
            broken = bytearray(data)
            broken[at] ^= bit
            try:
                other = codec.decode_flat(bytes(broken), layout, exponents)
            except MalformedUpdate:
                continue
            again = codec.encode({"w": torch.from_numpy(other.astype(np.float32))}, exponents)
            assert again == bytes(broken)


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
def test_other_codecs_bytes_and_lengths_are_refused(codec: DenseCodec):
    data = codec.encode(DELTA, EXPONENTS)
    with pytest.raises(MalformedUpdate):
        codec.decode_flat(data + b"\0", LAYOUT, EXPONENTS)
    for other in CODECS:
        if other is not codec:
            with pytest.raises(MalformedUpdate):
                other.decode_flat(data, LAYOUT, EXPONENTS)


@pytest.mark.parametrize("codec", CODECS)
def test_feedback_carries_what_was_not_sent(codec: DenseCodec):
    delta = {"w": torch.tensor([0.3, -0.2, 1.1])}
    layout = Layout.of_tensors(delta)
    residual = {"w": torch.zeros(3)}
    sent = np.zeros(3)
    for _ in range(400):
        data, residual = encode_with_feedback(codec, delta, residual, EXPONENTS, 1.0)
        sent += codec.decode_flat(data, layout, EXPONENTS) * 0.5
    # what was sent and what is left add up to what was wanted, while the grid can follow it
    reach = min(codec.highest * 0.5, 1.1)
    expected = np.array([0.3, -0.2, reach]) * 400
    assert np.allclose(sent, expected, atol=2)


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
    for encode in (GRID4.encode, TWO_BIT.encode, SIGN.encode, fp32.encode):
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
    data = fp32.encode(delta, EXPONENTS)
    assert len(data) == fp32.encoded_length(layout)
    assert torch.equal(fp32.decode(data, layout, EXPONENTS)["w"], delta["w"])
    for bad in (float("nan"), float("inf"), -0.0):
        broken = data[:-4] + np.float32(bad).tobytes()
        with pytest.raises(MalformedUpdate):
            fp32.decode(broken, layout, EXPONENTS)
    with pytest.raises(MalformedUpdate):
        fp32.decode(data[:-1], layout, EXPONENTS)
