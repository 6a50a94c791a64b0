"""What a job looks like from its events: data only; `atoll.protocol.rounds` folds it.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from atoll.errors import ProtocolError
from atoll.protocol.audit_reports import Body
from atoll.protocol.clocks import AuditClock, last_moment
from atoll.protocol.games.claims import Claim
from atoll.protocol.games.machine import Clock
from atoll.protocol.games.machine import Outcome as GameOutcome
from atoll.protocol.hashing import accumulate_reveal, accumulate_words, certificate_hash
from atoll.protocol.leaves import LEAF_BYTES, Leaves, key_hash, plain_words
from atoll.protocol.merge_inputs import MergeFacts, had, is_settled_who_is_had
from atoll.protocol.misses import Record
from atoll.protocol.played import is_holders_turn
from atoll.protocol.words import (
    NO_BITS,
    NO_ROUND,
    ZERO_DIGEST,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    Facts,
    HolderId,
    JobId,
    JobStatus,
    Miss,
    Params,
    Phase,
    PlaceIndex,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Slot,
    Terms,
    Verdict,
    Wei,
    to_bitmap,
)

if TYPE_CHECKING:
    from atoll.protocol.events import ContractEvent

_FIRST_ROUND: Final = RoundIndex(0)
_NO_BLOCK: Final = BlockRef(0, ZERO_DIGEST, 0)
_NOBODY: Final = Address("0x0000000000000000000000000000000000000000")
EMPTY_ROUNDS: Final = 3
"""So many rounds running that merge nothing end a job."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds, or held, a seat or a place: in rounds `start` to, but not, `to`.

    Attributes:
        index: the seat or the place.
        bond: wei that are left of it.
        is_ready, ready_until: of a verifier, whether it said so, and by when it has to.
        lost_from: the first round that a fall took the pay of.
        claimed_to: the first round that it has not claimed.
        missed: a seat's miss that nobody has cut yet, by its round; `cuts` what was cut.
        bound_until: of a provider that disagreed, when its bond may go home at the earliest.
    """

    id: HolderId
    role: Role
    account: Address
    index: int
    start: RoundIndex
    bond: Wei
    to: RoundIndex = NO_ROUND
    is_ready: bool = False
    ready_until: int = 0
    lost_from: RoundIndex = NO_ROUND
    has_fallen: bool = False
    claimed_to: RoundIndex = _FIRST_ROUND
    is_released: bool = False
    missed: RoundIndex = NO_ROUND
    cuts: frozenset[tuple[RoundIndex, Miss]] = frozenset()
    bound_until: int = 0

    def counts_in(self, round: int) -> bool:
        """Whether the round, when it opens, has it."""
        return self.start <= round < self.to


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
    def leaves(self) -> Leaves:
        """States and blinded tags."""
        return Leaves.from_bytes(self.reveal.leaves)

    def words(self, key: Digest) -> tuple[Digest, ...]:
        """The plain words under the seat's key."""
        return plain_words(self.reveal.leaves, key)

    @property
    def segments(self) -> int:
        """What it did of the round."""
        return len(self.reveal.leaves) // LEAF_BYTES


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The round that is trained, revealed or merged.

    Attributes:
        block: in which it opened.
        seated: seats that it opened with; `stopped` those that disagreed or fell since.
        ready: places of its pool; `committee` those of the committee draw number `committee_draw`.
        committee_seed: what its words begin with; of the first committee draw the data seed.
        model: digest of the global state that it opens from; zero in round 0.
        deadline: of the phase, unix seconds.
        half_merge: until then a word waits for updates that are not here.
        seed_due: from then on somebody should have the audit seed drawn, if no word has.
        words_end: of the committee draw; from then on no word is taken.
        audit_seed, next_seed: zero until they are known.
        seats, places: the holders of both.
        reveals, words: in the chain's order; words of the committee draw.
        silent: places that said nothing in a committee draw that was replaced.
        accused, fallen: seats, as of MERGE's opening.
        early_keys: that the round's providers have shown before it is settled.
        early_audit_reports: what members of its pool have sealed by now, and when: it counts where
        the
            round is settled in that second.
    """

    slot: Slot
    phase: Phase
    block: BlockRef
    seed: Digest
    seated: Bitmap
    ready: Bitmap
    committee: Bitmap
    model: Digest
    deadline: int
    seats: Mapping[SeatIndex, HolderId]
    places: Mapping[PlaceIndex, HolderId]
    committee_draw: int = 0
    committee_seed: Digest = ZERO_DIGEST
    stopped: Bitmap = NO_BITS
    half_merge: int = 0
    seed_due: int = 0
    words_end: int = 0
    audit_seed: Digest = ZERO_DIGEST
    next_seed: Digest = ZERO_DIGEST
    commits: Mapping[SeatIndex, SeatCommit] = field(default_factory=dict)
    reveals: Mapping[SeatIndex, SeatReveal] = field(default_factory=dict)
    words: Mapping[PlaceIndex, Bitmap] = field(default_factory=dict)
    silent: Bitmap = NO_BITS
    accused: Bitmap = NO_BITS
    fallen: Bitmap = NO_BITS
    early_keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    early_audit_reports: Mapping[HolderId, tuple[Digest, int]] = field(default_factory=dict)

    @property
    def round(self) -> RoundIndex:
        return self.slot.round

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
    def words_accumulator(self) -> Digest:
        """Over the committee draw's words so far."""
        return accumulate_words(self.committee_seed, self.words.items())

    @property
    def available(self) -> Bitmap:
        """Seats that more than half of the committee said to have."""
        return had(self.words.values(), self.committee.bit_count(), self.revealed)

    @property
    def is_merge_over(self) -> bool:
        """Whether no word to come can change who is available."""
        words = list(self.words.values())
        return is_settled_who_is_had(words, self.committee.bit_count(), self.revealed)

    @property
    def segments(self) -> dict[SeatIndex, int]:
        """What each revealed seat did."""
        return {seat: item.segments for seat, item in self.reveals.items()}

    @property
    def merge_facts(self) -> MergeFacts:
        """What decides whose updates are merged, beside the updates."""
        words, members = list(self.words.values()), self.committee.bit_count()
        return MergeFacts(
            self.revealed, members, words, self.segments, fallen=self.fallen, accused=self.accused
        )

    def digest_of(self, verdict: Verdict) -> Digest:
        """What the committee draw's committee signs, if this is its verdict."""
        return certificate_hash(self.slot, self.seed, self.words_accumulator, verdict)

    def may_settle(self, now: int) -> bool:
        """Whether a certificate would be taken now, as far as time and words decide."""
        return self.phase is Phase.MERGE and (self.is_merge_over or now >= self.words_end)

    @property
    def lacking(self) -> Bitmap:
        """Places whose word lacks a seat that is available: they need not sign."""
        had = self.available
        return to_bitmap(place for place, has in self.words.items() if had & ~has)


