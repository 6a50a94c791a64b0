"""Names and shapes: of the model's parameters, and of what a seat's state holds besides.

Parameters are one for one those of Hugging Face's LlamaForCausalLM, of ArceeForCausalLM where the
MLP has no gate, of Qwen2ForCausalLM with biases, of Qwen3ForCausalLM with normalised heads, and as
`LAYER_KINDS` names them. Needs no torch, so that anyone can tell the sizes of updates, states,
budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from atoll.protocol.families import LINEARS, LinearName
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS

MAX_HEADER_BYTES = 1 << 22
Shapes: TypeAlias = dict[str, tuple[int, ...]]
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
"""An adapter's matrices, behind their linear's name, as PEFT writes them."""
_ENDS = ("model.embed_tokens.weight", "lm_head.weight")


def param_shapes(spec: ModelSpec) -> Shapes:
    """Every parameter's shape by its Hugging Face name, names ascending; matrices are [out, in]."""
    linears = spec.linears
    shapes: Shapes = {"model.embed_tokens.weight": (spec.vocab, spec.width)}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{LINEARS[name]}.weight": shape for name, shape in linears.items()}
        shapes |= {f"{at}{norm}.weight": (spec.width,) for norm in spec.layer_kind.norms}
        if spec.qkv_bias:
            biased = (name for name in linears if name in {"q", "k", "v"})
            shapes |= {f"{at}{LINEARS[name]}.bias": linears[name][:1] for name in biased}
        if spec.qk_norm:
            by_head = spec.layer_kind.norms_heads
            gains = {n: (spec.head_dim,) if by_head else linears[n][:1] for n in ("q", "k")}
            shapes |= {f"{at}self_attn.{n}_norm.weight": gain for n, gain in gains.items()}
    shapes["model.norm.weight"] = (spec.width,)
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab, spec.width)
    return {name: shapes[name] for name in sorted(shapes)}


def param_count(spec: ModelSpec) -> int:
    """Parameters in total."""
    return sum(prod(shape) for shape in param_shapes(spec).values())


def adapter_shapes(spec: ModelSpec, lora: LoraSpec) -> Shapes:
    """Every adapter's shape by its name, names ascending: A is [rank, in], B is [out, rank]."""
    shapes: Shapes = {}
    for layer in range(spec.layers):
        for target in lora.targets:
            outputs, inputs = spec.linears[target]
            at = f"model.layers.{layer}.{LINEARS[target]}"
            shapes[at + DOWN], shapes[at + UP] = (lora.rank, inputs), (outputs, lora.rank)
    return {name: shapes[name] for name in sorted(shapes)}


def trained_shapes(manifest: Manifest) -> Shapes:
    """What a job trains: all of its model, or adapters."""
    if manifest.lora is None:
        return param_shapes(manifest.model)
    return adapter_shapes(manifest.model, manifest.lora)


def trained_count(manifest: Manifest) -> int:
    """Numbers that a job trains."""
    return sum(prod(shape) for shape in trained_shapes(manifest).values())


def products(spec: ModelSpec) -> list[tuple[str, ...]]:
    """The linears of a layer that read one input, and so are one product, by name."""
    groups: tuple[tuple[LinearName, ...], ...] = (
        ("q", "k", "v"),
        ("o",),
        spec.mlp_inputs,
        ("down",),
    )
    return [tuple(LINEARS[name] for name in group) for group in groups]


@dataclass(frozen=True, slots=True)
class SeatLayout:
    """The tensors of a seat's state, all fp32, by group; a slot is there only if a step reads it.

    Attributes:
        params: every parameter.
        m, v: first and second moments, of the parameters whose optimiser has them.
        feedback: what the codec excluded from the updates before, where it carries that over.
    """

    params: Shapes
    m: Shapes
    v: Shapes
    feedback: Shapes

    @property
    def residual(self) -> Shapes:
        """What the codec leaves out of this round's update: the next round's feedback."""
        return self.feedback

    @property
    def elements(self) -> int:
        """Numbers in total."""
        groups = (self.params, self.m, self.v, self.feedback, self.residual)
        return sum(prod(shape) for group in groups for shape in group.values())


def seat_layout(manifest: Manifest) -> SeatLayout:
    """What a seat's state holds in this job."""
    layout = optimiser_layout(trained_shapes(manifest), manifest.inner)
    return replace(layout, feedback=layout.params if manifest.codec.carries_feedback else {})


def optimiser_layout(params: Shapes, inner: InnerSpec) -> SeatLayout:
    """What steps of this optimiser read: a seat's state but for the codec's feedback."""
    slots: dict[str, Shapes] = {"m": {}, "v": {}}
    for name, shape in params.items():
        optimiser = INNER_OPTIMISERS[optimiser_of(name, shape, inner)]
        for slot in optimiser.slots_with(inner.momentum):
            slots[slot][name] = shape
    return SeatLayout(params, **slots, feedback={})


def optimiser_of(name: str, shape: Sequence[int], inner: InnerSpec) -> str:
    """Which optimiser a parameter has: some leave embedding, head and vectors to another."""
    rest = inner.properties.rest
    return rest if rest and (name in _ENDS or len(shape) == 1) else inner.optimizer


@dataclass(frozen=True, slots=True)
class MomentLayout:
    """The moments that a job's global state has and its updates tell; none where seats keep theirs.

    Attributes:
        m: shapes of the first moments.
        v: shapes of the second moments, of which sums are told.
    """

    m: Shapes
    v: Shapes

    @property
    def factored(self) -> int:
        """Numbers in all sums: of a matrix one a row and one a column, of a vector its elements."""
        return sum(sum(shape) for shape in self.v.values())


def moment_layout(manifest: Manifest, shapes: Shapes | None = None) -> MomentLayout:
    """What this job shares of the inner optimiser's moments, of parameters of these shapes."""
    if not manifest.shares_moments:
        return MomentLayout({}, {})
    shapes = trained_shapes(manifest) if shapes is None else shapes
    layout = optimiser_layout(shapes, manifest.inner)
    return MomentLayout(layout.m, layout.v)


def max_params_bytes(spec: ModelSpec) -> int:
    """No parameter set of this model is larger."""
    return 4 * param_count(spec) + MAX_HEADER_BYTES


def max_state_bytes(manifest: Manifest) -> int:
    """No global state (parameters, slots, moments) or seat state of this job is larger."""
    width, shared = 4 + 8 * len(manifest.outer.properties.slots), moment_layout(manifest)
    moments = first_moment_bytes(manifest) + 4 * shared.factored
    largest = max(width * trained_count(manifest) + moments, 4 * seat_layout(manifest).elements)
    return largest + MAX_HEADER_BYTES


def first_moment_bytes(manifest: Manifest) -> int:
    """Of the merged first moments: as they are where updates are, else integers of the grid."""
    count = sum(prod(shape) for shape in moment_layout(manifest).m.values())
    return count * manifest.codec.properties.bytes_per_value
