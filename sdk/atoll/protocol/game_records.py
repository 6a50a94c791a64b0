"""Games about settled rounds of a job, and how the contracts name what a claim stands on.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from atoll.protocol.games.game_machine import Clock
from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.played import is_holders_turn
from atoll.protocol.types import (
    Address,
    Digest,
    HolderId,
    JobId,
    Role,
    RoundIndex,
)

if TYPE_CHECKING:
    from atoll.protocol.events import ContractEvent

_ROLE_BIT: Final = 32
_JOB_BIT: Final = 40


@dataclass(frozen=True, slots=True)
class GameRecord:
    """A game about a settled round of the job.

    Attributes:
        bond: wei, the challenger's.
        evidence: what the claim was proved with; dropped with the moves when the game is over.
        is_owed: by a drawn auditor, which said so of the seat.
        began_at: unix seconds of its beginning; 0 while it waits.
        clock: what time is left; None while it waits.
        moves: the parties' events, in the chain's order.
        decided: by the contract's computation; it pays once somebody concludes it.
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
    is_owed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it waits or is being played."""
        return self.outcome is GameOutcome.NONE

    @property
    def is_holders_turn(self) -> bool:
        """Whose turn it is, where it has begun and is not over."""
        return is_holders_turn(self.moves)

    @property
    def owes_holder(self) -> bool:
        """Whether the holder owes a move, be it that its clock stands."""
        is_played = self.clock is not None and self.is_open and not self.decided
        return is_played and self.is_holders_turn

    @property
    def is_held_up(self) -> bool:
        """Whether it goes on only when another one about the same bond does."""
        return self.is_open and (self.clock is None or self.clock.stands)

    @property
    def deadline(self) -> int:
        """Unix seconds from which who is to move has lost; 0 where no clock runs."""
        if self.clock is None or self.clock.stands or not self.is_open or self.decided:
            return 0
        return self.clock.deadline(self.is_holders_turn)


@dataclass(frozen=True, slots=True)
class Accusation:
    """What somebody said differs, as the game's contract names it (`wasChallenged`)."""

    challenger: Address
    slot: Digest
    segment: int
    is_update_proof: bool


def bond_set(job: JobId, role: Role, holder: HolderId) -> Digest:
    """Names the bond that a holder's claims stand on."""
    return Digest((job << _JOB_BIT | int(role) << _ROLE_BIT | holder).to_bytes(32, "big"))


def pay_position(job: JobId, role: Role, holder: HolderId, round: RoundIndex) -> Digest:
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
    """What a challenge says differs; about an earlier round of the reset period the pay position's
    beginning.
    """
    if claim.round < window_of(claim):
        return Accusation(challenger, claim.position, segment=0, is_update_proof=False)
    return Accusation(
        challenger, claim.position, segment=claim.segment, is_update_proof=claim.is_update_proof
    )


def window_of(claim: Claim) -> RoundIndex:
    """The round in whose window the claim was challenged, which may be a later one of its reset
    period.
    """
    return RoundIndex(int.from_bytes(claim.position[-4:], "big"))
