"""How far updates lie from their merge: held against lengths of what codecs decode."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
import torch
from tests.support.merging import all_standing
from tests.unit.aggregation.test_merge_round import (
    SEED,
    flipped,
    make_state,
    make_updates,
    merge_manifest,
    with_choice,
)
from torch import Tensor

from atoll.aggregation.distances import distances
from atoll.aggregation.merge_round import MergedUpdate, merge_updates
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.state import GlobalState
from atoll.protocol.codecs import CODECS
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import SeatIndex


def measured(
    state: GlobalState, updates: dict[int, bytes], manifest: Manifest
) -> tuple[MergedUpdate, dict[int, float]]:
    record = all_standing(updates, manifest)
    merged = merge_updates(state, updates, record=record, data_seed=SEED, manifest=manifest)
    layout = UpdateLayout.of(manifest, state.shapes, state.round)
    opened = {
        seat: layout.open(data, state, DitherKey(SEED, SeatIndex(seat)))
        for seat, data in updates.items()
    }
    return merged, distances(opened, merged, exponents=state.exponents, codec=manifest.codec)


def length(tensors: dict[str, Tensor]) -> float:
    return sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))


@pytest.mark.parametrize("kind", CODECS)
def test_a_distance_is_that_of_the_decoded_update(kind: str) -> None:
    """In the model's own units, whatever grid each tensor has."""
    rule = "contributor_mean" if CODECS[kind].is_sparse else "mean"
    manifest, state = with_choice(merge_manifest(f=0), rule, kind), make_state()
    grids = {"w": -10, "b": -7}
    if CODECS[kind].is_exact:
        grids = dict.fromkeys(grids, CODECS[kind].start)
    state = replace(state, exponents=grids)
    generator = torch.Generator().manual_seed(3)
    deltas = [
        {n: torch.randn(p.shape, generator=generator) / 20 for n, p in state.params.items()}
        for _ in range(3)
    ]
    codecs = {
        seat: seat_codec(manifest.codec, DitherKey(SEED, SeatIndex(seat))) for seat in (0, 2, 5)
    }
    updates = {
        seat: codec.encode(delta, grids)
        for (seat, codec), delta in zip(codecs.items(), deltas, strict=True)
    }
    merged, found = measured(state, updates, manifest)
    middle = {
        n: v.double() / merged.denominator * 2.0 ** grids[n] for n, v in merged.numerators.items()
    }
    layout = Layout.of_tensors(state.params)
    for seat, codec in codecs.items():
        sent = codec.decode(updates[seat], layout, grids)
        apart = length({name: sent[name].double() - middle[name] for name in middle})
        assert found[seat] == pytest.approx(apart / length(middle), rel=1e-6), seat
    assert sorted(found) == [0, 2, 5]


def test_who_moves_the_other_way_lies_furthest() -> None:
    state, manifest = make_state(), merge_manifest()
    updates = make_updates(state, range(7)) | {7: flipped(state, 1.0)}
    _, found = measured(state, updates, manifest)
    honest = [found[seat] for seat in range(7)]
    assert max(honest) < 1.5 * min(honest)
    assert found[7] > 1.5 * max(honest)


def test_of_a_round_that_moved_nothing_there_is_none() -> None:
    state, manifest = make_state(), merge_manifest()
    still = {seat: flipped(state, 0.0) for seat in range(6)}
    assert measured(state, still, manifest)[1] == {}
    few = make_updates(state, [0])
    assert measured(state, few, manifest)[1] == {}
