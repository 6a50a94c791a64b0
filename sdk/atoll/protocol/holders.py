"""Who holds, or held, a seat or a slot of a job.

Rule of this file: everything is frozen, mappings are replaced and never changed, and every field
follows from the contracts' events and their blocks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.protocol.types import (
    NO_ROUND,
    Address,
    HolderId,
    MissedDuty,
    Role,
    RoundIndex,
    Wei,
)

_FIRST_ROUND: Final = RoundIndex(0)
NOTHING: Final = Wei(0)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds, or held, a seat or a slot: in rounds `start` to, but not, `to`.

    Attributes:
        index: the seat or the slot.
        bond: wei that are left of it, with what is retained.
        retained: wei of a seat's pay that were added to it; `steps` of the table that the seat is
            drawn more rarely by for them, from round `seasoned_from` on; `steps_before` until then.
        is_ready, ready_until: of a verifier, whether it said so, and by when it has to.
        lost_from: the first round that a slash took the pay of.
        claimed_to: the first round that it has not claimed.
        missed: a seat's missed duty that is not penalised yet, by its round; `penalties` those that
            are, which took `penalised` wei, but for those that take a part of their own.
        bound_until: of a provider that disagreed, when its bond may go home at the earliest.
    """

    id: HolderId
    role: Role
    account: Address
    index: int
    start: RoundIndex
    bond: Wei
    to: RoundIndex = NO_ROUND
    retained: Wei = NOTHING
    steps: int = 0
    steps_before: int = 0
    seasoned_from: RoundIndex = _FIRST_ROUND
    is_ready: bool = False
    ready_until: int = 0
    lost_from: RoundIndex = NO_ROUND
    is_slashed: bool = False
    claimed_to: RoundIndex = _FIRST_ROUND
    is_released: bool = False
    missed: RoundIndex = NO_ROUND
    penalties: frozenset[tuple[RoundIndex, MissedDuty]] = frozenset()
    penalised: Wei = NOTHING
    bound_until: int = 0

    def steps_in(self, round: int) -> int:
        """Of a round that has opened: what was said since is of later ones."""
        return self.steps if self.seasoned_from <= round else self.steps_before

    def counts_in(self, round: int) -> bool:
        """Whether the round, when it opens, has it."""
        return self.start <= round < self.to
