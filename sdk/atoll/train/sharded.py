"""The first rank's view of what all ranks hold: mappings that read like a process's own.

Rule of this file: whatever is asked goes to all ranks as one order, and one order ends before the
next begins. A rank that is gone takes its rows with it, so that nothing of the group is left then:
`RankEnded` says so, and whoever catches it begins again from what is on disk.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from atoll.numerics.errors import MalformedState
from atoll.numerics.frozen_base import Base
from atoll.numerics.gradients import BatchGradients, StepInput
from atoll.numerics.kernels.interface import Frozen
from atoll.numerics.optimisers import OtherBits
from atoll.numerics.schedule import Recipe
from atoll.numerics.shards import Held, Shape
from atoll.numerics.state_layout import optimiser_of
from atoll.numerics.step import OptimiserStep, ShardedParams
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS
from atoll.train.rank_base import base_document, lazy_base, piece_document, send_base
from atoll.train.rank_steps import (
    Rank,
    bytes_of,
    is_reference,
    recipe_document,
    rows_of,
    send_batch,
    step_document,
)
from atoll.train.rank_wire import FIRST, send_document

T = TypeVar("T")
_BEATS = 4
"""In the time after which a rank counts as gone."""


class RankEnded(RuntimeError):
    """A rank is gone, and what it held: what was computed since the last checkpoint is lost."""


class Leader:
    """The first rank of a group that has met.

    Args:
        device: where this rank's rows lie.
        silence: after which others take this one to be gone: while they hold something, it makes
            itself heard.
        ended: is told once, when the group is no more, and why.
    """

    def __init__(
        self, device: torch.device, silence: timedelta, ended: Callable[[str], None]
    ) -> None:
        self.rank = Rank(device)
        self._ended, self._is_over = ended, False
        self._base_key: Hashable = None
        self._base_view: Base | None = None
        self._numbers, self._live, self._dropped = count(1), set[int](), list[int]()
        self._one_at_a_time, self._stop = threading.RLock(), threading.Event()
        self.heard = time.monotonic()
        pause = silence.total_seconds() / _BEATS
        threading.Thread(target=self._beat, args=(pause,), daemon=True).start()

    @property
    def holds_something(self) -> bool:
        """Whether anything is left that ranks hold for somebody."""
        return bool(self._live - set(self._dropped))

    def end(self) -> None:
        """No more orders."""
        self._is_over = True
        self._stop.set()

    def number(self) -> int:
        """Of a new group."""
        number = next(self._numbers)
        self._live.add(number)
        return number

    def drop(self, number: int) -> None:
        """Lets go of a group with the next order; called whenever nobody names it any more."""
        self._dropped.append(number)

    def order(self, kind: str, work: Callable[[Rank], T], **fields: Any) -> T:
        """Has all ranks do it.

        Raises:
            RankEnded: one is gone.
            OtherBits: all of them say so, and go on. After any other error nobody knows how far
                each of them came, and the group is no more.
        """
        with self._one_at_a_time:
            if self._is_over:
                raise RankEnded("the ranks are no group any more")
            dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
            self._live.difference_update(dropped)
            self.rank.let_go(dropped)
            try:
                send_document({"kind": kind, "dropped": dropped} | fields)
                result = work(self.rank)
            except OtherBits:
                raise
            except BaseException as error:
                self.end()
                self._ended(str(error) or repr(error))
                if isinstance(error, RuntimeError | OSError | EOFError):
                    raise RankEnded(f"a rank ended: {error}") from error
                raise
            self.rank.note_bytes()
            self.heard = time.monotonic()
            return result

    def give_base(self, base: Base | None) -> None:
        """Has all ranks have this one, where it is another than before."""
        if base is self.rank.base:
            return
        if base is None:
            self.order("no base", lambda rank: rank.whole_base(None))
            return

        def send(rank: Rank) -> None:
            send_base(base)
            rank.whole_base(base)

        self.order("base", send, **base_document(base))

    def base_in_rows(
        self,
        key: Hashable,
        pieces: Callable[[], Iterator[tuple[str, Frozen | Tensor]]],
        scale: float,
    ) -> Base:
        """One of which every rank has rows; what is read of it here is gathered, each time.

        Args:
            key: of what it is: that of the one before is not handed out again.
            pieces: gives `frozen_pieces`, whose errors it raises.

        Raises:
            RankEnded: a rank is gone.
        """
        if self._base_view is not None and self.rank.base is self._base_view:
            if self._base_key == key:
                return self._base_view
            self._base_view = None
        self.order("new base", lambda rank: rank.new_base(scale), scale=scale)
        for name, piece in pieces():
            self._hand_out(name, piece)
        names = rows_of(self.rank).names
        self.rank.base = self._base_view = lazy_base(names, self._base_piece, scale)
        self._base_key = key
        return self._base_view

    def _hand_out(self, name: str, piece: Frozen | Tensor) -> None:
        document = piece_document(piece)
        self.order(
            "base piece",
            lambda rank: rows_of(rank).take(name, document, piece),
            name=name,
            piece=document,
        )

    def _base_piece(self, name: str) -> tuple[Tensor, ...]:
        return self.order("get base", lambda rank: rows_of(rank).gathered(name), name=name)

    def most_bytes(self) -> list[int]:
        """That each rank has held at once."""
        return [most for most, _ in self._bytes()]

    def base_bytes(self) -> list[int]:
        """That each rank holds of a base in rows."""
        return [of_base for _, of_base in self._bytes()]

    def _bytes(self) -> list[list[int]]:
        def collect(rank: Rank) -> list[list[int]]:
            mine = bytes_of(rank)
            rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.gather(mine, rows, dst=FIRST)
            return [row.tolist() for row in rows]

        return self.order("bytes", collect)

    def _beat(self, pause: float) -> None:
        while not self._stop.wait(pause):
            with self._one_at_a_time:
                if self._is_over:
                    return
                if self.holds_something:
                    try:
                        self.order("still here", lambda _: None)
                    except RankEnded:
                        return


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the tensors of one model's parameters lie, and their slots.

    Attributes:
        shapes: of the parameters.
        inner: says which of them are stepped as a whole.
        apart: a folder for moments that lie in files, or beside a GPU; empty for memory.
    """

    leader: Leader
    shapes: Mapping[str, Shape]
    inner: InnerSpec
    apart: str = ""

    def __call__(self, group: str) -> Held:
        """An empty group of that name, as `Holds`."""
        number = self.leader.number()
        by_name = {n: optimiser_of(n, shape, self.inner) for n, shape in self.shapes.items()}
        # What leaves vectors to another optimiser reads a matrix as a whole.
        whole = [n for n, optimiser in by_name.items() if INNER_OPTIMISERS[optimiser].rest]
        apart = self.apart if group in {"m", "v"} else ""
        self.leader.order(
            "make",
            lambda rank: rank.make(number, self.shapes, whole, apart),
            group=number,
            shapes={name: list(shape) for name, shape in self.shapes.items()},
            whole=whole,
            apart=apart,
        )
        return Sharded(self.leader, number, self.shapes)