@dataclass(frozen=True, slots=True)
class Contest:
    """Somebody has shown that an opened *fine* does not tell the seat's words: its fee is gone.

    `is_wrong` is None until the seat's round is FINAL and somebody settles it. Then who showed an
    auditor's first wrong word of the round is credited `pay.contest_reward`; where the seat fell
    for that round, the auditor is credited its fee.

    The half of a seat's pay that waits for who showed its key is one of NO_HOLDER's.
    """

    by: Address
    is_wrong: bool | None = None


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A settled round with its audit.

    Attributes:
        digest: of the verdict, which is what its committee signs.
        signers: places that have signed it by now.
        silent: places that said nothing by the end of a committee draw's words.
        words: of the committee draw that settled.
        drawn: seats that are audited; `duties` by place.
        pay: seats that are paid, as far as falls take nothing.
        short: seats that did too little to be merged, where a certificate settled the round.
        audit reports, bodies: by auditor, before and after the opening.
        keys: shown, whether they are what was committed to or not.
        early_keys: shown before the settlement; known to all, and not shown for any rule.
        leaks: keys that somebody else showed first, and who.
        late: words said after the settlement, by member.
        dropped: accusations that their authors did not play, by author and seat.
        proven: those whose fee is credited, since the seat has fallen.
        is_consistent: the facts are those that the events give.
        committee_seed: of the committee draw that settled.
        accused, fallen: seats, as of MERGE's opening.
    """

    slot: Slot
    block: BlockRef
    digest: Digest
    verdict: Verdict
    facts: Facts
    signers: Bitmap
    silent: Bitmap
    seats: Mapping[SeatIndex, HolderId]
    places: Mapping[PlaceIndex, HolderId]
    reveals: Mapping[SeatIndex, SeatReveal]
    words: Mapping[PlaceIndex, Bitmap]
    clock: AuditClock
    drawn: Bitmap
    duties: Mapping[PlaceIndex, tuple[SeatIndex, ...]]
    pay: Bitmap
    is_consistent: bool
    audit_reports: Mapping[HolderId, Digest] = field(default_factory=dict)
    bodies: Mapping[HolderId, Body] = field(default_factory=dict)
    keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    leaks: Mapping[SeatIndex, Address] = field(default_factory=dict)
    struck: Bitmap = NO_BITS
    contests: Mapping[tuple[HolderId, SeatIndex], Contest] = field(default_factory=dict)
    late: Mapping[HolderId, Bitmap] = field(default_factory=dict)
    dropped: frozenset[tuple[HolderId, SeatIndex]] = frozenset()
    proven: frozenset[tuple[HolderId, SeatIndex]] = frozenset()
    early_keys: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    committee_seed: Digest = ZERO_DIGEST
    accused: Bitmap = NO_BITS
    fallen: Bitmap = NO_BITS
    short: Bitmap = NO_BITS

    @property
    def round(self) -> RoundIndex:
        return self.slot.round

    @property
    def unearned(self) -> Bitmap:
        """Short seats of a round that merged nothing: they earn nothing, and nothing is burnt."""
        return NO_BITS if self.verdict.merged else self.short

    @property
    def merge_facts(self) -> MergeFacts:
        """What decided whose updates were merged, beside the updates."""
        words, members = list(self.words.values()), self.facts.committee.bit_count()
        segments = {seat: item.segments for seat, item in self.reveals.items()}
        said = (self.facts.revealed, members, words, segments)
        return MergeFacts(*said, fallen=self.fallen, accused=self.accused)

    @property
    def unsigned(self) -> Bitmap:
        """Places that have not signed, but for those whose word lacks an available seat: they earn
        nothing for it, and miss nothing. None of a round that was settled without a certificate.
        """
        if not any(self.digest):
            return NO_BITS
        had = self.facts.available
        lacking = to_bitmap(place for place, has in self.words.items() if had & ~has)
        return Bitmap(self.facts.committee & ~self.signers & ~lacking)

    def key_of(self, seat: SeatIndex) -> Digest | None:
        """The key that was committed to, once it is shown."""
        key, told = self.keys.get(seat), self.reveals.get(seat)
        if key is None or told is None or key_hash(key) != told.reveal.key_hash:
            return None
        return key

    def known_key(self, seat: SeatIndex) -> Digest | None:
        """The key that was committed to, shown in time or too early."""
        early, told = self.early_keys.get(seat), self.reveals.get(seat)
        if early is None or told is None or key_hash(early) != told.reveal.key_hash:
            return self.key_of(seat)
        return early

    def place_of(self, holder: HolderId) -> PlaceIndex | None:
        """The place that the holder has in this round's pool."""
        return next((place for place, held in self.places.items() if held == holder), None)

    def duties_of(self, holder: HolderId) -> tuple[SeatIndex, ...]:
        """Seats that the holder audits."""
        place = self.place_of(holder)
        return () if place is None else self.duties.get(place, ())


