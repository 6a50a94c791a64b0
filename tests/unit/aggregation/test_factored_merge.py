"""Sums of second moments: exact in every order, of one spelling, and how they are merged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.moments import sums_of

from atoll.aggregation.factored_merge import largest_but, merged_factored, passed_over
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.factored import (
    FactoredLayout,
    FactoredMoments,
    encode_factored,
    exact_sum,
)
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.vector_layout import Layout

SHAPES = {"b": (4,), "a": (3, 5)}
PLACES = FactoredLayout(Layout.of(SHAPES))


def seconds(seed: int, scale: float = 1e-4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.rand(s, generator=generator) ** 8 * scale for n, s in SHAPES.items()}


def values_of(data: bytes) -> np.ndarray:
    return FactoredMoments(data, PLACES)[0 : PLACES.total].view(np.float32)


def test_golden_bytes() -> None:
    """Rows 3 and 1.5, columns 1.5 and 3 of (1, 2; 0.5, 1); the vector's elements as they are."""
    data = encode_factored({"v": torch.tensor([0.25]), "m": torch.tensor([[1.0, 2.0], [0.5, 1.0]])})
    digest = Layout.of({"m": (2, 2), "v": (1,)}).digest
    assert data[:40] == b"ATSM\x01\x00\x00\x02" + digest
    assert data[40:].hex() == "00004040 0000c03f 0000c03f 00004040 0000803e".replace(" ", "")


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-4, 1.0, 1e30])
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_unbounded_integers(seed: int, scale: float) -> None:
    moments = seconds(seed, scale)
    found = values_of(encode_factored(moments))
    assert found[:8].tolist() == sums_of(moments["a"].numpy())
    assert found[8:].tolist() == moments["b"].tolist()


def test_sums_of_a_large_matrix_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = {"w": torch.rand(700, 300, generator=torch.Generator().manual_seed(1))}
    whole = encode_factored(moments)
    for size in (1, 301, 10_000, 1 << 30):
        monkeypatch.setattr("atoll.numerics.codec.factored._AT_ONCE", size)
        assert encode_factored(moments) == whole


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    matrix = torch.rand(50, 40, generator=torch.Generator().manual_seed(2)) ** 9
    layout = FactoredLayout(Layout.of({"w": (50, 40)}))
    whole = FactoredMoments(encode_factored({"w": matrix}), layout)[0:90]
    turned = FactoredMoments(encode_factored({"w": matrix.flip(0, 1).contiguous()}), layout)[0:90]
    assert turned[:50][::-1].tolist() == whole[:50].tolist()
    assert turned[50:][::-1].tolist() == whole[50:].tolist()


def test_a_tensor_of_zeros_has_zero_sums() -> None:
    assert not values_of(encode_factored({n: torch.zeros(s) for n, s in SHAPES.items()})).any()


def test_what_is_below_the_floors_grid_is_zero() -> None:
    """The unit is 2^-119 at least, far below the 2^-100 that optimisers flush at."""
    tiny = seconds(0) | {"a": torch.full((3, 5), 2.0**-121)}
    assert not values_of(encode_factored(tiny))[:8].any()


@pytest.mark.parametrize("odd", [torch.inf, torch.nan, 3.4e38])
def test_no_section_of_what_is_not_finite(odd: float) -> None:
    moments = seconds(0)
    moments["a"][1] = odd  # of the largest floats each is finite, their sum is not
    with pytest.raises(NonFiniteDeltaError, match="tensor a"):
        encode_factored(moments)


def test_forged_negative_moments_make_bytes_that_nobody_takes() -> None:
    moments = seconds(0)
    moments["a"][0] = -1e30
    with pytest.raises(MalformedUpdate, match="negative"):
        FactoredMoments(encode_factored(moments), PLACES)


SOUND = encode_factored(seconds(3))


def with_float(value: str) -> bytes:
    return SOUND[:44] + bytes.fromhex(value) + SOUND[48:]