class Sharded(ShardedParams):
    """A group of tensors, by its number.

    Args:
        layout: shapes that it may have, in their order.
        names: that it has.
    """

    def __init__(
        self,
        leader: Leader,
        number: int,
        layout: Mapping[str, Shape],
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._leader, self._number, self._layout = leader, number, layout
        self._names = set(names)
        weakref.finalize(self, leader.drop, number)

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {name: shape for name, shape in self._layout.items() if name in self._names}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        number = self._number
        tensor = self._leader.order("get", lambda r: r.get(number, name), group=number, name=name)
        return cast(Tensor, tensor)

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        shape = tuple(tensor.shape)
        if self._layout.get(name) != shape or tensor.dtype != torch.float32:
            raise MalformedState(f"{name} {shape} is no tensor of the job's model")
        number = self._number
        self._leader.order("put", lambda r: r.put(number, name, tensor), group=number, name=name)
        self._names.add(name)

    def __delitem__(self, name: str) -> None:
        raise TypeError("ranks let go of a group as a whole")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self._names)

    def copied(self) -> Sharded:
        leader, number, of = self._leader, self._leader.number(), self._number
        leader.order("copy", lambda rank: rank.copy(number, of), group=number, of=of)
        return Sharded(leader, number, self._layout, frozenset(self._names))

    def chunk_hashes(self, prefix: str) -> list[bytes]:
        number = self._number
        leaves = self._leader.order(
            "hash", lambda rank: rank.hashes(number, prefix), group=number, prefix=prefix
        )
        return cast(list[bytes], leaves)

    def gradients(self, given: StepInput, recipe: Recipe) -> BatchGradients:
        leader, params, sums = self._leader, self._number, self._leader.number()
        gradients = Sharded(leader, sums, self._layout, frozenset(self._names))
        leader.give_base(recipe.base)

        def work(rank: Rank) -> tuple[float, ...]:
            send_batch(given)
            return rank.gradients(params, sums, given, recipe)

        fields = {"group": params, "sums": sums, "recipe": recipe_document(recipe)}
        losses = leader.order("gradients", work, **fields, **step_document(given))
        return BatchGradients(losses, gradients)

    def norm(self, gradients: Held, recipe: Recipe) -> float:
        sums, ops = _number_of(gradients), recipe.ops
        return self._leader.order(
            "norm", lambda r: r.norm(sums, ops), group=sums, by_reference=is_reference(ops)
        )

    def optimise(self, slots: Mapping[str, Held], gradients: Held, step: OptimiserStep) -> bool:
        params, sums = self._number, _number_of(gradients)
        by_slot = {slot: _number_of(held) for slot, held in slots.items()}
        return self._leader.order(
            "optimise",
            lambda rank: rank.optimise(params, by_slot, sums, step),
            group=params,
            slots=by_slot,
            sums=sums,
            count=step.count,
            scale=step.scale,
            rate=step.rate,
            recipe=recipe_document(step.recipe),
            is_compared=step.reference is not None,
        )


def _number_of(held: Held) -> int:
    if not isinstance(held, Sharded):
        raise TypeError("a step's tensors are all in shards, or none is")
    return held._number
