"""Sums, openings, roundings and sections: both clients on numbers of every kind, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import merge as second
from tests.second_client import moments, sections, state

from atoll.aggregation.factored_merge import merged_factored
from atoll.aggregation.rounding import as_fp32, rounded
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.factored import FactoredLayout, FactoredMoments, encode_factored
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.errors import MalformedState
from atoll.numerics.moments import Moments
from atoll.numerics.sections import joined
from atoll.numerics.state import GlobalState

CASES = 10_000
Rng = np.random.Generator


def numbers(rng: Rng, shape: Any) -> Any:
    """Of no sign: alike, of every magnitude, subnormal, next to 2^-80, zero among others."""
    kind = int(rng.integers(6))
    if kind == 0:
        return rng.random(shape).astype(np.float32)
    if kind == 1:
        return np.exp2(rng.uniform(-148, 127, shape)).astype(np.float32)
    if kind == 2:
        return rng.integers(0, 1 << 23, shape).astype(np.uint32).view(np.float32)
    if kind == 3:  # the unit of the grid's floor is 2^-119: halves of it, and what is above it
        return (rng.integers(0, 8, shape) * 2.0 ** rng.integers(-121, -77)).astype(np.float32)
    if kind == 4:  # sums that overflow, and that nearly do
        return (rng.random(shape) * 3.4e38).astype(np.float32)
    spread = np.exp2(rng.uniform(-70, 0, shape)) * 2.0 ** rng.integers(-60, 60)
    return np.where(rng.random(shape) < 0.3, 0.0, spread).astype(np.float32)


def shape_of(rng: Rng) -> tuple[int, ...]:
    return tuple(rng.integers(1, 9, int(rng.integers(1, 3))).tolist())


def test_sums_are_written_alike_or_by_neither() -> None:
    rng, refused = np.random.default_rng(1), 0
    for _ in range(CASES):
        v = {name: numbers(rng, shape_of(rng)) for name in ("b", "a")[: rng.integers(1, 3)]}
        if rng.random() < 0.02:
            v["b"].flat[0] = rng.choice([np.inf, np.nan])
        if rng.random() < 0.1:  # of a state that somebody forged
            v = {name: (tensor * rng.choice([-1, 1], tensor.shape)).astype(np.float32)
                 for name, tensor in v.items()}  # fmt: skip
        shapes = {name: tensor.shape for name, tensor in v.items()}
        tensors = {name: torch.from_numpy(tensor) for name, tensor in v.items()}
        try:
            mine = moments.write_factored(moments.sums_of(v), shapes)
        except ValueError:
            refused += 1
            with pytest.raises(NonFiniteDeltaError):
                encode_factored(tensors)
        else:
            assert encode_factored(tensors) == mine
    assert CASES / 50 < refused < CASES / 2


def test_sums_are_those_of_exact_fractions() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        x = numbers(rng, (int(rng.integers(1, 6)), int(rng.integers(1, 6))))
        most = max(Fraction(float(x.max())), Fraction(1, 1 << 80))
        exponent = next(e for e in range(-80, 128) if most < Fraction(2) ** (e + 1))
        unit = Fraction(2) ** (exponent - 39)
        for row, found in zip(x.tolist(), moments.sums_along(x, 1), strict=True):
            whole = sum(round(Fraction(value) / unit) for value in row)
            with np.errstate(over="ignore"):
                assert np.float32(float(whole) * float(unit)) == found


def test_openings_have_every_bit() -> None:
    rng, seen = np.random.default_rng(3), 0
    while seen < 10 * CASES:
        shape = tuple(int(side) for side in rng.integers(1, 60, int(rng.integers(1, 3))))
        exponent = int(rng.integers(-60, 1))
        m = rng.integers(-127, 128, shape).astype(np.int8)
        if rng.random() < 0.3:
            m = (rng.standard_normal(shape) * 2.0 ** rng.integers(-100, 7)).astype(np.float32)
        whole = {"w": numbers(rng, shape[0])} if len(shape) == 1 else {}
        rows = {} if whole else {"w": numbers(rng, shape[0])}
        columns = {} if whole else {"w": numbers(rng, shape[1])}
        sums = {"rows": rows, "columns": columns, "whole": whole}
        theirs = Moments(
            7,
            {"w": torch.from_numpy(m)},
            {"w": exponent},
            **{part: {n: torch.from_numpy(t) for n, t in of.items()} for part, of in sums.items()},
        )
        opened = moments.initial_m(m, exponent)
        assert theirs.first("w").numpy().tobytes() == opened.tobytes()
        v = moments.initial_v(opened, sums, "w")
        assert theirs.second("w").numpy().tobytes() == v.tobytes()
        assert not np.isnan(v).any()
        assert not np.signbit(v).any()
        seen += v.size


def test_what_an_opening_is_at_its_edges() -> None:
    """Rows that are nothing on the grid, sums that overflow, a floor above the quotient."""
    huge, tiny = np.float32(3e38), np.float32(2.0**-121)
    m = np.array([[0.5, 0.0]], np.float32)
    for row, columns, expected in (
        ([tiny], [huge, huge], [0.25, 0.0]),  # the total is 0
        ([1.0], [huge, 1.0], [huge / 4, 0.25]),
        ([0.0], [1.0, 1.0], [0.25, 0.0]),
        ([2.0**-60], [0.1, 0.0], [0.25, 0.0]),
    ):
        sums = {"rows": {"w": np.array(row, np.float32)},
                "columns": {"w": np.array(columns, np.float32)}, "whole": {}}  # fmt: skip
        found = moments.initial_v(m, sums, "w")
        assert found.tolist() == [np.array(expected, np.float32).tolist()]
    # A total that the grid's floor made smaller than its only row: the quotient overflows.
    low = np.array([1.4 * 2.0**-119], np.float32)
    sums = {"rows": {"w": low}, "columns": {"w": np.array([huge])}, "whole": {}}
    assert moments.initial_v(np.zeros((1, 1), np.float32), sums, "w")[0, 0] == np.inf
    many = np.full(3, huge)
    sums = {"rows": {"w": many}, "columns": {"w": many}, "whole": {}}
    floor = np.full((3, 3), 0.5, np.float32)
    assert (moments.initial_v(floor, sums, "w") == 0.25).all()  # the total is ∞


def test_sections_of_sums_are_read_alike_or_refused_by_both() -> None:
    rng, refused = np.random.default_rng(4), 0
    for _ in range(CASES):
        shapes = {name: shape_of(rng) for name in ("b", "a")[: rng.integers(1, 3)]}
        v = {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
        data = bytearray(moments.write_factored(moments.sums_of(v), shapes))
        if rng.random() < 0.5:
            at = int(rng.integers(len(data)))
            data[at] = int(rng.choice([0, 127, 128, 255, data[at] ^ 1]))
        if rng.random() < 0.3:
            at = 40 + 4 * int(rng.integers((len(data) - 40) // 4))
            odd = rng.choice([-0.0, -1e-45, np.inf, np.nan, 3.4028235e38, 0.0, 1e-45])
            data[at : at + 4] = np.float32(odd).tobytes()
        if rng.random() < 0.05:
            data = data[:-1] if rng.random() < 0.5 else data + b"\0"
        places = FactoredLayout(Layout.of(shapes))
        try:
            words = moments.read_factored(bytes(data), shapes)
        except ValueError:
            refused += 1
            with pytest.raises(MalformedUpdate):
                FactoredMoments(bytes(data), places)
        else:
            assert FactoredMoments(bytes(data), places)[:].tolist() == words.tolist()
    assert CASES / 5 < refused < CASES * 4 / 5


def test_merged_sums() -> None:
    rng, seen = np.random.default_rng(5), 0
    shapes = {"b": (5,), "w": (8, 12)}
    places = FactoredLayout(Layout.of(shapes))
    while seen < CASES:
        n = int(rng.integers(1, 13))
        f = int(rng.integers(0, n))
        numbers = rng.choice([0.0, 1e-45, 0.01, 0.5, 0.7, 9.0, 3e38], int(rng.integers(1, 7)))
        rows = [rng.choice(numbers, places.total) for _ in range(n)]
        rows = [row.astype(np.float32) for row in rows]
        sums = [FactoredMoments(places.header + row.tobytes(), places) for row in rows]
        mine = second.merged_factored([row.view(np.uint32) for row in rows], f, shapes)
        assert merged_factored(f, sums, places).view(np.uint32).tolist() == mine.tolist()
        passed = max(f, 1) if n > 2 else f
        for begin, end in ((0, 5), (5, 13), (13, 25)):
            half = sorted(row[begin:end].max() for row in rows)[(n - 1) // 2]
            for j in range(begin, end):
                told = sorted((row[j] for row in rows), reverse=True)[passed]
                most = min(float(told), 16.0 * float(half), 2.0**64)
                assert mine[j] == np.float32(most).view(np.uint32)
        seen += places.total


def test_quotients_are_rounded_alike() -> None:
    rng = np.random.default_rng(6)
    for _ in range(CASES // 50):  # of 150 quotients each
        denominator = int(rng.choice([1, 2, 3, 6, 4096, 1 << 16, int(rng.integers(1, 1 << 16))]))
        finer = int(rng.choice([0, 4]))
        numerators = rng.integers(-200 * denominator, 200 * denominator + 1, 100)
        halves = rng.integers(-300, 301, 50) * denominator // (2 << finer)
        all_ = np.concatenate([numerators, halves])
        mine = second.published((all_.tolist(), denominator), finer)
        exact = [round(Fraction(int(a) << finer, denominator)) for a in all_]
        assert mine == [min(max(value, -127), 127) for value in exact]
        assert rounded(all_, denominator, finer).tolist() == mine


def test_first_moments_of_fp32_are_rounded_alike() -> None:
    rng = np.random.default_rng(7)
    for _ in range(CASES // 100):  # of as many numbers each
        n = int(rng.integers(1, 257))
        rows = rng.integers(-(1 << 47), (1 << 47) + 1, (n, 100)) >> int(rng.integers(0, 47))
        mine = second.merged_first("fp32", "mean", list(rows), 0, 100)
        theirs = as_fp32(rows.sum(axis=0), n, 40)
        assert mine.tobytes() == theirs.tobytes()


def test_sections_lie_at_whole_pieces() -> None:
    rng = np.random.default_rng(8)
    for _ in range(1000):
        sizes = rng.choice([1, 2, 1023, 1024, 1025, 3000], int(rng.integers(1, 4))).tolist()
        parts = [rng.bytes(size) for size in sizes]
        data = joined(parts)
        assert sections.joined(parts) == data
        assert sections.cut(data, sizes) == parts
        at = int(rng.integers(len(data)))
        spoiled = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        place, ends = 0, []
        for size in sizes:
            ends.append(range(place, place + size))
            place += size + -size % 1024
        if any(at in span for span in ends):
            assert sections.cut(spoiled, sizes) != parts
        else:
            with pytest.raises(ValueError, match="filling"):
                sections.cut(spoiled, sizes)
        for odd in (data[:-1], data + b"\0"):
            with pytest.raises(ValueError, match="size"):
                sections.cut(odd, sizes)


def warm_state() -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and tensors of a state that both read."""
    fields = {
        "count": 30,
        "exponents": {"w": -4, "x": -5},
        "m_exponents": {"w": -8, "x": -3},
        "moment_exponents": {"w": -9, "x": -2},
        "round": 3,
    }
    tensors = {
        "params/w": np.ones((2, 3), np.float32),
        "params/x": np.ones(4, np.float32),
        "m/w": np.ones((2, 3), np.int8),
        "m/x": np.ones(4, np.int8),
        "rows/w": np.ones(2, np.float32),
        "columns/w": np.ones(3, np.float32),
        "whole/x": np.ones(4, np.float32),
    }
    return fields, tensors


