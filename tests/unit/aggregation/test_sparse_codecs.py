"""Sparse updates and their merge, against plain Python."""

import tracemalloc
from fractions import Fraction
from math import floor, isnan, isqrt

import mpmath
import numpy as np
import pytest
import torch

from atoll.aggregation.chunks import PassPlan
from atoll.aggregation.contributors import DENOMINATOR, contributor_mean
from atoll.errors import MalformedUpdate
from atoll.numerics.codec import dct, sparse
from atoll.numerics.codec.dct import DCT_SPARSE
from atoll.numerics.codec.feedback import encode_with_feedback
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.sparse import SPARSE, kept_of, section_lengths
from atoll.numerics.codec.update_codec import UpdateCodec
from atoll.numerics.codec.vector_layout import Layout

SIZES = [1, 31, 33, 64, 100, 1023, 1024, 1025, 4095, 4096, 4097, 10_000]
EXPONENTS = {"w": -2}


def delta_of(size: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"w": torch.randn(size, generator=generator)}


def plain_top_k(values: list[float]) -> list[int]:
    """Indices by the definition: per chunk, by magnitude, ties to the lower index."""
    kept = []
    for start in range(0, len(values), 4096):
        chunk = values[start : start + 4096]
        order = sorted(range(len(chunk)), key=lambda i: (-abs(chunk[i]), i))
        kept += sorted(start + i for i in order[: -(-len(chunk) * 7 // 128)])
    return kept


def plain_values(steps: list[float]) -> dict[int, int]:
    """What is sent, by coordinate: two bits and a chunk's step, by SPEC-MERGE.md, 2."""
    chunks: dict[int, list[int]] = {}
    for i in plain_top_k(steps):
        chunks.setdefault(i // 4096, []).append(i)
    values = {}
    for kept in chunks.values():
        units = (1, 2, 4, 5, 7, 10, 14, 20, 28)
        fits = (
            s
            for s in units
            if sum(abs(steps[i]) > 4 * s for i in kept) <= len(kept) // 8
            and max(abs(steps[i]) for i in kept) <= 8 * s
        )
        unit = next(fits, 40)
        values |= {i: unit * max(-3, min(3, 2 * floor(steps[i] / unit / 2) + 1)) for i in kept}
    return values


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ties", [False, True])
def test_the_largest_are_kept_with_two_bits(size: int, ties: bool):
    delta = delta_of(size)
    if ties:
        delta["w"] = delta["w"].round()
    layout = Layout.of_tensors(delta)
    data = SPARSE.encode(delta, EXPONENTS)
    assert len(data) == SPARSE.encoded_length(layout)
    values = SPARSE.decode_flat(data, layout, EXPONENTS)
    steps = [4 * x for x in delta["w"].tolist()]
    expected = plain_values(steps)
    assert len(expected) == kept_of(size)
    assert {int(i): int(values[i]) for i in np.flatnonzero(values)} == expected


def test_the_size_is_below_six_hundredths_of_a_byte():
    assert SPARSE.encoded_length(Layout.of({"w": (1_000_000,)})) < 0.06 * 1_000_000


@pytest.mark.parametrize("size", [33, 100, 4097])
def test_every_bit_flip_is_refused_or_says_something_else(size: int):
    delta = delta_of(size)
    layout = Layout.of_tensors(delta)
    data = SPARSE.encode(delta, EXPONENTS)
    seen = {SPARSE.decode_flat(data, layout, EXPONENTS).tobytes()}
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        try:
            values = SPARSE.decode_flat(bytes(broken), layout, EXPONENTS)
        except MalformedUpdate:
            continue
        assert values.tobytes() not in seen
        seen.add(values.tobytes())


def body(step: int, lower: int, counts: int, codes: int) -> bytes:
    """Of 64 coordinates, of which four are kept."""
    return bytes([step]) + lower.to_bytes(2, "little") + bytes([counts, codes])


def test_the_bytes_of_a_body_by_hand():
    """Kept are 3 and 5 of the first sixteen and 48 and 63 of the last: ones 110001, then 10."""
    layout = Layout.of({"w": (64,)})
    values = torch.zeros(64)
    values[[3, 5, 48, 63]] = torch.tensor([0.25, -0.25, 0.75, -0.75])
    data = SPARSE.encode({"w": values}, EXPONENTS)
    assert data[42:] == body(0, 0xF053, 0b0110_0011, 0b00_11_01_10)
    sent = SPARSE.decode_flat(data, layout, EXPONENTS)
    assert sent[[3, 5, 48, 63]].tolist() == [1, -1, 3, -3]
    assert np.count_nonzero(sent) == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (body(10, 0xF053, 0b0110_0011, 0), "step 10"),
        (body(0x10, 0xF053, 0b0110_0011, 0), "after the last"),
        (body(0, 0xF053, 0b0110_0111, 0), "5 coordinates"),
        (body(0, 0xF053, 0b0100_0011, 0), "3 coordinates"),
        (body(0, 0xF055, 0b0110_0011, 0), "ascend"),
        (body(0, 0xF035, 0b0110_0011, 0), "ascend"),
        (body(0, 0xF053, 0b1100_0011, 0), "ascend"),
        (body(0, 0xF053, 0b0110_0011, 0) + b"\0", "bytes"),
    ],
)
def test_a_malformed_body_is_refused(wrong: bytes, message: str):
    layout = Layout.of({"w": (64,)})
    head = SPARSE.encode({"w": torch.ones(64)}, EXPONENTS)[:42]
    with pytest.raises(MalformedUpdate, match=message):
        SPARSE.decode_flat(head + wrong, layout, EXPONENTS)


def test_a_whole_chunk_has_whole_bytes():
    """As a contract reads them: 112 of lower bits, 60 of counts and 56 of codes a chunk."""
    for chunks in (1, 2, 64):
        assert section_lengths(4096 * chunks) == (
            -(-chunks // 2),
            *(chunks * n for n in (112, 60, 56)),
        )


def test_what_is_not_a_number_is_the_largest():
    x = np.zeros(40, np.float32)
    x[[7, 20, 31]] = np.inf, np.nan, -np.inf
    assert np.flatnonzero(sparse.kept(x)).tolist() == [7, 20, 31]
    x[[3, 5]] = np.nan, -np.nan
    assert np.flatnonzero(sparse.kept(x)).tolist() == [3, 5, 20]


def test_every_chunk_keeps_its_share():
    """Coordinate 4095, not kept, is sent in place of 4096, the only one of its chunk."""
    delta = delta_of(4097)
    delta["w"][4095] = 0.0
    layout = Layout.of_tensors(delta)
    data = bytearray(SPARSE.encode(delta, EXPONENTS))
    assert kept_of(4097) == 225
    lower = 42 + 1 + 225 // 2
    counts = lower + 1 + (225 + 257 - 1) // 8
    assert (data[lower], data[counts] & 3) == (0, 1)
    # The counts end in 0 (of 4080 to 4095), 1 (4096), 0: now it is a one of the group before.
    data[lower] = 15
    bits = int.from_bytes(data[lower + 1 : counts + 1], "little")
    last = 225 + 257 - 2
    assert bits >> last == 1
    bits ^= 0b11 << (last - 1)
    data[lower + 1 : counts + 1] = bits.to_bytes(counts - lower, "little")
    with pytest.raises(MalformedUpdate, match="chunk"):
        SPARSE.decode_flat(bytes(data), layout, EXPONENTS)


def test_feedback_brings_every_coordinate_in_time():
    delta = delta_of(320)
    layout = Layout.of_tensors(delta)
    residual, sent = {"w": torch.zeros(320)}, torch.zeros(320)
    for _ in range(600):
        data, residual = encode_with_feedback(SPARSE, delta, residual, {"w": 1}, 1.0)
        sent += SPARSE.decode(data, layout, {"w": 1})["w"]
    assert torch.allclose(sent + residual["w"], 600 * delta["w"], rtol=1e-3, atol=0.1)
    assert residual["w"].abs().max() < 100


@pytest.mark.parametrize("codec", [SPARSE, DCT_SPARSE])
def test_non_finite_values_cannot_be_encoded(codec: UpdateCodec):
    with pytest.raises(NonFiniteDeltaError):
        codec.encode({"w": torch.tensor([1.0, float("nan")])}, {"w": 0})


def test_the_transform_is_the_rounded_orthonormal_one():
    mpmath.mp.prec = 100
    for k in range(64):
        amplitude = mpmath.sqrt(mpmath.mpf(1 if k == 0 else 2) / 64) * dct.MATRIX_UNIT
        for i in range(64):
            exact = amplitude * mpmath.cos(mpmath.pi * (2 * i + 1) * k / 128)
            assert dct.matrix()[k, i] == int(mpmath.nint(exact))
            boundary = abs(exact - mpmath.floor(exact) - mpmath.mpf(1) / 2)
            assert boundary > mpmath.mpf(2) ** -30


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_the_transform_inverts_within_a_step(size: int):
    steps = np.random.default_rng(1).integers(-2047, 2048, size).astype(np.float32)
    coefficients = np.rint(dct.forward(steps)).astype(np.int64)
    assert np.abs(dct.inverse(coefficients, size) - steps).max() <= 4


def in_fine_steps(x: float) -> int:
    """By the definition, and 0 for NaN."""
    return 0 if isnan(x) else round(Fraction(min(max(x, -2047.0), 2047.0)) * 256)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_coefficients_are_those_of_integers_whatever_the_values(size: int):
    """Halves, what is beyond the limit, infinities, NaN and −0; the largest sums that there are."""
    rng = np.random.default_rng(size)
    odd = [0.5, -1.5, 2.5 / 256, -0.0, 5e-324, 2047.5, -1e30, np.inf, -np.inf, np.nan]
    drawn = rng.normal(size=size) * 2.0 ** rng.integers(-10, 14, size)
    mixed = np.where(rng.random(size) < 0.5, rng.choice(odd, size), drawn)
    loudest = np.resize(np.sign(dct.matrix()[5]) * 2047, size)
    for x in (mixed, loudest, np.full(size, -0.0), np.full(size, np.nan)):
        scaled = x.astype(np.float32)
        units = [in_fine_steps(float(value)) for value in scaled] + [0] * (-size % 64)
        found = dct.forward(scaled)
        for at in range(0, len(units), 64):
            for k in range(64):
                total = sum(int(dct.matrix()[k, i]) * units[at + i] for i in range(64))
                expected = np.float32(total / 2**22)  # 37 bits, which a double has
                assert found[at + k].tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_what_coefficients_say_is_rounded_once_with_halves_up(size: int):
    rng = np.random.default_rng(size)
    for limit in (3, 128):
        said = rng.integers(-limit, limit, dct.coefficients_of(size)).astype(np.int8)
        found = dct.said_coordinates(said, size).tolist()
        for at, value in enumerate(found):
            block, i = at // 64 * 64, at % 64
            total = sum(int(dct.matrix()[k, i]) * int(said[block + k]) for k in range(64))
            assert value == floor(Fraction(total, 64) + Fraction(1, 2))


def test_a_cosine_is_sent_as_one_coefficient():
    wave = np.cos(np.pi * (2 * np.arange(64) + 1) * 5 / 128).astype(np.float32)
    delta = {"w": torch.from_numpy(wave) / 4 * 0.5}
    layout = Layout.of_tensors(delta)
    data = DCT_SPARSE.encode(delta, {"w": -5})
    assert len(data) == DCT_SPARSE.encoded_length(layout)
    coefficients = DCT_SPARSE.decode_flat(data, layout, {"w": -5})
    # √32 · 4 = 22.6 steps, in steps of 7; what else is kept is 0 and sent as the least there is.
    assert coefficients[5] == 3 * 7
    assert np.abs(coefficients)[coefficients != 0].tolist().count(7) == kept_of(64) - 1
    decoded = DCT_SPARSE.decode(data, layout, {"w": -5})["w"]
    assert torch.nn.functional.cosine_similarity(decoded, delta["w"], dim=0) > 0.85
    with pytest.raises(MalformedUpdate):
        DCT_SPARSE.decode(data[:-1], layout, {"w": -5})
    with pytest.raises(MalformedUpdate, match="codec"):
        SPARSE.decode_flat(data, layout, {"w": -5})


@pytest.mark.parametrize("plan", [PassPlan(7, 1), PassPlan(1000, 1)])
def test_contributor_mean_equals_plain_python(plan: PassPlan):
    rng = np.random.default_rng(2)
    rows = [
        (rng.choice([-3, -1, 1, 3], 50) * (rng.random(50) < 0.3)).astype(np.int8) for _ in range(5)
    ]
    rows[4][:] = 3  # loud: it is clipped
    norms = [isqrt(sum(int(x) ** 2 for x in row)) for row in rows]
    radius = sorted(norms)[2]
    factors = [
        Fraction(min(1 << 16, (1 << 16) * radius // max(norm, 1)), 1 << 16) for norm in norms
    ]
    merged = contributor_mean(rows, plan)
    for k in range(50):
        senders = [i for i in range(5) if rows[i][k]]
        mean = sum(factors[i] * int(rows[i][k]) for i in senders) / max(1, len(senders))
        assert merged.numerators[k] == floor(mean * DENOMINATOR + Fraction(1, 2))
    assert merged.denominator == DENOMINATOR
    assert merged.weights[4] < merged.weights[0] == Fraction(1, 5)


def test_vectors_are_transformed_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(5)
    for size in (1, 64, 200, 1000):
        steps = (rng.normal(size=size) * 100).astype(np.float32)
        said = rng.integers(-128, 128, dct.coefficients_of(size)).astype(np.int8)
        forward, back = dct.forward(steps), dct.said_coordinates(said, size)
        numerators = rng.integers(-(1 << 20), 1 << 20, dct.coefficients_of(size))
        whole = dct.inverse(numerators, size).clip(-127 * 12, 127 * 12)
        for at_once in (64, 128, 1 << 20):
            monkeypatch.setattr(dct, "_AT_ONCE", at_once)
            assert np.array_equal(dct.merged_coordinates(numerators, 12, size), whole)
            assert np.array_equal(dct.forward(steps), forward)
            assert np.array_equal(dct.said_coordinates(said, size), back)


def test_a_transform_takes_no_more_memory_than_its_result_and_a_part():
    """Of a billion parameters the transform of all at once took twenty gigabytes."""
    count = 1 << 23
    values, said = np.ones(count, np.float32), np.ones(count, np.int8)
    for transform in (lambda: dct.forward(values), lambda: dct.said_coordinates(said, count)):
        tracemalloc.start()
        transform()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * count + 48 * (1 << 20)
