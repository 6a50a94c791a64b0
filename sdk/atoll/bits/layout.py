"""Names and shapes: of the model's parameters, and of what a seat's state holds besides.

Parameters are one for one those of Hugging Face's LlamaForCausalLM, of ArceeForCausalLM where the
MLP has no gate, of Qwen2ForCausalLM with biases, of Qwen3ForCausalLM with normalised heads. Needs
no torch, so that anyone can tell the sizes of updates, states, budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

from atoll.law.manifest import InnerSpec, Manifest, ModelSpec

MAX_HEADER_BYTES = 1 << 22
Shapes: TypeAlias = dict[str, tuple[int, ...]]
Optimiser: TypeAlias = Literal["adamw", "muon", "sgd"]
_ENDS = ("model.embed_tokens.weight", "lm_head.weight")
OUTER_SLOTS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "nesterov": ("momentum",),
    "adam": ("momentum", "second"),
    "sign": (),
    "delayed_nesterov": ("buffer", "momentum"),
}
"""What each outer optimiser keeps from round to round, an int64 tensor for every parameter."""


def param_shapes(spec: ModelSpec) -> Shapes:
    """Every parameter's shape by its Hugging Face name, names ascending; matrices are [out, in]."""
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes: Shapes = {"model.embed_tokens.weight": (spec.vocab, spec.width)}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (spec.width,),
            at + "self_attn.q_proj.weight": (queries, spec.width),
            at + "self_attn.k_proj.weight": (keys, spec.width),
            at + "self_attn.v_proj.weight": (keys, spec.width),
            at + "self_attn.o_proj.weight": (spec.width, queries),
            at + "post_attention_layernorm.weight": (spec.width,),
            at + "mlp.up_proj.weight": (spec.ffn, spec.width),
            at + "mlp.down_proj.weight": (spec.width, spec.ffn),
        }
        if spec.mlp == "swiglu":
            shapes[at + "mlp.gate_proj.weight"] = (spec.ffn, spec.width)
        if spec.qkv_bias:
            rows = {"q": queries, "k": keys, "v": keys}
            shapes |= {f"{at}self_attn.{n}_proj.bias": (size,) for n, size in rows.items()}
        if spec.qk_norm:
            shapes |= {f"{at}self_attn.{n}_norm.weight": (spec.head_dim,) for n in ("q", "k")}
    shapes["model.norm.weight"] = (spec.width,)
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab, spec.width)
    return {name: shapes[name] for name in sorted(shapes)}


def param_count(spec: ModelSpec) -> int:
    """Parameters in total."""
    return sum(prod(shape) for shape in param_shapes(spec).values())


@dataclass(frozen=True, slots=True)
class SeatLayout:
    """The tensors of a seat's state, all fp32, by group; a slot is there only if a step reads it.

    Attributes:
        params: every parameter.
        m, v: first and second moments, of the parameters whose optimiser has them.
        feedback: what the codec left out of the updates so far, where it carries that over.
        local: parameters whose values at the round's opening were the seat's own.
    """

    params: Shapes
    m: Shapes
    v: Shapes
    feedback: Shapes
    local: frozenset[str] = frozenset()

    @property
    def elements(self) -> int:
        """Numbers in total."""
        groups = (self.params, self.m, self.v, self.feedback)
        return sum(prod(shape) for group in groups for shape in group.values())


def seat_layout(manifest: Manifest, round: int = 0) -> SeatLayout:
    """What a seat's state holds in this job's round."""
    layout, codec = optimiser_layout(param_shapes(manifest.model), manifest.inner), manifest.codec
    return replace(
        layout,
        feedback=layout.params if codec.carries_feedback else {},
        local=frozenset(name for name in layout.params if codec.is_local(name, round)),
    )


def optimiser_layout(params: Shapes, inner: InnerSpec) -> SeatLayout:
    """What steps of this optimiser read: a seat's state but for the codec's feedback."""
    kinds = {name: optimiser_of(name, shape, inner) for name, shape in params.items()}
    has_m = {"adamw", "muon"} if inner.momentum == "0" else {"adamw", "muon", "sgd"}
    m = {name: shape for name, shape in params.items() if kinds[name] in has_m}
    v = {name: shape for name, shape in params.items() if kinds[name] == "adamw"}
    return SeatLayout(params, m, v, feedback={})


def optimiser_of(name: str, shape: Sequence[int], inner: InnerSpec) -> Optimiser:
    """Which optimiser a parameter has: Muon leaves embedding, head and vectors to AdamW."""
    if inner.optimizer == "muon" and (name in _ENDS or len(shape) == 1):
        return "adamw"
    return inner.optimizer


def max_params_bytes(spec: ModelSpec) -> int:
    """No parameter set of this model is larger."""
    return 4 * param_count(spec) + MAX_HEADER_BYTES


def max_state_bytes(manifest: Manifest) -> int:
    """No global state (fp32 parameters and int64 slots) or seat state of this job is larger."""
    widths = 1 + 2 * len(OUTER_SLOTS[manifest.outer.kind])
    numbers = max(widths * param_count(manifest.model), seat_layout(manifest).elements)
    return 4 * numbers + MAX_HEADER_BYTES
