"""The model of a manifest, and its adapters.

Rules as in `manifest`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from atoll.protocol.choices import OneOf
from atoll.protocol.families import (
    LAYER_KINDS,
    LINEARS,
    MLP_KINDS,
    ROPE_SCALINGS,
    LayerKind,
    LinearName,
    RopeScaling,
)
from atoll.protocol.manifest_fields import (
    DecimalText,
    Epsilon,
    PositiveScale,
    Spec,
    Stretch,
    decimal_between,
)

INNER_LIMIT: Final = (2**31 - 1) // 127**2
"""133,144: the most products of two int8 integers, each at most 127² in magnitude, that int32 holds
the sum of. It bounds whatever an exact product contracts over in one piece: features, tokens of a
micro-batch, and the outputs of the weights that one product stacks. The head's product over the
vocabulary is summed in parts of at most as many terms, added in int64."""
ELEMENTS_LIMIT: Final = 2**31 - 1
"""The most elements of a tensor: their squares, each at most 2³², are summed in int64."""
NORM_LIMIT: Final = 1 << 17
"""The most numbers in a row of RMSNorm: the sum of so many squares, each at most 2³⁶, is exact in
binary64, too, in which some kernels have it."""
MAX_ROTARY: Final = 1 << 24
"""Positions times head size; of as many numbers is the table of a model's rotary positions."""
MAX_CONTEXT: Final = 1 << 24
"""Positions that a model of any origin was made for."""


class RopeScalingSpec(Spec):
    """How rotary angles are stretched, for more positions than a model was first trained with.

    `linear` divides every angle by `factor` (Chen et al. 2023, arXiv:2306.15595). `llama3` leaves
    angles that turn at least `high` times in `positions` positions, divides those that turn at
    most `low` times, and goes from one to the other between them (Llama 3.1's). What a kind does
    not use is 0, and without scaling the factor is 1.
    """

    kind: Annotated[str, AfterValidator(OneOf("scaling", ROPE_SCALINGS))]
    factor: Stretch
    low: Annotated[DecimalText, AfterValidator(decimal_between("0", "1000"))]
    high: Annotated[DecimalText, AfterValidator(decimal_between("0", "1000"))]
    positions: Annotated[int, Field(ge=0, le=MAX_CONTEXT)]

    @property
    def properties(self) -> RopeScaling:
        """How angles are stretched."""
        return ROPE_SCALINGS[self.kind]

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if not self.properties.divides and self.factor != "1":
            raise ValueError("rotary angles without scaling have factor 1")
        if not self.properties.spares_fast:
            if (self.low, self.high, self.positions) != ("0", "0", 0):
                raise ValueError(f"{self.kind} does not use low, high and positions: write zero")
        elif not 0 < Decimal(self.low) < Decimal(self.high) or self.positions < 1:
            raise ValueError(f"{self.kind} needs 0 < low < high and positions of at least 1")
        return self


UNSCALED: Final = RopeScalingSpec(kind="none", factor="1", low="0", high="0", positions=0)


