"""What speaks against a job's models, round by round: whose work was merged and found false, what
moved nothing, and how long the held-out loss rose.

Rule of this file: pure; everything follows from the job's view and from the held-out losses that
are known. Whoever shows signs shows these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from atoll.protocol.game_records import parties
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.losses import loss_of
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Role,
    SeatIndex,
    bits,
    to_bitmap,
)
from atoll.protocol.views import JobView

RISES: Final = 3
"""So many rounds running after each of which the held-out loss is higher are a sign."""


@dataclass(frozen=True, slots=True)
class RoundSigns:
    """What speaks against the model after a settled round.

    Attributes:
        model: its digest, as certified.
        merged: how many updates it was made of.
        tainted: seats that were merged and whose accounts' work was found false, in any round.
        is_still: nothing was merged, or the held-out loss is that of before, to the last bit.
        rises: so many rounds running, this one the last, the held-out loss rose.
        is_struck: its committee certified what its updates do not give.
    """

    round: int
    model: Digest
    merged: int
    tainted: Bitmap = NO_BITS
    is_still: bool = False
    rises: int = 0
    is_struck: bool = False

    def text(self) -> str:
        """What its loss says, in a few words; empty where that is nothing."""
        if self.is_still:
            return _why_still(self.merged)
        return f"it rose {self.rises} times running" if self.rises >= RISES else ""


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of every settled round, oldest first."""

    job: JobId
    rounds: tuple[RoundSigns, ...]

    @classmethod
    def of(cls, view: JobView, losses: Sequence[bytes | None] = ()) -> Self:
        """The signs of a view.

        Args:
            losses: held-out losses of the first model and of that after each round, 8 bytes each;
                what is not known is None, or missing at the end.
        """
        false, rises = found_false(view), 0
        known = [*losses, *[None] * (len(view.settled) + 1 - len(losses))]
        signs = []
        for settled_round, before, after in zip(view.settled, known, known[1:], strict=False):
            rises = rises + 1 if _rose(before, after) else 0
            tainted = _merged_of(view, settled_round, false)
            verdict = settled_round.verdict
            is_still = not verdict.merged or _is_same(before, after)
            fields = settled_round.round, verdict.state, verdict.merged, tainted, is_still, rises
            signs.append(RoundSigns(*fields, is_struck=settled_round.struck_by is not None))
        return cls(view.job_id, tuple(signs))

    def after(self, rounds: int) -> Signs:
        """Those of the model after so many rounds."""
        return replace(self, rounds=self.rounds[:rounds])

    def merged_again(self, round: int, without: Bitmap) -> Signs:
        """Those of a result for which that round was merged once more without these seats."""
        cleaned = (
            replace(item, tainted=Bitmap(item.tainted & ~without), is_struck=False)
            if item.round == round
            else item
            for item in self.rounds
        )
        return replace(self, rounds=tuple(cleaned))

    @property
    def tainted(self) -> list[int]:
        """Rounds into which somebody was merged whose work was found false."""
        return [item.round for item in self.rounds if item.tainted]

    @property
    def struck(self) -> list[int]:
        """Rounds whose certificates are no merge of their updates."""
        return [item.round for item in self.rounds if item.is_struck]

    @property
    def still(self) -> list[int]:
        """Rounds that moved nothing."""
        return [item.round for item in self.rounds if item.is_still]

    @property
    def rising(self) -> list[tuple[int, int]]:
        """First and last round of each time that the held-out loss rose RISES times running."""
        following = [*(item.rises for item in self.rounds[1:]), 0]
        return [
            (item.round - item.rises + 1, item.round)
            for item, rises in zip(self.rounds, following, strict=False)
            if item.rises >= RISES and not rises
        ]

    @property
    def clean_before(self) -> int:
        """The first tainted or struck round, which opened with the last clean model; where there is
        none, the round to come.
        """
        return min([*self.tainted, *self.struck], default=len(self.rounds))

    @property
    def is_clean(self) -> bool:
        """Whether no round is tainted or struck."""
        return self.clean_before == len(self.rounds)

    @property
    def clean_model(self) -> Digest | None:
        """Digest of the last clean model; None where that is the job's first one."""
        return self.rounds[self.clean_before - 1].model if self.clean_before else None

    def lines(self) -> list[str]:
        """Sentences; none where nothing speaks against the models."""
        parts = self._strikes(), self._taint(), self._clean(), self._stillness(), self._rises()
        return [line for part in parts for line in part]

    def to_json_value(self) -> dict[str, Any]:
        """As JSON has it; `clean` is null where no round is tainted or struck."""
        model = self.clean_model
        clean = {"before": self.clean_before, "digest": None if model is None else model.hex()}
        return {
            "tainted": [
                {"round": item.round, "seats": bits(item.tainted)}
                for item in self.rounds
                if item.tainted
            ],
            "struck": self.struck,
            "clean": None if self.is_clean else clean,
            "moved_nothing": self.still,
            "rose": [{"from": first, "to": last} for first, last in self.rising],
            "lines": self.lines(),
        }

    def _strikes(self) -> Iterator[str]:
        if self.struck:
            yield (
                f"{_rounds(self.struck, 'was', 'were')} struck: what was certified is not what the"
                " updates give, and every model behind it follows from that"
            )

    def _taint(self) -> Iterator[str]:
        if not self.tainted:
            return
        seats: set[int] = set()
        seats.update(*(bits(item.tainted) for item in self.rounds))
        who = f"seat{'s' if len(seats) > 1 else ''} {listed(sorted(seats))}"
        yield (
            f"{_rounds(self.tainted, 'is', 'are')} tainted: what {who} sent was merged, and work"
            " of whoever sent it was found false"
        )

    def _clean(self) -> Iterator[str]:
        if self.is_clean:
            return
        if self.clean_model is None:
            yield (
                "the last clean model is the one that the job began with:"
                f" `atoll job result {self.job} DIR --clean`"
            )
        else:
            yield (
                f"the last clean model is that after round {self.clean_before - 1},"
                f" {self.clean_model.hex()}: `atoll job result {self.job} DIR --clean`"
            )

    def _stillness(self) -> Iterator[str]:
        for is_merged in (True, False):
            still = [i.round for i in self.rounds if i.is_still and bool(i.merged) is is_merged]
            if still:
                yield f"{_rounds(still, '', '')} {_why_still(int(is_merged))}"

    def _rises(self) -> Iterator[str]:
        for first, last in self.rising:
            times = last - first + 1
            yield f"the held-out loss rose {times} times running, in rounds {first} to {last}"


