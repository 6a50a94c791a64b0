"""Claims of settled rounds that a game can be played about, and what proves them to the contract.

Rule of this file: field order is the ABI's of `IClaims.sol` and `Claims.sol`; what is encoded here
is what `Claims.claim` reads. SPEC.md, section 21.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from eth_abi.abi import encode

from atoll.errors import ProtocolError
from atoll.law.games.claims import Claim
from atoll.law.games.trees import root_from
from atoll.law.hashing import accumulate_reveal, keccak256, round_facts, sha256
from atoll.law.merkle import merkle_proof
from atoll.law.program import Header
from atoll.law.trace import LeafKind, StateRoots, TraceDocument, TraceLeaf
from atoll.law.views import JobView, SettledRound
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Digest,
    JobId,
    Reveal,
    RoundIndex,
    SeatIndex,
    Slot,
    Terms,
    Verdict,
    Wei,
)

_GLOBAL_TAG: Final = b"atoll.global-state.v2"
_RNG_TAG: Final = b"atoll.rng.v1"
_ACCOUNT_BITS: Final = 160
LONGEST_MOVE: Final = 15 * 60
"""Seconds; the most that a response has beside its party's clock."""
MAX_WAITING: Final = 5
"""Games that wait about one bond."""
BOND_SHARE: Final = 10
"""A challenge takes at least so small a part of what the holder may lose."""


class ModelRoots(NamedTuple):
    """What a global state's digest is made of, beside the round; `exponents` is their SHA-256.

    Attributes:
        moments_root: of the merged moments, zero where there are none.
        opening_root: optimiser root of what a round opens with that opens from public data.
    """

    params_root: Digest
    outer_root: Digest
    exponents: Digest
    moments_root: Digest
    opening_root: Digest

    def digest(self, round: int) -> Digest:
        """The verdict's mergedDigest, of the state that `round` begins with."""
        return sha256(_GLOBAL_TAG + round.to_bytes(8, "big") + b"".join(self))


@dataclass(frozen=True, slots=True)
class ProgramHeader:
    """A program's header with what opens it: leaf 0 of a tree of so many leaves."""

    header: Header
    leaves: int
    proof: tuple[Digest, ...]

    @property
    def root(self) -> Digest:
        """The program's root, as the chain has it."""
        return root_from(keccak256(self.header.to_bytes()), 0, self.leaves, self.proof)


