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
from torch import Tensor

from atoll.bits.codec.base import Row
from atoll.bits.codec.dither import DitherKey
from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of, seat_codec
from atoll.bits.outer import outer_step
from atoll.bits.pieces import ByteSlices
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
from atoll.merge.chunks import blocks
from atoll.merge.contributors import contributor_mean
from atoll.merge.exponents import next_exponents
from atoll.merge.gram import Int64Matrix
from atoll.merge.passes import gram
from atoll.merge.rules import Aggregate, Rule, aggregate

_PLAIN_BLOCK = 1 << 22
"""Values of fp32 updates that are merged at once: each takes a score of bytes meanwhile."""
Rows = dict[SeatIndex, Row]


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


@dataclass(frozen=True)
class MergedUpdate:
    """A round's merged update, before it moves the model.

    Attributes:
        inputs, weights: as `MergeResult` has them.
        numerators: integers by tensor, in steps of the grid; none where nobody was merged.
        denominator: of all of them.
        exponents: the next round's grid exponents of these tensors.
    """

    inputs: MergeInputs
    weights: dict[int, Fraction]
    numerators: dict[str, Tensor]
    denominator: int
    exponents: dict[str, int]

    def moves(self, state: GlobalState, manifest: Manifest) -> GlobalState:
        """The state the next round starts from, in the memory of the one that this round started
        from, which is overwritten: both of a large model are more than a machine may have.
        """
        if not self.numerators:
            return replace(state, round=state.round + 1)
        part = state.sent_part(manifest.codec)
        setting = self.denominator, self.exponents, manifest.outer
        return state.with_part(outer_step(part, self.numerators, *setting))


def merge(
    state: GlobalState,
    updates: Mapping[int, ByteSlices],
    *,
    facts: MergeFacts,
    data_seed: Digest,
    manifest: Manifest,
) -> MergeResult:
    """Merges the updates of a round into the next global state.

    Args:
        state: the global state the round started from; it stays as it is.
        updates: bytes by seat, of every candidate at least; those that are not canonical count as
            if they had not come.
        data_seed: of the round's training; updates are dithered under it.
        manifest: its robust rule, outer optimiser, grid bounds and minimum of providers.
    """
    found = merge_updates(state, updates, facts=facts, data_seed=data_seed, manifest=manifest)
    return MergeResult(found.moves(state.copied(), manifest), found.inputs, found.weights)


def merge_updates(
    state: GlobalState,
    updates: Mapping[int, ByteSlices],
    *,
    facts: MergeFacts,
    data_seed: Digest,
    manifest: Manifest,
) -> MergedUpdate:
    """The first half of `merge`, which needs neither the outer slots nor, once done, the updates.

    Arguments as `merge`.
    """
    sent = _candidates_of(updates, facts, manifest)
    rows = _decode(state, sent, data_seed, manifest)
    gram_nn = _gram(list(rows.values()), manifest)
    inputs = _inputs(list(rows), gram_nn, facts, manifest)
    return combine(state, rows, inputs, manifest, gram_nn)


def named_inputs(
    state: GlobalState,
    updates: Mapping[int, ByteSlices],
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
    rows: Mapping[SeatIndex, Row],
    inputs: MergeInputs,
    manifest: Manifest,
    gram_nn: Int64Matrix | None = None,
) -> MergedUpdate:
    """Merges the rows that `inputs` names, by the manifest's rule.

    Args:
        gram_nn: inner products of all of `rows`, where the caller has them; it saves a pass.
    """
    weights = dict.fromkeys(map(int, inputs.available), Fraction(0))
    if not inputs.merged:
        return MergedUpdate(inputs, weights, {}, 1, {})
    chosen = [rows[seat] for seat in inputs.merged]
    if gram_nn is not None:
        kept = [i for i, seat in enumerate(rows) if seat in inputs.merged]
        gram_nn = gram_nn[np.ix_(kept, kept)]
    found = _combine(chosen, manifest, inputs.f_prime, gram_nn)
    weights |= zip(map(int, inputs.merged), found.weights, strict=True)
    part, codec = state.sent_part(manifest.codec), codec_of(manifest.codec)
    layout = Layout.of_tensors(part.params)
    bounds = manifest.codec.min_exponent, manifest.codec.max_exponent
    # Merged rows vote, and no others: who is left out must not move the grid either.
    exponents = next_exponents(part.exponents, layout, chosen, codec.target, bounds)
    flat = codec.coordinates(found.numerators, found.denominator, layout.total)
    numerators = {
        name: torch.from_numpy(flat[span]).reshape(shape) for name, shape, span in layout.spans()
    }
    return MergedUpdate(inputs, weights, numerators, found.denominator, exponents)


def _candidates_of(
    updates: Mapping[int, ByteSlices], facts: MergeFacts, manifest: Manifest
) -> dict[SeatIndex, ByteSlices]:
    """What candidates sent, in ascending order of seat."""
    seats = candidates(facts, MergeTerms.of(manifest))
    return {seat: updates[seat] for seat in seats if seat in updates}


def _decode(
    state: GlobalState, sent: Mapping[SeatIndex, ByteSlices], data_seed: Digest, manifest: Manifest
) -> Rows:
    """Every update whose bytes are canonical, decoded as it is read."""
    part = state.sent_part(manifest.codec)
    layout, rows = Layout.of_tensors(part.params), Rows()
    for seat, data in sent.items():
        codec = seat_codec(manifest.codec, DitherKey(data_seed, seat))
        try:
            rows[seat] = codec.open(data, layout, part.exponents)
        except MalformedUpdate:
            continue
    return rows


def _gram(rows: Sequence[Row], manifest: Manifest) -> Int64Matrix | None:
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
    rows: Sequence[Row], manifest: Manifest, f: int, gram_nn: Int64Matrix | None
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


def _plain_mean(rows: Sequence[Row]) -> Aggregate:
    """Of fp32 rows: the sum of at most 256 over their number."""
    n, sums = len(rows), np.zeros(len(rows[0]), dtype=np.int64)
    for span in blocks(rows, _PLAIN_BLOCK):
        for row in rows:
            sums[span] += row[span]
    return Aggregate(sums, n, (Fraction(1, n),) * n)
