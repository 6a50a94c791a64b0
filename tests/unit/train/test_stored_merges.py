"""A merge in the store: what a committee wrote is applied without updates, and lies are not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.vectors import generate_merge
from tests.vectors.generate_merge import DATA_SEED, manifest_of, model_of, updates_of

from atoll.aggregation import chunks, merge_spots, passes, stated_merge
from atoll.aggregation.merge_round import MergedUpdate, merge_updates
from atoll.aggregation.merge_spots import Spot, chunk, place
from atoll.aggregation.stated_merge import MergedLayout
from atoll.errors import MalformedUpdate
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import joined
from atoll.numerics.shown_pieces import KnownPieces
from atoll.numerics.state import GlobalState
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.merge_statement import MergeStatement
from atoll.protocol.types import Bitmap, Digest, SeatIndex
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.train.stored_merges import StoredMerge, store_statement

SMALL_CHUNK = 1 << 16
"""Of which the model below has two and a part."""


@dataclass
class Stored:
    manifest: Manifest
    model: GlobalState
    updates: dict[int, bytes]
    record: MergeRecord
    merged: MergedUpdate
    after: GlobalState
    layout: MergedLayout
    store: LocalStore
    initial_state: bytes
    statement: Digest

    def read(self, statement: Digest | None = None) -> StoredMerge:
        return StoredMerge.read(
            self.manifest,
            self.record,
            DATA_SEED,
            initial_state=self.initial_state,
            statement=Cid(RAW, statement or self.statement),
            store=self.store,
        )

    def lying(self, at: int, *, new_parts: bool) -> StoredMerge:
        """As if the committee had written another byte there, and signed what follows."""
        told = self.read().statement
        data = bytearray(self.store.read_bytes(Cid.from_bytes(told.update_cid), 1 << 30))
        data[at] ^= 1
        cid = self.store.add_bytes(bytes(data))
        told = replace(told, update_cid=cid.to_bytes(), update_root=root_of_update(bytes(data)))
        if new_parts:
            told = replace(told, parts=self._parts_after(told))
        return self.read(self._written(told))

    def _written(self, statement: MergeStatement) -> Digest:
        self.store.add_bytes(statement.to_bytes())
        return statement.digest

    def _parts_after(self, told: MergeStatement) -> tuple[Digest, ...]:
        merge = self.read(self._written(told))
        data = self.store.read_bytes(Cid.from_bytes(told.update_cid), 1 << 30)
        opened = stated_merge.open_merged(data, self.layout, told, merge.inputs)
        return stated_merge.applied(opened, self.model.copied(), self.manifest).roots()


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    for module in (chunks, passes, stated_merge, merge_spots):
        monkeypatch.setattr(module, "CHUNK", SMALL_CHUNK)
    monkeypatch.setitem(generate_merge.SMALL, "ffn", 4200)
    monkeypatch.setattr(generate_merge, "SEATS", 4)
    manifest = manifest_of("two_bit", "median", "nesterov", inner="adamw", whole=True)
    model, store = model_of(manifest, 4), LocalStore(tmp_path, sync=False)
    updates = {seat: joined(parts) for seat, parts in updates_of(manifest, model, {}, None).items()}
    everyone = Bitmap((1 << len(updates)) - 1)
    done = {SeatIndex(seat): manifest.segments for seat in updates}
    record = MergeRecord(everyone, 1, [everyone], done)
    about = {"record": record, "data_seed": DATA_SEED, "manifest": manifest}
    merged = merge_updates(model, updates, **about)
    after = merged.moves(model.copied(), manifest)
    layout = MergedLayout.of(manifest, model.shapes, 4, len(updates))
    initial_state = store.add_pieces(model.pieces()).to_bytes()
    statement = store_statement(merged, after, layout, store)
    where = (layout, store, initial_state, statement)
    return Stored(manifest, model, updates, record, merged, after, *where)


def test_what_a_committee_wrote_is_applied_and_holds_at_every_spot(stored: Stored) -> None:
    merge = stored.read()
    spots = every_spot(merge)
    assert merge.applied(spots, stored.updates).to_bytes() == stored.after.to_bytes()
    drawn = {spot for secret in range(2000) for spot in merge.drawn(secret.to_bytes(2, "big"))}
    assert drawn == set(spots)


def every_spot(merge: StoredMerge) -> list[Spot]:
    layout, updates = merge.layout, merge.layout.updates
    places = [place(layout, s, n) for s in range(3) for n in range(updates.places(s))]
    chunks = [chunk(layout, s, n) for s in (0, 1) for n in range(3)]
    return [spot for spot in (*places, *chunks) if spot.start < spot.stop]


@pytest.mark.parametrize("number", range(6))
def test_of_an_update_a_spot_takes_its_own_pieces(stored: Stored, number: int) -> None:
    merge = stored.read()
    places = [place(merge.layout, number % 3, 1), chunk(merge.layout, number % 2, 1)]
    spot, other = places[number // 3], places[1 - number // 3]
    numbers, size = merge.pieces_of(spot), len(stored.updates[0])
    known = {
        seat: KnownPieces({n: data[1024 * n : 1024 * n + 1024] for n in numbers}, size)
        for seat, data in stored.updates.items()
    }
    assert 1024 * len(numbers) < size / 6
    assert merge.applied([spot], known).digest() == stored.after.digest()
    with pytest.raises(KeyError):
        merge.applied([place(merge.layout, 1, 3), other], known)


def test_a_byte_that_is_not_the_rules_is_seen_at_its_spots_alone(stored: Stored) -> None:
    at = SMALL_CHUNK + 9
    merge = stored.lying(stored.layout.sections[0].start + at, new_parts=True)
    spots = every_spot(merge)
    here = [spot for spot in spots if spot.section == 0 and spot.start <= at < spot.stop]
    assert sorted(spot.is_chunk for spot in here) == [False, True]
    elsewhere = [spot for spot in spots if spot not in here]
    assert merge.applied(elsewhere, stored.updates) is not None
    for spot in here:
        with pytest.raises(MalformedUpdate, match="the merge of"):
            merge.applied([spot], stored.updates)


def test_a_merged_update_that_leads_elsewhere_is_refused_without_any_spot(stored: Stored) -> None:
    with pytest.raises(MalformedUpdate, match="the next state is another"):
        stored.lying(5, new_parts=False).applied([], {})


def test_a_statement_that_names_another_file_is_refused(stored: Stored) -> None:
    told = stored.read().statement
    other = stored.store.add_bytes(bytes(stored.layout.encoded_length))
    lying = replace(told, update_cid=other.to_bytes())
    stored.store.add_bytes(lying.to_bytes())
    with pytest.raises(MalformedUpdate, match="not what the statement names"):
        stored.read(lying.digest).applied([], {})


def test_a_statement_beyond_a_block_is_none(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.train.stored_merges.MAX_STATEMENT", 100)
    empty = store_statement(stored.merged, stored.after, stored.layout, stored.store)
    assert not any(empty)
