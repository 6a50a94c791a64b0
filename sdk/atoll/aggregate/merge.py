"""The merge of a settled round: accepted updates in, the next global model out.

Rule of this file: the result is a function of (global state, accepted bytes, caught, manifest,
which seats were replayed in full). Seats are taken in ascending order whatever order they come in,
everything is integers until the outer step, and so every verifier has the same digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from atoll.aggregate.codec import decode_flat
from atoll.aggregate.exponents import next_exponents
from atoll.aggregate.gram import Int8Vector, squared_distances
from atoll.aggregate.layout import Layout
from atoll.aggregate.outliers import OutlierReport, find_outliers
from atoll.aggregate.passes import gram
from atoll.aggregate.rules import Aggregate, nnm_trimmed_mean
from atoll.protocol.manifest import Manifest
from atoll.protocol.settlement import f_prime
from atoll.train.outer import outer_step
from atoll.train.state import GlobalState


@dataclass(frozen=True)
class MergeResult:
    """What a merge made.

    Attributes:
        global_state: the state the next round starts from.
        merged: False where too few updates were accepted and the model was carried over.
        f_prime: faults the rule bore.
        weights: each accepted seat's exact share; 0 for `left_out`; they sum to 1 if merged.
        left_out: seats that stood out only after the removals, the f' furthest at most.
    """

    global_state: GlobalState
    merged: bool
    f_prime: int
    weights: dict[int, Fraction]
    left_out: tuple[int, ...]


def merge(
    state: GlobalState,
    updates: Mapping[int, bytes],
    *,
    caught: int,
    manifest: Manifest,
    replayed_in_full: Collection[int] = (),
) -> MergeResult:
    """Merges the accepted updates of a round into the next global state.

    Args:
        state: the global state the round started from.
        updates: canonical update bytes of every accepted seat, none of them diverged.
        caught: seats removed for confirmed wrong replay, wrong link or malformed bytes.
        manifest: its robust rule, outer optimiser, grid bounds and minimum of providers.
        replayed_in_full: seats of the full-replay list (`outliers_to_replay` over all available
            updates): verified as they are, they keep their weight even if they stand out.

    Raises:
        MalformedUpdate: bytes that are not canonical for this state's layout and grid.
    """
    rows = _decode_all(state, updates)
    if len(rows) < manifest.terms.min_providers:
        carried = replace(state, round=state.round + 1)
        return MergeResult(carried, False, 0, {seat: Fraction(0) for seat in rows}, ())
    seats, gram_nn = list(rows), gram(list(rows.values()))
    f = f_prime(manifest.robust.f, caught, len(seats))
    report = find_outliers(seats, squared_distances(gram_nn), manifest.robust.kappa, len(seats))
    late = [seat for seat in report.flagged if seat not in replayed_in_full][:f]
    kept = [i for i, seat in enumerate(seats) if seat not in late]
    f = f_prime(manifest.robust.f, caught, len(kept))
    aggregate = nnm_trimmed_mean(
        [rows[seats[i]] for i in kept], f, gram_nn=gram_nn[np.ix_(kept, kept)]
    )
    weights = dict.fromkeys(rows, Fraction(0)) | dict(
        zip((seats[i] for i in kept), aggregate.weights, strict=True)
    )
    stepped = _step(state, aggregate, manifest)
    return MergeResult(stepped, True, f, weights, tuple(sorted(late)))


def outliers_to_replay(
    state: GlobalState, updates: Mapping[int, bytes], manifest: Manifest
) -> OutlierReport:
    """Scores all available, well-formed updates of a round, before any removal.

    The seats in `.flagged` are replayed in full before they are paid.

    Raises:
        MalformedUpdate: bytes that are not canonical; leave such a seat out and report it.
    """
    rows = _decode_all(state, updates)
    distances_nn = squared_distances(gram(list(rows.values())))
    return find_outliers(list(rows), distances_nn, manifest.robust.kappa, manifest.robust.f)


def _decode_all(state: GlobalState, updates: Mapping[int, bytes]) -> dict[int, Int8Vector]:
    layout = Layout.of_tensors(state.params)
    return {seat: decode_flat(updates[seat], layout, state.exponents) for seat in sorted(updates)}


def _step(state: GlobalState, aggregate: Aggregate, manifest: Manifest) -> GlobalState:
    layout = Layout.of_tensors(state.params)
    numerators, denominator = aggregate.numerators, aggregate.denominator
    bounds = manifest.codec.min_exponent, manifest.codec.max_exponent
    exponents = next_exponents(state.exponents, layout, numerators, denominator, bounds)
    by_name = {
        name: torch.from_numpy(numerators[span].astype(np.int64)).reshape(shape)
        for name, shape, span in layout.spans()
    }
    return outer_step(state, by_name, denominator, exponents, manifest.outer)
