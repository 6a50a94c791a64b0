"""What was said in a settled round, and what shows it to a contract: reveals, claims for games.

Rule of this file: field order is the ABI's of `Reveals.sol`, `IClaims.sol` and `Claims.sol`, which
read what is encoded here. SPEC-ROUNDS.md, 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple

from eth_abi.abi import encode

from atoll.errors import ProtocolError
from atoll.protocol.call_structs import Later, Shown
from atoll.protocol.checkpoint_commitments import StateRoots
from atoll.protocol.game_records import bond_set, pay_position
from atoll.protocol.games.moves import Claim
from atoll.protocol.games.trees import root_from
from atoll.protocol.hashing import accumulate_reveal, keccak256, sha256
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.program import TraceHeader
from atoll.protocol.reset_periods import carries_state
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_HOLDER,
    ZERO_DIGEST,
    Digest,
    HolderId,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Wei,
)
from atoll.protocol.views import JobView

_GLOBAL_TAG: Final = b"atoll.global-state.v2"
_RNG_TAG: Final = b"atoll.rng.v1"
MAX_OPEN: Final = 6
"""Games about one bond, half of which are played at once at most."""
BOND_SHARE: Final = 10
"""A challenge takes at least so small a part of what the holder may lose."""
NOBODYS_TAG: Final = Digest((1).to_bytes(32, "big"))
"""Of a seat whose work tag is zero, which in a claim is none: nothing that one can open."""
_ROUND_RECORD: Final = f"({','.join(['bytes32'] * 5 + ['uint256'] * 6 + ['bytes32'])})"
_REVEAL: Final = "(bytes32,bytes32,bytes32,bytes,bytes)"
_SHOWN: Final = (
    f"(uint256,uint32,uint16,uint32,{_ROUND_RECORD},bytes32,(uint16,bytes32)[],{_REVEAL})"
)
_MODEL: Final = "(bytes32,bytes32,bytes32,bytes32,bytes32)"
_EVIDENCE: Final = (
    f"({_SHOWN},bool,uint32,bytes32,uint32,bytes,{_MODEL},"
    f"bytes,uint256,bytes32[],uint32,{_SHOWN},{_SHOWN}[])"
)
_NO_REVEAL: Final = (ZERO_DIGEST, ZERO_DIGEST, ZERO_DIGEST, b"", b"")
_NO_RECORD: Final = (*[ZERO_DIGEST] * 5, *[0] * 6, ZERO_DIGEST)
_NOTHING_SHOWN: Final[tuple[object, ...]] = (0, 0, 0, 0, _NO_RECORD, ZERO_DIGEST, [], _NO_REVEAL)


class ModelRoots(NamedTuple):
    """What a global state's digest is made of, beside the round; `exponents` is their SHA-256.

    Attributes:
        moments_root: of the merged moments, zero where there are none.
        initial_root: optimiser root of what every seat's round opens with.
    """

    params_root: Digest
    outer_root: Digest
    exponents: Digest
    moments_root: Digest
    initial_root: Digest

    def digest(self, round: int) -> Digest:
        """What a certificate names as the state that `round` begins with."""
        return sha256(_GLOBAL_TAG + round.to_bytes(8, "big") + b"".join(self))

    @property
    def initial_state(self) -> StateRoots:
        """Of the state that every seat's round begins with."""
        drawn = sha256(_RNG_TAG + (0).to_bytes(8, "big"))
        return StateRoots(self.params_root, self.initial_root, ZERO_DIGEST, drawn)


def lowest_bond(claim: Claim, open_games: int) -> int:
    """Wei that a further challenge asks for, of who has so many open games about the claim's bond.

    Shams of one account then lock as much as a whole bond after four.
    """
    return claim.lowest_bond * (open_games + 1)


@dataclass(frozen=True, slots=True)
class ProgramHeader:
    """A program's header with what opens it: leaf 0 of a tree of so many leaves."""

    header: TraceHeader
    leaves: int
    proof: tuple[Digest, ...]

    @property
    def root(self) -> Digest:
        """The program's root, as the chain has it."""
        return root_from(keccak256(self.header.to_bytes()), 0, self.leaves, self.proof)


