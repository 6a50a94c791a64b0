"""Loss and gradients of adapters on random models: both clients, every engine, to the byte."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import model as second
from tests.second_client.arithmetic import quiet
from tests.second_client.constants import rotary
from tests.second_client.kernels import one_nan
from tests.support.engines import exact_ops

from atoll.numerics.frozen_base import freeze
from atoll.numerics.model import forward
from atoll.numerics.state_layout import adapter_shapes, param_shapes
from atoll.numerics.tensors import tree_root
from atoll.protocol.families import LAYER_KINDS, LINEARS
from atoll.protocol.model_spec import UNSCALED, LoraSpec, ModelSpec

ENGINES = [(route, kernels) for route in ("int8", "fp64") for kernels in ("eager", "compiled")]
MODELS = 12


def drawn(seed: int) -> tuple[ModelSpec, LoraSpec]:
    """A tiny model of any parts, and adapters that it can have."""
    roll = random.Random(seed)
    kv_heads = roll.choice([1, 2])
    spec = ModelSpec.model_validate(
        {
            "kind": roll.choice(list(LAYER_KINDS)),
            "vocab": roll.randrange(5, 40), "width": roll.randrange(8, 20),
            "layers": roll.choice([1, 2]), "heads": kv_heads * roll.choice([1, 2]),
            "kv_heads": kv_heads, "head_dim": roll.choice([2, 6]),
            "qkv_bias": roll.random() < 0.5, "qk_norm": roll.random() < 0.5,
            "mlp": roll.choice(["swiglu", "relu2"]), "ffn": roll.randrange(8, 30),
            "seq": roll.randrange(2, 9), "tied": roll.random() < 0.5, "norm_eps": "0.00001",
            "rope_base": 10000, "rope_scaling": UNSCALED,
        }
    )  # fmt: skip
    known = [name for name in LINEARS if name in spec.linears]
    chosen = set(roll.sample(known, roll.randrange(1, len(known) + 1)))
    rank = roll.randrange(1, min(min(spec.linears[name]) for name in chosen) + 1)
    alpha = roll.choice(["1000", "0.0000001", "16", "3.7"])
    targets = tuple(name for name in known if name in chosen)
    lora = LoraSpec(rank=rank, alpha=alpha, targets=targets)
    lora.check_model(spec)
    return spec, lora


def values(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    """Of all magnitudes; one tensor in eight is zero."""
    roll = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * roll.choice([0, 1, 1, 0.1, 0.1, 8, 1e-3, 1])
        for name, shape in shapes.items()
    }


def by_second_client(
    spec: ModelSpec, lora: LoraSpec, params: dict[str, Any], ids: Any
) -> tuple[Any, dict[str, Any]]:
    plain = spec.model_dump()
    tables = tuple(table[: ids.shape[1] - 1] for table in rotary(plain))
    scaled = plain | {"scale": np.float32(float(lora.alpha) / lora.rank)}
    arrays = {name: p.numpy() for name, p in params.items()}
    worked = quiet(second.loss_and_gradients)
    return worked(arrays, ids.numpy(), scaled, tables, lambda x, _site: x, np.float32(1))


@pytest.mark.parametrize("seed", range(MODELS))
def test_every_engine_gives_the_second_clients_gradients(seed: int) -> None:
    spec, lora = drawn(seed)
    weights, adapters = values(param_shapes(spec), seed), values(adapter_shapes(spec, lora), ~seed)
    ids = torch.randint(0, spec.vocab, (2, spec.seq + 1), generator=torch.Generator())
    loss, gradients = by_second_client(spec, lora, weights | adapters, ids)
    for route, kernels in ENGINES:
        ops = exact_ops(route, kernels)
        base = freeze(weights.items(), tree_root(weights), spec, lora, ops)
        leaves = {name: p.clone().requires_grad_() for name, p in adapters.items()}
        logits = forward(leaves, ids[:, :-1], spec, ops, base=base)
        found = ops.cross_entropy(logits, ids[:, 1:], torch.ones(2, spec.seq))
        assert found.item() == loss or not np.isfinite(loss)
        for name, g in zip(leaves, torch.autograd.grad(found, list(leaves.values())), strict=True):
            mine = one_nan(g.numpy())
            assert mine.tobytes() == one_nan(gradients[name]).tobytes(), (name, route, kernels)
