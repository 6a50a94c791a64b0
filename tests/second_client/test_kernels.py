"""Every exact operation, forward and gradient: the second client's bits are atoll's.

A thousand random tensors an operation, of all magnitudes, with zeros, signed zeros, subnormals,
ties and lines that are constant or have one large number. Sides of products are at least 2, as in
every valid model: PyTorch's int8 product over one term returns memory that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import arithmetic, kernels, optimisers
from tests.support.engines import exact_ops

from atoll.numerics.kernels import elementary
from atoll.numerics.kernels.interface import AdamFactors
from atoll.numerics.kernels.philox import Mask

CASES = 1000
OPS = exact_ops()
Random = np.random.Generator
Case = Callable[[Random], tuple[list[Any], list[Any]]]


def tensor(random: Random, *shape: int) -> Any:
    """float32 numbers of a kind that is drawn."""
    x = random.standard_normal(shape)
    kind = random.integers(9)
    if kind == 1:
        x = x * 2.0 ** random.integers(-30, 30)
    elif kind == 2:  # a magnitude for every row
        x = x * 2.0 ** random.integers(-20, 20, (shape[0], *[1] * (len(shape) - 1)))
    elif kind == 3:  # few levels: ties and signed zeros
        x = np.rint(x * 2) / 4 * random.choice([-1.0, 1.0], shape)
    elif kind == 4:  # mostly zero
        x = np.where(random.random(shape) < 0.8, 0.0, x)
    elif kind == 5:  # subnormal, or nearly
        x = x * 2.0 ** random.integers(-149, -120)
    elif kind == 6:  # one number alone
        x = np.zeros(shape) - 0.0 * x
        x.reshape(-1)[random.integers(x.size)] = random.standard_normal() * 2.0**10
    elif kind == 7:  # constant
        x = np.full(shape, x.reshape(-1)[0])
    elif kind == 8 and random.random() < 0.3:  # overflowing, or not finite already
        odd = random.choice([np.inf, -np.inf, np.nan, 3e38, -3e38], shape)
        x = np.where(random.random(shape) < 0.05, odd, x)
    return x.astype(np.float32)


def of_atoll(function: Callable[..., Any], inputs: Sequence[Any], *gradients: Any) -> list[Any]:
    """Results and gradients of an operation of atoll."""
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    found = torch.autograd.grad(results, leaves, [torch.from_numpy(g.copy()) for g in gradients])
    return [t.detach().numpy() for t in (*results, *found)]


def bits_of(x: Any) -> bytes:
    """All bits, those of a NaN apart: there is one NaN, which processors spell differently."""
    return np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x).tobytes()


def embedding(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, vocabulary, width = random.integers(1, [30, 20, 12])
    ids = random.integers(0, vocabulary, (1, tokens))
    table, g = tensor(random, vocabulary, width), tensor(random, tokens, width)
    mine = [kernels.embedding(ids[0], table), kernels.embedding_gradient(g, ids[0], vocabulary)]
    theirs = of_atoll(lambda t: OPS.embedding(torch.from_numpy(ids), t)[0], [table], g)
    return mine, theirs


def linear(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, inputs, *outputs = random.integers(2, [24, 20, 9, 9, 9])
    x = tensor(random, tokens, inputs)
    weights = [tensor(random, width, inputs) for width in outputs[: random.integers(1, 4)]]
    gradients = [tensor(random, tokens, len(weight)) for weight in weights]
    cuts = np.cumsum([len(weight) for weight in weights])[:-1]
    y, saved = kernels.linear(x, np.concatenate(weights))
    dx, dw = kernels.linear_gradient(np.concatenate(gradients, axis=1), saved)
    mine = [*np.split(y, cuts, axis=1), dx, *np.split(dw, cuts)]

    def linears(x: Any, *weights: Any) -> tuple[Any, ...]:
        one = len(weights) == 1
        results = (OPS.linear(x[None], *weights),) if one else OPS.linears(x[None], weights)
        return tuple(y[0] for y in results)

    return mine, of_atoll(linears, [x, *weights], *gradients)


def head(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, inputs, outputs = random.integers(2, [24, 20, 24])
    x, weight = tensor(random, tokens, inputs), tensor(random, outputs, inputs)
    g = tensor(random, tokens, outputs)
    y, saved = kernels.head(x, weight)
    mine = [y, *kernels.head_gradient(g, saved)]
    return mine, of_atoll(lambda x, w: OPS.head(x[None], w)[0], [x, weight], g)


def frozen_linears(random: Random) -> tuple[list[Any], list[Any]]:
    """Weights without a gradient: the results and the input's gradient are a linear's."""
    tokens, inputs, *outputs = random.integers(2, [24, 20, 9, 9, 9])
    x = tensor(random, tokens, inputs)
    weights = [tensor(random, width, inputs) for width in outputs[: random.integers(1, 4)]]
    gradients = [tensor(random, tokens, len(weight)) for weight in weights]
    cuts = np.cumsum([len(weight) for weight in weights])[:-1]
    y, saved = kernels.linear(x, np.concatenate(weights))
    dx, _ = kernels.linear_gradient(np.concatenate(gradients, axis=1), saved)
    frozen = OPS.freeze([torch.from_numpy(weight) for weight in weights])

    def linears(x: Any) -> tuple[Any, ...]:
        return tuple(y[0] for y in OPS.frozen_linears(x[None], frozen))

    return [*np.split(y, cuts, axis=1), dx], of_atoll(linears, [x], *gradients)


def frozen_head(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, inputs, outputs = random.integers(2, [24, 20, 24])
    x, weight = tensor(random, tokens, inputs), tensor(random, outputs, inputs)
    g = tensor(random, tokens, outputs)
    y, saved = kernels.head(x, weight)
    frozen = OPS.freeze_head(torch.from_numpy(weight))
    mine = [y, kernels.head_gradient(g, saved)[0]]
    return mine, of_atoll(lambda x: OPS.frozen_head(x[None], frozen)[0], [x], g)


def bias(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, width = random.integers(1, [40, 20])
    x, g, bias = tensor(random, tokens, width), tensor(random, tokens, width), tensor(random, width)
    mine = [kernels.add_bias(x, bias), g, kernels.bias_gradient(g)]
    return mine, of_atoll(lambda x, b: OPS.add_bias(x[None], b)[0], [x, bias], g)


def rms_norm(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, inputs = random.integers(1, [24, 40])
    x, gain, g = (
        tensor(random, tokens, inputs),
        tensor(random, inputs),
        tensor(random, tokens, inputs),
    )
    eps = float(random.choice(["0.00001", "0.000001", "0.1"]))
    y, saved = kernels.rms_norm(x, gain, eps)
    mine = [y, *kernels.rms_norm_gradient(g, saved)]
    return mine, of_atoll(lambda x, gain: OPS.rms_norm(x[None], gain, eps)[0], [x, gain], g)


def head_norm(random: Random) -> tuple[list[Any], list[Any]]:
    """Rows of a head each, as queries and keys have them before they are rotated."""
    batch, length, heads, half = random.integers(1, [3, 9, 5, 9])
    shape = batch, length, heads, 2 * half
    x, gain, g = tensor(random, *shape), tensor(random, 2 * half), tensor(random, *shape)
    y, saved = kernels.rms_norm(x.reshape(-1, 2 * half), gain, 1e-6)
    dx, dgain = kernels.rms_norm_gradient(g.reshape(-1, 2 * half), saved)
    mine = [y.reshape(shape), dx.reshape(shape), dgain]
    return mine, of_atoll(lambda x, gain: OPS.rms_norm(x, gain, 1e-6), [x, gain], g)


def rotary(random: Random) -> tuple[list[Any], list[Any]]:
    batch, heads, length, half = random.integers(1, [3, 4, 12, 6])
    x, g = (tensor(random, batch, heads, length, 2 * half) for _ in range(2))
    cosines, sines = (tensor(random, length, half) for _ in range(2))
    mine = [kernels.rotate(x, cosines, sines), kernels.rotate(g, cosines, -sines)]
    tables = [torch.from_numpy(t) for t in (cosines, sines)]
    return mine, of_atoll(lambda x: OPS.rotary(x, *tables), [x], g)


def attention(random: Random) -> tuple[list[Any], list[Any]]:
    batch, keys, group, half = random.integers(1, [3, 3, 4, 9])
    long = random.random() < 0.03
    length = int(random.choice([127, 128, 129, 260])) if long else int(random.integers(1, 40))
    q, g = (tensor(random, batch, keys * group, length, 2 * half) for _ in range(2))
    k, v = (tensor(random, batch, keys, length, 2 * half) for _ in range(2))
    y, saved = kernels.attention(q, k, v)
    return [y, *kernels.attention_gradient(g, saved)], of_atoll(
        partial(OPS.attention, context=length), [q, k, v], g
    )


def swiglu(random: Random) -> tuple[list[Any], list[Any]]:
    shape = random.integers(1, [9, 30])
    gate, up, g = (tensor(random, *shape) for _ in range(3))
    mine = [kernels.swiglu(gate, up), *kernels.swiglu_gradient(g, gate, up)]
    return mine, of_atoll(lambda a, b: OPS.swiglu(a[None], b[None])[0], [gate, up], g)


def squared_relu(random: Random) -> tuple[list[Any], list[Any]]:
    shape = random.integers(1, [9, 30])
    x, g = (tensor(random, *shape) for _ in range(2))
    mine = [kernels.squared_relu(x), kernels.squared_relu_gradient(g, x)]
    return mine, of_atoll(OPS.squared_relu, [x], g)


def dropout(random: Random) -> tuple[list[Any], list[Any]]:
    shape = random.integers(1, [9, 30])
    x, g = (tensor(random, *shape) for _ in range(2))
    share = str(random.choice(["0.1", "0.5", "0.9", "0.333333333333333333", "0.000000001"]))
    key = tuple(int(word) for word in random.integers(0, 1 << 32, 2))
    first = int(random.integers(0, 1 << 40)) if random.random() < 0.3 else int(random.integers(99))
    step, site = int(random.integers(0, 1 << 32)), int(random.integers(0, 99))
    keep = arithmetic.kept(share, key, step, site, range(first, first + x.size))
    scale = arithmetic.dropout_scale(share)
    mask = Mask(share, key, step, site, first)
    mine = [kernels.drop(x, keep, scale), kernels.drop(g, keep, scale)]
    return mine, of_atoll(lambda x: OPS.dropout(x, mask), [x], g)


def cross_entropy(random: Random) -> tuple[list[Any], list[Any]]:
    tokens, vocabulary = random.integers(1, [24, 40])
    logits, c = tensor(random, tokens, vocabulary), tensor(random, 1)[0]
    targets = random.integers(0, vocabulary, tokens)
    # In a third of the cases some are no targets, and in some of these all.
    targets[random.random(tokens) < random.choice([0.0, 0.0, 0.0, 0.4, 0.9, 1.0])] = -1
    loss, saved = kernels.cross_entropy(logits, targets)
    labels = torch.from_numpy(targets)[None]
    weights = (labels >= 0).float()
    theirs = of_atoll(lambda x: OPS.cross_entropy(x[None], labels, weights), [logits], np.array(c))
    return [np.array(loss), kernels.cross_entropy_gradient(c, saved)], theirs


def global_norm(random: Random) -> tuple[list[Any], list[Any]]:
    shapes = [random.integers(1, 30, random.integers(1, 3)) for _ in range(random.integers(1, 5))]
    gradients = [tensor(random, *shape) for shape in shapes]
    mine = optimisers.global_norm(gradients)
    theirs = OPS.global_norm([torch.from_numpy(g) for g in gradients])
    return [np.array(mine)], [np.array(theirs)]


def adamw(random: Random) -> tuple[list[Any], list[Any]]:
    shape = random.integers(1, [9, 30])
    p, m, v, g = (tensor(random, *shape) for _ in range(4))
    v = np.abs(v)
    inner = {
        "beta1": str(random.choice(["0", "0.9", "0.95"])),
        "beta2": str(random.choice(["0.95", "0.999", "0.999999"])),
        "eps": str(random.choice(["0.00000001", "0.000001", "0.1"])),
        "weight_decay": str(random.choice(["0", "0.1", "0.013"])),
    }
    scale, rate, first, second = random.random(4) * [1.0, 0.01, 1.0, 1.0] + [0.0, 0.0, 1.0, 1.0]
    mine = optimisers.adamw(p, m, v, g, (scale, rate, first, second), inner)
    betas, eps = (float(inner["beta1"]), float(inner["beta2"])), float(inner["eps"])
    factors = AdamFactors(scale, *betas, first, second, eps, float(inner["weight_decay"]), rate)
    theirs = OPS.adamw(*(torch.from_numpy(x) for x in (p, m, v, g)), factors)
    return list(mine), [t.numpy() for t in theirs]


def momentum(random: Random) -> tuple[list[Any], list[Any]]:
    shape = random.integers(1, [9, 30])
    m, g = (tensor(random, *shape) for _ in range(2))
    keep = float(random.choice(["0.9", "0.95", "0.1"]))
    mine = optimisers.flushed(m * np.float32(keep) + g * np.float32(1.0 - keep))
    theirs = OPS.momentum(torch.from_numpy(m), torch.from_numpy(g), keep, 1.0 - keep)
    return [mine], [theirs.numpy()]


def orthogonalise(random: Random) -> tuple[list[Any], list[Any]]:
    matrix = tensor(random, *random.integers(2, 24, 2))
    return [optimisers.orthogonalised(matrix)], [
        OPS.orthogonalise(torch.from_numpy(matrix)).numpy()
    ]


CASE_OF: dict[str, Case] = {
    case.__name__: case
    for case in (
        embedding, linear, bias, head, frozen_linears, frozen_head, rms_norm, head_norm, rotary,
        attention, swiglu, squared_relu, dropout, cross_entropy, global_norm, adamw, momentum,
        orthogonalise,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", CASE_OF)
@arithmetic.quiet
def test_no_bit_differs(name: str) -> None:
    for seed in range(CASES):
        mine, theirs = CASE_OF[name](np.random.default_rng([seed, len(name)]))
        assert len(mine) == len(theirs)
        for index, (ours, expected) in enumerate(zip(mine, theirs, strict=True)):
            assert ours.dtype == expected.dtype and ours.shape == expected.shape
            assert bits_of(ours) == bits_of(expected), (seed, index)


@arithmetic.quiet
def test_a_vocabulary_whose_sums_an_int32_does_not_hold() -> None:
    """The head's gradient contracts over it. Every number is near its line's largest."""
    random = np.random.default_rng(11)
    for vocabulary in (133_144, 133_145, 151_936):
        x, weight = (
            (1.0 - random.random(shape) / 1000.0).astype(np.float32)
            for shape in ((2, 3), (vocabulary, 3))
        )
        g = (1.0 - random.random((2, vocabulary)) / 1000.0).astype(np.float32)
        y, saved = kernels.head(x, weight)
        mine = [y, *kernels.head_gradient(g, saved)]
        theirs = of_atoll(lambda x, w: OPS.head(x[None], w)[0], [x, weight], g)
        high = arithmetic.split_grid(g * saved[5].T, 1)[0]
        assert ((high @ saved[3]).max() > 2**31 - 1) == (vocabulary > 133_144)
        assert [bits_of(a) for a in mine] == [bits_of(b) for b in theirs]


FUNCTIONS = {
    "exp": arithmetic.exp,
    "sigmoid": arithmetic.sigmoid,
    "log": arithmetic.ln,
    "sqrt": arithmetic.root,
}


@arithmetic.quiet
def test_elementary_functions_are_atolls_on_words_of_every_kind() -> None:
    words = np.random.default_rng(3).integers(0, 1 << 32, 1 << 18, dtype=np.uint64)
    x = words.astype(np.uint32).view(np.float32)
    for name, mine in FUNCTIONS.items():
        theirs = getattr(elementary, name)(torch.from_numpy(x)).numpy()
        assert bits_of(mine(x)) == bits_of(theirs), name