def shown(settled_round: SettledRound, seat: SeatIndex) -> Shown:
    """`Shown`: that the holder of a seat revealed this. Contests and claims take it.

    Raises ProtocolError for a seat that did not reveal.
    """
    told = _told(settled_round, seat)
    before, later = settled_round.record.seed, []
    order = list(settled_round.reveals)
    index = order.index(seat)
    for other in order[:index]:
        before = accumulate_reveal(before, other, settled_round.reveals[other].commitment)
    for other in order[index + 1 :]:
        later.append(Later(other, settled_round.reveals[other].commitment))
    return Shown(
        job_id=settled_round.round_id.job,
        round=settled_round.round_id.round,
        seat=seat,
        id=told.holder,
        record=settled_round.record,
        before=before,
        later=tuple(later),
        reveal=told.reveal,
    )


def _told(settled_round: SettledRound, seat: SeatIndex) -> SeatReveal:
    seat_reveal = settled_round.reveals.get(seat)
    if seat_reveal is None:
        raise ProtocolError(f"seat {seat} of round {settled_round.round} did not reveal")
    return seat_reveal


def _key_shown(settled_round: SettledRound, seat: SeatIndex) -> Digest:
    """The key of a seat's work tags; zero where nobody has shown it."""
    return settled_round.key_of(seat) or ZERO_DIGEST