@dataclass(frozen=True, slots=True)
class GameRecord:
    """A game about a settled round of the job.

    Attributes:
        bond: wei, the challenger's.
        evidence: what the claim was proved with; dropped with the moves when the game is over.
        began_at: unix seconds of its beginning; 0 while it waits.
        clock: what time is left; None while it waits.
        moves: the parties' events, in the chain's order.
        decided: by the contract's computation; it pays once somebody concludes the game.
    """

    id: int
    challenger: Address
    bond: int
    claim: Claim
    evidence: bytes
    began_at: int = 0
    clock: Clock | None = None
    moves: tuple[ContractEvent, ...] = ()
    decided: GameOutcome = GameOutcome.NONE
    outcome: GameOutcome = GameOutcome.NONE

    @property
    def is_open(self) -> bool:
        """Whether it waits or is being played."""
        return self.outcome is GameOutcome.NONE

    @property
    def is_holders_turn(self) -> bool:
        """Whose turn it is, where it has begun and is not over."""
        return is_holders_turn(self.moves)

    @property
    def deadline(self) -> int:
        """Unix seconds from which who is to move has lost; 0 where nobody is to move."""
        if self.clock is None or not self.is_open or self.decided:
            return 0
        return self.clock.deadline(self.is_holders_turn)


Accusation = tuple[Address, Digest, int, bool]
"""As the game remembers it: by whom, of which place, the segment, and whether it is the link."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as its events tell it. Start from `JobView.of`, fold with `rounds.apply`.

    Attributes:
        round: the one that is open, or the next to open.
        open: what runs; None in WAITING and when the job is closed.
        providers, verifiers: everybody who ever held a seat or a place, by id.
        held: seats that the next round may count on.
        records: misses of accounts, by role.
        settled: rounds with their audits, in order.
        games: about its settled rounds, by number.
        crowded_out: what somebody would have challenged, had there been room in the queue.
        gateways: last announced URL by account.
        paid: wei by account, credits included; `credits` those that are not claimed.
        burnt: wei that nobody gets; `burnt_to` the first round not burnt through.
    """

    domain: Domain
    job_id: JobId
    block: BlockRef = _NO_BLOCK
    status: JobStatus = JobStatus.NONE
    phase: Phase = Phase.WAITING
    round: RoundIndex = _FIRST_ROUND
    open: OpenRound | None = None
    submitter: Address = _NOBODY
    policy: Address = _NOBODY
    spec_digest: Digest = ZERO_DIGEST
    spec_cid: bytes = b""
    terms: Terms | None = None
    params: Params | None = None
    terms_hash: Digest = ZERO_DIGEST
    cancel_requested: bool = False
    closed_at: int = 0
    held: Bitmap = NO_BITS
    providers: Mapping[HolderId, Holder] = field(default_factory=dict)
    verifiers: Mapping[HolderId, Holder] = field(default_factory=dict)
    records: Mapping[tuple[Role, Address], Record] = field(default_factory=dict)
    settled: tuple[SettledRound, ...] = ()
    games: Mapping[int, GameRecord] = field(default_factory=dict)
    crowded_out: frozenset[Accusation] = frozenset()
    gateways: Mapping[Address, str] = field(default_factory=dict)
    funded: int = 0
    refunded: int = 0
    burnt: int = 0
    burnt_to: RoundIndex = _FIRST_ROUND
    paid: Mapping[Address, int] = field(default_factory=dict)
    credits: Mapping[Address, int] = field(default_factory=dict)

    @classmethod
    def of(cls, domain: Domain, job_id: JobId) -> JobView:
        """The view before any event."""
        return cls(domain, job_id)

    def require_terms(self) -> Terms:
        """The chain's terms. Raises ProtocolError before the job exists."""
        if self.terms is None:
            raise ProtocolError(f"job {self.job_id} is not known yet")
        return self.terms

    def slot(self, round: RoundIndex) -> Slot:
        """The slot of a round's messages."""
        return Slot(self.domain, self.job_id, round)

    # --- members ---

    def holders(self, role: Role) -> Mapping[HolderId, Holder]:
        """Everybody who ever had this role in the job."""
        return self.providers if role is Role.PROVIDER else self.verifiers

    def holder_of(self, account: Address) -> Holder | None:
        """The account's one part in the job that is not released, the newest first."""
        everyone = (*self.providers.values(), *self.verifiers.values())
        own = [holder for holder in everyone if holder.account == account]
        standing = [holder for holder in own if not holder.is_released]
        return max(standing or own, key=lambda holder: (holder.start, holder.id), default=None)

    def standing(self, account: Address) -> Holder | None:
        """The account's part in the job whose bond is not released; it takes no second one."""
        holder = self.holder_of(account)
        return None if holder is None or holder.is_released else holder

    def is_bound(self, account: Address) -> bool:
        """Whether a bond of the account may still be lost: that of its part, or of a challenge."""
        games = self.games.values()
        plays = any(g.is_open and account in (g.challenger, g.claim.holder) for g in games)
        return plays or self.standing(account) is not None

    def ids_of(self, account: Address, role: Role) -> set[HolderId]:
        """Every id that the account ever had in this role."""
        return {h.id for h in self.holders(role).values() if h.account == account}

    def pool(self, round: int) -> dict[PlaceIndex, Holder]:
        """Holders of places that count in a round, if it opens as things stand."""
        counting = (h for h in self.verifiers.values() if h.counts_in(round))
        return {PlaceIndex(h.index): h for h in counting}

    def ready_places(self, round: int) -> Bitmap:
        """Of the pool, who has said to be ready."""
        return to_bitmap(place for place, h in self.pool(round).items() if h.is_ready)

    def free_seats(self) -> list[SeatIndex]:
        """Seats that `sit` would take: held by nobody next, and without an uncut miss."""
        running = NO_BITS if self.open is None else self.open.standing
        uncut = to_bitmap(h.index for h in self.providers.values() if h.missed != NO_ROUND)
        taken = self.held | running | uncut
        return [SeatIndex(s) for s in range(self.require_terms().seats) if not taken >> s & 1]

    def gateway_urls(self) -> tuple[str, ...]:
        """Gateways of everyone who ever had a part in the job, the submitter first."""
        members = (*self.providers.values(), *self.verifiers.values())
        known = dict.fromkeys((self.submitter, *(holder.account for holder in members)))
        return tuple(dict.fromkeys(self.gateways[a] for a in known if a in self.gateways))

    # --- rounds ---

    def settled_round(self, round: RoundIndex) -> SettledRound | None:
        return self.settled[round] if round < len(self.settled) else None

    def is_last(self, round: int) -> bool:
        """Whether the terms have no round after it."""
        return round + 1 == self.require_terms().rounds

    @property
    def model(self) -> Digest:
        """Digest of the newest global state that a committee certified; zero before any."""
        return self.settled[-1].verdict.state if self.settled else ZERO_DIGEST

    @property
    def model_cid(self) -> bytes:
        """Where that is; empty before any."""
        cids = (past.verdict.cid for past in reversed(self.settled))
        return next((cid for cid in cids if cid), b"")

    @property
    def empty_streak(self) -> int:
        """Rounds running, the newest among them, that merged nothing."""
        streak = 0
        for past in reversed(self.settled):
            if past.verdict.merged:
                break
            streak += 1
        return streak

    def auditing(self, now: int) -> Iterator[SettledRound]:
        """Settled rounds whose windows are not over, oldest first."""
        return (past for past in self.settled if now < past.clock.window_end)

    def auditor_of(self, round: OpenRound | SettledRound, account: Address) -> HolderId | None:
        """The account's id in the round's pool or committee."""
        own = (h for h in round.places.values() if self.verifiers[h].account == account)
        return next(own, None)

    # --- games and falls ---

    def games_about(self, role: Role, holder: HolderId) -> Iterator[GameRecord]:
        """Open games about a holder's bond."""
        return (
            game
            for game in self.games.values()
            if game.is_open and parties(game.claim) == (self.job_id, role, holder)
        )

    def has_fallen(self, claim: Claim) -> bool:
        """Whether the holder that a claim is of has lost its bond, to a game or otherwise."""
        about = parties(claim)
        return about is not None and self.holders(about[1])[about[2]].has_fallen

    def is_final(self, role: Role, holder: HolderId, round: RoundIndex, now: int) -> bool:
        """Whether nothing can change what a holder is owed for a settled round any more."""
        past = self.settled_round(round)
        if past is None or now < past.clock.window_end:
            return False
        if role is Role.VERIFIER:
            return True
        return all(window_of(game.claim) > round for game in self.games_about(role, holder))

    def accused(self, now: int) -> set[HolderId]:
        """Providers about whom an opened *differs* can still be played, or is being played."""
        played = {window_of(game.claim) for game in self.games.values() if game.is_open}
        return {
            past.seats[duty.seat]
            for past in self.settled
            if now < past.clock.half or past.round in played
            for auditor, body in past.bodies.items()
            for duty in body.duties
            if not duty.is_fine and self._stands(past, auditor, duty.seat, now)
        }

    def _stands(self, past: SettledRound, auditor: HolderId, seat: SeatIndex, now: int) -> bool:
        """Whether an accusation may become a game, or is one that is not over."""
        author, about = self.verifiers[auditor].account, past.seats[seat]
        own = [
            game
            for game in self.games.values()
            if game.challenger == author
            and window_of(game.claim) == past.round
            and parties(game.claim) == (self.job_id, Role.PROVIDER, about)
        ]
        return any(game.is_open for game in own) or (not own and now < past.clock.half)

    # --- the clock ---

    def is_advance_due(self, now: int) -> bool:
        """Whether `advance` would move the job from its phase."""
        if self.status is JobStatus.NONE or self.phase is Phase.CLOSED:
            return False
        terms = self.require_terms()
        if now >= last_moment(terms):
            return True
        if self.open is None:
            return now >= terms.expiry or self._can_open()
        if self.phase is Phase.MERGE:
            return self.open.deadline <= now < terms.expiry
        return now >= self.open.deadline

    def gathered(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Seats that are held and verifiers that are ready, each with how many open a round."""
        terms = self.require_terms()
        ready = self.ready_places(self.round).bit_count()
        enough = max(terms.min_providers, 2 * terms.f + 1)
        return (self.held.bit_count(), enough), (ready, terms.min_verifiers)

    def _can_open(self) -> bool:
        return all(here >= enough for here, enough in self.gathered())


_ROLE_BIT: Final = 32
_JOB_BIT: Final = 40


def bond_set(job: JobId, role: Role, holder: HolderId) -> Digest:
    """Names the bond that a holder's claims stand on."""
    return Digest((job << _JOB_BIT | int(role) << _ROLE_BIT | holder).to_bytes(32, "big"))


def pay_place(job: JobId, role: Role, holder: HolderId, round: RoundIndex) -> Digest:
    """Names a holder's round, whose pay waits for games."""
    whole = int.from_bytes(bond_set(job, role, holder), "big") << 32 | round
    return Digest(whole.to_bytes(32, "big"))


def parties(claim: Claim) -> tuple[JobId, Role, HolderId] | None:
    """Whose bond a claim stands on: job, role, id; None for what is no such name."""
    value = int.from_bytes(claim.set, "big")
    role = value >> _ROLE_BIT & 0xFF
    if role not in tuple(Role):
        return None
    return JobId(value >> _JOB_BIT), Role(role), HolderId(value & 0xFFFFFFFF)


def accusation(challenger: Address, claim: Claim) -> Accusation:
    """What a challenge says differs; about an earlier round of the reset period the place's
    beginning.
    """
    is_earlier = claim.round < window_of(claim)
    said = (0, False) if is_earlier else (claim.segment, claim.is_link)
    return (challenger, claim.place, *said)


def window_of(claim: Claim) -> RoundIndex:
    """The round in whose window the claim was challenged, which may be a later one of its reset
    period.
    """
    return RoundIndex(int.from_bytes(claim.place[-4:], "big"))
