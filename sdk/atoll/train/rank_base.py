"""A frozen base, as the first rank has it: whole, to each, once; or to each its rows.

Rule of this file: where there is memory for it, each rank has the base whole, and nothing of it
goes round. Where layers are computed again for want of memory, each has its rows, all ranks gather
what a product reads when it is read, and it goes with whoever read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.frozen_base import Base
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.ops import operations
from atoll.train.rank_shards import Lazily, gather_rows, hand_out_rows
from atoll.train.rank_wire import Document, received, send, wire_device
from atoll.train.shard_cuts import Cuts

_TYPES: Final = {str(t): t for t in (torch.float32, torch.int64, torch.int8)}


def base_document(base: Base) -> Document:
    """What `received_base` needs of one whose tensors `send_base` sends."""
    return {
        "products": {name: headers(frozen.parts) for name, frozen in base.products.items()},
        "widths": {name: list(frozen.widths) for name, frozen in base.products.items()},
        "others": dict(zip(base.others, headers(tuple(base.others.values())), strict=True)),
        "scale": base.scale,
    }


def send_base(base: Base) -> None:
    """Of the first rank, to all others."""
    for tensor in (part for frozen in base.products.values() for part in frozen.parts):
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
    return Base(products, dict(zip(others, values, strict=True)), document["scale"])


def headers(tensors: tuple[Tensor, ...]) -> list[list[object]]:
    """What `tensors_of` needs of tensors that are sent in their order."""
    return [[str(tensor.dtype), list(tensor.shape)] for tensor in tensors]


def tensors_of(headers: Iterator[list[object]] | list[list[object]]) -> Iterator[Tensor]:
    """What was sent of such."""
    for dtype, shape in headers:
        yield received(tuple(shape), _TYPES[str(dtype)])  # type: ignore[arg-type]  # of JSON


# --- each its rows ---


@dataclass(frozen=True, slots=True)
class _Rows:
    """This rank's rows of a product's parts, or of another tensor.

    Attributes:
        cuts: of the parts, by their places.
        parts: rows of each; some have none.
        widths: as `Frozen` has them; empty of another tensor.
    """

    cuts: Cuts
    parts: list[Tensor]
    widths: tuple[int, ...]


def piece_document(piece: Frozen | Tensor) -> Document:
    """What `BaseRows.take` needs of a piece at ranks that have none of it."""
    widths = piece.widths if isinstance(piece, Frozen) else ()
    return {"parts": headers(_parts_of(piece)), "widths": list(widths)}


def _parts_of(piece: Frozen | Tensor) -> tuple[Tensor, ...]:
    return piece.parts if isinstance(piece, Frozen) else (piece,)


class BaseRows:
    """This rank's rows of a base: of each matrix its share, and vectors, which are little, whole.

    Args:
        scale: see `Base`.
        device: where they lie.
    """

    def __init__(self, scale: float, device: torch.device) -> None:
        self._scale, self._device = scale, device
        self._rows: dict[str, _Rows] = {}
        self._vectors: dict[str, Tensor] = {}

    @property
    def bytes(self) -> int:
        """That this rank holds."""
        parts = (part for rows in self._rows.values() for part in rows.parts)
        held = (*parts, *self._vectors.values())
        return sum(part.numel() * part.element_size() for part in held)

    def take(self, name: str, document: Document, piece: Frozen | Tensor | None = None) -> None:
        """Takes this rank's rows of a piece that the first one has."""
        shapes = {str(at): tuple(shape) for at, (_, shape) in enumerate(document["parts"])}
        if shapes.keys() == {"0"} and len(shapes["0"]) == 1:
            self._take_vector(name, document, piece)
            return
        cuts = Cuts.evenly(shapes, dist.get_world_size())
        whole = (None,) * len(shapes) if piece is None else _parts_of(piece)
        parts = [
            hand_out_rows(cuts, str(at), tensor, _TYPES[dtype]).to(self._device)
            for at, (tensor, (dtype, _)) in enumerate(zip(whole, document["parts"], strict=True))
        ]
        self._rows[name] = _Rows(cuts, parts, tuple(document["widths"]))

    def _take_vector(self, name: str, document: Document, piece: Frozen | Tensor | None) -> None:
        if isinstance(piece, Tensor):
            send(piece)
            self._vectors[name] = piece
        else:
            (received_one,) = tensors_of(document["parts"])
            self._vectors[name] = received_one.to(self._device)

    def gathered(self, name: str) -> tuple[Tensor, ...]:
        """A piece's parts, whole, at every rank."""
        if name in self._vectors:
            return (self._vectors[name],)
        rows = self._rows[name]
        device, whole = wire_device(), []
        for at, part in enumerate(rows.parts):
            shape = rows.cuts.shapes[str(at)]
            out = torch.empty(shape, dtype=part.dtype, device=device)
            gather_rows(out, rows.cuts, str(at), part)
            whole.append(out.to(self._device))
        return tuple(whole)

    def base(self) -> Base:
        """What reads of it at one rank have to be those of all ranks, in one order."""
        return lazy_base(self.names, self.gathered, self._scale)

    @property
    def names(self) -> dict[str, tuple[int, ...]]:
        """Of the pieces, with their widths."""
        vectors = dict.fromkeys(self._vectors, ())
        return {name: rows.widths for name, rows in self._rows.items()} | vectors


def lazy_base(
    names: dict[str, tuple[int, ...]],
    gathered: Callable[[str], tuple[Tensor, ...]],
    scale: float,
) -> Base:
    """A base of which nothing is here but while it is read.

    Args:
        names: of its pieces, with widths as `Frozen` has them; without any of other tensors.
    """
    frozen = {name: widths for name, widths in names.items() if widths}
    return Base(
        products=Lazily(lambda name: Frozen(gathered(name), frozen[name]), list(frozen)),
        others=Lazily(lambda name: gathered(name)[0], [n for n in names if n not in frozen]),
        scale=scale,
    )