@dataclass(frozen=True, slots=True)
class SeatStatements:
    """Everything that a claim about one seat's settled round is built and proved from.

    Attributes:
        terms: the chain's.
        model: of the state that the round began with.
        header: the program's.
        key: of the work tags' masks; zero where nobody has shown it.
        member: the auditor whose *valid* it is, NO_HOLDER for what the seat itself says.
        through_round: the later round of the reset period whose window is open; None for the round
            itself.
    """

    view: JobView
    settled_round: SettledRound
    seat: SeatIndex
    model: ModelRoots
    header: ProgramHeader
    key: Digest = ZERO_DIGEST
    member: HolderId = NO_HOLDER
    through_round: RoundIndex | None = None

    @classmethod
    def of(
        cls,
        view: JobView,
        round: RoundIndex,
        seat: SeatIndex,
        model: ModelRoots,
        header: ProgramHeader,
    ) -> SeatStatements:
        """What a revealed seat says of itself, with its key where that is shown.

        Raises ProtocolError where it revealed nothing, or something is another's.
        """
        settled_round = view.settled_round(round)
        if settled_round is None:
            raise ProtocolError(f"round {round} is not settled")
        _told(settled_round, seat)
        if not header.header.is_playable:
            raise ProtocolError("a segment of this job is too large for anybody to open")
        wanted = (
            settled_round.record.model if any(settled_round.record.model) else header.header.initial
        )
        if model.digest(round) != wanted:
            raise ProtocolError("the model is not the one that the round began with")
        return cls(view, settled_round, seat, model, header, _key_shown(settled_round, seat))

    @property
    def told(self) -> SeatReveal:
        return self.settled_round.reveals[self.seat]

    @property
    def terms(self) -> Terms:
        return self.view.require_terms()

    @property
    def segments(self) -> int:
        """What the seat did of its round."""
        return self.told.segments

    def state_before(self, segment: int) -> Digest:
        """Digest of the state that a segment must begin with; of the update proof, number m, the
        last."""
        if segment > 0:
            return self.told.checkpoint_commitments.items[segment - 1].state
        before = self._before
        if before is None or not carries_state(before, self.seat, self.told.holder, self._whole):
            return self.model.initial_state.digest()
        return before.reveals[self.seat].checkpoint_commitments.items[-1].state

    @property
    def _whole(self) -> int:
        """Segments of a round."""
        header = self.header.header
        return header.steps // header.segment

    @property
    def _before(self) -> SettledRound | None:
        """The round before, where the holder may have gone on with its state."""
        round, holder = self.settled_round.round, self.view.providers[self.told.holder]
        if round % self.header.header.reset_period == 0 or holder.start >= round:
            return None
        return self.view.settled_round(RoundIndex(round - 1))

    @property
    def _window(self) -> SettledRound:
        """The round whose window takes the challenge. Raises ProtocolError where it is none."""
        through_round, round = self.through_round, self.settled_round.round
        if through_round is None or through_round == round:
            return self.settled_round
        settled_round, reset_period = (
            self.view.settled_round(through_round),
            self.header.header.reset_period,
        )
        if settled_round is None:
            raise ProtocolError(f"round {through_round} is not settled")
        holder = self.view.providers[self.told.holder]
        if (
            through_round < round
            or through_round // reset_period != round // reset_period
            or not holder.counts_in(through_round)
        ):
            raise ProtocolError(
                f"round {through_round} is no later one of its reset period that the holder is in"
            )
        return settled_round

    def claim(self, segment: int, *, is_update_proof: bool = False) -> Claim:
        """What `Claims.claim` gives for `evidence` of the same segment; of an update proof the last
        one.

        Raises ProtocolError where the seat did not do the segment.
        """
        if not 0 <= segment < self.segments or (is_update_proof and segment + 1 != self.segments):
            raise ProtocolError(f"segment {segment} of {self.segments} is no claim's")
        checkpoint_commitment, terms, settled_round = (
            self.told.checkpoint_commitments.items[segment],
            self.terms,
            self.settled_round,
        )
        tag = ZERO_DIGEST
        if any(self.key) and not is_update_proof and self._window is settled_round:
            said = self.told.work_tags(self.key)[segment]
            tag = said if any(said) else NOBODYS_TAG
        role, id, bond = Role.PROVIDER, self.told.holder, terms.provider_bond
        if self.member != NO_HOLDER:
            role, id, bond = Role.VERIFIER, self.member, terms.verifier_bond
        job, round = self.view.job_id, settled_round.round
        return Claim(
            holder=self.view.holders(role)[id].account,
            set=bond_set(job, role, id),
            position=pay_position(job, role, id, self._window.round),
            program=terms.program if self.header.header.step_nodes else ZERO_DIGEST,
            is_update_proof=is_update_proof,
            seat=self.seat,
            round=round,
            segment=segment,
            data_seed=settled_round.record.seed,
            initial_state=checkpoint_commitment.state
            if is_update_proof
            else self.state_before(segment),
            closing=ZERO_DIGEST if is_update_proof else checkpoint_commitment.state,
            work_tag=tag,
            update_root=self.told.reveal.update_root if is_update_proof else ZERO_DIGEST,
            model_params=self.model.params_root,
            model_exponents=self.model.exponents,
            window_end=self._window.clock.window_end,
            lowest_bond=Wei(bond // BOND_SHARE),
            holder_seconds=terms.game_seconds,
            challenger_seconds=terms.game_seconds,
            move_seconds=terms.move_seconds,
        )

    def evidence(self, segment: int, *, is_update_proof: bool = False) -> bytes:
        """`abi.encode(Evidence)`, which proves that claim to the contract."""
        window, header = self._window, self.header
        body = window.opened_reports.get(self.member)
        values = (
            astuple(shown(self.settled_round, self.seat)),
            is_update_proof,
            segment,
            self._key(is_update_proof=is_update_proof),
            self.member,
            b"" if body is None else body.to_bytes(),
            tuple(self.model),
            header.header.to_bytes(),
            header.leaves,
            list(header.proof),
            window.round,
            self._shown_before(segment, is_update_proof=is_update_proof),
            [astuple(shown(settled_round, self.seat)) for settled_round in self._onwards()],
        )
        return encode([_EVIDENCE], [values])

    def _key(self, *, is_update_proof: bool) -> Digest:
        """Of the work tags that are claimed, or that a *valid* has."""
        if self._window is self.settled_round:
            return ZERO_DIGEST if is_update_proof and self.member == NO_HOLDER else self.key
        return ZERO_DIGEST if self.member == NO_HOLDER else _key_shown(self._window, self.seat)

    def _onwards(self) -> Iterator[SettledRound]:
        """Of a later round's *valid* the rounds up to it, whose states all come from this one's.

        Raises ProtocolError where one does not: then its auditor has not replayed this one.
        """
        if self.member == NO_HOLDER:
            return
        last, id = self.settled_round, self.told.holder
        for round in range(self.settled_round.round + 1, self._window.round + 1):
            if not carries_state(last, self.seat, id, self._whole):
                raise ProtocolError(f"round {round} does not come from round {last.round}")
            last = self.view.settled[round]
            yield last

    def _shown_before(self, segment: int, *, is_update_proof: bool) -> tuple[object, ...]:
        """That the holder did the round before, or the record which say that it did not reveal."""
        before = None if is_update_proof or segment > 0 else self._before
        if before is None:
            return _NOTHING_SHOWN
        told = before.reveals.get(self.seat)
        if told is not None and told.holder == self.told.holder:
            return astuple(shown(before, self.seat))
        where = (before.round_id.job, before.round_id.round, self.seat, self.told.holder)
        return (*where, astuple(before.record), ZERO_DIGEST, [], _NO_REVEAL)
