"""Names and shapes of the model's parameters, one for one those of LlamaForCausalLM.

Needs no torch, so that sizes (of updates, states, budgets) can be told anywhere.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from atoll.protocol.manifest import ModelSpec

MAX_HEADER_BYTES = 1 << 22
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def param_shapes(spec: ModelSpec) -> Shapes:
    """Every parameter's shape by its Hugging Face name, names ascending; matrices are [out, in]."""
    head_dim = spec.width // spec.heads
    shapes: Shapes = {"model.embed_tokens.weight": (spec.vocab, spec.width)}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (spec.width,),
            at + "self_attn.q_proj.weight": (spec.heads * head_dim, spec.width),
            at + "self_attn.k_proj.weight": (spec.kv_heads * head_dim, spec.width),
            at + "self_attn.v_proj.weight": (spec.kv_heads * head_dim, spec.width),
            at + "self_attn.o_proj.weight": (spec.width, spec.heads * head_dim),
            at + "post_attention_layernorm.weight": (spec.width,),
            at + "mlp.gate_proj.weight": (spec.ffn, spec.width),
            at + "mlp.up_proj.weight": (spec.ffn, spec.width),
            at + "mlp.down_proj.weight": (spec.width, spec.ffn),
        }
    shapes["model.norm.weight"] = (spec.width,)
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab, spec.width)
    return {name: shapes[name] for name in sorted(shapes)}


def param_count(spec: ModelSpec) -> int:
    """Parameters in total."""
    return sum(prod(shape) for shape in param_shapes(spec).values())


def max_state_bytes(spec: ModelSpec) -> int:
    """No global or seat state of this model is larger: 12 bytes a parameter and a header."""
    return 12 * param_count(spec) + MAX_HEADER_BYTES
