"""What a job looks like from its events: data only; `atoll.protocol.rounds` folds it.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from atoll.errors import ProtocolError
from atoll.protocol.clocks import MOST_REPEATS, draws_of_a_stall, last_moment
from atoll.protocol.game_records import Accusation, GameRecord, parties, window_of
from atoll.protocol.holders import Holder
from atoll.protocol.missed_duties import MissRecord
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.round_list import RoundList
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    NO_ROUND,
    ZERO_DIGEST,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    HolderId,
    JobId,
    JobStatus,
    Params,
    Phase,
    Role,
    RoundId,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Terms,
    bits,
    to_bitmap,
)

_FIRST_ROUND: Final = RoundIndex(0)
_NO_BLOCK: Final = BlockRef(0, ZERO_DIGEST, 0)
_NOBODY: Final = Address("0x0000000000000000000000000000000000000000")
EMPTY_ROUNDS: Final = 3
"""So many rounds running that merge nothing end a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Who is there for the next round, and how many open it: held seats, ready verifiers."""

    held: int
    enough_held: int
    ready: int
    enough_ready: int

    @property
    def can_open(self) -> bool:
        return self.held >= self.enough_held and self.ready >= self.enough_ready


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as its events tell it. Start from `JobView.of`, fold with `rounds.apply`.

    Attributes:
        round: the one that is open, or the next to open.
        open: what runs; None in WAITING and when the job is closed.
        providers, verifiers: everybody who ever held a seat or a slot, by id.
        held: seats that the next round may count on.
        miss_records: missed duties and excuses of accounts, by role.
        settled: rounds with their audits, in order.
        unresolved: those of them with a contest that is undecided, or an opened *mismatch* that is
            not proven.
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
    miss_records: Mapping[tuple[Role, Address], MissRecord] = field(default_factory=dict)
    settled: RoundList = field(default_factory=RoundList)
    unresolved: frozenset[RoundIndex] = frozenset()
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

    def round_id(self, round: RoundIndex) -> RoundId:
        """The round id of a round's messages."""
        return RoundId(self.domain, self.job_id, round)

    # --- members ---

    def miss_record(self, role: Role, account: Address) -> MissRecord:
        """What the account missed in the role."""
        return self.miss_records.get((role, account), MissRecord())

    def holders(self, role: Role) -> Mapping[HolderId, Holder]:
        """Everybody who ever had this role in the job."""
        return self.providers if role is Role.PROVIDER else self.verifiers

    def holder_of(self, account: Address) -> Holder | None:
        """The account's one part in the job that is not released, the newest first."""
        everyone = (*self.providers.values(), *self.verifiers.values())
        parts = [holder for holder in everyone if holder.account == account]
        standing = [holder for holder in parts if not holder.is_released]
        return max(standing or parts, key=lambda holder: (holder.start, holder.id), default=None)

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

    def pool(self, round: int) -> dict[SlotIndex, Holder]:
        """Holders of slots that count in a round, if it opens as things stand."""
        counting = (h for h in self.verifiers.values() if h.counts_in(round))
        return {SlotIndex(h.index): h for h in counting}

    def ready_slots(self, round: int) -> Bitmap:
        """Of the pool, who has said to be ready."""
        return to_bitmap(slot for slot, h in self.pool(round).items() if h.is_ready)

    def free_seats(self) -> list[SeatIndex]:
        """Seats that `join` would take: held by nobody next, and without a penalty that is due."""
        running = NO_BITS if self.open is None else self.open.standing
        unpenalised = to_bitmap(h.index for h in self.providers.values() if h.missed != NO_ROUND)
        taken = self.held | running | unpenalised
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
        cids = (settled_round.verdict.cid for settled_round in reversed(self.settled))
        return next((cid for cid in cids if cid), b"")

    @property
    def empty_streak(self) -> int:
        """Rounds running, the newest among them, that merged nothing."""
        streak = 0
        for settled_round in reversed(self.settled):
            if settled_round.verdict.merged:
                break
            streak += 1
        return streak

    def auditing(self, now: int) -> Iterator[SettledRound]:
        """Settled rounds whose windows are not over, oldest first."""
        return self.settled.span(self.windows_over(now))

    def windows_over(self, now: int) -> int:
        """How many settled rounds' windows are over: those of the first ones."""
        return self.settled.count_to(now, lambda settled_round: settled_round.clock.window_end)

    def auditor_of(self, round: OpenRound | SettledRound, account: Address) -> HolderId | None:
        """The account's id in the round's pool or committee."""
        holders_of_account = (
            h for h in round.slots.values() if self.verifiers[h].account == account
        )
        return next(holders_of_account, None)

    # --- games and slashes ---

    def games_about(self, role: Role, holder: HolderId) -> Iterator[GameRecord]:
        """Open games about a holder's bond."""
        return (
            game
            for game in self.games.values()
            if game.is_open and parties(game.claim) == (self.job_id, role, holder)
        )

    def is_final(self, role: Role, holder: HolderId, round: RoundIndex, now: int) -> bool:
        """Whether nothing can change what a holder is owed for a settled round any more."""
        settled_round = self.settled_round(round)
        if settled_round is None or now < settled_round.clock.window_end:
            return False
        if role is Role.VERIFIER:
            return True
        return all(window_of(game.claim) > round for game in self.games_about(role, holder))

    def accused(self, now: int) -> set[HolderId]:
        """Providers about whom an opened *mismatch* can still be played, or is being played."""
        played = {window_of(game.claim) for game in self.games.values() if game.is_open}
        first = self.settled.count_to(now, lambda settled_round: settled_round.clock.half)
        rounds = [self.settled[round] for round in played if round < first]
        return {
            settled_round.seats[entry.seat]
            for settled_round in (*rounds, *self.settled.span(first))
            for auditor, body in settled_round.opened_reports.items()
            for entry in body.entries
            if not entry.is_valid and self._stands(settled_round, auditor, entry.seat, now)
        }

    def _stands(
        self, settled_round: SettledRound, auditor: HolderId, seat: SeatIndex, now: int
    ) -> bool:
        """Whether an accusation may become a game, or is one that is not over."""
        author, about = self.verifiers[auditor].account, settled_round.seats[seat]
        games = [
            game
            for game in self.games.values()
            if game.challenger == author
            and window_of(game.claim) == settled_round.round
            and parties(game.claim) == (self.job_id, Role.PROVIDER, about)
        ]
        return any(game.is_open for game in games) or (not games and now < settled_round.clock.half)

    # --- the clock ---

    def is_advance_due(self, now: int) -> bool:
        """Whether `advance` would move the job from its phase."""
        if self.status is JobStatus.NONE or self.phase is Phase.CLOSED:
            return False
        terms = self.require_terms()
        if now >= last_moment(terms):
            return True
        if self.open is None:
            return now >= terms.expiry or self.gathered().can_open
        is_settled_late = self.phase is Phase.MERGE and self.is_merge_overdue(now)
        return now >= self.open.deadline and not is_settled_late

    def is_merge_overdue(self, now: int) -> bool:
        """Whether no committee draw follows the one that ends: `settleLate` is due instead."""
        running, terms = self.open, self.require_terms()
        if running is None or now >= terms.expiry:
            return running is not None
        over, most = running.committee_draw + 1, draws_of_a_stall(terms)
        if over < most or not (self.cancel_requested or self._is_left(running)):
            return False
        # Where most were silent, the chain may have stood still: votes say what is paid.
        is_heard = 2 * len(running.votes) > running.committee.bit_count()
        return is_heard or over >= most + MOST_REPEATS

    def _is_left(self, running: OpenRound) -> bool:
        """Whether somebody of the round will not be in the next one."""
        members = (self.verifiers[running.slots[SlotIndex(s)]] for s in bits(running.ready))
        return bool(running.revealed & ~self.held) or any(m.to != NO_ROUND for m in members)

    def gathered(self) -> Gathered:
        """Seats that are held and verifiers that are ready, each with how many open a round."""
        terms = self.require_terms()
        # Fewer than 2f + 1 updates merge nothing: a round of them would cost all and move nothing.
        return Gathered(
            held=self.held.bit_count(),
            enough_held=max(terms.min_providers, 2 * terms.f + 1),
            ready=self.ready_slots(self.round).bit_count(),
            enough_ready=terms.min_verifiers,
        )
