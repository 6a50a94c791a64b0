"""Writes the vectors of moments between rounds: `python tests/vectors/generate_moments.py`.

Rule of this file: numbers are written down, so that a run writes the same bytes everywhere. What
the file holds is in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.numerics.codec.factored import encode_factored, exact_sum
from atoll.numerics.codec.grid_rounding import NonFiniteDeltaError
from atoll.numerics.moments import COLD, Moments
from atoll.numerics.sections import joined
from atoll.numerics.state import GlobalState

HERE = Path(__file__).parent
Json: TypeAlias = Any
TINY, HUGE = 2.0**-149, 3.4e38
UNIT = 2.0**-119
"""The finest step of a sum's grid."""


def tensor(values: Json) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def bits(x: Tensor) -> Json:
    """A tensor's shape and its words, row-major, in hexadecimal."""
    words = x.contiguous().numpy()
    return {
        "dtype": str(words.dtype),
        "shape": list(words.shape),
        "bits": words.astype(words.dtype.newbyteorder(">")).tobytes().hex(),
    }


def factored_case(name: str, **v: Json) -> Json:
    """Second moments, and the section of their sums; null where there is none."""
    tensors = {key: tensor(values) for key, values in v.items()}
    try:
        section = "0x" + encode_factored(tensors).hex()
    except NonFiniteDeltaError:
        section = None
    return {"name": name, "second": {n: bits(t) for n, t in tensors.items()}, "section": section}


def sums() -> list[Json]:
    return [
        factored_case(
            "a matrix and a vector", w=[[0.5, 0.3, 0.001], [1e-7, 2e-10, 0.0]], x=[0.25, 0.0]
        ),
        factored_case(
            "ratios that the grid has no room for", w=[[1.0, 2.0**-39, 2.0**-40, 2.0**-41]]
        ),
        factored_case("halves go to the even", w=[[1.0, 1.5 * 2.0**-39], [2.5 * 2.0**-39, 0.0]]),
        factored_case("the finest grid", w=[[UNIT, 1.5 * UNIT], [0.5 * UNIT, 2.0**-81]]),
        factored_case("subnormal numbers", w=[[TINY, 2.0**-127]], x=[TINY]),
        factored_case("nothing", w=[[0.0, 0.0]], x=[0.0]),
        factored_case(
            "one rounding to binary64, one to fp32", w=[[1 + 2.0**-23] * 33, [2.0**-39] * 33]
        ),
        factored_case("a sum that overflows", w=[[HUGE, HUGE]]),
        factored_case("a sum that nearly does", w=[[HUGE / 2, HUGE / 2]]),
        factored_case("not finite", x=[float("inf")]),
        factored_case("not a number", w=[[float("nan"), 1.0]]),
    ]


def initial_case(name: str, m: Json, exponent: int, **given: Json) -> Json:
    """The m and v that a round opens with, of one parameter; `m` in floats is of fp32 updates."""
    is_fp32 = exponent == -40
    n = torch.tensor(m, dtype=torch.float32 if is_fp32 else torch.int8)
    groups = {part: {"w": tensor(values)} for part, values in given.items()}
    moments = Moments(8, {"w": n}, {"w": exponent}, **groups)
    told = {part: bits(kept["w"]) for part, kept in groups.items()}
    if "rows" in groups:
        total = np.array([exact_sum(groups["rows"]["w"].numpy())], dtype=np.float32)
        told["total"] = bits(torch.from_numpy(total))
    return told | {
        "name": name,
        "exponent": exponent,
        "merged": bits(n),
        "m": bits(moments.first("w")),
        "v": bits(moments.second("w")),
    }


