"""The merge of a settled round: what the chain says and the updates in, the next global model out.

Rule of this file: the result is a function of (global state, facts of the chain, bytes, manifest).
Who takes part is `merge_inputs`' to say. Seats are taken in ascending order whatever order they
come in, everything is integers until the outer step, and so every verifier has the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from atoll.bits.codec.base import Integers
from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of, seat_codec
from atoll.bits.outer import outer_step
from atoll.bits.state import GlobalState
from atoll.errors import MalformedUpdate
from atoll.law.manifest import CONTRIBUTOR_MEAN, Manifest
from atoll.law.merge_inputs import (
    FEW_UPDATES,
    MergeFacts,
    MergeInputs,
    MergeTerms,
    candidates,
    merge_inputs,
)
from atoll.law.words import Digest, SeatIndex
from atoll.merge.contributors import contributor_mean
from atoll.merge.exponents import next_exponents
from atoll.merge.gram import Int64Matrix
from atoll.merge.passes import gram
from atoll.merge.rules import Aggregate, Rule, aggregate

Rows = dict[SeatIndex, Integers]


@dataclass(frozen=True)
class MergeResult:
    """What a merge made.

    Attributes:
        global_state: the state the next round starts from.
        inputs: who took part; where it merged nobody, the model was carried over.
        weights: each available seat's exact share, 0 of who was left out; they sum to 1 if merged,
            or to less where a rule clips.
    """

    global_state: GlobalState
    inputs: MergeInputs
    weights: dict[int, Fraction]

    @property
    def merged(self) -> bool:
        """Whether the model moved at all."""
        return bool(self.inputs.merged)


def merge(
    state: GlobalState,
    updates: Mapping[int, bytes],
    *,
    facts: MergeFacts,
    data_seed: Digest,
    manifest: Manifest,
) -> MergeResult:
    """Merges the updates of a round into the next global state.

    Args:
        state: the global state the round started from.
        updates: bytes by seat, of every candidate at least; those that are not canonical count as
            if they had not come.
        data_seed: of the round's training; updates are dithered under it.
        manifest: its robust rule, outer optimiser, grid bounds and minimum of providers.
    """
    sent = _candidates_of(updates, facts, manifest)
    rows = _decode(state, sent, data_seed, manifest)
    gram_nn = _gram(list(rows.values()), manifest)
    inputs = _inputs(list(rows), gram_nn, facts, manifest)
    return combine(state, rows, inputs, manifest, gram_nn)


def named_inputs(
    state: GlobalState,
    updates: Mapping[int, bytes],
    *,
    facts: MergeFacts,
    data_seed: Digest,
    manifest: Manifest,
) -> MergeInputs:
    """Who would be merged as things stand, and who is audited in full; arguments as `merge`."""
    sent = _candidates_of(updates, facts, manifest)
    rows = _decode(state, sent, data_seed, manifest)
    return _inputs(list(rows), _gram(list(rows.values()), manifest), facts, manifest)


def combine(
    state: GlobalState,
    rows: Mapping[SeatIndex, Integers],
    inputs: MergeInputs,
    manifest: Manifest,
    gram_nn: Int64Matrix | None = None,
) -> MergeResult:
    """Merges the rows that `inputs` names, by the manifest's rule.

    Args:
        gram_nn: inner products of all of `rows`, where the caller has them; it saves a pass.
    """
    weights = dict.fromkeys(map(int, inputs.available), Fraction(0))
    if not inputs.merged:
        return MergeResult(replace(state, round=state.round + 1), inputs, weights)
    part = state.sent_part(manifest.codec)
    chosen = [rows[seat] for seat in inputs.merged]
    if gram_nn is not None:
        kept = [i for i, seat in enumerate(rows) if seat in inputs.merged]
        gram_nn = gram_nn[np.ix_(kept, kept)]
    found = _combine(chosen, manifest, inputs.f_prime, gram_nn)
    weights |= zip(map(int, inputs.merged), found.weights, strict=True)
    return MergeResult(state.with_part(_step(part, found, chosen, manifest)), inputs, weights)


def _candidates_of(
    updates: Mapping[int, bytes], facts: MergeFacts, manifest: Manifest
) -> dict[SeatIndex, bytes]:
    """What candidates sent, in ascending order of seat."""
    seats = candidates(facts, MergeTerms.of(manifest))
    return {seat: updates[seat] for seat in seats if seat in updates}


def _decode(
    state: GlobalState, sent: Mapping[SeatIndex, bytes], data_seed: Digest, manifest: Manifest
) -> Rows:
    """The integers of every update whose bytes are canonical."""
    part = state.sent_part(manifest.codec)
    layout, rows = Layout.of_tensors(part.params), Rows()
    for seat, data in sent.items():
        codec = seat_codec(manifest.codec, DitherKey(data_seed, seat))
        try:
            rows[seat] = codec.decode_flat(data, layout, part.exponents)
        except MalformedUpdate:
            continue
    return rows


def _gram(rows: Sequence[Integers], manifest: Manifest) -> Int64Matrix | None:
    """Inner products of the rows; None of fp32 rows, whose products overflow."""
    return None if manifest.codec.kind == "fp32" else gram(rows)


def _inputs(
    seats: Sequence[SeatIndex],
    gram_nn: Int64Matrix | None,
    facts: MergeFacts,
    manifest: Manifest,
) -> MergeInputs:
    plain = None if gram_nn is None else gram_nn.tolist()
    return merge_inputs(facts, seats, plain, MergeTerms.of(manifest))


def _combine(
    rows: Sequence[Integers], manifest: Manifest, f: int, gram_nn: Int64Matrix | None
) -> Aggregate:
    """Merges by the manifest's rule; one update or two by their mean, as no rule can do better."""
    robust = manifest.robust
    if robust.rule == CONTRIBUTOR_MEAN:
        return contributor_mean(rows)
    if manifest.codec.kind == "fp32":
        return _plain_mean(rows)
    if len(rows) <= FEW_UPDATES:
        return aggregate(Rule.MEAN, rows, 0)
    return aggregate(Rule(robust.base), rows, f, nnm=robust.mixes, gram_nn=gram_nn)


def _plain_mean(rows: Sequence[Integers]) -> Aggregate:
    """Of fp32 rows: the sum of at most 256 over their number."""
    n = len(rows)
    return Aggregate(sum(rows[1:], start=rows[0]), n, (Fraction(1, n),) * n)


def _step(
    state: GlobalState, found: Aggregate, rows: Sequence[Integers], manifest: Manifest
) -> GlobalState:
    layout, codec = Layout.of_tensors(state.params), codec_of(manifest.codec)
    bounds = manifest.codec.min_exponent, manifest.codec.max_exponent
    # Merged rows vote, and no others: who is left out must not move the grid either.
    exponents = next_exponents(state.exponents, layout, rows, codec.target, bounds)
    numerators = codec.coordinates(found.numerators, found.denominator, layout.total)
    by_name = {
        name: torch.from_numpy(numerators[span]).reshape(shape)
        for name, shape, span in layout.spans()
    }
    return outer_step(state, by_name, found.denominator, exponents, manifest.outer)
