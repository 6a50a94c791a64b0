"""What a certified merge is struck by, from the files that are in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from atoll.aggregation.derived_strikes import are_exponents, are_groups
from atoll.aggregation.merge_strikes import (
    StruckMerge,
    find_coordinate,
    merged_shown,
    shown_of,
)
from atoll.aggregation.stated_merge import MergedLayout
from atoll.errors import AtollError
from atoll.numerics.pieces import ByteSlices, root_of_update
from atoll.numerics.state_layout import trained_shapes
from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.call_structs import RoundOpening
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_statement import MergeStatement, stated_parts
from atoll.protocol.strikes import (
    CarriedState,
    CertifiedMerge,
    StrikePlace,
    StrikeProof,
    had_to_merge,
    is_contradiction,
    missing_seat,
    owes_statement,
    sound_statement,
    state_digest,
)
from atoll.protocol.types import ZERO_DIGEST, Bitmap, Digest, Verdict, bits
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.storage.slices import FileSlices
from atoll.train.initial_model import open_initial_state
from atoll.train.stored_states import read_global_state


@dataclass(frozen=True)
class StrikeSearch:
    """A certified merge of a round.

    Attributes:
        initial: digest of round 0's model.
        owed: available seats that are merged or excluded in any merge.
        updates: of seats, as they are in the store and are what was revealed.
        opened: digest of the state that the round opened from; zero in round 0.
        before: of a round that merged nothing, the statement of the last before it that merged
            something; zero of others.
        opening: CID of the state that the round opened with; empty where it is not in the store.
    """

    manifest: Manifest
    initial: Digest
    round: int
    data_seed: Digest
    available: Bitmap
    owed: Bitmap
    verdict: Verdict
    updates: Mapping[int, ByteSlices]
    store: LocalStore
    opened: Digest = ZERO_DIGEST
    before: Digest = ZERO_DIGEST
    opening: bytes = b""

    def search(self) -> StrikeProof | None:
        """What shows that the merge is wrong; None where nothing does, or not enough is here."""
        shapes = trained_shapes(self.manifest)
        layout = MergedLayout.of(self.manifest, shapes, self.round, rows=0)
        f = self.manifest.robust.f
        about = CertifiedMerge(self.round, f, self.available, self.verdict, layout.shape, self.owed)
        if not self.verdict.merged:
            return self._of_nothing(about)
        if not any(self.verdict.statement):
            return self._proof(StrikePlace(), b"") if owes_statement(about) else None
        data = self.store.get_block(Cid(RAW, self.verdict.statement))
        statement = sound_statement(data, about)
        if statement is None:
            return self._proof(StrikePlace(), data)
        missing = missing_seat(statement, about)
        if missing is not None:
            return self._proof(missing, data)
        return self._of_sound(statement, layout, data)

    def _of_sound(
        self, statement: MergeStatement, layout: MergedLayout, data: bytes
    ) -> StrikeProof | None:
        derived = StrikePlace(is_derived=True)
        if not are_groups(statement, layout.updates, self.manifest):
            return self._proof(derived, data)
        rows = statement.mergeable.bit_count()
        merge = self._merge(MergedLayout(layout.updates, rows), statement)
        place = None if merge is None else find_coordinate(merge)
        if merge is not None and place is not None:
            return self._shown(merge, place, data)
        # Last, for it is the dearest, and of many tensors longer than what nodes take.
        opening = self._round_opening(statement)
        return None if opening is None else replace(self._proof(derived, data), opening=opening)

    def _of_nothing(self, about: CertifiedMerge) -> StrikeProof | None:
        if is_contradiction(about):
            return self._proof(StrikePlace(), b"")
        proof = self._proof(StrikePlace(is_nothing=True), b"")
        if had_to_merge(about):
            return replace(proof, owed=about.owed)
        parts = self._opened_parts()
        if parts is None or state_digest(self.round + 1, parts) == self.verdict.state:
            return None
        carried = CarriedState(b"".join(parts))
        if not any(self.opened):
            program = program_of(self.manifest, self.initial)
            header = program.header.to_bytes()
            carried = replace(carried, header=header, path=tuple(program.tree.path(0)))
        return replace(proof, carried=carried)

    def _opened_parts(self) -> Sequence[Digest] | None:
        """Of the state that the round opened from; None where nothing that is here has them."""
        opened = self.opened if any(self.opened) else self.initial
        for parts_of in (self._stated_parts, self._first_parts):
            with suppress(AtollError, ValueError):
                parts = parts_of()
                if state_digest(self.round, parts) == opened:
                    return parts
        return None

    def _stated_parts(self) -> Sequence[Digest]:
        """As the last merge before states them."""
        data = self.store.get_block(Cid(RAW, self.before))
        return stated_parts(data)

    def _first_parts(self) -> Sequence[Digest]:
        """Those that the job began with, which are made here."""
        return open_initial_state(self.manifest, self.store).roots()

    def _round_opening(self, statement: MergeStatement) -> RoundOpening | None:
        """The state that the round opened with, where its votes make other exponents than stated.

        None too where the file is not the state that the chain has: what shows it is refused.
        """
        if not self.opening:
            return None
        with suppress(AtollError, ValueError):  # a CID that members made up names anything
            return self._disputed_opening(statement)
        return None

    def _disputed_opening(self, statement: MergeStatement) -> RoundOpening | None:
        manifest, header, path = self.manifest, b"", tuple[Digest, ...]()
        state = read_global_state(manifest, self.opening, self.store, outer=False, moments=False)
        if are_exponents(statement, state, manifest):
            return None
        whole = read_global_state(manifest, self.opening, self.store)
        opened = self.opened if any(self.opened) else self.initial
        if state_digest(self.round, whole.roots()) != opened:
            return None
        if self.round == 0:  # its digest is in the program only
            program: Program = program_of(manifest, self.initial)
            header, path = program.header.to_bytes(), tuple(program.tree.path(0))
        return RoundOpening(b"".join(whole.roots()), whole.exponent_bytes(), header, path)

    def _merge(self, layout: MergedLayout, statement: MergeStatement) -> StruckMerge | None:
        """None where an update that is said to be merged, or the merged update, is not here."""
        merged = bits(statement.merged)
        if not set(merged) <= self.updates.keys():
            return None
        try:
            cid = Cid.from_bytes(statement.update_cid)
            file = FileSlices(self.store, cid, 2 * layout.encoded_length)
            if root_of_update(file) != statement.update_root:
                return None
        except (AtollError, ValueError):
            return None
        updates = {seat: self.updates[seat] for seat in merged}
        return StruckMerge(layout, statement, file, updates, self.manifest, self.data_seed)

    def _shown(self, merge: StruckMerge, place: StrikePlace, data: bytes) -> StrikeProof:
        assert place.section is not None  # a coordinate has one
        seats: Sequence[int] = bits(merge.seats(place.section))
        updates = tuple(shown_of(merge, place, seat) for seat in seats)
        proof = self._proof(place, data)
        return replace(proof, updates=updates, merged=merged_shown(merge, place))

    def _proof(self, place: StrikePlace, data: bytes) -> StrikeProof:
        program: Program = program_of(self.manifest, self.initial)
        assert program.merge is not None  # every manifest's has one
        leaves = len(program.tree.levels[0])
        path = tuple(program.tree.path(leaves - 1))
        return StrikeProof(place, data, program.merge.to_bytes(), leaves, path)
