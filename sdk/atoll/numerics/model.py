"""The model: a Llama-family decoder as one function of parameters and tokens.

Parameters are a dict with Hugging Face's names (see `layout`), so an export is a copy.
Shapes: B batch, T positions, D width, V vocabulary, F feed-forward width, H query heads,
K key heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from atoll.numerics.decimals import rotary_tables
from atoll.numerics.frozen_base import Base
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import Ops
from atoll.numerics.state_layout import DOWN, UP
from atoll.protocol.families import LINEARS
from atoll.protocol.model_spec import ModelSpec

Dropper: TypeAlias = Callable[[Tensor, int], Tensor]
"""Dropout at a site: 0 is the embedding, 2l + 1 and 2l + 2 what layer l's attention and MLP add."""


def keep_all(x: Tensor, site: int) -> Tensor:
    """No dropout: what is not training."""
    return x


def attend_whole(weights: Weights, at: str, heads: Heads) -> Tensor:
    """Attention in whole sequences: positions count from 0."""
    spec, ops = weights.spec, weights.ops
    cos_Td, sin_Td = (table[: heads.q.shape[2]] for table in rotary_of(spec, heads.q.device))
    q_BHTd, k_BKTd = (ops.rotary(t, cos_Td, sin_Td) for t in (heads.q, heads.k))
    return ops.attention(q_BHTd, k_BKTd, heads.v, context=spec.seq)


