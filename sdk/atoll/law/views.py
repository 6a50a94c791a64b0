"""What a job looks like from its events: data only; `atoll.law.rounds` folds it.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import ProtocolError
from atoll.law.games.claims import Claim
from atoll.law.games.machine import Clock
from atoll.law.games.machine import Outcome as GameOutcome
from atoll.law.games.turns import is_holders_turn
from atoll.law.terms import is_quorum
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Attempt,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    Evidence,
    Fault,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    Report,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Slot,
    Terms,
    Verdict,
    VerifierIndex,
)

if TYPE_CHECKING:
    from atoll.law.events import ContractEvent

_NO_BITS = Bitmap(0)
_FIRST_ROUND = RoundIndex(0)
_FIRST_ATTEMPT = Attempt(0)
_NO_BLOCK = BlockRef(0, ZERO_DIGEST, 0)
_NOBODY = Address("0x0000000000000000000000000000000000000000")
BURNED_FAULTS = frozenset({Fault.WRONG_REPLAY, Fault.WRONG_LINK, Fault.MALFORMED})
"""Faults that count as caught: proof that a seat's work was wrong, not only out of reach."""
ANSWER_SHARE = 4
"""The last 1/4 of the report window is for answers: a challenge comes before it."""
SPARE_CHALLENGES = 3
"""What a verifier may challenge in an attempt, beyond one block for each seat."""
CHALLENGES_BELOW = 128
"""Reports of a round from this index on cannot be challenges."""
MAX_ANSWER_BYTES = 65_536
"""The largest block that the chain takes as an answer."""


@dataclass(frozen=True, slots=True)
class RoundState:
    """`Rounds.state(jobId)`, field for field."""

    status: JobStatus = JobStatus.NONE
    phase: Phase = Phase.WAITING
    round: RoundIndex = _FIRST_ROUND
    attempt: Attempt = _FIRST_ATTEMPT
    train_attempt: Attempt = _FIRST_ATTEMPT
    deadline: int = 0
    beacon_block: int = 0
    cut_block: int = 0
    seated: Bitmap = _NO_BITS
    committed: Bitmap = _NO_BITS
    revealed: Bitmap = _NO_BITS
    audit_set: Bitmap = _NO_BITS
    accepted: Bitmap = _NO_BITS
    rejected: Bitmap = _NO_BITS
    unresolved: Bitmap = _NO_BITS
    caught: Bitmap = _NO_BITS
    verifiers: Bitmap = _NO_BITS
    dutiful: Bitmap = _NO_BITS
    total_weight: int = 0
    data_seed: Digest = ZERO_DIGEST
    audit_seed: Digest = ZERO_DIGEST
    commit_accumulator: Digest = ZERO_DIGEST
    reveal_accumulator: Digest = ZERO_DIGEST
    evidence_root: Digest = ZERO_DIGEST
    cut_block_hash: Digest = ZERO_DIGEST
    parent: Digest = ZERO_DIGEST
    cumulative_total: int = 0


@dataclass(frozen=True, slots=True)
class VerifierMember:
    """A verifier of the roster; `weight` in wei of stake."""

    account: Address
    weight: int
    ready: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class SeatCommit:
    account: Address
    commitment: Digest


@dataclass(frozen=True, slots=True)
class SeatReveal:
    """What a seat's commitment opened to; `opening` is the optimiser root its round began with."""

    account: Address
    reveal: Reveal
    commitment: Digest
    opening: Digest


@dataclass(frozen=True, slots=True)
class BallotRecord:
    """A verifier's ballot of one audit, its supplement merged in; segments as bitmaps by seat."""

    account: Address
    findings: Mapping[SeatIndex, int]
    replay_roots: tuple[Digest, ...]

    @property
    def is_supplemented(self) -> bool:
        return len(self.replay_roots) > 1


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """Bit i of each map speaks of report i."""

    account: Address
    agree: Bitmap
    disagree: Bitmap
    cannot_fetch: Bitmap


