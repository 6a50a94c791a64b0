"""The frozen model under adapters: what a job reads of it at every step, and never changes.

Rule of this file: the base is held once. Of a linear only what products read is kept (in exact mode
one int8 slice, of the head two); embedding, gains and biases stay fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import Ops
from atoll.numerics.state import Tensors
from atoll.numerics.state_layout import products
from atoll.numerics.tensors import TreeRoot
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import Digest

HEAD: Final = "lm_head"
"""Among a base's products, of tied models too."""
_EMBEDDING: Final = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Base:
    """A model whose weights are frozen.

    Attributes:
        products: the linears that read one input, by the name of the first, without ".weight"; the
            head, of the logits, among them.
        others: embedding, gains and biases, by their names.
        scale: what adapters are multiplied by: alpha / rank.
    """

    products: Mapping[str, Frozen]
    others: Mapping[str, Tensor]
    scale: float

    @property
    def head(self) -> Frozen:
        return self.products[HEAD]


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
    return freeze_all(checked(weights, root), model, ops, scale=lora.scale)


def checked(weights: Iterable[tuple[str, Tensor]], root: Digest) -> Iterator[tuple[str, Tensor]]:
    """The weights; behind the last one MalformedState where they have another root."""
    tree_root = TreeRoot()
    for name, tensor in weights:
        tree_root.add(name, tensor)
        yield name, tensor
    if tree_root.digest() != root:
        raise MalformedState("the frozen weights have another root than the manifest says")


def freeze_all(
    weights: Iterable[tuple[str, Tensor]], model: ModelSpec, ops: Ops, *, scale: float = 0.0
) -> Base:
    """A base of weights that nobody has to vouch for; without adapters it needs no scale.

    Weights that are trained are frozen for the time of a generation, whose every token would
    otherwise round them anew.
    """
    linear_products: dict[str, Frozen] = {}
    others: Tensors = {}
    for name, piece in frozen_pieces(weights, model, ops):
        if isinstance(piece, Frozen):
            linear_products[name] = piece
        else:
            others[name] = piece
    return Base(linear_products, others, scale)


def frozen_pieces(
    weights: Iterable[tuple[str, Tensor]], model: ModelSpec, ops: Ops
) -> Iterator[tuple[str, Frozen | Tensor]]:
    """What a base consists of, each product and other tensor as soon as its weights are read."""
    waiting = _with_members(groups_of(model) + ([] if model.tied else [(f"{HEAD}.weight",)]))
    linears: Tensors = {}
    for name, own in weights:
        group, tensor = waiting.get(name), own.to(ops.device)
        if group is None:
            yield name, tensor
            if model.tied and name == _EMBEDDING:
                yield HEAD, ops.freeze_head(tensor)
            continue
        linears[name] = tensor
        if all(member in linears for member in group):
            members = [linears.pop(member) for member in group]
            first = group[0].removesuffix(".weight")
            yield first, ops.freeze_head(members[0]) if first == HEAD else ops.freeze(members)


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
