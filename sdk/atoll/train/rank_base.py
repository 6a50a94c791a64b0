"""A frozen base, as the first rank sends it: whole, to each, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from atoll.numerics.frozen_base import Base
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import operations
from atoll.train.rank_wire import Document, received, send

_HEAD: Final = ""
"""No linear's name."""
_TYPES: Final = {str(t): t for t in (torch.float32, torch.int64, torch.int8)}


def base_document(base: Base) -> Document:
    """What `received_base` needs of one whose tensors `send_base` sends."""
    products = {**base.products, _HEAD: base.head}
    return {
        "products": {name: headers(frozen.parts) for name, frozen in products.items()},
        "widths": {name: list(frozen.widths) for name, frozen in products.items()},
        "others": dict(zip(base.others, headers(tuple(base.others.values())), strict=True)),
        "scale": base.scale,
    }


def send_base(base: Base) -> None:
    """Of the first rank, to all others."""
    products = {**base.products, _HEAD: base.head}
    for tensor in (part for frozen in products.values() for part in frozen.parts):
        send(tensor)
    for tensor in base.others.values():
        send(tensor)


def received_base(document: Document) -> Base:
    """What `send_base` sends."""
    device, widths = operations().device, document["widths"]
    products = {
        name: Frozen(tuple(t.to(device) for t in tensors_of(headers)), tuple(widths[name]))
        for name, headers in document["products"].items()
    }
    others = document["others"]
    values = (tensor.to(device) for tensor in tensors_of(others.values()))
    head = products.pop(_HEAD)
    return Base(products, head, dict(zip(others, values, strict=True)), document["scale"])


def headers(tensors: tuple[Tensor, ...]) -> list[list[object]]:
    """What `tensors_of` needs of tensors that are sent in their order."""
    return [[str(tensor.dtype), list(tensor.shape)] for tensor in tensors]


def tensors_of(headers: Iterator[list[object]] | list[list[object]]) -> Iterator[Tensor]:
    """What was sent of such."""
    for dtype, shape in headers:
        yield received(tuple(shape), _TYPES[str(dtype)])  # type: ignore[arg-type]  # of JSON
