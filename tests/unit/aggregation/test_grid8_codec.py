"""The int8 codec: what it rounds to, and that it refuses everything that is not canonical."""

import pytest
import torch

from atoll.errors import ConfigError, MalformedUpdate
from atoll.numerics.codec.dense import GRID8
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.vector_layout import Layout

EXPONENTS = {"b": -3, "a": 0}
DELTA = {
    "b": torch.tensor([[0.0625, 0.1875, -0.0625], [100.0, -100.0, 0.25]]),
    "a": torch.tensor([0.5, 1.5, -2.5, 127.4]),
}
LAYOUT = Layout.of_tensors(DELTA)


@pytest.fixture
def update() -> bytes:
    return GRID8.encode(DELTA, EXPONENTS)


def test_rounds_half_to_even_and_clamps(update: bytes):
    values = GRID8.decode(update, LAYOUT, EXPONENTS)
    assert values["a"].tolist() == [0, 2, -2, 127]
    assert (8 * values["b"]).tolist() == [[0, 2, 0], [127, -127, 2]]
    assert values["b"].dtype == torch.float32


def test_flat_order_is_by_name(update: bytes):
    assert GRID8.decode_flat(update, LAYOUT, EXPONENTS).tolist() == [
        0,
        2,
        -2,
        127,
        0,
        2,
        0,
        127,
        -127,
        2,
    ]


def test_length_is_known_from_the_layout(update: bytes):
    assert len(update) == GRID8.encoded_length(LAYOUT) == 40 + 2 * 2 + 10


def test_bytes_do_not_depend_on_dict_order(update: bytes):
    reversed_delta = dict(reversed(DELTA.items()))
    assert GRID8.encode(reversed_delta, dict(reversed(EXPONENTS.items()))) == update


def test_bytes_are_pinned(update: bytes):
    assert update[:8].hex() == "4154555001000002"
    assert update[40:].hex() == "0000fffd" + "0002fe7f" + "0002007f8102"


@pytest.mark.parametrize("length", [0, 1, 39, 44, 53, 55, 1000])
def test_any_other_length_is_refused(update: bytes, length: int):
    with pytest.raises(MalformedUpdate, match="bytes"):
        GRID8.decode_flat((update + bytes(1000))[:length], LAYOUT, EXPONENTS)


@pytest.mark.parametrize(
    ("at", "field"),
    [(0, "magic"), (4, "version"), (5, "codec"), (7, "tensor count"), (39, "layout"),
     (41, "exponents"), (43, "exponents")],
)  # fmt: skip
def test_one_flipped_bit_in_the_header_is_refused(update: bytes, at: int, field: str):
    broken = bytearray(update)
    broken[at] ^= 1
    with pytest.raises(MalformedUpdate, match=field):
        GRID8.decode_flat(bytes(broken), LAYOUT, EXPONENTS)


@pytest.mark.parametrize("at", [44, 53])
def test_minus_128_is_refused(update: bytes, at: int):
    broken = bytearray(update)
    broken[at] = 0x80
    with pytest.raises(MalformedUpdate, match="128"):
        GRID8.decode_flat(bytes(broken), LAYOUT, EXPONENTS)


def test_an_update_for_another_layout_or_grid_is_refused(update: bytes):
    renamed = Layout.of({"a": (4,), "c": (2, 3)})
    reshaped = Layout.of({"a": (4,), "b": (3, 2)})
    with pytest.raises(MalformedUpdate, match="layout"):
        GRID8.decode_flat(update, renamed, {"a": 0, "c": -3})
    with pytest.raises(MalformedUpdate, match="layout"):
        GRID8.decode_flat(update, reshaped, EXPONENTS)
    with pytest.raises(MalformedUpdate, match="exponents"):
        GRID8.decode_flat(update, LAYOUT, {"a": 0, "b": -4})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_values_cannot_be_encoded(value: float):
    delta = {"a": torch.tensor([0.0, value])}
    with pytest.raises(NonFiniteDeltaError, match="tensor a"):
        GRID8.encode(delta, {"a": -10})


def test_finite_values_beyond_fp32_after_scaling_clamp():
    delta = {"a": torch.tensor([3e38, -3e38, 1e-45])}
    exponents = {"a": -60}
    values = GRID8.decode_flat(GRID8.encode(delta, exponents), Layout.of_tensors(delta), exponents)
    assert values.tolist() == [127, -127, 0]


@pytest.mark.parametrize("exponents", [{"a": 65}, {"a": -65}, {}, {"a": 0, "b": 0}])
def test_exponents_must_fit_the_tensors(exponents: dict[str, int]):
    with pytest.raises(ConfigError):
        GRID8.encode({"a": torch.zeros(1)}, exponents)


def test_layouts_are_bounded():
    with pytest.raises(ConfigError):
        Layout.of({})
    with pytest.raises(ConfigError):
        Layout.of({"a": (-1,)})


def test_scalars_and_empty_tensors_have_a_place():
    delta = {"scalar": torch.tensor(3.0), "none": torch.zeros(0, 5)}
    exponents = {"scalar": 0, "none": 0}
    values = GRID8.decode(GRID8.encode(delta, exponents), Layout.of_tensors(delta), exponents)
    assert values["scalar"].item() == 3
    assert values["none"].shape == (0, 5)
