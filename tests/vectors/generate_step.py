"""Writes the vectors of the exact step: `python tests/vectors/generate_step.py`.

Rule of this file: inputs follow from SHA-256 of short names, so that a run writes the same bytes
anywhere; `README.md` beside it says what each file holds. The results are those of atoll's
definition, plain PyTorch kernels and fp64 products.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atoll.bits.kernels import elementary
from atoll.bits.kernels.engine import make_engine
from atoll.bits.kernels.exact import ExactOps
from atoll.bits.kernels.grid import exact_sum, quantise, quantise_split
from atoll.bits.kernels.interface import AdamFactors
from atoll.bits.kernels.philox import Mask

HERE = Path(__file__).parent
Json: TypeAlias = dict[str, Any]
OPS = ExactOps(make_engine(route="fp64", kernels="eager"))


def stream(name: str, count: int) -> bytes:
    """That many bytes that nobody chose."""
    return hashlib.shake_128(name.encode()).digest(count)


def numbers(name: str, *shape: int, scale: float = 1.0) -> Tensor:
    """Multiples of scale · 2^-13 between −4 and 4 times the scale."""
    size = int(np.prod(shape))
    words = np.frombuffer(stream(name, 2 * size), "<i2").astype(np.float64) * 2.0**-13 * scale
    return torch.from_numpy(words.astype(np.float32).reshape(shape))


def bits(x: Tensor) -> Json:
    """A tensor's shape and its words, row-major, in hexadecimal; fp64 has 16 digits a word."""
    array = x.detach().contiguous().numpy()
    words = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "bits": words.hex()}


def named(tensors: Mapping[str, Tensor]) -> list[Json]:
    """Tensors in the order of an operation's arguments."""
    return [bits(x) | {"name": name} for name, x in tensors.items()]


