"""A job's settled rounds in order: a list that is never changed, and costs little to change.

Rule of this file: pure. A view is made anew for every event; a tuple of all its rounds would be
copied as often, which is quadratic in what a job has behind it. This is a tree of 32 branches: what
an event changes is one path from its root, and the rest is shared with the view before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, overload

from atoll.protocol.committee_draws import seeded
from atoll.protocol.settled_rounds import SettledRound

_BITS: Final = 5
_WIDTH: Final = 1 << _BITS
_Node = tuple[Any, ...]
"""Rounds where it is a leaf, nodes elsewhere."""


class RoundList(Sequence[SettledRound]):
    """Rounds 0, 1, and so on. Equal to another of equal rounds.

    Attributes:
        duties: how many the seeds of all of them drew. Every settlement asks for it.
    """

    __hash__ = None  # type: ignore[assignment]  # as its rounds have none
    __slots__ = ("_depth", "_length", "_root", "duties")

    def __init__(self, rounds: Iterable[SettledRound] = ()) -> None:
        leaf: _Node = ()
        self._root, self._depth, self._length, self.duties = leaf, 0, 0, 0
        for settled_round in rounds:
            grown = self.plus(settled_round)
            self._root, self._depth, self._length = grown._root, grown._depth, grown._length
            self.duties = grown.duties

    def plus(self, settled_round: SettledRound) -> RoundList:
        """The same with one more round behind the last."""
        is_full = self._length == _WIDTH << _BITS * self._depth
        root, depth = ((self._root,), self._depth + 1) if is_full else (self._root, self._depth)
        root = _put(root, depth, self._length, settled_round)
        return self._of(root, depth, self._length + 1, self.duties + seeded(settled_round.record))

    def changed(self, round: int, settled_round: SettledRound) -> RoundList:
        """The same with another in the place of a round that is there."""
        if not 0 <= round < self._length:
            raise IndexError(round)
        before, after = (seeded(each.record) for each in (self[round], settled_round))
        root = _put(self._root, self._depth, round, settled_round)
        return self._of(root, self._depth, self._length, self.duties - before + after)

    def span(self, first: int, end: int | None = None) -> Iterator[SettledRound]:
        """The rounds from `first` to, but not, `end`; those before are not looked at."""
        end = self._length if end is None else min(end, self._length)
        at = max(0, first)
        while at < end:
            leaf, start = self._leaf(at), at & _WIDTH - 1
            stop = min(_WIDTH, start + end - at)
            yield from leaf[start:stop]
            at += stop - start

    def count_to(self, moment: int, end_of: Callable[[SettledRound], int]) -> int:
        """How many of the first rounds have that end at or before a moment.

        Args:
            end_of: of the clock's; as each round is settled behind the one before, its ends are in
                the same order, and few rounds have to be looked at.
        """
        return bisect_right(self, moment, key=end_of)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> SettledRound: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SettledRound]: ...
    def __getitem__(self, index: int | slice) -> SettledRound | Sequence[SettledRound]:
        if isinstance(index, slice):
            first, end, step = index.indices(self._length)
            if step == 1:
                return tuple(self.span(first, end))
            return tuple(self[at] for at in range(first, end, step))
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(index)
        settled_round: SettledRound = self._leaf(at)[at & _WIDTH - 1]
        return settled_round

    def __iter__(self) -> Iterator[SettledRound]:
        return self.span(0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoundList) or self._length != other._length:
            return NotImplemented if not isinstance(other, RoundList) else False
        return self._root == other._root

    def __repr__(self) -> str:
        return f"RoundList({list(self)!r})"

    def _leaf(self, at: int) -> _Node:
        node = self._root
        for depth in range(self._depth, 0, -1):
            node = node[at >> _BITS * depth & _WIDTH - 1]
        return node

    @staticmethod
    def _of(root: _Node, depth: int, length: int, duties: int) -> RoundList:
        made = RoundList()
        made._root, made._depth, made._length, made.duties = root, depth, length, duties
        return made


def _put(node: _Node, depth: int, at: int, settled_round: SettledRound) -> _Node:
    """A node with a round in its place, which is one that it has, or the next."""
    branch = at >> _BITS * depth & _WIDTH - 1
    below = node[branch] if depth and branch < len(node) else ()
    child = _put(below, depth - 1, at, settled_round) if depth else settled_round
    return (*node[:branch], child, *node[branch + 1 :])
