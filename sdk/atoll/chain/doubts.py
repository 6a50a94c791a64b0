"""When what endpoints say of a transaction is believed: by time, and not by count.

One endpoint that is a block behind, or a node behind a balancer's URL, refuses what the next one
takes. Rule of this file: what would end a transaction is asked again at newer blocks, and ends it
only where it is still said after a while; whatever says otherwise meanwhile is what counts. A while
in which nobody was asked is none: after an outage, endpoints are behind more than ever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from atoll.protocol.types import BlockRef

LOOKS: Final = 5
LONGEST_LOOK_SECONDS: Final = 3.0
"""So often in a patience's time it is asked again where no block comes, and after so long at most.
"""
UNASKED: Final = 2
"""So many patiences without a look, and what was said before them is forgotten."""


class DoubtKind(Enum):
    """What is doubted."""

    REFUSED = "refused"
    """The call would revert, or the account cannot pay."""
    UNCLEAR = "unclear"
    """No endpoint can say what the call would do, though the chain answers."""
    STUCK = "stuck"
    """What is signed and in no block would revert now."""


class Doubts:
    """What was said of transactions, each by its number, and since when.

    Args:
        patience_s: by kind, how long it has to be said until it is believed.
        clock: seconds that nobody sets back or ahead.
    """

    def __init__(self, patience_s: dict[DoubtKind, float], clock: Callable[[], float]) -> None:
        self._patience_s, self._clock = patience_s, clock
        self._said: dict[tuple[int, DoubtKind], tuple[float, float]] = {}  # first, and last
        self._looked: dict[int, tuple[BlockRef | None, float]] = {}

    def is_time(self, number: int, head: BlockRef | None) -> bool:
        """Whether to ask about it again: of what is not in doubt, always."""
        seen, looked_at = self._looked.get(number, (None, float("-inf")))
        kinds = [kind for kind in DoubtKind if (number, kind) in self._said]
        pause = min((self._patience_s[kind] / LOOKS for kind in kinds), default=0.0)
        is_due = self._clock() - looked_at >= min(pause, LONGEST_LOOK_SECONDS)
        return seen != head or is_due

    def is_believed(self, number: int, kind: DoubtKind, head: BlockRef | None) -> bool:
        """Notes that it is said once more; whether it was for long enough now."""
        now, patience = self._clock(), self._patience_s[kind]
        since, last = self._said.get((number, kind), (now, now))
        if now - last > UNASKED * patience:
            since = now
        self._said[number, kind], self._looked[number] = (since, now), (head, now)
        is_enough = now - since >= patience
        if is_enough:
            self.forget(number)
        return is_enough

    def forget(self, number: int) -> None:
        """It was said otherwise, or is over."""
        self._looked.pop(number, None)
        for kind in DoubtKind:
            self._said.pop((number, kind), None)