class ModelSpec(Spec):
    """A Llama-family decoder: RMSNorm, rotary positions, and one of two MLPs.

    `swiglu` is down(silu(gate) · up) (Shazeer 2020), `relu2` is down(relu(up)²) (So et al. 2021).
    `qkv_bias` adds a bias to queries, keys and values (Qwen2); `qk_norm` normalises queries and
    keys by RMSNorm before they are rotated (Henry et al. 2020), each head's or all heads' at once
    as `kind` has it, which also says where the layers' norms are.
    """

    kind: Annotated[str, AfterValidator(OneOf("kind of model", LAYER_KINDS))]
    vocab: Annotated[int, Field(ge=2, le=1 << 20)]
    width: Annotated[int, Field(ge=8, le=1 << 15)]
    layers: Annotated[int, Field(ge=1, le=256)]
    heads: Annotated[int, Field(ge=1, le=256)]
    kv_heads: Annotated[int, Field(ge=1, le=256)]
    head_dim: Annotated[int, Field(ge=2, le=1 << 15)]
    qkv_bias: bool
    qk_norm: bool
    mlp: Annotated[str, AfterValidator(OneOf("MLP", MLP_KINDS))]
    ffn: Annotated[int, Field(ge=8, le=1 << 17)]
    seq: Annotated[int, Field(ge=2, le=1 << 17)]
    tied: bool
    norm_eps: Epsilon
    rope_base: Annotated[int, Field(ge=2, le=10**9)]
    rope_scaling: RopeScalingSpec

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError("kv_heads must divide heads")
        if self.head_dim % 2:
            raise ValueError("rotary positions need an even head size")
        if self.head_dim * self.seq > MAX_ROTARY:
            raise ValueError(f"more than {MAX_ROTARY} rotary cosines and sines")
        return self

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        # The head's sums over the vocabulary are of parts; those over a width are of at most 2^15.
        gated = self.ffn * len(self.mlp_inputs)
        projected = (self.heads + 2 * self.kv_heads) * self.head_dim
        for name, inner in (("stacked ffn", gated), ("stacked attention", projected)):
            if inner > INNER_LIMIT:
                raise ValueError(f"{name} of {inner}, of which int32 sums hold {INNER_LIMIT}")
        row = self.heads * self.head_dim
        if self.qk_norm and not self.layer_kind.norms_heads and row > NORM_LIMIT:
            raise ValueError(f"a norm of {row} numbers, of which a sum holds {NORM_LIMIT}")
        largest = max(self.vocab, self.ffn, self.heads * self.head_dim) * self.width
        if largest > ELEMENTS_LIMIT:
            raise ValueError(f"a tensor of {largest} elements, more than {ELEMENTS_LIMIT}")
        return self

    @property
    def linears(self) -> dict[LinearName, tuple[int, int]]:
        """Outputs and inputs of each linear of a layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[LinearName, tuple[int, int]] = {
            "q": (queries, self.width),
            "k": (keys, self.width),
            "v": (keys, self.width),
            "o": (self.width, queries),
            "gate": (self.ffn, self.width),
            "up": (self.ffn, self.width),
            "down": (self.width, self.ffn),
        }
        read = ("q", "k", "v", "o", *self.mlp_inputs, "down")
        return {name: shape for name, shape in shapes.items() if name in read}

    @property
    def layer_kind(self) -> LayerKind:
        """How its layers are put together."""
        return LAYER_KINDS[self.kind]

    @property
    def mlp_inputs(self) -> tuple[LinearName, ...]:
        """The linears that its MLPs begin with."""
        return MLP_KINDS[self.mlp].inputs


class LoraSpec(Spec):
    """Low-rank adapters on a frozen model, the only parameters that are trained.

    Each target W of every layer becomes W + (alpha / rank) · B·A with A [rank, in] and B
    [out, rank] (Hu et al. 2022, arXiv:2106.09685). Targets stand in the order of `LINEARS`.
    """

    rank: Annotated[int, Field(ge=1, le=1 << 15)]
    alpha: PositiveScale
    targets: Annotated[
        tuple[LinearName, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(min_length=1, max_length=len(LINEARS)),
        PlainSerializer(list),
    ]

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if self.targets != tuple(name for name in LINEARS if name in self.targets):
            raise ValueError(f"targets are not in the order {', '.join(LINEARS)}, each once")
        return self

    @property
    def scale(self) -> float:
        """What adapters are multiplied by."""
        return float(self.alpha) / self.rank

    def check_model(self, model: ModelSpec) -> None:
        """Raises ValueError where a target is not of the model, or smaller than the rank."""
        for name in self.targets:
            if name not in model.linears:
                raise ValueError(f"lora.targets: a model with {model.mlp} has no {name}")
            smaller = min(model.linears[name])
            if self.rank > smaller:
                raise ValueError(f"lora.rank {self.rank} is above {smaller}, a dimension of {name}")
