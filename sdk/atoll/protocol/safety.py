"""Whether what a job made can be trusted, from who fell: the rule bears f bad updates a round.

Training is never undone. Where more than f of those whose updates were merged lost their bonds for
that round, what the rule promises of its model does not hold, and nobody has to find out by trying
it: the chain has all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.protocol.merge_inputs import MergeFacts
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import Bitmap, Digest, RoundIndex, to_bitmap


@dataclass(frozen=True, slots=True)
class SafeModel:
    """The newest model with which no unsafe round has anything to do.

    Attributes:
        before: the round that opens from it: 0 is the job's first model.
        digest, cid: as certified; None of the job's first model, which the manifest gives.
    """

    before: RoundIndex
    digest: Digest | None
    cid: bytes | None


@dataclass(frozen=True, slots=True)
class LastMerge:
    """The merge that a job's result comes from.

    Attributes:
        past: the last settled round that merged anything.
        fallen: seats whose updates it may hold and whose holders lost it.
        facts: what it is merged by once more: nobody who lost it takes part, excluded or not.
    """

    past: SettledRound
    fallen: Bitmap
    facts: MergeFacts


def last_merge(view: JobView) -> LastMerge | None:
    """None of a job that has merged nothing. It changes no more once all its rounds are FINAL."""
    merged = (past for past in reversed(view.settled) if past.verdict.merged)
    past = next(merged, None)
    if past is None:
        return None
    facts = past.merge_facts
    out = Bitmap(facts.fallen | _lost(view, past))
    return LastMerge(past, fallen_in(view, past), replace(facts, fallen=out))


def fallen_in(view: JobView, past: SettledRound) -> Bitmap:
    """Seats that count as had in a settled round and whose holders lost that round."""
    weighed = past.facts.available & ~past.verdict.excluded
    return Bitmap(weighed & _lost(view, past))


def _lost(view: JobView, past: SettledRound) -> Bitmap:
    return to_bitmap(
        seat
        for seat, told in past.reveals.items()
        if view.providers[told.holder].lost_from <= past.round
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


def last_safe(view: JobView) -> SafeModel:
    """What to go on from: the newest model, or the one that the first unsafe round opened from."""
    unsafe = unsafe_rounds(view)
    before = unsafe[0] if unsafe else RoundIndex(len(view.settled))
    if before == 0:
        return SafeModel(before, None, None)
    verdict = view.settled[before - 1].verdict
    return SafeModel(before, verdict.state, verdict.cid)
