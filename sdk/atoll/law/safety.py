"""Whether what a job made can be trusted, from who fell: the rule bears f bad updates a round.

Training is never undone. Where more than f of those whose updates were merged lost their bonds for
that round, what the rule promises of its model does not hold, and nobody has to find out by trying
it: the chain has all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.views import JobView, SettledRound
from atoll.law.words import Bitmap, Digest, RoundIndex, to_bitmap


@dataclass(frozen=True, slots=True)
class CleanModel:
    """The newest model with which no unsafe round has anything to do.

    Attributes:
        before: the round that opens from it: 0 is the job's first model.
        digest, cid: as certified; None of the job's first model, which the manifest gives.
    """

    before: RoundIndex
    digest: Digest | None
    cid: bytes | None


def fallen_in(view: JobView, past: SettledRound) -> Bitmap:
    """Seats that count as had in a settled round and whose holders lost that round."""
    return to_bitmap(
        seat
        for seat, told in past.reveals.items()
        if past.facts.available >> seat & 1
        and not past.verdict.left_out >> seat & 1
        and view.providers[told.holder].lost_from <= past.round
    )


def unsafe_rounds(view: JobView) -> tuple[RoundIndex, ...]:
    """Rounds that merged something, and for which more than f of what they may have merged fell.

    A fall loses its holder every round from the first that was open then, so a round before the
    one that was played may stand here, too: who lied once is not taken to have been honest before.
    """
    f = view.require_terms().f
    return tuple(
        past.round
        for past in view.settled
        if past.verdict.merged and fallen_in(view, past).bit_count() > f
    )


def last_clean(view: JobView) -> CleanModel:
    """What to go on from: the newest model, or the one that the first unsafe round opened from."""
    unsafe = unsafe_rounds(view)
    before = unsafe[0] if unsafe else RoundIndex(len(view.settled))
    if before == 0:
        return CleanModel(before, None, None)
    verdict = view.settled[before - 1].verdict
    return CleanModel(before, verdict.state, verdict.cid)
