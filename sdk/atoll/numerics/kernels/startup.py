"""A tiny training step whose digest is known: what an engine must give before anything uses it.

`acceptance` compares kernels and `gemm` products, each with inputs made for it. Libraries have more
settings than anybody lists, and apply them to some shapes and layouts only: this runs the
operations as a training step does, and a setting that nobody knew shows as another digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import torch
from torch import Tensor

from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.interface import AdamFactors, Engine
from atoll.numerics.kernels.philox import Mask, words

BATCH, LENGTH, VOCABULARY, WIDTH, HEAD, FFN = 2, 152, 67, 48, 16, 80
"""Two tiles of attention, the second one short; no size is a multiple of a vector's."""
HEADS, KEY_HEADS = WIDTH // HEAD, 1
DIGESTS = {
    "dropout": "3d875199224e5e25", "norm of rows": "447cfd52983e6738",
    "linears": "4628cdf1595f9b65", "rotary": "79164c63045fb1d1",
    "attention": "31da737f9ff9f817", "gates": "bfcaadb66dd69d6d",
    "head": "86b4a75b99704270", "loss": "d6270739a32a441c",
    "gradient of embedding": "83da4f3b4a8b4552", "gradient of gain": "3ac6de370c9a9a93",
    "gradient of queries": "bc4578bc50887b2c", "gradient of keys": "5f9f563589d0317e",
    "gradient of values": "4fdee32e16197eb4", "gradient of gate": "e263d33a83752f13",
    "gradient of up": "f0249b902db377c4", "gradient of down": "24f75fc49324d0f7",
    "norm": "22a60ee7e43db49a", "AdamW": "7125bf1fe8d42bc2", "Muon": "a07ff78af908a7a4",
    "biases": "9b98864c3c62a38b", "norms of heads": "5eef11a6e19a1a15",
    "gradients of biases and norms": "9a10b8da9d3b088a", "subnormals": "5a063589da665a3d",
}  # fmt: skip
"""The first 16 hex digits of SHA-256 of what each part gives, in the order in which they run."""
_FACTORS = AdamFactors(0.5, 0.9, 0.99, 1.7, 2.3, 1e-8, 0.1, 3e-3)


def first_difference(engine: Engine, device: torch.device | str = "cpu") -> str | None:
    """The first part of the step that this engine computes otherwise; None where all is right."""
    found = parts(engine, device)
    return next((name for name, digest in found if DIGESTS[name] != digest), None)


