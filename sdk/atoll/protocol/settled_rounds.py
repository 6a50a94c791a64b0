"""A settled round of a job, with its audit.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.checkpoint_commitments import key_hash
from atoll.protocol.clocks import AuditClock
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.types import (
    NO_BITS,
    ZERO_DIGEST,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    RoundId,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Verdict,
    to_bitmap,
)


@dataclass(frozen=True, slots=True)
class Contest:
    """The fee of an opened *valid* that waits until the seat's round is FINAL.

    Where the seat lost the game, the fee is lost. Else a wrong digest is a missed duty, unless the
    seat was slashed for the round; and without either the auditor is credited its fee.

    Attributes:
        by: who showed that the digest does not tell the seat's work tags; it has nothing of it.
            None where nobody did.
        game: about the seat's round; 0 for none.
        is_wrong: whether it is lost; None until somebody settles it.
    """

    by: Address | None = None
    game: int = 0
    is_wrong: bool | None = None


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A settled round with its audit.

    Attributes:
        digest: of the verdict, which is what its committee signs.
        signers: slots that have signed it by now.
        silent: slots that said nothing by the end of a committee draw's votes.
        votes: of the committee draw that settled.
        drawn: seats that are audited; `duties` by slot.
        pay: seats that are paid, as far as slashes take nothing.
        short: seats that did too little to be merged, where a certificate settled the round.
        audit_reports, opened_reports: by auditor, before and after the opening.
        keys: shown, whether they are what was committed to or not.
        early_keys: shown before the settlement; known to all, and not shown for any rule.
        in_time: seats whose holders showed a key in OPEN's end and KEYS, whatever it was.
        late_keys: shown after KEYS; auditors are scored by them, and the seat has missed.
        leaks: keys that somebody else showed first, and who.
        late: votes cast after the settlement, by member.
        dropped: accusations that their authors did not play, by author and seat.
        proven: those whose fee is credited, since the seat has been slashed.
        is_consistent: the record are those that the events give.
        committee_seed: of the committee draw that settled.
        accused, slashed: seats, as of the start of MERGE.
        struck_by: who showed that the certified merge is not what the updates give; None where
            nobody did. Then nobody has signed any more, but `struck_signers` had.
    """

    round_id: RoundId
    block: BlockRef
    digest: Digest
    verdict: Verdict
    record: RoundRecord
    signers: Bitmap
    silent: Bitmap
    seats: Mapping[SeatIndex, HolderId]
    slots: Mapping[SlotIndex, HolderId]
    reveals: Mapping[SeatIndex, SeatReveal]
    votes: Mapping[SlotIndex, Bitmap]
    clock: AuditClock
    drawn: Bitmap
    duties: Mapping[SlotIndex, tuple[SeatIndex, ...]]
    pay: Bitmap
    is_consistent: bool
    audit_reports: Mapping[HolderId, Digest] = field(default_factory=dict)
    opened_reports: Mapping[HolderId, AuditReport] = field(default_factory=dict)
    keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    leaks: Mapping[SeatIndex, Address] = field(default_factory=dict)
    struck: Bitmap = NO_BITS
    contests: Mapping[tuple[HolderId, SeatIndex], Contest] = field(default_factory=dict)
    late: Mapping[HolderId, Bitmap] = field(default_factory=dict)
    dropped: frozenset[tuple[HolderId, SeatIndex]] = frozenset()
    proven: frozenset[tuple[HolderId, SeatIndex]] = frozenset()
    early_keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    late_keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    in_time: Bitmap = NO_BITS
    committee_seed: Digest = ZERO_DIGEST
    accused: Bitmap = NO_BITS
    slashed: Bitmap = NO_BITS
    short: Bitmap = NO_BITS
    struck_by: Address | None = None
    struck_signers: Bitmap = NO_BITS

    @property
    def round(self) -> RoundIndex:
        return self.round_id.round

    @property
    def unearned(self) -> Bitmap:
        """Short seats of a round that merged nothing: they earn nothing, and nothing is burnt."""
        return NO_BITS if self.verdict.merged else self.short

    @property
    def is_key_standstill(self) -> bool:
        """Whether so few showed keys in time that the chain may have stood still."""
        return 2 * self.in_time.bit_count() < self.record.drawn.bit_count()

    @property
    def merge_record(self) -> MergeRecord:
        """What decided whose updates were merged, beside the updates."""
        votes, members = list(self.votes.values()), self.record.committee.bit_count()
        segments = {seat: item.segments for seat, item in self.reveals.items()}
        facts = (self.record.revealed, members, votes, segments)
        return MergeRecord(*facts, slashed=self.slashed, accused=self.accused)

    @property
    def unsigned(self) -> Bitmap:
        """Slots that have not signed, but for those whose vote lacks an available seat: they earn
        nothing for it, and miss nothing. None of a round that was settled without a certificate.
        """
        if not any(self.digest) or self.struck_by is not None:
            return NO_BITS
        available = self.record.available
        lacking = to_bitmap(slot for slot, has in self.votes.items() if available & ~has)
        return Bitmap(self.record.committee & ~self.signers & ~lacking)

    def key_of(self, seat: SeatIndex) -> Digest | None:
        """The key that was committed to, once it is shown in time."""
        return self._committed(self.keys, seat)

    def known_key(self, seat: SeatIndex) -> Digest | None:
        """The key that was committed to, shown in time, too early or too late."""
        every = (self._committed(k, seat) for k in (self.early_keys, self.keys, self.late_keys))
        return next((key for key in every if key is not None), None)

    def _committed(self, keys: Mapping[SeatIndex, Digest], seat: SeatIndex) -> Digest | None:
        key, revealed = keys.get(seat), self.reveals.get(seat)
        is_it = (
            key is not None and revealed is not None and key_hash(key) == revealed.reveal.key_hash
        )
        return key if is_it else None

    def slot_of(self, holder: HolderId) -> SlotIndex | None:
        """The slot that the holder has in this round's pool."""
        return next((slot for slot, held in self.slots.items() if held == holder), None)

    def duties_of(self, holder: HolderId) -> tuple[SeatIndex, ...]:
        """Seats that the holder audits."""
        slot = self.slot_of(holder)
        return () if slot is None else self.duties.get(slot, ())
