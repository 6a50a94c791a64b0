"""The model: a Llama-family decoder as one function of parameters and tokens.

Parameters are a dict with Hugging Face's names (see `layout`), so an export is a copy.
Shapes: B batch, T positions, D width, V vocabulary, F feed-forward width, H query heads,
K key heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.bits.decimals import rotary_tables
from atoll.bits.ops import Ops
from atoll.law.manifest import ModelSpec

Dropper: TypeAlias = Callable[[Tensor, int], Tensor]
"""Dropout at a site: 0 is the embedding, 2l + 1 and 2l + 2 what layer l's attention and MLP add."""


def keep_all(x: Tensor, site: int) -> Tensor:
    """No dropout: what is not training."""
    return x


def forward(
    params: Mapping[str, Tensor],
    ids_BT: Tensor,
    spec: ModelSpec,
    ops: Ops,
    drop: Dropper = keep_all,
) -> Tensor:
    """Logits [B, T, V] of the next token at every position; T ≤ spec.seq."""
    eps = float(spec.norm_eps)
    x_BTD = drop(ops.embedding(ids_BT, params["model.embed_tokens.weight"]), 0)
    for layer in range(spec.layers):
        weights = _layer_weights(params, layer)
        normed_BTD = ops.rms_norm(x_BTD, weights["input_layernorm"], eps)
        x_BTD = x_BTD + drop(_attention(normed_BTD, weights, spec, ops), 2 * layer + 1)
        normed_BTD = ops.rms_norm(x_BTD, weights["post_attention_layernorm"], eps)
        x_BTD = x_BTD + drop(_mlp(normed_BTD, weights, spec, ops), 2 * layer + 2)
    x_BTD = ops.rms_norm(x_BTD, params["model.norm.weight"], eps)
    head = "model.embed_tokens.weight" if spec.tied else "lm_head.weight"
    return ops.head(x_BTD, params[head])


def _layer_weights(params: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    prefix = f"model.layers.{layer}."
    names = (name for name in params if name.startswith(prefix))
    return {name[len(prefix) :].removesuffix(".weight"): params[name] for name in names}


def _attention(x_BTD: Tensor, weights: Mapping[str, Tensor], spec: ModelSpec, ops: Ops) -> Tensor:
    B, T, _ = x_BTD.shape
    cos_Td, sin_Td = (table[:T].to(x_BTD.device) for table in _rotary(spec))

    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    projected = ops.linears(x_BTD, [weights[name] for name in names])
    if spec.qkv_bias:
        biases = [weights[f"{name}.bias"] for name in names]
        projected = tuple(ops.add_bias(t, b) for t, b in zip(projected, biases, strict=True))
    q, k, v_BTKd = (t.view(B, T, -1, spec.head_dim) for t in projected)
    if spec.qk_norm:
        eps = float(spec.norm_eps)
        q = ops.rms_norm(q, weights["self_attn.q_norm"], eps)
        k = ops.rms_norm(k, weights["self_attn.k_norm"], eps)
    q_BHTd, k_BKTd = (ops.rotary(t.transpose(1, 2), cos_Td, sin_Td) for t in (q, k))
    mixed_BHTd = ops.attention(q_BHTd, k_BKTd, v_BTKd.transpose(1, 2))
    mixed_BTA = mixed_BHTd.transpose(1, 2).reshape(B, T, spec.heads * spec.head_dim)
    return ops.linear(mixed_BTA, weights["self_attn.o_proj"])


@lru_cache(maxsize=8)
def _rotary(spec: ModelSpec) -> tuple[Tensor, Tensor]:
    tables = rotary_tables(spec.seq, spec.head_dim, spec.rope_base, spec.rope_scaling)
    cos_Td, sin_Td = (torch.tensor(table) for table in tables)
    return cos_Td, sin_Td


def _mlp(x_BTD: Tensor, weights: Mapping[str, Tensor], spec: ModelSpec, ops: Ops) -> Tensor:
    if spec.mlp == "relu2":
        hidden_BTF = ops.squared_relu(ops.linear(x_BTD, weights["mlp.up_proj"]))
    else:
        gate_BTF, up_BTF = ops.linears(x_BTD, [weights["mlp.gate_proj"], weights["mlp.up_proj"]])
        hidden_BTF = ops.swiglu(gate_BTF, up_BTF)
    return ops.linear(hidden_BTF, weights["mlp.down_proj"])
