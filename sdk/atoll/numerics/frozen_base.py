"""The frozen model under adapters: what a job reads of it at every step, and never changes.

Rule of this file: the base is held once. Of a linear only what products read is kept (in exact mode
one int8 slice, of the head two); embedding, gains and biases stay fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import Ops
from atoll.numerics.state import Tensors
from atoll.numerics.state_layout import products
from atoll.numerics.tensors import TreeRoot
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import Digest

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Base:
    """A model whose weights are frozen.

    Attributes:
        products: the linears that read one input, by the name of the first, without ".weight".
        head: of the logits.
        others: embedding, gains and biases, by their names.
        scale: what adapters are multiplied by: alpha / rank.
    """

    products: dict[str, Frozen]
    head: Frozen
    others: Tensors
    scale: float


def freeze(
    weights: Iterable[tuple[str, Tensor]],
    root: Digest,
    model: ModelSpec,
    lora: LoraSpec,
    ops: Ops,
) -> Base:
    """A base on the operations' device, from its weights in ascending order of name; each is let
    go once it is read.

    Args:
        weights: the model's own, as `layout.param_shapes` says.
        root: that they must have.

    Raises:
        MalformedState: they have another root, or whatever `weights` raises.
    """
    tree_root = TreeRoot()

    def hashed() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights:
            tree_root.add(name, tensor)
            yield name, tensor

    base = freeze_all(hashed(), model, ops, scale=lora.scale)
    if tree_root.digest() != root:
        raise MalformedState("the frozen weights have another root than the manifest says")
    return base


def freeze_all(
    weights: Iterable[tuple[str, Tensor]], model: ModelSpec, ops: Ops, *, scale: float = 0.0
) -> Base:
    """A base of weights that nobody has to vouch for; without adapters it needs no scale.

    Weights that are trained are frozen for the time of a generation, whose every token would
    otherwise round them anew.
    """
    waiting = _with_members(groups_of(model) + ([] if model.tied else [(_HEAD,)]))
    linear_products: dict[str, Frozen] = {}
    linears: Tensors = {}
    others: Tensors = {}
    for name, own in weights:
        group, tensor = waiting.get(name), own.to(ops.device)
        if group is None:
            others[name] = tensor
            continue
        linears[name] = tensor
        if all(member in linears for member in group):
            members = [linears.pop(member) for member in group]
            kind = ops.freeze_head(members[0]) if group == (_HEAD,) else ops.freeze(members)
            linear_products[group[0].removesuffix(".weight")] = kind
    head = ops.freeze_head(others[_EMBEDDING]) if model.tied else linear_products.pop("lm_head")
    return Base(linear_products, head, others, scale)


def groups_of(model: ModelSpec) -> list[tuple[str, ...]]:
    """The linears of all layers, those together that read one input."""
    return [
        tuple(f"model.layers.{layer}.{name}.weight" for name in group)
        for layer in range(model.layers)
        for group in products(model)
    ]


def _with_members(groups: list[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Of each linear, those that it is one product with."""
    return {name: group for group in groups for name in group}
