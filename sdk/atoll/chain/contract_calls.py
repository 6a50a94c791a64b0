"""What can be sent to the contracts: one typed method a function, named as in Solidity.

`RoundCalls` and `AccountCalls` are made from the ABI. By hand stand here what one says in another
way than the ABI does: a committee's votes, a game's move, and calls about a settled round, whose
arguments follow from it.

Rule of this file: a method only encodes. Whether and when a call is sent is the queue's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from atoll.chain.account_calls import AccountCalls
from atoll.chain.call import Call
from atoll.chain.round_calls import RoundCalls
from atoll.errors import ProtocolError
from atoll.protocol.audit_reports import AuditReport
from atoll.protocol.call_structs import (
    Case,
    Certified,
    Commitment,
    Coordinate,
    Having,
    Later,
    Opened,
    RoundOpening,
    ShownRows,
)
from atoll.protocol.claims import shown
from atoll.protocol.games.calls import calldata
from atoll.protocol.games.moves import Claim, Move
from atoll.protocol.hashing import keccak256
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.strikes import ShownUpdate, StrikeProof, Strikes
from atoll.protocol.types import (
    NO_BITS,
    ZERO_DIGEST,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    bits,
)

_NO_RECORD: Final = RoundRecord(*(ZERO_DIGEST,) * 5, *(NO_BITS,) * 6)


class Calls(RoundCalls, AccountCalls):
    """Builds calls to one deployment."""

    def about(self, settled: SettledRound) -> SettledCalls:
        """Calls whose arguments follow from a settled round."""
        return SettledCalls(self, settled)

    def settle_words(
        self, job: JobId, votes: Mapping[SlotIndex, Bitmap], certified: Certified
    ) -> Call:
        """`settle`. `votes` are all of the committee draw, in the chain's order.

        Args:
            certified: without the committee's accounts the contract reads them, which is dearer.
        """
        return self.settle(job, bytes(votes), list(votes.values()), certified)

    def settle_words_late(self, job: JobId, votes: Mapping[SlotIndex, Bitmap]) -> Call:
        """`settleLate`: from the job's expiry on, without a certificate."""
        return self.settle_late(job, bytes(votes), list(votes.values()))

    def show_key(self, job: JobId, round_: RoundIndex, key: Digest, stake: int = 0) -> Call:
        """`key`. Warning: before the end of AUDIT anyone can burn the pay with it.

        Args:
            stake: the bond, which is slashed without the key; wei.
        """
        return replace(self.key(job, round_, key), stake=stake)

    def strikes(self, chain_id: int) -> Strikes:
        """The contract that takes strikes."""
        return Strikes(chain_id, self._addresses["Strikes"])

    def play(self, game: int, claim: Claim, move: Move, stake: int = 0) -> Call:
        """A move of a game about that claim.

        Args:
            stake: the bond of who moves, which a clock that runs out costs; wei.
        """
        data, label = calldata(game, claim, move), f"Game.{type(move).__name__}"
        return Call(self._addresses["Game"], data, label, stake=stake)


