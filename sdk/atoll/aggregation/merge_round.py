"""The merge of a settled round: what the chain says and the updates in, the next global model out.

Rule of this file: the result is a function of (global state, the chain's record, bytes, manifest).
Who takes part is `merge_inputs`' to say. Seats are taken in ascending order whatever order they
come in, everything is integers until the outer step, and so every verifier has the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atoll.aggregation.chunks import blocks
from atoll.aggregation.contributors import contributor_mean
from atoll.aggregation.coordinatewise import BoolMatrix
from atoll.aggregation.exponents import Votes, moved, votes_of
from atoll.aggregation.factored_merge import merged_factored
from atoll.aggregation.gram import Int64Matrix, squared_distances
from atoll.aggregation.passes import chunk_grams, gram
from atoll.aggregation.rounding import as_fp32, moving, rounded
from atoll.aggregation.rules import Aggregate, aggregate, neighbours
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.factored import FactoredLayout, FactoredMoments
from atoll.numerics.codec.fp32 import UNIT_BITS
from atoll.numerics.codec.registry import codec_of
from atoll.numerics.codec.update_codec import VectorRow
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.moments import Moments
from atoll.numerics.outer import outer_step
from atoll.numerics.pieces import ByteSlices
from atoll.numerics.sections import StoredUpdate, UpdateLayout
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import MomentLayout, moment_layout
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import (
    MergeInputs,
    MergeRecord,
    MergeTerms,
    candidates,
    merge_inputs,
)
from atoll.protocol.merge_statement import is_stated
from atoll.protocol.method_spec import CodecSpec, RobustSpec
from atoll.protocol.types import Digest, SeatIndex

FEW_UPDATES: Final = 2
"""With this many updates or fewer no rule can outvote anyone: they are merged by their mean."""
_PLAIN_BLOCK = 1 << 22
"""Values of fp32 updates that are merged at once: each takes a score of bytes meanwhile."""


@dataclass(frozen=True, slots=True)
class Products:
    """Inner products of all pairs of rows.

    Attributes:
        whole: over all coordinates.
        chunks: over each chunk, where the merge is stated: rows up to the diagonal, big-endian.
    """

    whole: Int64Matrix
    chunks: bytes = b""


@dataclass(frozen=True, slots=True)
class Grams:
    """Inner products of all pairs of updates: of what moves the model, and of the first moments."""

    delta: Products | None
    first: Products | None


NO_GRAMS: Final = Grams(None, None)


@dataclass(frozen=True)
class MergeResult:
    """What a merge made.

    Attributes:
        global_state: the state the next round starts from.
        inputs: who took part; where it merged nobody, the model was carried over.
        weights: each mergeable seat's exact share, 0 of who was excluded; they sum to 1 if merged,
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
        moments: what the next round opens with, whose count is this round's steps alone: the first
            half of a merge may have a state without moments. None where there are none.
        moment_exponents: the next round's grid exponents of those.
        stated: what the merge statement says of each section, where there is one.
    """

    inputs: MergeInputs
    weights: dict[int, Fraction]
    numerators: dict[str, Tensor] = field(default_factory=dict)
    denominator: int = 1
    exponents: dict[str, int] = field(default_factory=dict)
    moments: Moments | None = None
    moment_exponents: dict[str, int] = field(default_factory=dict)
    stated: tuple[StatedSection, ...] = ()

    def moves(self, state: GlobalState, manifest: Manifest) -> GlobalState:
        """The state the next round starts from, in the memory of the one that this round started
        from, which is overwritten: both of a large model are more than a machine may have.
        """
        if not self.numerators:
            return replace(state, round=state.round + 1)
        part = state.sent_part(manifest.codec)
        stepped = outer_step(
            part,
            self.numerators,
            denominator=self.denominator,
            exponents=self.exponents,
            outer=manifest.outer,
        )
        moved = state.with_part(stepped)
        if self.moments is None:
            return moved
        moments = replace(self.moments, count=state.moments.count + self.moments.count)
        return replace(moved, moments=moments, moment_exponents=self.moment_exponents)


def merge(
    state: GlobalState,
    updates: Mapping[int, ByteSlices],
    *,
    record: MergeRecord,
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
    merged = merge_updates(state, updates, record=record, data_seed=data_seed, manifest=manifest)
    return MergeResult(merged.moves(state.copied(), manifest), merged.inputs, merged.weights)


def merge_updates(
    state: GlobalState,
    updates: Mapping[int, ByteSlices],
    *,
    record: MergeRecord,
    data_seed: Digest,
    manifest: Manifest,
    grams_as: Callable[[Grams], Grams] = lambda grams: grams,
) -> MergedUpdate:
    """The first half of `merge`, which needs neither the outer slots nor, once done, the updates.

    Arguments as `merge`.

    Args:
        grams_as: what the inner products are taken for; only a liar has another.
    """
    decoded = _decode(state, _candidates_of(updates, record, manifest), data_seed, manifest)
    grams = grams_as(_grams(list(decoded.values()), manifest))
    inputs = _inputs(list(decoded), grams, record, manifest)
    return combine(state, decoded, inputs, manifest, grams)


def combine(
    state: GlobalState,
    updates: Mapping[SeatIndex, StoredUpdate],
    inputs: MergeInputs,
    manifest: Manifest,
    grams: Grams = NO_GRAMS,
) -> MergedUpdate:
    """Merges the updates that `inputs` names, section by section, by the manifest's rule.

    Args:
        grams: inner products of all of `updates`, where the caller has them; they save passes.
    """
    weights = dict.fromkeys(map(int, inputs.mergeable), Fraction(0))
    if not inputs.merged:
        return MergedUpdate(inputs, weights)
    f, part, codec = inputs.f_prime, state.sent_part(manifest.codec), manifest.codec
    chosen = [updates[seat] for seat in inputs.merged]
    layout = Layout.of_tensors(part.params)
    counted = _counted(grams.delta, updates, inputs.merged)
    changes = Section(layout, [each.delta for each in chosen], counted)
    aggregate = changes.merged(manifest, f)
    weights |= zip(map(int, inputs.merged), aggregate.weights, strict=True)
    numerators, denominator = moving(aggregate, codec.properties.fineness)
    del aggregate
    votes = changes.votes(codec)
    result = MergedUpdate(
        inputs,
        weights,
        changes.tensors(numerators),
        denominator,
        changes.moved(part.exponents, codec, votes),
        stated=changes.stated(manifest, inputs, grams.delta, votes),
    )
    shared = moment_layout(manifest, state.shapes)
    if not shared.m:
        return result
    heard = [seat for seat in inputs.merged if seat not in inputs.momentum_excluded]
    rows = [row for seat in heard if (row := updates[seat].first) is not None]
    first = Section(Layout.of(shared.m), rows, _counted(grams.first, updates, heard))
    votes = first.votes(codec)
    return replace(
        result,
        moments=Moments(
            manifest.inner.steps,
            first.tensors(_first_moment(first.merged(manifest, f), codec)),
            dict(state.moment_exponents),
            **_factored([each.factored for each in chosen if each.factored is not None], shared, f),
        ),
        moment_exponents=first.moved(state.moment_exponents, codec, votes),
        stated=(*result.stated, *first.stated(manifest, inputs, grams.first, votes)),
    )


@dataclass(frozen=True, slots=True)
class StatedSection:
    """What a merge statement, and the merged update's last section, say of rows that were merged.

    Attributes:
        products: inner products of all mergeable rows.
        groups: of each merged row, the rows, among the merged, that are mixed in its place.
        votes: of each merged row about each tensor.
    """

    products: Products
    groups: BoolMatrix
    votes: Votes


@dataclass(frozen=True)
class Section:
    """One of the two sections that are merged by the rule: the rows that count in it.

    Attributes:
        gram_nn: their inner products, where they are known.
    """

    layout: Layout
    rows: Sequence[VectorRow]
    gram_nn: Int64Matrix | None

    def merged(self, manifest: Manifest, f: int) -> Aggregate:
        """What the rule makes of them, in coordinates."""
        aggregate = rule_applied(self.rows, manifest, f, self.gram_nn)
        turn, total = codec_of(manifest.codec).coordinates, self.layout.total
        return replace(
            aggregate, numerators=turn(aggregate.numerators, aggregate.denominator, total)
        )

    def votes(self, codec: CodecSpec) -> Votes:
        """Merged rows vote, and no others: who is excluded must not move the grid either."""
        target = codec_of(codec).target
        return () if target is None else votes_of(self.layout, self.rows, target)

    def moved(self, exponents: Mapping[str, int], codec: CodecSpec, votes: Votes) -> dict[str, int]:
        """The next round's exponents; this round's of a codec whose grid never moves."""
        if codec_of(codec).target is None:
            return dict(exponents)
        bounds = {"low": codec.min_exponent, "high": codec.max_exponent}
        return moved(exponents, self.layout, votes, **bounds)

    def stated(
        self, manifest: Manifest, inputs: MergeInputs, products: Products | None, votes: Votes
    ) -> tuple[StatedSection, ...]:
        """What a statement says of it; nothing where the merge has none."""
        if products is None or self.gram_nn is None or not products.chunks:
            return ()
        groups = groups_of(self.gram_nn, manifest.robust, inputs.f_prime)
        return (StatedSection(products, groups, votes),)

    def tensors(self, flat: npt.NDArray[Any]) -> dict[str, Tensor]:
        """Numbers in the order of the layout, by tensor."""
        spans = self.layout.spans()
        return {name: torch.from_numpy(flat[span]).reshape(shape) for name, shape, span in spans}


def _counted(
    products: Products | None, seats: Iterable[SeatIndex], kept: Collection[SeatIndex]
) -> Int64Matrix | None:
    """Rows and columns of the seats that count."""
    rows = [row for row, seat in enumerate(seats) if seat in kept]
    return None if products is None else products.whole[np.ix_(rows, rows)]


def groups_of(gram_nn: Int64Matrix, robust: RobustSpec, f: int) -> BoolMatrix:
    """Which merged rows are mixed in place of each, as the rule says."""
    if not robust.properties.mixes or len(gram_nn) <= FEW_UPDATES:
        return np.eye(len(gram_nn), dtype=np.bool_)
    return neighbours(squared_distances(gram_nn), f)


def _first_moment(aggregate: Aggregate, codec: CodecSpec) -> npt.NDArray[Any]:
    if codec.properties.is_exact:
        return as_fp32(aggregate.numerators, aggregate.denominator, UNIT_BITS)
    return rounded(aggregate.numerators, aggregate.denominator)


def _factored(chosen: Sequence[FactoredMoments], shared: MomentLayout, f: int) -> dict[str, Any]:
    """Merged rows, columns and whole second moments by name."""
    if not shared.v:
        return {}
    places = FactoredLayout(Layout.of(shared.v))
    return named_sums(merged_factored(f, chosen, places), places)


def named_sums(merged: npt.NDArray[Any], places: FactoredLayout) -> dict[str, Any]:
    """Rows, columns and whole second moments by name."""
    sums = torch.from_numpy(merged)
    parts: dict[str, dict[str, Tensor]] = {"rows": {}, "columns": {}, "whole": {}}
    for name, shape, span in places.spans():
        if len(shape) == 1:
            parts["whole"][name] = sums[span].clone()
            continue
        parts["rows"][name] = sums[span][: shape[0]].clone()
        parts["columns"][name] = sums[span][shape[0] :].clone()
    return parts


def _candidates_of(
    updates: Mapping[int, ByteSlices], record: MergeRecord, manifest: Manifest
) -> dict[SeatIndex, ByteSlices]:
    """What candidates sent, in ascending order of seat."""
    seats = candidates(record, MergeTerms.of(manifest))
    return {seat: updates[seat] for seat in seats if seat in updates}


def _decode(
    state: GlobalState, sent: Mapping[SeatIndex, ByteSlices], data_seed: Digest, manifest: Manifest
) -> dict[SeatIndex, StoredUpdate]:
    """Every update whose bytes are canonical, decoded as it is read."""
    layout = UpdateLayout.of(manifest, state.shapes, state.round)
    stored_updates: dict[SeatIndex, StoredUpdate] = {}
    for seat, data in sent.items():
        try:
            stored_updates[seat] = layout.open(data, state, DitherKey(data_seed, seat))
        except MalformedUpdate:
            continue
    return stored_updates


def _grams(updates: Sequence[StoredUpdate], manifest: Manifest) -> Grams:
    """Inner products of the rows; none of exact values, whose products overflow."""
    if manifest.codec.properties.is_exact:
        return NO_GRAMS
    count = _chunk_products if is_stated(manifest) else _products
    first = [each.first for each in updates if each.first is not None]
    return Grams(count([each.delta for each in updates]), count(first) if first else None)


def _products(rows: Sequence[VectorRow]) -> Products:
    return Products(gram(rows))


def _chunk_products(rows: Sequence[VectorRow]) -> Products:
    whole, chunks = np.zeros((len(rows), len(rows)), dtype=np.int64), list[bytes]()
    lower = np.tril_indices(len(rows))
    for part in chunk_grams(rows) if rows else ():
        whole += part
        chunks.append(part[lower].astype(">i8").tobytes())
    return Products(whole, b"".join(chunks))


def _inputs(
    seats: Sequence[SeatIndex], grams: Grams, record: MergeRecord, manifest: Manifest
) -> MergeInputs:
    compared = [each.whole.tolist() for each in (grams.delta, grams.first) if each is not None]
    return merge_inputs(record, seats, compared, MergeTerms.of(manifest))


def rule_applied(
    rows: Sequence[VectorRow], manifest: Manifest, f: int, gram_nn: Int64Matrix | None
) -> Aggregate:
    """Merges by the manifest's rule; one update or two by their mean, as no rule can do better."""
    robust = manifest.robust
    if robust.properties.is_sparse:
        return contributor_mean(rows)
    if manifest.codec.properties.is_exact:
        return _plain_mean(rows)
    if len(rows) <= FEW_UPDATES:
        return aggregate("mean", rows, 0)
    return aggregate(robust.rule, rows, f, gram_nn=gram_nn)


def _plain_mean(rows: Sequence[VectorRow]) -> Aggregate:
    """Of fp32 rows: the sum of at most 256 over their number."""
    n, sums = len(rows), np.zeros(len(rows[0]), dtype=np.int64)
    for span in blocks(rows, _PLAIN_BLOCK):
        for row in rows:
            sums[span] += row[span]
    return Aggregate(sums, n, (Fraction(1, n),) * n)