@dataclass(frozen=True, slots=True)
class Heads:
    """A layer's queries [B, H, T, d], keys and values [B, K, T, d], not rotated yet."""

    q: Tensor
    k: Tensor
    v: Tensor


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model all of whose weights are trained.

    Attributes:
        params: by Hugging Face's names.
        attend: how a layer's heads attend, by the start of its names; generation has a cache.
        rounded: linears of one input that were rounded before, by the name of the first; of their
            parameters no number is read.
    """

    params: Mapping[str, Tensor]
    spec: ModelSpec
    ops: Ops
    attend: Attend = attend_whole
    rounded: Mapping[str, Frozen] = field(default_factory=dict)

    def linears(self, x_BTI: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        """What linears of one input give."""
        weights = [self.params[f"{name}.weight"] for name in names]
        if names[0] in self.rounded:
            return self.ops.rounded_linears(x_BTI, self.rounded[names[0]], weights)
        return self.ops.linears(x_BTI, weights)

    def head(self, x_BTD: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        name = "model.embed_tokens.weight" if self.spec.tied else "lm_head.weight"
        return self.ops.head(x_BTD, self.params[name])


@dataclass(frozen=True, slots=True)
class Adapted:
    """A frozen model with trained adapters.

    Attributes:
        params: the base's embedding, gains and biases.
        adapters: as `layout.adapter_shapes` names them.
        attend: as `TrainedModel.attend`.
    """

    base: Base
    adapters: Mapping[str, Tensor]
    spec: ModelSpec
    ops: Ops
    attend: Attend = attend_whole

    @property
    def params(self) -> Mapping[str, Tensor]:
        return self.base.others

    def linears(self, x_BTI: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        """The base's, plus scale · B(A(x)) where a linear has an adapter (Hu et al. 2022)."""
        # Where the residual stream is read as it is, autograd would sum three gradients of it in an
        # order of its own; of an alias, the base's and the adapters' are one before they meet it.
        x_BTI = x_BTI.view_as(x_BTI)
        found = list(self.ops.frozen_linears(x_BTI, self.base.products[names[0]]))
        targets = [at for at, name in enumerate(names) if name + DOWN in self.adapters]
        if targets:
            downs = [self.adapters[names[at] + DOWN] for at in targets]
            for at, low_BTR in zip(targets, self.ops.linears(x_BTI, downs), strict=True):
                added_BTO = self.ops.linear(low_BTR, self.adapters[names[at] + UP])
                found[at] = found[at] + added_BTO * self.base.scale
        return tuple(found)

    def head(self, x_BTD: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        return self.ops.frozen_head(x_BTD, self.base.head)


Weights: TypeAlias = TrainedModel | Adapted
Attend: TypeAlias = Callable[[Weights, str, Heads], Tensor]
"""Gives [B, H, T, d] of a layer's heads, which it rotates first."""


def forward(
    params: Mapping[str, Tensor],
    ids_BT: Tensor,
    spec: ModelSpec,
    ops: Ops,
    drop: Dropper = keep_all,
    *,
    base: Base | None = None,
) -> Tensor:
    """Logits [B, T, V] of the next token at every position; T ≤ spec.seq.

    With a base, `params` are adapters.
    """
    weights = weights_of(params, spec, ops, base)
    return weights.head(head_inputs(weights, ids_BT, drop))


def weights_of(
    params: Mapping[str, Tensor], spec: ModelSpec, ops: Ops, base: Base | None
) -> Weights:
    """The model that parameters are, or that they are adapters of."""
    return TrainedModel(params, spec, ops) if base is None else Adapted(base, params, spec, ops)


def head_inputs(weights: Weights, ids_BT: Tensor, drop: Dropper = keep_all) -> Tensor:
    """What the head reads, [B, T, D]: rows of it that nobody asks for need no logits."""
    x_BTD = embedded(ids_BT, weights, drop)
    for layer in range(weights.spec.layers):
        x_BTD = layer_output(x_BTD, layer, weights, drop)
    return _norm(x_BTD, "model.norm", weights)


def embedded(ids_BT: Tensor, weights: Weights, drop: Dropper) -> Tensor:
    """What the first layer reads: [B, T, D]."""
    table_VD = weights.params["model.embed_tokens.weight"]
    return drop(weights.ops.embedding(ids_BT, table_VD), 0)


def layer_output(x_BTD: Tensor, layer: int, weights: Weights, drop: Dropper) -> Tensor:
    """What a layer makes of what it reads: [B, T, D]."""
    return LAYERS[weights.spec.kind](x_BTD, layer, weights, drop)


def logits(x_BTD: Tensor, weights: Weights) -> Tensor:
    """Of what the last layer gives: [B, T, V]."""
    return weights.head(_norm(x_BTD, "model.norm", weights))


def _norm_first(x_BTD: Tensor, layer: int, weights: Weights, drop: Dropper) -> Tensor:
    """Attention and MLP read what a norm makes of the values, and are added to these (Llama)."""
    at, (before_attention, before_mlp) = f"model.layers.{layer}.", weights.spec.layer_kind.norms
    normed_BTD = _norm(x_BTD, at + before_attention, weights)
    x_BTD = x_BTD + drop(_attention(normed_BTD, at, weights), 2 * layer + 1)
    normed_BTD = _norm(x_BTD, at + before_mlp, weights)
    return x_BTD + drop(_mlp(normed_BTD, at, weights), 2 * layer + 2)


def _norm_last(x_BTD: Tensor, layer: int, weights: Weights, drop: Dropper) -> Tensor:
    """Attention and MLP read the values, and a norm of what they make is added to these (OLMo 2).

    A norm on the branch keeps what a layer adds bounded and leaves the sum alone (Liu et al. 2022);
    Vaswani et al. 2017 had it behind the sum.
    """
    at, (after_attention, after_mlp) = f"model.layers.{layer}.", weights.spec.layer_kind.norms
    normed_BTD = _norm(_attention(x_BTD, at, weights), at + after_attention, weights)
    x_BTD = x_BTD + drop(normed_BTD, 2 * layer + 1)
    normed_BTD = _norm(_mlp(x_BTD, at, weights), at + after_mlp, weights)
    return x_BTD + drop(normed_BTD, 2 * layer + 2)


LAYERS: Mapping[str, Callable[[Tensor, int, Weights, Dropper], Tensor]] = MappingProxyType(
    {"llama": _norm_first, "olmo2": _norm_last}
)
"""A layer by the kind of its model."""


def _norm(x: Tensor, name: str, weights: Weights) -> Tensor:
    return weights.ops.rms_norm(x, weights.params[f"{name}.weight"], float(weights.spec.norm_eps))


def _norm_rows(x_BTA: Tensor, name: str, weights: Weights) -> Tensor:
    """RMSNorm of rows as long as its gain: of each head, or of all of a token's heads at once."""
    rows = x_BTA.view(*x_BTA.shape[:2], -1, len(weights.params[f"{name}.weight"]))
    return _norm(rows, name, weights).view(x_BTA.shape)


def _attention(x_BTD: Tensor, at: str, weights: Weights) -> Tensor:
    B, T, _ = x_BTD.shape
    spec, ops = weights.spec, weights.ops
    names = [at + LINEARS[name] for name in ("q", "k", "v")]
    projected = weights.linears(x_BTD, names)
    if spec.qkv_bias:
        biases = [weights.params[f"{name}.bias"] for name in names]
        projected = tuple(ops.add_bias(t, b) for t, b in zip(projected, biases, strict=True))
    if spec.qk_norm:
        q, k, v = projected
        q = _norm_rows(q, at + "self_attn.q_norm", weights)
        k = _norm_rows(k, at + "self_attn.k_norm", weights)
        projected = (q, k, v)
    q, k, v = (t.view(B, T, -1, spec.head_dim).transpose(1, 2) for t in projected)
    mixed_BHTd = weights.attend(weights, at, Heads(q, k, v))
    mixed_BTA = mixed_BHTd.transpose(1, 2).reshape(B, T, spec.heads * spec.head_dim)
    return weights.linears(mixed_BTA, [at + LINEARS["o"]])[0]


@lru_cache(maxsize=8)
def rotary_of(spec: ModelSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines by position, [T, d/2] each."""
    tables = rotary_tables(spec.seq, spec.head_dim, spec.rope_base, spec.rope_scaling)
    cos_Td, sin_Td = (torch.tensor(table, device=device) for table in tables)
    return cos_Td, sin_Td


def _mlp(x_BTD: Tensor, at: str, weights: Weights) -> Tensor:
    inputs = [at + LINEARS[name] for name in weights.spec.mlp_inputs]
    hidden_BTF = ACTIVATIONS[weights.spec.mlp](weights.ops)(*weights.linears(x_BTD, inputs))
    return weights.linears(hidden_BTF, [at + LINEARS["down"]])[0]


ACTIVATIONS: Mapping[str, Callable[[Ops], Callable[..., Tensor]]] = MappingProxyType(
    {"swiglu": lambda ops: ops.swiglu, "relu2": lambda ops: ops.squared_relu}
)
"""What an MLP makes of its inputs, by the manifest's name."""
