"""A merged update and its statement: the next state of who has no update, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import cid
from tests.vectors.generate_merge import DATA_SEED, SEATS, manifest_of, model_of, updates_of

from atoll.aggregation import chunks, merge_spots, passes, stated_merge
from atoll.aggregation.merge_round import MergedUpdate, merge_updates
from atoll.aggregation.merge_spots import Spot, SpotCheck, chunk, drawn, place
from atoll.aggregation.stated_merge import (
    MergedLayout,
    applied,
    checked_inputs,
    chunks_of,
    merged_pieces,
    open_merged,
    statement_of,
)
from atoll.errors import MalformedUpdate
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import joined
from atoll.numerics.shown_pieces import shown_length
from atoll.numerics.state import GlobalState
from atoll.protocol.codecs import CODECS
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.merge_statement import MergeStatement, SectionStatement, is_stated
from atoll.protocol.types import Bitmap, SeatIndex, bits

EVERYONE = Bitmap((1 << SEATS) - 1)
STATED = ("mean", "median", "trimmed_mean", "nnm_mean", "nnm_median", "nnm_trimmed_mean")
ROUNDED = [name for name, codec in CODECS.items() if codec.fineness is not None]


class Round:
    """A round of seven seats, merged and stated."""

    def __init__(self, manifest: Manifest, model: GlobalState, **given: Any) -> None:
        self.manifest, self.model = manifest, model
        sections = updates_of(manifest, model, given.get("odd", {}), given.get("loud"))
        self.updates = {seat: joined(parts) for seat, parts in sections.items()}
        done = {SeatIndex(seat): manifest.segments for seat in self.updates}
        self.record = MergeRecord(EVERYONE, 3, [EVERYONE, EVERYONE], done)
        self.merged = self._merge(self.updates)
        self.after = self.merged.moves(model.copied(), manifest)
        rows = len(self.merged.inputs.mergeable)
        self.layout = MergedLayout.of(manifest, model.shapes, model.round, rows)
        self.update = b"".join(merged_pieces(self.merged, self.layout))
        self.statement = self._stated(self.merged, self.update)

    def _merge(self, updates: Mapping[int, bytes]) -> MergedUpdate:
        about = {"record": self.record, "data_seed": DATA_SEED, "manifest": self.manifest}
        return merge_updates(self.model, updates, **about)

    def _stated(self, merged: MergedUpdate, update: bytes) -> MergeStatement:
        return statement_of(merged, self.after, root_of_update(update), cid("merged"))

    def inputs(self, statement: MergeStatement):
        return checked_inputs(statement, self.model, self.record, self.manifest)

    def opened(self, update: bytes) -> MergedUpdate:
        return open_merged(update, self.layout, self.statement, self.inputs(self.statement))

    def check(self, update: bytes, statement: MergeStatement | None = None) -> None:
        """Compares every spot."""
        stated = statement or self.statement
        compared = SpotCheck(self.layout, stated, update, self.manifest, DATA_SEED)
        for spot in self.spots():
            compared.compare(spot, self.updates)

    def spots(self) -> set[Spot]:
        """All that can be drawn."""
        layout, updates = self.layout, self.layout.updates
        places = [
            place(layout, s, n) for s in layout.merged_sections for n in range(updates.places(s))
        ]
        vectors = enumerate(updates.vectors)
        chunks = [chunk(layout, s, n) for s, each in vectors for n in range(chunks_of(each))]
        return {spot for spot in (*places, *chunks) if spot.start < spot.stop}


@pytest.fixture(autouse=True)
def chunks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sixteen coordinates, so that a small model has several; pieces are of sixteen, too."""
    for module in (chunks, passes, stated_merge, merge_spots):
        monkeypatch.setattr(module, "CHUNK", 1 << 16)


def round_of(kind: str = "grid8", rule: str = "nnm_median", **given: Any) -> Round:
    manifest = manifest_of(kind, rule, "nesterov", inner="adamw", **given)
    return Round(manifest, model_of(manifest, 4), **given)


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("rule", STATED)
def test_who_has_no_update_comes_to_the_same_state(kind: str, rule: str) -> None:
    round = round_of(kind, rule)
    data = round.statement.to_bytes()
    statement = MergeStatement.from_bytes(data, round.layout.shape)
    assert statement == round.statement
    merged = open_merged(round.update, round.layout, statement, round.inputs(statement))
    after = applied(merged, round.model.copied(), round.manifest)
    assert after.digest() == round.after.digest()
    assert after.to_bytes() == round.after.to_bytes()
    assert after.roots() == statement.parts
    round.check(round.update)