def openings() -> list[Json]:
    two, odd = [[3, -1], [127, -127]], [[0.5, -0.0], [1e-30, -3e-39]]
    return [
        initial_case("a matrix", two, -20, rows=[0.75, 0.25], columns=[0.5, 0.5]),
        initial_case("floor: the sums are small", two, -4, rows=[1e-9, 2e-9], columns=[1e-9, 2e-9]),
        initial_case("floor: the total is 0", two, -8, rows=[0.0, 0.0], columns=[1.0, 1.0]),
        initial_case("the total is 0, the rows are not", two, -8, rows=[UNIT / 2, UNIT / 4],
                     columns=[HUGE, 1.0]),
        initial_case("the total is infinite", two, -8, rows=[HUGE, HUGE], columns=[1.0, HUGE]),
        initial_case("a quotient that overflows", two, -8, rows=[1.4 * UNIT, 0.0],
                     columns=[HUGE, 1.0]),
        initial_case("huge ratios", two, -60, rows=[HUGE, TINY], columns=[TINY, 1.0]),
        initial_case("a quotient that is subnormal", two, -60, rows=[2.0**-70, 1.0],
                     columns=[2.0**-70, 1.5 * 2.0**-75]),
        initial_case("fp32", odd, -40, rows=[0.75, 0.25], columns=[TINY, 1e-20]),
        initial_case("a vector", [3, -1, 0], -6, whole=[0.5, 1e-9, TINY]),
        initial_case("a vector of fp32", [0.5, 1e-20, 1e-25], -40, whole=[0.0, 0.0, 0.0]),
    ]  # fmt: skip


def state_case(name: str, moments: Moments, of_moments: Mapping[str, int]) -> Json:
    """A global state: bytes, the parts of its digest, the digest."""
    params = {"w": tensor([[1.0, -0.0], [0.5, 2.0]]), "x": tensor([0.25])}
    outer = {"momentum": {n: torch.full(p.shape, -5) for n, p in params.items()}}
    state = GlobalState(3, params, outer, {"w": -4, "x": -5}, dict(of_moments), moments)
    roots = ["0x" + root.hex() for root in state.roots()]
    data = state.to_bytes()
    return {
        "name": name,
        "bytes": "0x" + data.hex(),
        "digest": "0x" + state.digest().hex(),
        "roots": dict(
            zip(("params", "outer", "exponents", "moments", "initial_state"), roots, strict=True)
        ),
    }


def states() -> list[Json]:
    m = {
        "w": torch.tensor([[3, -127], [0, 1]], dtype=torch.int8),
        "x": torch.tensor([7]).to(torch.int8),
    }
    rows, columns = {"w": tensor([0.75, 0.5])}, {"w": tensor([1.0, 0.25])}
    exponents = {"w": -9, "x": -2}
    warm = Moments(30, m, {"w": -8, "x": -3}, rows, columns, {"x": tensor([0.125])})
    plain = {name: n.float() * 2.0**-20 for name, n in m.items()}
    return [
        state_case("seats keep their moments", COLD, {}),
        state_case("cold", COLD, exponents),
        state_case("warm", warm, exponents),
        state_case("warm, of momentum", Moments(30, m, {"w": -8, "x": -3}), exponents),
        state_case("warm, of fp32", Moments(
            30, plain, {"w": -40, "x": -40}, rows, columns, {"x": tensor([0.125])}
        ), {"w": -40, "x": -40}),
    ]  # fmt: skip


def sections() -> list[Json]:
    """Lengths of sections, and what one update of them is."""
    of = ([1], [5, 1024, 3], [1024, 1025, 1], [1023, 1])
    parts = [[bytes([i + 1]) * length for i, length in enumerate(lengths)] for lengths in of]
    return [{"sections": ["0x" + p.hex() for p in each], "update": "0x" + joined(each).hex()}
            for each in parts]  # fmt: skip


FILES: Mapping[str, Callable[[], Json]] = {
    "moments.json": lambda: {
        "sums": sums(),
        "openings": openings(),
        "sections": sections(),
        "states": states(),
    },
}


def render(build: Callable[[], Json]) -> str:
    """The file's text, keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
