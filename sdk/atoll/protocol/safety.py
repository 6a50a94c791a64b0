"""Whether what a job made can be trusted, from who was slashed: the rule bears f bad updates a
round.

A round is *struck* where its certificate was shown to be no merge of its updates: what came behind
it follows from a model that nobody may go on from. Training is never undone. Where more than f of
those whose updates were merged lost their bonds for that round, what the rule promises of its model
does not hold, and nobody has to find out by trying it: the chain has all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Bitmap, Digest, RoundIndex, to_bitmap
from atoll.protocol.views import JobView


@dataclass(frozen=True, slots=True)
class SafeModel:
    """The newest model with which no unsafe and no struck round has anything to do.

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
        settled_round: the first that was struck, else the last that merged anything.
        slashed: seats whose updates it may hold and whose holders lost it.
        record: what it is merged by once more: nobody who lost it takes part, excluded or not.
    """

    settled_round: SettledRound
    slashed: Bitmap
    record: MergeRecord

    @property
    def is_struck(self) -> bool:
        """Whether its certificate is no merge of its updates."""
        return self.settled_round.struck_by is not None


def first_struck(view: JobView) -> SettledRound | None:
    """The first round that was struck; all models behind it follow from its false one."""
    if not view.cancel_requested:  # a strike cancels, and most jobs need no look at every round
        return None
    return next((each for each in view.settled if each.struck_by is not None), None)


def result_round(view: JobView) -> SettledRound | None:
    """The round whose merge a job's result is; None of a job that has merged nothing."""
    struck = first_struck(view)
    if struck is not None:
        return struck
    return next((each for each in reversed(view.settled) if each.verdict.merged), None)


def last_merge(view: JobView) -> LastMerge | None:
    """None of a job that has merged nothing. It changes no more once all its rounds are FINAL."""
    settled_round = result_round(view)
    if settled_round is None:
        return None
    record = settled_round.merge_record
    out = Bitmap(record.slashed | _lost(view, settled_round))
    return LastMerge(settled_round, slashed_in(view, settled_round), replace(record, slashed=out))


def slashed_in(view: JobView, settled_round: SettledRound) -> Bitmap:
    """Seats that count as available in a settled round and whose holders lost that round."""
    weighed = settled_round.record.available & ~settled_round.verdict.excluded
    return Bitmap(weighed & _lost(view, settled_round))


def _lost(view: JobView, settled_round: SettledRound) -> Bitmap:
    return to_bitmap(
        seat
        for seat, revealed in settled_round.reveals.items()
        if view.providers[revealed.holder].lost_from <= settled_round.round
    )


def unsafe_rounds(view: JobView) -> tuple[RoundIndex, ...]:
    """Rounds that merged something, and for which more than f of what they may have merged were
    slashed.

    A slash loses its holder every round from the first that was open then, so a round before the
    one that was played may stand here, too: who lied once is not taken to have been honest before.
    """
    f = view.require_terms().f
    return tuple(
        settled_round.round
        for settled_round in view.settled
        if settled_round.verdict.merged and slashed_in(view, settled_round).bit_count() > f
    )


def last_safe(view: JobView) -> SafeModel:
    """What to go on from: the newest model, or the one that the first unsafe or struck round opened
    from.
    """
    struck = first_struck(view)
    bad = [*unsafe_rounds(view), *([] if struck is None else [struck.round])]
    before = min(bad, default=RoundIndex(len(view.settled)))
    if before == 0:
        return SafeModel(before, None, None)
    verdict = view.settled[before - 1].verdict
    return SafeModel(before, verdict.state, verdict.cid)
