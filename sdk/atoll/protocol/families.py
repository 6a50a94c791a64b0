"""The models that a manifest may name: kinds of layers, of MLPs and of stretched positions.

Rule of this file: who reads one of these names asks here for a property of it. What is computed is
in `atoll.numerics.model`, as a trace in `atoll.numerics.trace.build.model_trace`; which of Hugging
Face's families has which of them is in `atoll.train.families`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

LinearName = Literal["q", "k", "v", "o", "gate", "up", "down"]
LINEARS: Final[dict[LinearName, str]] = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
"""A layer's linears by Hugging Face's names, in the one order in which a manifest has them."""


@dataclass(frozen=True, slots=True)
class LayerKind:
    """How the layers of a kind of model are put together.

    Attributes:
        norms: names of attention's and the MLP's RMSNorm, as Hugging Face has them.
        norms_heads: whether normalised queries and keys are so head by head, else all of a token's
            at once.
        norms_inputs: whether attention and MLP read what the norms give, else the norms read what
            these give.
    """

    norms: tuple[str, str]
    norms_heads: bool = True
    norms_inputs: bool = True


@dataclass(frozen=True, slots=True)
class MlpKind:
    """What an MLP makes of a layer's values before `down`.

    Attributes:
        inputs: the linears that it reads, which are one product.
    """

    inputs: tuple[LinearName, ...]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary angles are stretched.

    Attributes:
        divides: whether angles are divided by a factor; without, it is 1.
        spares_fast: whether angles that turn often are left as they are, by low, high and
            positions; without, these are 0.
    """

    divides: bool = True
    spares_fast: bool = False


LAYER_KINDS: Final[Mapping[str, LayerKind]] = MappingProxyType(
    {
        "llama": LayerKind(("input_layernorm", "post_attention_layernorm")),
        "olmo2": LayerKind(
            ("post_attention_layernorm", "post_feedforward_layernorm"),
            norms_heads=False,
            norms_inputs=False,
        ),
    }
)
MLP_KINDS: Final[Mapping[str, MlpKind]] = MappingProxyType(
    {"swiglu": MlpKind(("gate", "up")), "relu2": MlpKind(("up",))}
)
ROPE_SCALINGS: Final[Mapping[str, RopeScaling]] = MappingProxyType(
    {
        "none": RopeScaling(divides=False),
        "linear": RopeScaling(),
        "llama3": RopeScaling(spares_fast=True),
    }
)