def test_whose_moments_are_excluded_is_mergeable_and_not_heard() -> None:
    round = round_of("grid8", "median", loud=4)
    assert bits(round.statement.mergeable & ~round.statement.heard) == [4]
    round.opened(round.update)
    round.check(round.update)


@pytest.mark.parametrize("name", ["sparse", "dct", "fp32"])
def test_other_codecs_have_no_statement(name: str) -> None:
    rule = "mean" if name == "fp32" else "contributor_mean"
    round = manifest_of(name, rule, "nesterov", inner="adamw")
    assert not is_stated(round)
    assert not is_stated(manifest_of("grid8", "krum", "nesterov"))


def test_two_seats_are_merged_by_their_mean_without_groups() -> None:
    round = round_of("grid8", "nnm_median", f=0)
    three = replace(round.record, votes=[Bitmap(0b11), Bitmap(0b11)])
    round.record = three
    merged = round._merge(round.updates)
    assert [list(row) for row in merged.stated[0].groups.tolist()] == [[True, False], [False, True]]


# --- lies ---


def with_delta(statement: MergeStatement, **changes: Any) -> MergeStatement:
    return replace(statement, delta=replace(statement.delta, **changes))


def swapped_gram(section: SectionStatement) -> list[list[int]]:
    """As if seats 0 and 1 had each other's rows."""
    order = [1, 0, *range(2, len(section.gram))]
    return [[section.gram[i][j] for j in order] for i in order]


def huge(section: SectionStatement) -> list[list[int]]:
    gram = [list(row) for row in section.gram]
    gram[0][1] = gram[1][0] = gram[0][0] * gram[1][1]
    return gram


