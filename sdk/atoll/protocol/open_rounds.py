"""The round of a job that runs: trained, revealed or merged.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from atoll.protocol.checkpoint_commitments import (
    CHECKPOINT_COMMITMENT_BYTES,
    CheckpointCommitments,
    plain_tags,
)
from atoll.protocol.hashing import accumulate_reveal, accumulate_votes, certificate_hash
from atoll.protocol.merge_inputs import MergeRecord, available_seats, is_availability_settled
from atoll.protocol.types import (
    NO_BITS,
    ZERO_DIGEST,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    Phase,
    Reveal,
    RoundId,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Verdict,
    to_bitmap,
)


@dataclass(frozen=True, slots=True)
class SeatCommit:
    holder: HolderId
    account: Address
    commitment: Digest


@dataclass(frozen=True, slots=True)
class SeatReveal:
    """What a seat's commitment opened to."""

    holder: HolderId
    account: Address
    commitment: Digest
    reveal: Reveal

    @property
    def checkpoint_commitments(self) -> CheckpointCommitments:
        """States and blinded tags."""
        return CheckpointCommitments.from_bytes(self.reveal.checkpoint_commitments)

    def work_tags(self, key: Digest) -> tuple[Digest, ...]:
        """The plain work tags under the seat's key."""
        return plain_tags(self.reveal.checkpoint_commitments, key)

    @property
    def segments(self) -> int:
        """What it did of the round."""
        return len(self.reveal.checkpoint_commitments) // CHECKPOINT_COMMITMENT_BYTES


@dataclass(frozen=True, slots=True)
class Sealed:
    """An audit report's hash, and the second of its block."""

    audit_report: Digest
    at: int


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The round that is trained, revealed or merged.

    Attributes:
        block: in which it opened.
        seated: seats that it opened with; `stopped` those that disagreed or was slashed since.
        ready: slots of its pool; `committee` those of the committee draw number `committee_draw`.
        committee_seed: what its votes begin with; of the first committee draw the data seed.
        model: digest of the global state that it opens from; zero in round 0.
        deadline: of the phase, unix seconds.
        half_merge: until then a vote waits for updates that are not here.
        seed_due: from then on somebody should have the audit seed drawn, if no vote has.
        votes_end: of the committee draw; from then on no vote is taken.
        audit_seed, next_seed: zero until they are known.
        seats, slots: the holders of both.
        reveals, votes: in the chain's order; votes of the committee draw.
        silent: slots that said nothing in a committee draw that was replaced.
        accused, slashed: seats, as of the start of MERGE.
        early_keys: that the round's providers have shown before it is settled.
        early_audit_reports: what members of its pool have sealed by now, and when: it counts where
            the round is settled in that second.
    """

    round_id: RoundId
    phase: Phase
    block: BlockRef
    seed: Digest
    seated: Bitmap
    ready: Bitmap
    committee: Bitmap
    model: Digest
    deadline: int
    seats: Mapping[SeatIndex, HolderId]
    slots: Mapping[SlotIndex, HolderId]
    committee_draw: int = 0
    committee_seed: Digest = ZERO_DIGEST
    stopped: Bitmap = NO_BITS
    half_merge: int = 0
    seed_due: int = 0
    votes_end: int = 0
    audit_seed: Digest = ZERO_DIGEST
    next_seed: Digest = ZERO_DIGEST
    commits: Mapping[SeatIndex, SeatCommit] = field(default_factory=dict)
    reveals: Mapping[SeatIndex, SeatReveal] = field(default_factory=dict)
    votes: Mapping[SlotIndex, Bitmap] = field(default_factory=dict)
    silent: Bitmap = NO_BITS
    accused: Bitmap = NO_BITS
    slashed: Bitmap = NO_BITS
    early_keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    early_audit_reports: Mapping[HolderId, Sealed] = field(default_factory=dict)

    @property
    def round(self) -> RoundIndex:
        return self.round_id.round

    @property
    def counting(self) -> Bitmap:
        """Seats that the round waits for, or has heard of."""
        return Bitmap(self.seated & ~self.stopped)

    @property
    def standing(self) -> Bitmap:
        """Seats that have done by now what phases before this one asked for."""
        if self.phase is Phase.TRAIN:
            return self.counting
        return self.committed if self.phase is Phase.REVEAL else self.revealed

    @property
    def committed(self) -> Bitmap:
        return to_bitmap(self.commits)

    @property
    def revealed(self) -> Bitmap:
        return to_bitmap(self.reveals)

    @property
    def reveal_accumulator(self) -> Digest:
        """Over the reveals so far."""
        return reduce(
            lambda acc, item: accumulate_reveal(acc, item[0], item[1].commitment),
            self.reveals.items(),
            self.seed,
        )

    @property
    def votes_accumulator(self) -> Digest:
        """Over the committee draw's votes so far."""
        return accumulate_votes(self.committee_seed, self.votes.items())

    @property
    def available(self) -> Bitmap:
        """Seats that more than half of the committee said to have."""
        return available_seats(self.votes.values(), self.committee.bit_count(), self.revealed)

    @property
    def is_merge_over(self) -> bool:
        """Whether no vote to come can change who is available."""
        votes = list(self.votes.values())
        return is_availability_settled(votes, self.committee.bit_count(), self.revealed)

    @property
    def segments(self) -> dict[SeatIndex, int]:
        """What each revealed seat did."""
        return {seat: item.segments for seat, item in self.reveals.items()}

    @property
    def merge_record(self) -> MergeRecord:
        """What decides whose updates are merged, beside the updates."""
        votes, members = list(self.votes.values()), self.committee.bit_count()
        return MergeRecord(
            self.revealed, members, votes, self.segments, slashed=self.slashed, accused=self.accused
        )

    def digest_of(self, verdict: Verdict) -> Digest:
        """What the committee draw's committee signs, if this is its verdict."""
        return certificate_hash(self.round_id, self.seed, self.votes_accumulator, verdict)

    def may_settle(self, now: int) -> bool:
        """Whether a certificate would be taken now, as far as time and votes decide."""
        return self.phase is Phase.MERGE and (self.is_merge_over or now >= self.votes_end)

    @property
    def lacking(self) -> Bitmap:
        """Slots whose vote lacks a seat that is available: they need not sign."""
        available = self.available
        return to_bitmap(slot for slot, has in self.votes.items() if available & ~has)