BROKEN = {
    "shorter": SOUND[:-1],
    "longer": SOUND + b"\0",
    "nothing": b"",
    "magic": b"ATUP" + SOUND[4:],
    "version": SOUND[:4] + b"\x02" + SOUND[5:],
    "zero byte": SOUND[:5] + b"\x01" + SOUND[6:],
    "tensors": SOUND[:7] + b"\x03" + SOUND[8:],
    "layout": SOUND[:8] + bytes(32) + SOUND[40:],
    "negative": with_float("000080bf"),
    "minus zero": with_float("00000080"),
    "infinity": with_float("0000807f"),
    "no number": with_float("0000c07f"),
    "another no number": with_float("0100807f"),
    "negative no number": with_float("0000c0ff"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_another_spelling_is_refused(broken: str) -> None:
    FactoredMoments(SOUND, PLACES)
    with pytest.raises(MalformedUpdate):
        FactoredMoments(BROKEN[broken], PLACES)


@pytest.mark.parametrize("least", ["00000000", "01000000", "ffff7f7f"])
def test_every_finite_number_of_at_least_zero_is_taken(least: str) -> None:
    assert values_of(with_float(least))[1] == np.frombuffer(bytes.fromhex(least), "<f4")[0]


@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_each_entry_is_what_at_most_f_exceed(n: int, f: int) -> None:
    stored = [FactoredMoments(encode_factored(seconds(seed)), PLACES) for seed in range(n)]
    table = np.stack([each[0 : PLACES.total].view(np.float32) for each in stored])
    expected = np.sort(table, axis=0)[::-1][f]
    assert largest_but(f, stored).tolist() == expected.tolist()
    assert largest_but(f, stored[::-1]).tolist() == expected.tolist()


def test_f_liars_move_no_sum_beyond_what_honest_seats_said() -> None:
    honest = [FactoredMoments(encode_factored(seconds(seed)), PLACES) for seed in range(3)]
    most = max(float(each[0 : PLACES.total].view(np.float32).max()) for each in honest)
    for lie in (0.0, 1e38):
        said = encode_factored({"a": torch.full((3, 5), lie / 64), "b": torch.full((4,), lie)})
        merged = largest_but(1, [*honest, FactoredMoments(said, PLACES)])
        assert 0 < merged.min() <= merged.max() <= most


def test_of_three_updates_the_largest_is_never_taken() -> None:
    assert [passed_over(0, n) for n in (1, 2, 3, 9)] == [0, 0, 1, 1]
    assert [passed_over(2, n) for n in (5, 9)] == [2, 2]


def test_what_one_seat_invents_overflows_nobodys_sums() -> None:
    huge = torch.full((3, 5), 1e37), torch.full((4,), 3e38)
    said = FactoredMoments(encode_factored({"a": huge[0], "b": huge[1]}), PLACES)
    merged = merged_factored(0, [said, said], PLACES)
    assert merged.tolist() == [2.0**64] * PLACES.total
    opened = torch.full((1 << 17, 8), float(merged[0]))  # the most that v_ij can be, and more rows
    assert np.isfinite(values_of_shape(encode_factored({"w": opened}), (1 << 17, 8))).all()


@pytest.mark.parametrize(("liars", "honest"), [(1, 1), (2, 3), (3, 4)])
def test_more_liars_than_are_borne_make_no_sum_far_larger(liars: int, honest: int) -> None:
    told = [FactoredMoments(encode_factored(seconds(seed)), PLACES) for seed in range(honest)]
    lie = {"a": torch.full((3, 5), 1e30), "b": torch.full((4,), 1e30)}
    said = [FactoredMoments(encode_factored(lie), PLACES)] * liars
    merged = merged_factored(1, [*said, *told], PLACES)
    table = np.stack([each[0 : PLACES.total].view(np.float32) for each in told])
    for group in PLACES.groups():
        assert merged[group].max() <= 16 * table[:, group].max()


def test_honest_sums_are_not_cut_off() -> None:
    stored = [FactoredMoments(encode_factored(seconds(seed)), PLACES) for seed in range(5)]
    assert merged_factored(1, stored, PLACES).tolist() == largest_but(1, stored).tolist()


def test_the_groups_of_sums_are_rows_columns_and_vectors() -> None:
    assert list(PLACES.groups()) == [slice(0, 3), slice(3, 8), slice(8, 12)]


def values_of_shape(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    places = FactoredLayout(Layout.of({"w": shape}))
    return FactoredMoments(data, places)[0 : places.total].view(np.float32)


@pytest.mark.parametrize("values", [[], [0.0], [1e-40, 2.0], [3.4e38, 3.4e38]])
def test_a_total_is_rounded_to_binary32(values: list[float]) -> None:
    floats = np.array(values, dtype=np.float32)
    with np.errstate(over="ignore"):
        assert exact_sum(floats) == np.float32(floats.astype(np.float64).sum())