LIES = {
    "another round": lambda it: replace(it, round=it.round + 1),
    "fewer to bear": lambda it: replace(it, f_prime=0),
    "a seat is dropped": lambda it: replace(it, mergeable=it.mergeable & ~1),
    "a seat is excluded": lambda it: replace(it, excluded=1, merged=it.merged & ~1),
    "moments are excluded": lambda it: replace(it, momentum_excluded=1),
    "another group": lambda it: with_delta(
        it, groups=(Bitmap(it.delta.groups[0] ^ 0b11), *it.delta.groups[1:])
    ),
    "an exponent": lambda it: with_delta(
        it, exponents=(it.delta.exponents[0] + 1, *it.delta.exponents[1:])
    ),
    "a vote that none may be": lambda it: with_delta(
        it, votes=((99, *it.delta.votes[0][1:]), *it.delta.votes[1:])
    ),
    "an impossible angle": lambda it: with_delta(it, gram=huge(it.delta)),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_follow_is_refused(lie: str) -> None:
    round = round_of("grid8", "nnm_median")
    with pytest.raises(MalformedUpdate):
        round.inputs(LIES[lie](round.statement))


def test_inner_products_that_chunks_do_not_have_are_refused() -> None:
    round = round_of("grid8", "median")
    lying = with_delta(round.statement, gram=swapped_gram(round.statement.delta))
    assert lying.delta.gram != round.statement.delta.gram
    with pytest.raises(MalformedUpdate, match="inner products"):
        open_merged(round.update, round.layout, lying, round.inputs(round.statement))


def test_chunks_with_the_lies_sum_are_told_at_the_spot() -> None:
    round = round_of("grid8", "median")
    n, at = round.layout.rows, round.layout.sections[-1].start
    numbers = list(struct.unpack_from(f">{n * (n + 1) // 2}q", round.update, at))
    numbers[0] += 1
    lying = bytearray(round.update)
    struct.pack_into(f">{len(numbers)}q", lying, at, *numbers)
    with pytest.raises(MalformedUpdate, match="inner products"):
        round.check(bytes(lying))


@pytest.mark.parametrize("section", [0, 1, 2])
def test_a_coordinate_that_is_not_the_rules_is_told_at_its_spot(section: int) -> None:
    round = round_of("two_bit", "nnm_trimmed_mean")
    at = round.layout.sections[section].start + 7
    lying = bytearray(round.update)
    lying[at] = (lying[at] + 1) % 128 if section < 2 else 0x70
    round.opened(bytes(lying))  # nothing of it follows from statement and bytes alone
    with pytest.raises(MalformedUpdate, match="the merge of"):
        round.check(bytes(lying))


def test_a_vote_of_a_whole_tensor_is_told_at_its_spot() -> None:
    round = round_of("grid8", "median")
    votes = round.statement.delta.votes
    first = (votes[0][0] - 1 if votes[0][0] > -4 else -3, *votes[0][1:])
    with pytest.raises(MalformedUpdate, match="votes otherwise"):
        round.check(round.update, with_delta(round.statement, votes=(first, *votes[1:])))


@pytest.mark.parametrize("change", [b"", b"\0"])
def test_a_merged_update_of_another_length_is_refused(change: bytes) -> None:
    round = round_of()
    with pytest.raises(MalformedUpdate, match="bytes where"):
        round.opened(round.update[:-1] if not change else round.update + change)


def test_only_canonical_bytes_are_opened() -> None:
    round = round_of()
    first = round.layout.sections[0]
    for at, value in ((0, 0x80), (first.stop, 1), (round.layout.sections[2].start + 3, 0x80)):
        lying = bytearray(round.update)
        lying[at] = value
        with pytest.raises(MalformedUpdate):
            round.opened(bytes(lying))


def test_every_cut_and_every_longer_statement_is_refused() -> None:
    round = round_of()
    data, shape = round.statement.to_bytes(), round.layout.shape
    for size in range(0, len(data), 37):
        with pytest.raises(MalformedUpdate):
            MergeStatement.from_bytes(data[:size], shape)
    with pytest.raises(MalformedUpdate):
        MergeStatement.from_bytes(data + b"\0", shape)


def test_seats_outside_one_another_are_no_statement() -> None:
    round = round_of()
    outside = replace(round.statement, momentum_excluded=Bitmap(1 << 200))
    with pytest.raises(MalformedUpdate, match="within"):
        MergeStatement.from_bytes(outside.to_bytes(), round.layout.shape)


# --- which spots ---


@pytest.mark.parametrize("kind", ROUNDED)
def test_every_coordinate_is_in_one_place_and_a_place_in_few_pieces(kind: str) -> None:
    updates = round_of(kind).layout.updates
    sections = [*(each.total for each in updates.vectors), updates.factored.total]
    for section, total in enumerate(sections):
        spans = [updates.place(section, n) for n in range(updates.places(section))]
        assert [(span.start, span.stop) for span in spans] == [
            (a.start, b.start)
            for a, b in zip(spans, [*spans[1:], slice(total, total)], strict=True)
        ]
        assert spans[0].start == 0
        most = 1 if kind.startswith("grid") or section == 2 else 4
        assert all(len(updates.pieces_at(section, span)) <= most for span in spans)


def test_a_share_of_the_merged_bytes_is_drawn_on_average_of_secrets() -> None:
    layout = round_of("grid8", "median").layout
    updates, bytes_of = layout.updates, {False: 0, True: 0}
    secrets, seen = 600, set()
    for secret in range(secrets):
        for spot in drawn(layout, secret.to_bytes(2, "big")):
            numbers = updates.pieces_at(spot.section, spot.span)
            size = layout.rows * shown_length(numbers, updates.encoded_length)
            bytes_of[spot.is_chunk] += size
            seen.add(spot)
    shares = {kind: size / secrets / layout.encoded_length for kind, size in bytes_of.items()}
    assert 0.06 < shares[False] < 0.1 and 0.005 < shares[True] < 0.04
    assert {spot.section for spot in seen} == {0, 1, 2}
    assert drawn(layout, bytes(2)) == drawn(layout, bytes(2))


def test_of_a_large_merge_so_many_places_are_drawn_that_a_hundredth_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A billion parameters, 64 seats: what one misses of lies in a hundredth of the places."""
    for module in (chunks, passes, stated_merge, merge_spots):
        monkeypatch.setattr(module, "CHUNK", 1 << 20)
    manifest = manifest_of("grid8", "median", "nesterov", inner="adamw")
    layout = MergedLayout.of(manifest, {"w": (31_250, 32_000)}, 0, 64)
    spots = drawn(layout, b"secret")
    places = [spot for spot in spots if not spot.is_chunk]
    numbers = {n for spot in places for n in layout.updates.pieces_at(spot.section, spot.span)}
    assert 0.99 ** len(places) < 3e-7
    assert len(spots) - len(places) <= 1 and len(set(spots)) == len(spots)
    fetched = 64 * shown_length(sorted(numbers), layout.updates.encoded_length)
    assert fetched < 0.07 * layout.encoded_length
