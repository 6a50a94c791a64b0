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
from atoll.protocol.game_records import bond_set, pay_place
from atoll.protocol.games.claims import Claim
from atoll.protocol.games.trees import root_from
from atoll.protocol.hashing import accumulate_reveal, keccak256, sha256
from atoll.protocol.leaves import StateRoots
from atoll.protocol.open_rounds import SeatReveal
from atoll.protocol.program import Header
from atoll.protocol.reset_periods import goes_on
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import (
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

_GLOBAL_TAG: Final = b"atoll.global-state.v2"
_RNG_TAG: Final = b"atoll.rng.v1"
MAX_WAITING: Final = 5
"""Games that wait about one bond."""
BOND_SHARE: Final = 10
"""A challenge takes at least so small a part of what the holder may lose."""
NOBODYS_WORD: Final = Digest((1).to_bytes(32, "big"))
"""Of a seat whose word is zero, which in a claim is no word: nothing that one can open."""
_FACTS: Final = f"({','.join(['bytes32'] * 5 + ['uint256'] * 5)})"
_REVEAL: Final = "(bytes32,bytes32,bytes32,bytes,bytes)"
_SHOWN: Final = f"(uint256,uint32,uint16,uint32,{_FACTS},bytes32,(uint16,bytes32)[],{_REVEAL})"
_MODEL: Final = "(bytes32,bytes32,bytes32,bytes32,bytes32)"
_EVIDENCE: Final = (
    f"({_SHOWN},bool,uint32,bytes32,uint32,bytes,{_MODEL},"
    f"bytes,uint256,bytes32[],uint32,{_SHOWN},{_SHOWN}[])"
)
_NO_REVEAL: Final = (ZERO_DIGEST, ZERO_DIGEST, ZERO_DIGEST, b"", b"")
_NO_FACTS: Final = (*[ZERO_DIGEST] * 5, *[0] * 5)
_NOTHING_SHOWN: Final[tuple[object, ...]] = (0, 0, 0, 0, _NO_FACTS, ZERO_DIGEST, [], _NO_REVEAL)


class ModelRoots(NamedTuple):
    """What a global state's digest is made of, beside the round; `exponents` is their SHA-256.

    Attributes:
        moments_root: of the merged moments, zero where there are none.
        opening_root: optimiser root of what every seat's round opens with.
    """

    params_root: Digest
    outer_root: Digest
    exponents: Digest
    moments_root: Digest
    opening_root: Digest

    def digest(self, round: int) -> Digest:
        """What a certificate names as the state that `round` begins with."""
        return sha256(_GLOBAL_TAG + round.to_bytes(8, "big") + b"".join(self))

    @property
    def opening(self) -> StateRoots:
        """Of the state that every seat's round begins with."""
        drawn = sha256(_RNG_TAG + (0).to_bytes(8, "big"))
        return StateRoots(self.params_root, self.opening_root, ZERO_DIGEST, drawn)


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


def shown(past: SettledRound, seat: SeatIndex) -> Shown:
    """`Shown`: that the holder of a seat revealed this. Contests and claims take it.

    Raises ProtocolError for a seat that did not reveal.
    """
    told = _told(past, seat)
    before, later = past.facts.seed, []
    order = list(past.reveals)
    place = order.index(seat)
    for other in order[:place]:
        before = accumulate_reveal(before, other, past.reveals[other].commitment)
    for other in order[place + 1 :]:
        later.append(Later(other, past.reveals[other].commitment))
    return Shown(
        job_id=past.slot.job,
        round=past.slot.round,
        seat=seat,
        id=told.holder,
        facts=past.facts,
        before=before,
        later=tuple(later),
        reveal=told.reveal,
    )


def _told(past: SettledRound, seat: SeatIndex) -> SeatReveal:
    told = past.reveals.get(seat)
    if told is None:
        raise ProtocolError(f"seat {seat} of round {past.round} did not reveal")
    return told


def _key_shown(past: SettledRound, seat: SeatIndex) -> Digest:
    """The key of a seat's words; zero where nobody has shown it."""
    return past.key_of(seat) or ZERO_DIGEST


@dataclass(frozen=True, slots=True)
class Said:
    """Everything that a claim about one seat's settled round is built and proved from.

    Attributes:
        terms: the chain's.
        model: of the state that the round began with.
        header: the program's.
        key: of the work tags' masks; zero where nobody has shown it.
        member: the auditor whose *fine* it is, NO_HOLDER for what the seat itself says.
        via: the later round of the reset period whose window is open; None for the round itself.
    """

    view: JobView
    past: SettledRound
    seat: SeatIndex
    model: ModelRoots
    header: ProgramHeader
    key: Digest = ZERO_DIGEST
    member: HolderId = NO_HOLDER
    via: RoundIndex | None = None

    @classmethod
    def of(
        cls,
        view: JobView,
        where: tuple[RoundIndex, SeatIndex],
        model: ModelRoots,
        header: ProgramHeader,
    ) -> Said:
        """What a revealed seat says of itself, with its key where that is shown.

        Raises ProtocolError where it revealed nothing, or something is another's.
        """
        round, seat = where
        past = view.settled_round(round)
        if past is None:
            raise ProtocolError(f"round {round} is not settled")
        _told(past, seat)
        if not header.header.is_playable:
            raise ProtocolError("a segment of this job is too large for anybody to open")
        wanted = past.facts.model if any(past.facts.model) else header.header.initial
        if model.digest(round) != wanted:
            raise ProtocolError("the model is not the one that the round began with")
        return cls(view, past, seat, model, header, _key_shown(past, seat))

    @property
    def told(self) -> SeatReveal:
        return self.past.reveals[self.seat]

    @property
    def terms(self) -> Terms:
        return self.view.require_terms()

    @property
    def segments(self) -> int:
        """What the seat did of its round."""
        return self.told.segments

    def state_before(self, segment: int) -> Digest:
        """Digest of the state that a segment must begin with; of the link, number m, the last."""
        if segment > 0:
            return self.told.leaves.items[segment - 1].state
        before = self._before
        if before is None or not goes_on(before, self.seat, self.told.holder, self._whole):
            return self.model.opening.digest()
        return before.reveals[self.seat].leaves.items[-1].state

    @property
    def _whole(self) -> int:
        """Segments of a round."""
        header = self.header.header
        return header.steps // header.segment

    @property
    def _before(self) -> SettledRound | None:
        """The round before, where the holder may have gone on with its state."""
        round, holder = self.past.round, self.view.providers[self.told.holder]
        if round % self.header.header.reset_period == 0 or holder.start >= round:
            return None
        return self.view.settled_round(RoundIndex(round - 1))

    @property
    def _window(self) -> SettledRound:
        """The round whose window takes the challenge. Raises ProtocolError where it is none."""
        via, round = self.via, self.past.round
        if via is None or via == round:
            return self.past
        found, reset_period = self.view.settled_round(via), self.header.header.reset_period
        if found is None:
            raise ProtocolError(f"round {via} is not settled")
        holder = self.view.providers[self.told.holder]
        if via < round or via // reset_period != round // reset_period or not holder.counts_in(via):
            raise ProtocolError(
                f"round {via} is no later one of its reset period that the holder is in"
            )
        return found

    def claim(self, segment: int, *, is_link: bool = False) -> Claim:
        """What `Claims.claim` gives for `evidence` of the same segment; of a link the last one.

        Raises ProtocolError where the seat did not do the segment.
        """
        if not 0 <= segment < self.segments or (is_link and segment + 1 != self.segments):
            raise ProtocolError(f"segment {segment} of {self.segments} is no claim's")
        leaf, terms, past = self.told.leaves.items[segment], self.terms, self.past
        word = ZERO_DIGEST
        if any(self.key) and not is_link and self._window is past:
            said = self.told.words(self.key)[segment]
            word = said if any(said) else NOBODYS_WORD
        role, id, bond = Role.PROVIDER, self.told.holder, terms.provider_bond
        if self.member != NO_HOLDER:
            role, id, bond = Role.VERIFIER, self.member, terms.verifier_bond
        job, round = self.view.job_id, past.round
        return Claim(
            holder=self.view.holders(role)[id].account,
            set=bond_set(job, role, id),
            place=pay_place(job, role, id, self._window.round),
            program=terms.program,
            is_link=is_link,
            seat=self.seat,
            round=round,
            segment=segment,
            data_seed=past.facts.seed,
            opening=leaf.state if is_link else self.state_before(segment),
            closing=ZERO_DIGEST if is_link else leaf.state,
            work_tag=word,
            update_root=self.told.reveal.update_root if is_link else ZERO_DIGEST,
            model_params=self.model.params_root,
            model_exponents=self.model.exponents,
            window_end=self._window.clock.window_end,
            lowest_bond=Wei(bond // BOND_SHARE),
            holder_seconds=terms.game_seconds,
            challenger_seconds=terms.game_seconds,
            move_seconds=terms.move_seconds,
        )

    def evidence(self, segment: int, *, is_link: bool = False) -> bytes:
        """`abi.encode(Evidence)`, which proves that claim to the contract."""
        window, header = self._window, self.header
        body = window.bodies.get(self.member)
        values = (
            astuple(shown(self.past, self.seat)),
            is_link,
            segment,
            self._key(is_link=is_link),
            self.member,
            b"" if body is None else body.to_bytes(),
            tuple(self.model),
            header.header.to_bytes(),
            header.leaves,
            list(header.proof),
            window.round,
            self._shown_before(segment, is_link=is_link),
            [astuple(shown(past, self.seat)) for past in self._onwards()],
        )
        return encode([_EVIDENCE], [values])

    def _key(self, *, is_link: bool) -> Digest:
        """Of the words that are claimed, or that a *fine* has."""
        if self._window is self.past:
            return ZERO_DIGEST if is_link and self.member == NO_HOLDER else self.key
        return ZERO_DIGEST if self.member == NO_HOLDER else _key_shown(self._window, self.seat)

    def _onwards(self) -> Iterator[SettledRound]:
        """Of a later round's *fine* the rounds up to it, whose states all come from this one's.

        Raises ProtocolError where one does not: then its auditor has not replayed this one.
        """
        if self.member == NO_HOLDER:
            return
        last, id = self.past, self.told.holder
        for round in range(self.past.round + 1, self._window.round + 1):
            if not goes_on(last, self.seat, id, self._whole):
                raise ProtocolError(f"round {round} does not come from round {last.round}")
            last = self.view.settled[round]
            yield last

    def _shown_before(self, segment: int, *, is_link: bool) -> tuple[object, ...]:
        """That the holder did the round before, or the facts which say that it did not reveal."""
        before = None if is_link or segment > 0 else self._before
        if before is None:
            return _NOTHING_SHOWN
        told = before.reveals.get(self.seat)
        if told is not None and told.holder == self.told.holder:
            return astuple(shown(before, self.seat))
        where = (before.slot.job, before.slot.round, self.seat, self.told.holder)
        return (*where, astuple(before.facts), ZERO_DIGEST, [], _NO_REVEAL)