@dataclass(frozen=True, slots=True)
class AttestationRecord:
    account: Address
    verdict_hash: Digest
    weight: int


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A report of the running round; indices count through the round's attempts.

    Attributes:
        withdrawn: of those who raised a challenge, the verifiers that took it back.
        answer: the challenged block, once it is on the chain; dropped when the round is settled.
    """

    index: int
    attempt: Attempt
    verifier: VerifierIndex
    reporter: Address
    accused: Address
    report: Report
    assigned: bool
    seconders: Bitmap = _NO_BITS
    withdrawn: Bitmap = _NO_BITS
    is_answered: bool = False
    answer: bytes = b""
    outcome: Outcome = Outcome.OPEN
    annulled: bool = False

    @property
    def reporters(self) -> Bitmap:
        """Verifiers that reported or seconded it: they agree without voting.

        None once a challenge is answered: then all vote alike.
        """
        standing = (self.seconders | 1 << self.verifier) & ~self.withdrawn
        return _NO_BITS if self.is_answered else Bitmap(standing)

    @property
    def awaits_answer(self) -> bool:
        """True iff it is a challenge that is neither answered nor taken back."""
        is_open = not self.is_answered and self.outcome is Outcome.OPEN
        return is_open and self.report.fault is Fault.WITHHELD

    @property
    def stands(self) -> bool:
        """True iff it rejects its seat."""
        return not self.annulled and self.outcome in {Outcome.CONFIRMED, Outcome.UNFETCHABLE}


@dataclass(frozen=True, slots=True)
class DueFault:
    """A `punish(job, round, offence, index)` that anyone may send from `due_at` (unix seconds).

    `account` is whom it is about: a seat's holder, a report's reporter or a verifier.
    """

    round: RoundIndex
    offence: Offence
    index: int
    account: Address
    due_at: int


@dataclass(frozen=True, slots=True)
class DueCredit:
    """A `credit(job, round, role, index)` that anyone may send: pay without a verdict, in wei."""

    round: RoundIndex
    role: Role
    index: int
    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class SettledRound:
    """A settled round, with what it takes to recompute its pay.

    Attributes:
        data_seed, reveal_accumulator: of the training that settled.
        seats: holder of each seat that the round seated.
        reveals: in the chain's order.
        verifiers: account of each verifier of the snapshot.
        tokens: verified tokens by seat; `pay` in wei by account; `claims` cumulative after it.
        is_consistent: the verdict's totals and roots are the ones that the evidence gives.
    """

    slot: Slot
    train_attempt: Attempt
    block: BlockRef
    verdict_hash: Digest
    verdict: Verdict
    dispute_until: int
    data_seed: Digest
    reveal_accumulator: Digest
    evidence: Evidence
    seats: Mapping[SeatIndex, Address]
    reveals: Mapping[SeatIndex, SeatReveal]
    verifiers: Mapping[VerifierIndex, Address]
    reports: tuple[ReportRecord, ...]
    tokens: tuple[int, ...]
    pay: Mapping[Address, int]
    claims: Mapping[Address, int]
    is_consistent: bool
    is_final: bool = False


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


@dataclass(frozen=True, slots=True)
class RoundWork:
    """The running round beyond `RoundState`.

    Attributes:
        seats, verifiers: the members that froze when the round opened.
        ballots, votes, attestations: of the current attempt.
        findings: segments by verifier and seat over the audits that still count.
        replayed: seats that any ballot of this training speaks of.
        absent, contradicted: verifiers at fault in any audit of the round.
        disputed: seats that the last audit left with an unresolved report.
        faults: absences and contradictions held against accounts, by offence and index.
        beacon_armed: block in which this training's first audit beacon was fixed; 0 before.
        cut: block of the cut, once the round is being attested.
    """

    seats: Mapping[SeatIndex, Address] = field(default_factory=dict)
    verifiers: Mapping[VerifierIndex, VerifierMember] = field(default_factory=dict)
    commits: Mapping[SeatIndex, SeatCommit] = field(default_factory=dict)
    reveals: Mapping[SeatIndex, SeatReveal] = field(default_factory=dict)
    reports: tuple[ReportRecord, ...] = ()
    ballots: Mapping[VerifierIndex, BallotRecord] = field(default_factory=dict)
    votes: Mapping[VerifierIndex, VoteRecord] = field(default_factory=dict)
    attestations: Mapping[VerifierIndex, AttestationRecord] = field(default_factory=dict)
    findings: Mapping[VerifierIndex, Mapping[SeatIndex, int]] = field(default_factory=dict)
    replayed: Bitmap = _NO_BITS
    absent: Bitmap = _NO_BITS
    contradicted: Bitmap = _NO_BITS
    disputed: Bitmap = _NO_BITS
    faults: Mapping[tuple[Offence, int], Address] = field(default_factory=dict)
    auditors: int = 0
    half_time: int = 0
    beacon_armed: int = 0
    cut: BlockRef | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as its events tell it. Start from `JobView.of`, fold with `rounds.apply`.

    Attributes:
        jobs: the escrow contract, which claim leaves are bound to.
        seats: current holder of each seat; `leaving` those that go at the next boundary.
        verifiers: current members by index.
        newcomers: verifier places taken since a round last opened.
        waiting: accounts in the order in which they will sit down.
        gateways: last announced URL by account.
        optimiser_roots: each seat's last accepted optimiser root; absent is zero.
        claims: cumulative wei by account after the last settled round.
        credits: wei paid without a verdict, by account.
        claimed: cumulative wei that each account has claimed from claims trees.
        paid: wei that each account has been paid, credits included.
        games: about its settled rounds, by number; fallen: who lost one.
        withheld: wei that claims trees will still give to somebody who fell, and that goes back to
            the submitter; returned: wei that has gone back already.
    """

    domain: Domain
    jobs: Address
    job_id: JobId
    state: RoundState = field(default_factory=RoundState)
    work: RoundWork = field(default_factory=RoundWork)
    block: BlockRef = _NO_BLOCK
    submitter: Address = _NOBODY
    policy: Address = _NOBODY
    spec_digest: Digest = ZERO_DIGEST
    spec_cid: bytes = b""
    terms: Terms | None = None
    terms_hash: Digest = ZERO_DIGEST
    funded: int = 0
    refunded: int = 0
    cancel_requested: bool = False
    status_reason: str = ""
    closed_at: int = 0
    seats: Mapping[SeatIndex, Address] = field(default_factory=dict)
    leaving: Bitmap = _NO_BITS
    verifiers: Mapping[VerifierIndex, VerifierMember] = field(default_factory=dict)
    newcomers: Bitmap = _NO_BITS
    waiting: tuple[Address, ...] = ()
    gateways: Mapping[Address, str] = field(default_factory=dict)
    optimiser_roots: Mapping[SeatIndex, Digest] = field(default_factory=dict)
    settled: tuple[SettledRound, ...] = ()
    final_rounds: int = 0
    claims: Mapping[Address, int] = field(default_factory=dict)
    credits: Mapping[Address, int] = field(default_factory=dict)
    claimed: Mapping[Address, int] = field(default_factory=dict)
    paid: Mapping[Address, int] = field(default_factory=dict)
    due_faults: tuple[DueFault, ...] = ()
    due_credits: tuple[DueCredit, ...] = ()
    games: Mapping[int, GameRecord] = field(default_factory=dict)
    fallen: frozenset[Address] = frozenset()
    withheld: Mapping[Address, int] = field(default_factory=dict)
    returned: Mapping[Address, int] = field(default_factory=dict)

    @classmethod
    def of(cls, domain: Domain, jobs: Address, job_id: JobId) -> JobView:
        """The view before any event."""
        return cls(domain, jobs, job_id)

    def round_state(self) -> RoundState:
        """What `Rounds.state(jobId)` returns after the same events."""
        return self.state

    def require_terms(self) -> Terms:
        """The chain's terms. Raises ProtocolError before the job exists."""
        if self.terms is None:
            raise ProtocolError(f"job {self.job_id} is not known yet")
        return self.terms

    # --- slots ---

    @property
    def slot(self) -> Slot:
        """The slot of ballots, votes and the verdict."""
        return Slot(self.domain, self.job_id, self.state.round, self.state.attempt)

    @property
    def train_slot(self) -> Slot:
        """The slot of commits, traces and reveals."""
        return Slot(self.domain, self.job_id, self.state.round, self.state.train_attempt)

    # --- the running round ---

    @property
    def reveals(self) -> Mapping[SeatIndex, SeatReveal]:
        return self.work.reveals

    @property
    def reports(self) -> tuple[ReportRecord, ...]:
        """Every report of the round, over its attempts; index i at position i."""
        return self.work.reports

    @property
    def ballots(self) -> Mapping[VerifierIndex, BallotRecord]:
        return self.work.ballots

    @property
    def votes(self) -> Mapping[VerifierIndex, VoteRecord]:
        return self.work.votes

    @property
    def snapshot(self) -> Mapping[VerifierIndex, VerifierMember]:
        """The verifiers that froze when the round opened."""
        return self.work.verifiers

    @property
    def half_time(self) -> int:
        """Unix seconds from which others may take over what nobody reported on."""
        return self.work.half_time

    @property
    def auditors(self) -> int:
        """Verifiers assigned to each seat in this audit."""
        return self.work.auditors

    @property
    def steps(self) -> dict[SeatIndex, int]:
        """Steps that each seat revealed."""
        return {seat: item.reveal.steps for seat, item in self.work.reveals.items()}

    @property
    def attempt_reports(self) -> tuple[ReportRecord, ...]:
        """The reports of this attempt, which its CONFIRM decides."""
        return tuple(
            item
            for item in self.work.reports
            if item.attempt == self.state.attempt and item.outcome is not Outcome.WITHDRAWN
        )

    @property
    def challenge_until(self) -> int:
        """Unix seconds before which a block may be challenged in the running audit."""
        return self.state.deadline - self.require_terms().report_seconds // ANSWER_SHARE

    @property
    def cut_hash(self) -> Digest:
        """Hash of the block of the cut, which a verdict carries.

        Raises ProtocolError while no round is being attested.
        """
        if self.work.cut is None:
            raise ProtocolError("no evidence has been cut")
        return self.work.cut.hash

    def attested_weight(self, verdict_hash: Digest) -> int:
        """Weight behind a verdict in this attempt."""
        records = self.work.attestations.values()
        return sum(item.weight for item in records if item.verdict_hash == verdict_hash)

    def opening_optimiser_root(self, seat: SeatIndex) -> Digest:
        """The root a seat's revealed trace must open with: zero for a newcomer or after a reset."""
        revealed = self.work.reveals.get(seat)
        return self.last_optimiser_root(seat) if revealed is None else revealed.opening

    # --- members ---

    def seat_of(self, account: Address) -> SeatIndex | None:
        """The seat the account holds now."""
        return next((seat for seat, holder in self.seats.items() if holder == account), None)

    def verifier_of(self, account: Address) -> VerifierIndex | None:
        """The verifier place the account holds now."""
        return next((v for v, m in self.verifiers.items() if m.account == account), None)

    def active_seat_of(self, account: Address) -> SeatIndex | None:
        """The account's seat in the running round."""
        seat = self.seat_of(account)
        return seat if seat is not None and self.state.seated >> seat & 1 else None

    def active_verifier_of(self, account: Address) -> VerifierIndex | None:
        """The account's place in the running round's snapshot."""
        verifier = self.verifier_of(account)
        return verifier if verifier is not None and self.state.verifiers >> verifier & 1 else None

    def last_optimiser_root(self, seat: SeatIndex) -> Digest:
        """`Rounds.lastOptimiserRoot`."""
        return self.optimiser_roots.get(seat, ZERO_DIGEST)

    def gateway_urls(self) -> tuple[str, ...]:
        """Gateways of everyone who ever had a part in the job, the submitter first."""
        known = (self.submitter, *self.seats.values(), *self.work.seats.values())
        known += tuple(m.account for m in (*self.verifiers.values(), *self.work.verifiers.values()))
        for past in self.settled:
            known += (*past.seats.values(), *past.verifiers.values())
        urls = (
            self.gateways[account] for account in dict.fromkeys(known) if account in self.gateways
        )
        return tuple(dict.fromkeys(urls))

    # --- history and money ---

    def settled_round(self, round: RoundIndex) -> SettledRound | None:
        return self.settled[round] if round < len(self.settled) else None

    def claims_of(self, round: RoundIndex) -> Mapping[Address, int]:
        """Cumulative claims after a settled round. Raises ProtocolError where it is not settled."""
        settled = self.settled_round(round)
        if settled is None:
            raise ProtocolError(f"round {round} of job {self.job_id} is not settled")
        return settled.claims

    @property
    def final_claims(self) -> Mapping[Address, int]:
        """Cumulative claims that can be paid out now."""
        return self.settled[self.final_rounds - 1].claims if self.final_rounds else {}

    def claimable(self, account: Address) -> int:
        """Wei that `Jobs.claim` would pay the account now."""
        by_tree, returned = self.claimed.get(account, 0), self.returned.get(account, 0)
        credit = self.credits.get(account, 0) - self.paid.get(account, 0) + by_tree - returned
        if self.is_held(account):
            return credit
        due = self.final_claims.get(account, 0) - by_tree
        return credit + due - min(due, self.withheld.get(account, 0))

    def is_held(self, account: Address) -> bool:
        """True iff a game about the account's work is open: its pay and its bond wait."""
        return any(game.is_open and game.claim.holder == account for game in self.games.values())

    def finalisable(self, now: int) -> bool:
        """True iff `finalise` would do something: the oldest round's dispute window has ended."""
        pending = self.settled_round(RoundIndex(self.final_rounds))
        return pending is not None and pending.dispute_until <= now

    def punishable(self, now: int) -> tuple[DueFault, ...]:
        """The `punish` calls that would succeed now."""
        return tuple(fault for fault in self.due_faults if fault.due_at <= now)

    def is_poke_due(self, now: int, block_number: int) -> bool:
        """True iff `poke` would move the job from its phase, as far as phases decide."""
        state = self.state
        if state.phase is Phase.ATTEST and self.has_quorum:
            return now >= state.deadline + self.require_terms().attest_seconds
        if state.phase in {Phase.SEEDING, Phase.DRAW}:
            return block_number > state.beacon_block
        if state.phase in {Phase.TRAIN, Phase.REVEAL, Phase.REPORT, Phase.CONFIRM, Phase.ATTEST}:
            return now >= state.deadline
        if state.phase is Phase.CLOSED or state.status is JobStatus.NONE:
            return False
        terms, is_waiting = self.require_terms(), state.phase is Phase.WAITING
        ends = now >= terms.expiry or (is_waiting and self.cancel_requested)
        return ends or (is_waiting and self._can_open(terms))

    @property
    def has_quorum(self) -> bool:
        """Some verdict has its quorum, and so another window in which to be settled."""
        hashes = {item.verdict_hash for item in self.work.attestations.values()}
        total, terms = self.state.total_weight, self.require_terms()
        return any(is_quorum(self.attested_weight(h), total, terms) for h in hashes)

    def _can_open(self, terms: Terms) -> bool:
        """Enough members, and a quorum of the verifiers holds the manifest and every shard."""
        members = self.verifiers.values()
        ready = sum(member.ready for member in members)
        return (
            len(self.seats) >= terms.min_providers
            and len(members) >= terms.min_verifiers
            and is_quorum(ready, len(members), terms)
        )