@dataclass(frozen=True, slots=True)
class Said:
    """Everything that a claim about one seat's settled round is built and proved from.

    Attributes:
        terms: the chain's.
        parent, parent_attempt: the verdict before, None in round 0.
        model: of the state that the round began with.
        header: the program's.
        document: the seat's trace.
    """

    job: JobId
    terms: Terms
    past: SettledRound
    seat: SeatIndex
    parent: SettledRound | None
    model: ModelRoots
    header: ProgramHeader
    document: TraceDocument

    @classmethod
    def of(
        cls,
        view: JobView,
        seat: tuple[RoundIndex, SeatIndex],
        model: ModelRoots,
        header: ProgramHeader,
        document: TraceDocument,
    ) -> Said:
        """Of an accepted seat. Raises ProtocolError where it is none, or something is another's."""
        round, index = seat
        past = view.settled_round(round)
        if past is None or not past.evidence.accepted >> index & 1:
            raise ProtocolError(f"seat {index} of round {round} was not accepted")
        parent = view.settled[round - 1] if round else None
        said = cls(view.job_id, view.require_terms(), past, index, parent, model, header, document)
        said._check()
        return said

    def _check(self) -> None:
        wanted = self.header.header.initial
        if self.parent is not None:
            wanted = self.parent.verdict.merged_digest
        if self.model.digest(self.past.slot.round) != wanted:
            raise ProtocolError("the model is not the one that the round began with")
        if self.document.trace_root != self.reveal.trace_root:
            raise ProtocolError("the trace is not the revealed one")

    @property
    def reveal(self) -> Reveal:
        return self.past.reveals[self.seat].reveal

    @property
    def holder(self) -> Address:
        return self.past.reveals[self.seat].account

    @property
    def slot(self) -> Slot:
        """The slot of the training."""
        slot = self.past.slot
        return Slot(slot.domain, slot.job, slot.round, self.past.train_attempt)

    @property
    def opening(self) -> StateRoots:
        """The roots of the state that the seat's round had to begin with."""
        drawn = sha256(_RNG_TAG + (0).to_bytes(8, "big"))
        # Jobs with a program open every round from public data, whatever a reveal says.
        return StateRoots(self.model.params_root, self.model.opening_root, ZERO_DIGEST, drawn)

    def state_before(self, segment: int) -> Digest:
        """Digest of the state that a segment must begin with; of the link, number n, the last."""
        if segment == 0:
            return self.opening.digest()
        return self.document.leaves[segment - 1].state_digest

    def claim(self, segment: int, *, is_link: bool = False) -> Claim:
        """What `Claims.claim` gives for `evidence` of the same segment; of a link the last one."""
        leaf, terms = self.document.leaves[segment], self.terms
        clock = terms.train_seconds + terms.report_seconds
        round = self.past.slot.round
        return Claim(
            holder=self.holder,
            set=bond_set(self.job, self.holder),
            place=pay_place(self.job, round, self.seat, self.reveal.steps),
            program=terms.program,
            is_link=is_link,
            seat=self.seat,
            round=round,
            segment=segment,
            data_seed=self.past.data_seed,
            opening=leaf.state_digest if is_link else self.state_before(segment),
            closing=self.reveal.optimiser_root if is_link else leaf.state_digest,
            work_word=ZERO_DIGEST if is_link else leaf.work_word,
            update_root=self.reveal.update_root if is_link else ZERO_DIGEST,
            model_params=self.model.params_root,
            model_exponents=self.model.exponents,
            window_end=self.past.dispute_until,
            lowest_bond=Wei(max(terms.report_bond, terms.provider_bond // BOND_SHARE)),
            holder_seconds=clock,
            challenger_seconds=clock,
            move_seconds=min(terms.reveal_seconds, LONGEST_MOVE),
        )

    def evidence(self, segment: int, *, is_link: bool = False) -> bytes:
        """What proves that claim to the contract.

        Raises:
            ProtocolError: the leaf is where a seat that revealed fewer steps says it diverged.
        """
        leaves = self.document.leaves
        may_diverge = self.reveal.steps < self.terms.steps and segment + 1 == len(leaves)
        if may_diverge and leaves[segment].kind is not LeafKind.OK:
            raise ProtocolError(f"segment {segment} diverged: no game is about it")
        hashes = [leaf.hash for leaf in leaves]
        has_previous = segment > 0 and not is_link
        values = (
            self.job,
            self.past.slot.round,
            self.seat,
            is_link,
            segment,
            self.past.data_seed,
            *self._reveals(),
            _tuple(self.reveal),
            *self._parent(),
            tuple(self.model),
            *self._header(),
            len(leaves),
            _leaf(leaves[segment]),
            merkle_proof(hashes, segment),
            _leaf(leaves[segment - 1]) if has_previous else _NO_LEAF,
            merkle_proof(hashes, segment - 1) if has_previous else [],
        )
        return encode([_EVIDENCE], [values])

    def _reveals(self) -> tuple[object, ...]:
        """The accumulator before the seat's reveal, those after it, the holder and its opening."""
        reveals = self.past.reveals
        order = list(reveals)
        place, before = order.index(self.seat), ZERO_DIGEST
        for seat in order[:place]:
            told = reveals[seat]
            before = accumulate_reveal(before, seat, told.commitment, told.opening)
        later = [(s, reveals[s].commitment, reveals[s].opening) for s in order[place + 1 :]]
        return (before, later, self.holder, reveals[self.seat].opening)

    def _parent(self) -> tuple[object, ...]:
        if self.parent is None:
            return (_NO_VERDICT, 0)
        return (_tuple(self.parent.verdict), self.parent.slot.attempt)

    def _header(self) -> tuple[object, ...]:
        if self.parent is not None:
            return (b"", 0, [])
        return (self.header.header.to_bytes(), self.header.leaves, list(self.header.proof))


def bond_set(job: JobId, account: Address) -> Digest:
    """`Claims.setOf`: the bond of an account's seat in a job."""
    return Digest((job << _ACCOUNT_BITS | int(account, 16)).to_bytes(32, "big"))


def pay_place(job: JobId, round: int, seat: int, steps: int) -> Digest:
    """`Claims.placeOf`: the pay of a seat's round."""
    return Digest((job << 80 | round << 48 | seat << 32 | steps).to_bytes(32, "big"))


def job_of(claim: Claim) -> JobId:
    """The job that a claim is about."""
    return JobId(int.from_bytes(claim.set, "big") >> _ACCOUNT_BITS)


def facts_of(past: SettledRound) -> Digest:
    """The word that the contract keeps of the round."""
    return round_facts(past.data_seed, past.reveal_accumulator, past.verdict.parent)


def _tuple(item: Any) -> tuple[object, ...]:
    return tuple(getattr(item, field.name) for field in fields(item))


def _leaf(leaf: TraceLeaf) -> tuple[object, ...]:
    return (
        leaf.first_step,
        leaf.last_step,
        int(leaf.kind),
        leaf.state_digest,
        leaf.batch_digest,
        leaf.loss_bits,
        leaf.work_word,
        leaf.previous,
    )


_REVEAL: Final = "(bytes32,bytes32,bytes32,uint32,bool,bytes32,bytes,bytes)"
_VERDICT: Final = "(bytes32,bytes32,bytes32,bytes,bytes32,uint256,bytes32,uint256,bytes32)"
_LEAF: Final = "(uint32,uint32,uint8,bytes32,bytes32,uint32,bytes32,bytes32)"
_MODEL: Final = "(bytes32,bytes32,bytes32,bytes32,bytes32)"
_LATER: Final = "(uint16,bytes32,bytes32)[]"
_EVIDENCE: Final = (
    f"(uint256,uint32,uint16,bool,uint32,bytes32,bytes32,{_LATER},address,bytes32,{_REVEAL},"
    f"{_VERDICT},uint16,{_MODEL},bytes,uint256,bytes32[],uint256,{_LEAF},bytes32[],{_LEAF},bytes32[])"
)
_NO_LEAF: Final = (0, 0, 0, ZERO_DIGEST, ZERO_DIGEST, 0, ZERO_DIGEST, ZERO_DIGEST)
_NO_VERDICT: Final = _tuple(
    Verdict(*(ZERO_DIGEST,) * 3, b"", ZERO_DIGEST, 0, ZERO_DIGEST, 0, ZERO_DIGEST)
)