class SettledCalls:
    """Calls about one settled round; each is the function of its name."""

    def __init__(self, calls: Calls, settled: SettledRound) -> None:
        self._calls = calls
        self._settled = settled
        self._job = settled.round_id.job
        self._round = settled.round

    def open_audit_report(self, id: HolderId, body: AuditReport, salt: Digest) -> Call:
        """`open`: the member's audit report about the round."""
        return self._calls.open(
            job_id=self._job,
            round=self._round,
            id=id,
            record=self._settled.record,
            body=body.to_bytes(),
            salt=salt,
        )

    def leak(self, seat: SeatIndex, key: Digest) -> Call:
        """Shows a key that somebody told, which burns the seat's pay."""
        return self._calls.leak(shown(self._settled, seat), key)

    def contest(self, seat: SeatIndex, id: HolderId) -> Call:
        """An opened *valid* is not what the seat's key gives. Needs the key and the opened body."""
        body, key = self._settled.opened_reports[id].to_bytes(), self._settled.known_key(seat)
        if key is None:
            raise ProtocolError(f"nobody has shown the key of seat {seat} of round {self._round}")
        return self._calls.contest(shown(self._settled, seat), id, body, key)

    def withhold(self, seat: SeatIndex, id: HolderId, game: int) -> Call:
        """A game is about the seat's round, so the fee of an opened *valid* waits."""
        return self._calls.withhold(
            job_id=self._job,
            round=self._round,
            id=id,
            seat_id=self._settled.seats[seat],
            game_id=game,
            body=self._opened(id),
        )

    def settle_contest(self, seat: SeatIndex, id: HolderId) -> Call:
        return self._calls.settle_contest(self._job, self._round, id, self._settled.seats[seat])

    def report_missing_key(self, seat: SeatIndex) -> Call:
        return self._calls.report_missing_key(shown(self._settled, seat))

    def absent(self, id: HolderId, seat: SeatIndex) -> Call:
        """The auditor said nothing about a drawn seat of its own."""
        return self._calls.absent(
            job_id=self._job,
            round=self._round,
            id=id,
            seat=seat,
            record=self._settled.record,
            body=self._opened(id),
        )

    def dropped(self, id: HolderId, seat: SeatIndex) -> Call:
        """An opened *mismatch* was not challenged by its author."""
        return self._calls.dropped(
            job_id=self._job,
            round=self._round,
            id=id,
            seat=seat,
            seat_id=self._settled.seats[seat],
            body=self._opened(id),
        )

    def proven(self, id: HolderId, seat: SeatIndex) -> Call:
        """An opened *mismatch* is about a seat that has been slashed: its fee."""
        holder, body = self._settled.seats[seat], self._opened(id)
        return self._calls.proven(self._job, self._round, id, holder, body)

    def grant(self, seat: SeatIndex, following: SettledRound | None) -> Call:
        """More than half of this round's and the next one's committee have the seat's update.

        Args:
            following: the next round, where that is settled.
        """
        settled = self._settled
        having = Having(
            record=settled.record,
            next=_NO_RECORD if following is None else following.record,
            committee_seed=settled.committee_seed,
            slots=bytes(settled.votes),
            has=tuple(settled.votes.values()),
            late=tuple(settled.late),
        )
        return self._calls.grant(self._job, self._round, seat, having)

    def equivocated(self, id: HolderId, both: Sequence[Certified]) -> Call:
        """A member signed two verdicts about the round's votes.

        Args:
            both: twice a verdict, accounts, and a certificate by those of them that it names.
        """
        return self._calls.equivocated(
            job_id=self._job,
            round=self._round,
            id=id,
            seed=self._settled.record.seed,
            votes=self._settled.record.votes,
            shown=both,
        )

    def strike(self, proof: StrikeProof, salt: Digest) -> Call:
        """What the committee certified is not what the updates give."""
        settled, place = self._settled, proof.place
        case = Case(
            job_id=self._job,
            round=self._round,
            salt=salt,
            record=settled.record,
            verdict=settled.verdict,
            statement=proof.statement,
            shape=proof.shape,
            leaves=proof.leaves,
            path=proof.path,
            # All of them: who signs just before it would else have the strike refused.
            signers=tuple(
                settled.slots[SlotIndex(slot)] for slot in bits(settled.record.committee)
            ),
        )
        if place.seat is not None:
            return self._calls.strike_missing(case, place.seat, settled.seats[place.seat])
        carried = proof.carried
        if carried is not None:
            shown = carried.parts, carried.header, carried.path
            return self._calls.strike_carried(case, *shown)
        if place.is_nothing:
            ids = [settled.seats[SeatIndex(seat)] for seat in bits(proof.owed)]
            return self._calls.strike_nothing(case, ids)
        if place.is_derived:
            opening = proof.opening or RoundOpening(b"", b"", b"", ())
            return self._calls.strike_derived(case, opening)
        if place.section is None or proof.merged is None:
            return self._calls.strike_statement(case)
        merged = proof.merged
        coordinate = Coordinate(place.section, place.index, merged.size, merged.pieces[0])
        return self._calls.strike_coordinate(case, coordinate)

    def show_rows(self, proof: StrikeProof, updates: Sequence[ShownUpdate]) -> Call:
        """Some of the rows that a strike needs."""
        place, reveals = proof.place, self._settled.reveals.items()
        rows = ShownRows(
            job_id=self._job,
            round=self._round,
            record=self._settled.record,
            shape=proof.shape,
            leaves=proof.leaves,
            path=proof.path,
            section=place.section or 0,
            index=place.index,
            reveals=tuple(Later(seat, each.commitment) for seat, each in reveals),
            updates=tuple(map(self._opened_update, updates)),
        )
        return self._calls.show_rows(rows)

    def _opened_update(self, update: ShownUpdate) -> Opened:
        seat = SeatIndex(update.seat)
        revealed = self._settled.reveals[seat]
        committed = Commitment(
            account=revealed.account,
            checkpoints=keccak256(revealed.reveal.checkpoint_commitments),
            update_root=revealed.reveal.update_root,
            key_hash=revealed.reveal.key_hash,
            salt=revealed.reveal.salt,
        )
        return Opened(seat, committed, update.size, update.pieces)

    def _opened(self, id: HolderId) -> bytes:
        """What an auditor opened; empty for nothing."""
        body = self._settled.opened_reports.get(id)
        return b"" if body is None else body.to_bytes()
