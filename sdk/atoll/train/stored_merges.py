"""A stated merge in the store: written by who merged, applied by who has no update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from atoll.aggregation.merge_round import MergedUpdate
from atoll.aggregation.merge_spots import Spot, SpotCheck, drawn
from atoll.aggregation.stated_merge import (
    MergedLayout,
    applied,
    checked_inputs,
    merged_pieces,
    open_merged,
    statement_of,
)
from atoll.errors import MalformedUpdate
from atoll.numerics.pieces import ByteSlices, root_of_update
from atoll.numerics.state import GlobalState
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeInputs, MergeRecord
from atoll.protocol.merge_statement import MAX_STATEMENT, MergeStatement
from atoll.protocol.types import ZERO_DIGEST, Digest
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.storage.slices import FileSlices
from atoll.train.stored_states import read_global_state


def store_statement(
    merged: MergedUpdate, after: GlobalState, layout: MergedLayout, store: LocalStore
) -> Digest:
    """Writes a merged update and its statement, and returns what the verdict has of that; zero
    where a statement has too many bytes.
    """
    cid = store.add_pieces(merged_pieces(merged, layout))
    root = root_of_update(FileSlices(store, cid, layout.encoded_length))
    statement = statement_of(merged, after, root, cid.to_bytes())
    data = statement.to_bytes()
    if len(data) > MAX_STATEMENT:
        return ZERO_DIGEST
    store.add_bytes(data)
    return statement.digest


@dataclass(frozen=True, slots=True)
class StoredMerge:
    """A statement that is in the store, and what of it follows from the chain."""

    manifest: Manifest
    data_seed: Digest
    initial_state: bytes
    statement: MergeStatement
    inputs: MergeInputs
    layout: MergedLayout
    store: LocalStore

    @classmethod
    def read(
        cls,
        manifest: Manifest,
        record: MergeRecord,
        data_seed: Digest,
        *,
        initial_state: bytes,
        statement: Cid,
        store: LocalStore,
    ) -> Self:
        """Reads and checks it.

        Raises:
            MalformedUpdate: it is not canonical, or something in it does not follow.
        """
        model = read_global_state(manifest, initial_state, store, outer=False, moments=False)
        layout = MergedLayout.of(manifest, model.shapes, model.round, rows=0)
        stated = MergeStatement.from_bytes(store.get_block(statement), layout.shape)
        inputs = checked_inputs(stated, model, record, manifest)
        layout = MergedLayout(layout.updates, len(inputs.mergeable))
        return cls(manifest, data_seed, initial_state, stated, inputs, layout, store)

    def drawn(self, secret: bytes) -> tuple[Spot, ...]:
        """The spots that a secret draws."""
        return drawn(self.layout, secret)

    def pieces_of(self, spot: Spot) -> tuple[int, ...]:
        """The numbers of the pieces in which a spot lies in every update."""
        return self.layout.updates.pieces_at(spot.section, spot.span)

    def applied(self, spots: Sequence[Spot], updates: Mapping[int, ByteSlices]) -> GlobalState:
        """The state that the merged update moves to.

        Args:
            spots: at which it is compared with the updates, whose bytes there are in the store.

        Raises:
            MalformedUpdate: it is not what the statement says, or at a spot not the updates' merge.
        """
        stated, size = self.statement, self.layout.encoded_length
        data = FileSlices(self.store, Cid.from_bytes(stated.update_cid), size)
        if root_of_update(data) != stated.update_root:
            raise MalformedUpdate("the merged update is not what the statement names")
        merged = open_merged(data, self.layout, stated, self.inputs)
        check = SpotCheck(self.layout, stated, data, self.manifest, self.data_seed)
        for spot in spots:
            check.compare(spot, updates)
        before = read_global_state(self.manifest, self.initial_state, self.store)
        after = applied(merged, before, self.manifest)
        if after.roots() != stated.parts:
            raise MalformedUpdate("the next state is another than the statement's")
        return after
