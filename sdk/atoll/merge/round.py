"""The merge of a settled round: accepted updates in, the next global model out.

Rule of this file: the result is a function of (global state, accepted bytes, caught, manifest,
which seats were replayed in full). Seats are taken in ascending order whatever order they come in,
everything is integers until the outer step, and so every verifier has the same digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from atoll.bits.codec.base import Integers
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of
from atoll.bits.outer import outer_step
from atoll.bits.state import GlobalState
from atoll.law.manifest import CONTRIBUTOR_MEAN, Manifest, RobustSpec
from atoll.law.settlement import f_prime
from atoll.merge.checks import full_replays
from atoll.merge.contributors import contributor_mean
from atoll.merge.exponents import next_exponents
from atoll.merge.gram import Int64Matrix, squared_distances
from atoll.merge.outliers import find_outliers
from atoll.merge.passes import gram
from atoll.merge.rules import Aggregate, Rule, aggregate, most_faults


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
        replayed_in_full: seats of the full-replay list (`seats_to_replay` over all available
            updates): verified as they are, they keep their weight even if they stand out.

    Raises:
        MalformedUpdate: bytes that are not canonical for this state's layout and grid.
    """
    part = state.sent_part(manifest.codec)
    rows = _decode_all(part, updates, manifest)
    if len(rows) < manifest.terms.min_providers:
        carried = replace(state, round=state.round + 1)
        return MergeResult(carried, False, 0, {seat: Fraction(0) for seat in rows}, ())
    seats, gram_nn = list(rows), _gram(list(rows.values()), manifest)
    robust = manifest.robust
    late: list[int] = []
    if gram_nn is not None:
        report = find_outliers(seats, squared_distances(gram_nn), robust.kappa, len(seats))
        furthest = [seat for seat in report.flagged if seat not in replayed_in_full]
        late = furthest[: f_prime(robust.f, caught, len(seats))]
    kept = [i for i, seat in enumerate(seats) if seat not in late]
    chosen = [rows[seats[i]] for i in kept]
    if gram_nn is not None:
        gram_nn = gram_nn[np.ix_(kept, kept)]
    f = f_prime(robust.f, caught, len(kept))
    found = _combine(chosen, robust, f, gram_nn)
    weights = dict.fromkeys(rows, Fraction(0)) | dict(
        zip((seats[i] for i in kept), found.weights, strict=True)
    )
    stepped = state.with_part(_step(part, found, chosen, manifest))
    return MergeResult(stepped, True, f, weights, tuple(sorted(late)))


def seats_to_replay(
    state: GlobalState, updates: Mapping[int, bytes], manifest: Manifest
) -> tuple[int, ...]:
    """Seats that are replayed in full before they are paid, most conspicuous first.

    Of fp32 updates, which have no Gram matrix, none are.

    Args:
        updates: all available, well-formed updates of the round, before any removal.

    Raises:
        MalformedUpdate: bytes that are not canonical; leave such a seat out and report it.
    """
    robust = manifest.robust
    rows = _decode_all(state.sent_part(manifest.codec), updates, manifest)
    gram_nn = _gram(list(rows.values()), manifest)
    if gram_nn is None:
        return ()
    return full_replays(list(rows), gram_nn, kappa=robust.kappa, f=robust.f)


def _decode_all(
    state: GlobalState, updates: Mapping[int, bytes], manifest: Manifest
) -> dict[int, Integers]:
    layout, row = Layout.of_tensors(state.params), codec_of(manifest.codec).row
    return {seat: row(updates[seat], layout, state.exponents) for seat in sorted(updates)}


def _gram(rows: Sequence[Integers], manifest: Manifest) -> Int64Matrix | None:
    """Inner products of the rows; None of fp32 rows, whose products overflow."""
    return None if manifest.codec.kind == "fp32" else gram(rows)


def _combine(
    rows: Sequence[Integers], robust: RobustSpec, f: int, gram_nn: Int64Matrix | None
) -> Aggregate:
    """Merges by the manifest's rule; one update or two by their mean, as no rule can do better."""
    if robust.rule == CONTRIBUTOR_MEAN:
        return contributor_mean(rows)
    if gram_nn is None:
        return _plain_mean(rows)
    if len(rows) <= 2:
        return aggregate(Rule.MEAN, rows, 0)
    rule = Rule(robust.base)
    borne = min(f, most_faults(rule, len(rows)))
    return aggregate(rule, rows, borne, nnm=robust.mixes, gram_nn=gram_nn)


def _plain_mean(rows: Sequence[Integers]) -> Aggregate:
    """Of fp32 rows: the sum of at most 256 over their number."""
    n = len(rows)
    return Aggregate(sum(rows[1:], start=rows[0]), n, (Fraction(1, n),) * n)


def _step(
    state: GlobalState, found: Aggregate, rows: Sequence[Integers], manifest: Manifest
) -> GlobalState:
    layout, codec = Layout.of_tensors(state.params), codec_of(manifest.codec)
    bounds = manifest.codec.min_exponent, manifest.codec.max_exponent
    exponents = next_exponents(state.exponents, layout, rows, codec.target, bounds)
    numerators = codec.coordinates(found.numerators, found.denominator, layout.total)
    by_name = {
        name: torch.from_numpy(numerators[span].astype(np.int64)).reshape(shape)
        for name, shape, span in layout.spans()
    }
    return outer_step(state, by_name, found.denominator, exponents, manifest.outer)
