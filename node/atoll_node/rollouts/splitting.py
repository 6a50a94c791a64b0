"""Whether a step's completions are generated in parts, of which helpers can do some.

In parts they take longer than at once. Helpers who ask and send nothing would have a provider do so
for ever. So it counts what that cost it beside what generating takes, and has a bound for it.

Rule of this file: pure; it decides no bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

LOST_SHARE: Final = 0.1
"""Of the seconds of generating that may be lost to helpers, beside one step's."""
KEPT: Final = 0.98
"""Of the seconds of each step before: about the last fifty count."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """What was measured of a job.

    Attributes:
        job: a name of it.
        token_seconds: of a token where a step is generated at once; 0 before one was.
        spent: seconds of generating; `lost` those of them that parts cost, less what helpers saved.
    """

    job: str = ""
    token_seconds: float = 0.0
    spent: float = 0.0
    lost: float = 0.0

    @property
    def may_be_lost(self) -> bool:
        """Whether the next step is offered to helpers: the first is not, since it is measured."""
        return self.token_seconds > 0 and self.lost <= LOST_SHARE * self.spent

    def at_once(self, seconds: float, tokens: int) -> Splitting:
        """After a step without helpers."""
        if tokens == 0:
            return self
        rate = seconds / tokens
        mean = (self.token_seconds + rate) / 2 if self.token_seconds else rate
        return replace(self._after(seconds, 0.0), token_seconds=mean)

    def in_parts(self, seconds: float, tokens: int) -> Splitting:
        """After a step with them. What they saved makes up for what was lost, and no more."""
        return self._after(seconds, seconds - tokens * self.token_seconds)

    def _after(self, seconds: float, lost: float) -> Splitting:
        spent = KEPT * self.spent + seconds
        return replace(self, spent=spent, lost=max(0.0, KEPT * self.lost + lost))
