"""The merges that lying committees do, as their worker processes run them.

Rule of this file: every function has the signature of `atoll.service.tasks.merge_again`. What
follows from the lie is worked out as from the truth, so that nothing but the lie is wrong.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from atoll.aggregation.merge_round import Grams, MergedUpdate, Products
from atoll.numerics.state import GlobalState
from atoll.protocol.types import Verdict
from atoll.service.duties.merge import DoMerge
from atoll.service.tasks import Lie, merged_verdict
from atoll_devnet.cheats.verifiers import (
    DROPPED,
    WRONG_COORDINATE,
    WRONG_EXPONENT,
    WRONG_GRAM,
    WRONG_LEAF,
)

_ENTRY: Final = struct.Struct(">q")
"""Of a chunk's inner products."""


@WRONG_COORDINATE.runs
def wrong_coordinate(command: DoMerge, store_dir: str) -> Verdict:
    """One number of what moves the model is another."""
    return merged_verdict(command, store_dir, lie=Lie(merge=_with_another_number))


@WRONG_EXPONENT.runs
def wrong_exponent(command: DoMerge, store_dir: str) -> Verdict:
    """The next exponent of one tensor is another."""
    return merged_verdict(command, store_dir, lie=Lie(merge=_with_another_exponent))


@WRONG_GRAM.runs
def wrong_gram(command: DoMerge, store_dir: str) -> Verdict:
    """The first update is said to be longer than it is, so that it is excluded.

    Sum and first chunk have the same lie: nothing in the statement contradicts it.
    """
    return merged_verdict(command, store_dir, lie=Lie(grams=_with_another_length))


@WRONG_LEAF.runs
def wrong_leaf(command: DoMerge, store_dir: str) -> Verdict:
    """The outer step has given another number, in one leaf of the next state."""
    return merged_verdict(command, store_dir, lie=Lie(state=_with_another_parameter))


@DROPPED.runs
def dropped(command: DoMerge, store_dir: str) -> Verdict:
    """The first update is left out, as if it were none."""
    return merged_verdict(replace(command, updates=command.updates[1:]), store_dir)


def _with_another_number(merged: MergedUpdate) -> MergedUpdate:
    if not merged.numerators:
        return merged
    name, values = next(iter(merged.numerators.items()))
    other = values.clone()
    number = int(other.reshape(-1)[0])
    other.reshape(-1)[0] = number - 1 if number > 0 else number + 1
    return replace(merged, numerators=merged.numerators | {name: other})


def _with_another_exponent(merged: MergedUpdate) -> MergedUpdate:
    if not merged.exponents:
        return merged
    name, exponent = next(iter(merged.exponents.items()))
    return replace(merged, exponents=merged.exponents | {name: exponent - 1})


def _with_another_length(grams: Grams) -> Grams:
    if grams.delta is None or not grams.delta.chunks:
        return grams
    whole, chunks = grams.delta.whole.copy(), grams.delta.chunks
    (first,) = _ENTRY.unpack_from(chunks)
    more = 4 * int(whole.max())
    whole[0, 0] += more
    return replace(grams, delta=Products(whole, _ENTRY.pack(first + more) + chunks[_ENTRY.size :]))


def _with_another_parameter(state: GlobalState) -> GlobalState:
    next(iter(state.params.values())).reshape(-1)[0] += 1
    return state