def parts(engine: Engine, device: torch.device | str = "cpu") -> Iterator[tuple[str, str]]:
    """Runs the step: each part's name and digest, forward, backward and the optimisers."""
    ops = ExactOps(engine)
    leaves = {
        name: _drawn(i, *shape, device=device) for i, (name, shape) in enumerate(_SHAPES.items())
    }
    for leaf in leaves.values():
        leaf.requires_grad_()
    values = dict(_forward(ops, leaves, device))
    for name, value in values.items():
        yield name, _digest(value)
    gradients = torch.autograd.grad(values["loss"], list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        yield f"gradient of {name}", _digest(gradient)
    yield "norm", sha256(ops.global_norm(gradients).hex().encode()).hexdigest()[:16]
    p, g = leaves["queries"].detach(), gradients[list(leaves).index("queries")]
    yield "AdamW", _digest(*ops.adamw(p, p * 0.1, p * p, g, _FACTORS))
    momentum = ops.momentum(p, g, 0.95, 0.05)
    yield "Muon", _digest(momentum, ops.orthogonalise(momentum))
    yield from _added(ops, device)
    yield "subnormals", _digest(*_subnormals(ops, device))


def _added(ops: ExactOps, device: torch.device | str) -> Iterator[tuple[str, str]]:
    """What some families have between a projection and the rotation."""
    x, bias, gain = (
        _drawn(23 + i, *shape, device=device).requires_grad_()
        for i, shape in enumerate(((BATCH, LENGTH, WIDTH), (WIDTH,), (HEAD,)))
    )
    biased_BTD = ops.add_bias(x, bias)
    yield "biases", _digest(biased_BTD)
    heads_BTHd = biased_BTD.view(BATCH, LENGTH, HEADS, HEAD)
    normed_BTHd = ops.rms_norm(heads_BTHd, gain, 1e-6)
    yield "norms of heads", _digest(normed_BTHd)
    g = _drawn(26, *normed_BTHd.shape, device=device)
    # A sum's gradient is one, so that of the product is g, to the bit. Handing g to `grad` instead
    # makes torch import its symbolic shapes, and sympy with them: a second in every process.
    gradients = torch.autograd.grad((normed_BTHd * g).sum(), (x, bias, gain))
    yield "gradients of biases and norms", _digest(*gradients)


_SHAPES = {
    "embedding": (VOCABULARY, WIDTH),
    "gain": (WIDTH,),
    "queries": (WIDTH, WIDTH),
    "keys": (KEY_HEADS * HEAD, WIDTH),
    "values": (KEY_HEADS * HEAD, WIDTH),
    "gate": (FFN, WIDTH),
    "up": (FFN, WIDTH),
    "down": (WIDTH, FFN),
}


def _forward(
    ops: ExactOps, w: dict[str, Tensor], device: torch.device | str
) -> Iterator[tuple[str, Tensor]]:
    ids_BT = _integers(20, BATCH, LENGTH, device=device) % VOCABULARY
    cos_Td, sin_Td = (_drawn(21 + i, LENGTH, HEAD // 2, device=device) for i in range(2))
    embedded_BTD = ops.embedding(ids_BT, w["embedding"])
    mask = Mask("0.1", (1, 2), step=3, site=4, first=0)
    yield "dropout", (x_BTD := ops.dropout(embedded_BTD, mask))
    yield "norm of rows", (normed_BTD := ops.rms_norm(x_BTD, w["gain"], 1e-5))
    projected = ops.linears(normed_BTD, [w["queries"], w["keys"], w["values"]])
    yield "linears", torch.cat(projected, dim=-1)
    q, k, v = (t.view(BATCH, LENGTH, -1, HEAD).transpose(1, 2) for t in projected)
    q, k = (ops.rotary(t, cos_Td, sin_Td) for t in (q, k))
    yield "rotary", q
    yield "attention", (mixed_BHTd := ops.attention(q, k, v, context=LENGTH))
    x_BTD = x_BTD + mixed_BHTd.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
    gate, up = ops.linears(x_BTD, [w["gate"], w["up"]])
    yield "gates", (hidden_BTF := ops.swiglu(gate, up) + ops.squared_relu(up))
    x_BTD = x_BTD + ops.linear(hidden_BTF, w["down"])
    yield "head", (logits_BTV := ops.head(x_BTD, w["embedding"]))
    weights_BT = torch.ones(ids_BT.shape, device=device)
    yield "loss", ops.cross_entropy(logits_BTV, ids_BT.flip(1), weights_BT)


def _subnormals(ops: ExactOps, device: torch.device | str) -> Iterator[Tensor]:
    """A library built with -ffast-math makes the process that loads it round these to zero.

    Source: https://simonbyrne.github.io/notes/fastmath/. The first is large enough for threads.
    """
    tiny = _drawn(30, 1 << 16, device=device) * 2.0**-120
    yield tiny * 2.0**-10
    g, m = tiny[:256] * 2.0**-5, tiny[256:512] * 2.0**-10
    yield ops.momentum(m, g, 0.95, 0.05)
    yield from ops.adamw(g, m, m.abs(), g, _FACTORS)


def _integers(site: int, *shape: int, device: torch.device | str) -> Tensor:
    """Words below 2^32, int64."""
    count = torch.Size(shape).numel()
    return words(
        Mask("0", (0x57A7, 0), step=0, site=site, first=0), count, torch.device(device)
    ).view(shape)


def _drawn(site: int, *shape: int, device: torch.device | str) -> Tensor:
    """Multiples of 2^-23 in [-1/2, 1/2)."""
    return ((_integers(site, *shape, device=device) >> 9) - (1 << 22)).float() * 2.0**-23


def _digest(*tensors: Tensor) -> str:
    hasher = sha256()
    for tensor in tensors:
        hasher.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hasher.hexdigest()[:16]
