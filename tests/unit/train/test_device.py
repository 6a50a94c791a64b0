"""What a step reads lies where its operations are: shown on a device without memory.

On a CPU every move is none. torch's `meta` device has shapes and no values, so that tensors of two
devices that meet are an error, as they are on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from tests.unit.train.factories import seat_state
from torch import Tensor

from atoll.numerics import frozen_base as bases
from atoll.numerics.frozen_base import freeze
from atoll.numerics.init import initial_params
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.kernels.gemm import ROUTES, batched_product
from atoll.numerics.kernels.interface import Engine
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.model import forward
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import adapter_shapes, param_shapes
from atoll.numerics.step import mix_in
from atoll.protocol.method_spec import CodecSpec
from atoll.protocol.model_spec import LoraSpec
from atoll.protocol.types import ZERO_DIGEST
from atoll.train.probe_job import probe_manifest

META = torch.device("meta")
FP32 = ROUTES["fp32"]
OPS = ExactOps(Engine(FP32, TorchKernels(), batched_product(FP32), META))
LORA = {"rank": 2, "alpha": "4", "targets": ["q", "v"]}


def on_meta(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(META) for name, tensor in tensors.items()}


def test_a_models_logits_are_where_its_operations_are() -> None:
    model = probe_manifest().model
    params = on_meta(initial_params(param_shapes(model), seed=1))
    ids_BT = torch.zeros(2, model.seq, dtype=torch.int64, device=META)
    for p in params.values():
        p.requires_grad_()
    logits_BTV = forward(params, ids_BT, model, OPS)
    gradients = torch.autograd.grad(logits_BTV, list(params.values()), logits_BTV.detach())
    assert {g.device for g in (logits_BTV, *gradients)} == {META}


def test_a_frozen_base_is_where_the_operations_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases.TreeRoot, "digest", lambda _: ZERO_DIGEST)
    model, lora = probe_manifest().model, LoraSpec.model_validate(LORA)
    weights = initial_params(param_shapes(model), seed=1)
    base = freeze(weights.items(), ZERO_DIGEST, model, lora, OPS)
    parts = [t for one in base.products.values() for t in one.parts]
    assert {t.device for t in (*parts, *base.others.values())} == {META}
    adapters = {
        name: torch.zeros(s, device=META) for name, s in adapter_shapes(model, lora).items()
    }
    ids_BT = torch.zeros(2, model.seq, dtype=torch.int64, device=META)
    assert forward(adapters, ids_BT, model, OPS, base=base).device == META


def test_what_was_merged_is_mixed_in_where_the_state_is() -> None:
    state = seat_state().on(META)
    codec = CodecSpec.model_validate(
        probe_manifest().codec.model_dump() | {"fragments": 1, "mixing": "0.5"}
    )
    model = GlobalState(1, seat_state().params, {}, {})
    assert {p.device for p in mix_in(state, model, codec).params.values()} == {META}
    assert replace(state, params={}).on(META) == replace(state, params={})