def case(
    run: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Mapping[str, Tensor], **facts: Any
) -> Json:
    """Inputs, results, the gradients of the results, and those of the inputs that follow."""
    leaves = [x.clone().requires_grad_() for x in inputs.values()]
    results = run(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    back = [numbers(f"gradient {i}", *y.shape) for i, y in enumerate(results)]
    found = torch.autograd.grad(results, leaves, back)
    return facts | {
        "inputs": named(inputs),
        "results": [bits(y) for y in results],
        "gradientsOfResults": [bits(g) for g in back],
        "gradientsOfInputs": [bits(g) for g in found],
    }


def products() -> Json:
    """Embedding, linears and head."""
    ids = torch.tensor([[3, 0, 3, 1, 4]])
    x = {"x": numbers("x", 5, 6)}
    weights = {"first": numbers("w1", 3, 6), "second": numbers("w2", 4, 6)}
    return {
        "embedding": case(
            lambda table: OPS.embedding(ids, table)[0],
            {"table": numbers("table", 5, 3)},
            ids=ids[0].tolist(),
        ),
        "linear": case(lambda x, *w: tuple(y[0] for y in OPS.linears(x[None], w)), x | weights),
        "head": case(lambda x, w: OPS.head(x[None], w)[0], x | {"weight": numbers("w", 4, 6)}),
    }


def pointwise() -> Json:
    """Norm, rotation, gates, dropout and loss."""
    mask = Mask("0.25", (0xDEADBEEF, 7), step=3, site=2, first=6)
    targets = torch.tensor([[2, 0, 5]])
    tables = {"cosines": numbers("cos", 3, 2), "sines": numbers("sin", 3, 2)}
    pair = {"gate": numbers("gate", 2, 5), "up": numbers("up", 2, 5)}
    return {
        "rmsNorm": case(
            lambda x, gain: OPS.rms_norm(x[None], gain, 1e-5)[0],
            {"x": numbers("x", 3, 6), "gain": numbers("gain", 6)},
            eps="0.00001",
        ),
        "rotary": case(
            lambda x: OPS.rotary(x, *tables.values()),
            {"x": numbers("x", 1, 2, 3, 4)},
            **{name: bits(table) for name, table in tables.items()},
        ),
        "swiglu": case(lambda a, b: OPS.swiglu(a[None], b[None])[0], pair),
        "squaredRelu": case(OPS.squared_relu, {"x": numbers("x", 2, 5)}),
        "dropout": case(
            lambda x: OPS.dropout(x, mask), {"x": numbers("x", 2, 7)},
            share=mask.share, key=list(mask.key), step=mask.step, site=mask.site, first=mask.first,
        ),
        "crossEntropy": case(
            lambda x: OPS.cross_entropy(x[None], targets).reshape(1),
            {"logits": numbers("logits", 3, 6)},
            targets=targets[0].tolist(),
        ),
    }  # fmt: skip


def attention() -> Json:
    """Within one tile with shared key heads, and over two tiles."""

    def of(batch: int, heads: int, keys: int, length: int, width: int) -> Json:
        shapes = {"q": heads, "k": keys, "v": keys}
        inputs = {n: numbers(n, batch, count, length, width) for n, count in shapes.items()}
        return case(OPS.attention, inputs)

    return {"attention": of(2, 4, 2, 5, 4), "attentionOverTiles": of(1, 1, 1, 131, 2)}


def optimisers() -> Json:
    """AdamW, momentum, Muon's orthogonalisation, the norm of two gradients."""
    p, m, g = (numbers(name, 3, 4) for name in ("p", "m", "g"))
    v = numbers("v", 3, 4).abs()
    factors = AdamFactors(0.75, 0.9, 0.999, 2.5, 100.0, 1e-8, 0.1, 0.003)
    names = ("scale", "beta1", "beta2", "correct1", "correct2", "eps", "decay", "rate")
    wide, tall = numbers("wide", 4, 9), numbers("tall", 9, 4)
    norm = torch.tensor([OPS.global_norm([p, g])], dtype=torch.float64)
    inputs = named({"p": p, "m": m, "v": v, "g": g})
    return {
        "adamw": {"inputs": inputs, "results": [bits(x) for x in OPS.adamw(p, m, v, g, factors)]}
        | {name: getattr(factors, name) for name in names},
        "momentum": {
            "inputs": named({"m": m, "g": g}),
            "keep": 0.95,
            "take": 1.0 - 0.95,
            "results": [bits(OPS.momentum(m, g, 0.95, 1.0 - 0.95))],
        },
        "orthogonalise": {
            "inputs": named({"wide": wide, "tall": tall}),
            "results": [bits(OPS.orthogonalise(x)) for x in (wide, tall)],
        },
        "globalNorm": {"inputs": named({"p": p, "g": g}), "results": [bits(norm)]},
    }


def grids() -> Json:
    """Integers and steps of a line, its exact sum, and the elementary functions."""
    x = numbers("line", 1, 12)
    magnitudes = numbers("magnitudes", 12, scale=20.0)
    positive = magnitudes.abs() + 2.0**-20
    functions = {"exp": magnitudes, "sigmoid": magnitudes, "log": positive, "sqrt": positive}
    made: Json = {"line": bits(x), "exactSum": bits(exact_sum(x, 1))}
    for levels in (127, 1 << 18, 1 << 22):
        integers, step = quantise(x, 1, levels)
        made[f"levels{levels}"] = {"integers": integers[0].int().tolist(), "step": bits(step)}
    high, low, step = quantise_split(x, 1)
    made["split"] = {"high": high[0].tolist(), "low": low[0].tolist(), "step": bits(step)}
    for name, arguments in functions.items():
        results = getattr(elementary, name)(arguments)
        made[name] = {"arguments": bits(arguments), "results": bits(results)}
    return made


FILES: Mapping[str, Callable[[], Json]] = {
    "exact_ops.json": lambda: products() | pointwise() | attention() | optimisers(),
    "grids.json": grids,
}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