def found_false(view: JobView) -> frozenset[Address]:
    """Accounts of providers whose work was found false.

    That is who lost a game about it; and who was slashed, for a key that it never showed, and had a
    game about it that its challenger did not lose, or an auditor's *mismatch* that was not dropped:
    else hiding the key would keep a lie's rounds clean. A key that nobody shows says nothing of
    work that nobody disputes.
    """
    slashed = {holder for holder, held in view.providers.items() if held.is_slashed}
    if not slashed:
        return frozenset()
    disputed = set(_played(view)) | set(_accused(view))
    return frozenset(view.providers[holder].account for holder in slashed & disputed)


def _played(view: JobView) -> Iterator[HolderId]:
    """Providers about whom there was a game that its challenger did not lose."""
    for game in view.games.values():
        about = parties(game.claim)
        if about is None or game.outcome is Outcome.CHALLENGER_LOST:
            continue
        job, role, holder = about
        if (job, role) == (view.job_id, Role.PROVIDER):
            yield holder


def _accused(view: JobView) -> Iterator[HolderId]:
    """Providers of whom an opened *mismatch* was not dropped."""
    for settled_round in view.settled:
        for auditor, body in settled_round.opened_reports.items():
            for entry in body.entries:
                if not entry.is_valid and (auditor, entry.seat) not in settled_round.dropped:
                    yield settled_round.seats[entry.seat]


def merged_seats(view: JobView, settled_round: SettledRound) -> list[SeatIndex]:
    """Seats whose updates a settled round merged, where it merged any, unless their bytes were no
    update, which the chain does not tell.
    """
    if not settled_round.verdict.merged:
        return []
    whole = view.require_terms().segments
    weighed = (
        settled_round.record.available & ~settled_round.slashed & ~settled_round.verdict.excluded
    )
    seats = map(SeatIndex, bits(weighed))
    return [seat for seat in seats if is_whole_enough(settled_round.reveals[seat].segments, whole)]


def taint_of(view: JobView, settled_round: SettledRound) -> Bitmap:
    """Of one settled round, the seats that taint it."""
    slashed = frozenset(held.account for held in view.providers.values() if held.is_slashed)
    # Who was found false has been slashed, and to find that out takes a look at every round.
    return (
        _merged_of(view, settled_round, found_false(view))
        if _merged_of(view, settled_round, slashed)
        else NO_BITS
    )


def _merged_of(view: JobView, settled_round: SettledRound, accounts: frozenset[Address]) -> Bitmap:
    """Merged seats of these accounts."""
    if not accounts:
        return NO_BITS
    return to_bitmap(
        s for s in merged_seats(view, settled_round) if settled_round.reveals[s].account in accounts
    )


def _rose(before: bytes | None, after: bytes | None) -> bool:
    """A loss that is no number, of a model that diverged, is higher than any."""
    if before is None or after is None:
        return False
    return math.isnan(loss_of(after)) or loss_of(after) > loss_of(before)


def _is_same(before: bytes | None, after: bytes | None) -> bool:
    return before is not None and before == after and not math.isnan(loss_of(before))


def _why_still(merged: int) -> str:
    if not merged:
        return "moved nothing: no update was merged"
    return "moved nothing: updates were merged, and the held-out loss is the same to the last bit"


def _rounds(rounds: Sequence[int], singular: str, plural: str) -> str:
    """The rounds, and what is said of one or of several."""
    what, verb = ("round", singular) if len(rounds) == 1 else ("rounds", plural)
    return f"{what} {listed(rounds)} {verb}".rstrip()


def listed(numbers: Sequence[int]) -> str:
    """Ascending numbers, three and more that follow one another as the first and the last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = (f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(parts)