Change = Callable[[dict[str, Any], dict[str, Any]], None]
ODD: dict[str, Change] = {
    "no count": lambda fields, _: fields.pop("count"),
    "no moment exponents": lambda fields, _: fields.pop("moment_exponents"),
    "a count and no moments": lambda fields, tensors: [
        fields.update(m_exponents={}), *(tensors.pop(n) for n in list(tensors) if n[0] in "mrcw")
    ],
    "moments of no steps": lambda fields, _: fields.update(count=0),
    "a first moment without an exponent": lambda fields, _: fields["m_exponents"].pop("x"),
    "an exponent without a first moment": lambda _, tensors: [
        tensors.pop("m/x"), tensors.pop("whole/x")
    ],
    "moments of some": lambda fields, tensors: [
        fields["m_exponents"].pop("x"), tensors.pop("m/x"), tensors.pop("whole/x")
    ],
    "rows without columns": lambda _, tensors: tensors.pop("columns/w"),
    "columns without rows": lambda _, tensors: tensors.pop("rows/w"),
    "sums of no first moment": lambda fields, tensors: [
        fields["m_exponents"].pop("w"), tensors.pop("m/w")
    ],
    "a vector's rows": lambda _, tensors: tensors.update({"rows/x": tensors.pop("whole/x")}),
    "a matrix whole": lambda _, tensors: tensors.update({"whole/w": tensors["params/w"]}),
    "rows of another length": lambda _, tensors: tensors.update({"rows/w": np.ones(3, "<f4")}),
    "m of another shape": lambda _, tensors: tensors.update({"m/w": np.ones((3, 2), np.int8)}),
    "m of integers and of floats": lambda _, tensors: tensors.update({"m/x": np.ones(4, "<f4")}),
    "sums of another type": lambda _, tensors: tensors.update({"rows/w": np.ones(2, np.int64)}),
    "a sum that is negative": lambda _, tensors: tensors["rows/w"].fill(-1),
    "a sum that is minus zero": lambda _, tensors: tensors["whole/x"].fill(-0.0),
    "a sum that is not finite": lambda _, tensors: tensors["columns/w"].fill(np.inf),
    "parameters of int8": lambda _, tensors: tensors.update({"params/x": np.ones(4, np.int8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_state_that_is_none_is_refused_by_both(name: str) -> None:
    fields, tensors = warm_state()
    data = state.write_blob(state.GLOBAL_KIND, fields, tensors)
    assert state.global_bytes(state.read_global(data)) == data
    assert GlobalState.from_bytes(data).to_bytes() == data
    ODD[name](fields, tensors)
    odd = state.write_blob(state.GLOBAL_KIND, fields, tensors)
    with pytest.raises(MalformedState):
        GlobalState.from_bytes(odd)
    with pytest.raises(ValueError):
        state.read_global(odd)
