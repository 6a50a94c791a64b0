"""What became of each seat in each round, in a word, with its reason and where that is written.

Rule of this file: pure; words and numbers of `atoll.protocol`'s views, nothing that is not on the
chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from atoll.job.event_text import Names, through_round, tokens, words
from atoll.job.ledger.entries import log_line
from atoll.job.ledger.ledger import Ledger
from atoll.job.serialization import plain_of
from atoll.protocol.game_records import parties
from atoll.protocol.holders import Holder
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.pay import seat_pay
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, HolderId, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.storage.cid import cid_text

STATES: Final[Mapping[str, tuple[str, str]]] = {
    "slashed": ("F", "slashed: the holder lost its bond, and its pay from this round on"),
    "mismatch": ("A", "an auditor's result is another"),
    "missed": ("M", "missed a commit or a reveal"),
    "keyless": ("K", "showed no key, and is not paid"),
    "unavailable": ("N", "revealed, but the committee had no copy"),
    "excluded": ("O", "excluded from the merge"),
    "partial": ("P", "did a part of the round"),
    "valid": ("✓", "drawn, and fine"),
    "drawn": ("D", "drawn, nobody has said anything yet"),
    "paid": ("·", "available, merged and paid"),
    "stopped": ("S", "stopped: it disagreed, or was slashed"),
    "trains": ("T", "trains"),
    "committed": ("C", "has committed"),
    "revealed": ("R", "has revealed"),
    "empty": ("", "nobody holds the seat"),
}
"""Each state's letter and meaning. Where two are true the one that stands first is shown."""


@dataclass(frozen=True, slots=True)
class SeatRow:
    """A seat's round.

    Attributes:
        state: of STATES.
        account: who held the seat; None where nobody did.
        text: everything that is known about it, in sentences.
        segments: that it revealed.
        paid_wei: for training, as things stand.
        evidence: what shows it: a name, and a CID or a slot in the chain.
    """

    state: str
    text: str
    account: Address | None = None
    segments: int = 0
    paid_wei: int = 0
    evidence: tuple[Mapping[str, Any], ...] = ()

    def to_json_value(self) -> dict[str, Any]:
        """As JSON has it."""
        return plain_of(self)


EMPTY: Final = SeatRow("empty", "Nobody holds the seat.")


@dataclass(frozen=True)
class SeatRows:
    """The seats of one job's rounds. Use `of`."""

    ledger: Ledger
    names: Names

    @property
    def view(self) -> JobView:
        return self.ledger.view

    def of(self, round: int) -> list[SeatRow]:
        """Every seat of a round, settled or open."""
        settled, running = self.view.settled_round(RoundIndex(round)), self.view.open
        seats = range(self.view.require_terms().seats)
        if settled is not None:
            return [self._settled(settled, SeatIndex(seat)) for seat in seats]
        if running is None or running.round != round:
            return [EMPTY for _ in seats]
        return [self._running(running, SeatIndex(seat)) for seat in seats]

    # --- the open round ---

    def _running(self, running: OpenRound, seat: SeatIndex) -> SeatRow:
        if not running.seated >> seat & 1:
            return EMPTY
        holder, segments = running.seats[seat], 0
        who = self._who(holder)
        if running.stopped >> seat & 1:
            state, text = "stopped", f"{who} stopped: it disagreed, or was slashed."
        elif seat in running.reveals:
            segments = running.reveals[seat].segments
            having = sum(has >> seat & 1 for has in running.votes.values())
            members = running.committee.bit_count()
            had = f" {having} of {members} members have its update." if running.votes else ""
            state, text = "revealed", f"{who} revealed {self._of_whole(segments)}.{had}"
        elif seat in running.commits:
            state, text = "committed", f"{who} has committed."
        elif running.standing >> seat & 1:
            state, text = "trains", f"{who} trains."
        else:
            state, text = "missed", f"{who} did not commit in time."
        evidence = tuple(self._logs(running.round, seat))
        return SeatRow(state, text, self._account(holder), segments, evidence=evidence)

    # --- settled ones ---

    def _settled(self, settled: SettledRound, seat: SeatIndex) -> SeatRow:
        if seat not in settled.seats:
            return EMPTY
        if seat not in settled.reveals:
            return self._absent(settled, seat)
        holder, reveal = self.view.providers[settled.seats[seat]], settled.reveals[seat]
        findings = list(self._findings(settled, seat, holder))
        states = [state for state, _ in findings]
        state = next((name for name in STATES if name in states), "paid")
        is_lost = settled.round >= holder.lost_from
        amount = 0 if is_lost else seat_pay(self.view.require_terms(), settled, seat)
        pay = f"Earns {tokens(amount)} tokens." if amount else "Not paid."
        work = f"{self.names(holder.account)} revealed {self._of_whole(reveal.segments)}."
        text = " ".join((work, *(text for _, text in findings), pay))
        evidence: list[Mapping[str, Any]] = []
        if reveal.reveal.update_cid:
            evidence.append({"text": "update", "cid": cid_text(reveal.reveal.update_cid)})
        evidence += self._logs(settled.round, seat)
        evidence += self._auditors_logs(settled, seat)
        return SeatRow(state, text, holder.account, reveal.segments, amount, tuple(evidence))

    def _absent(self, settled: SettledRound, seat: SeatIndex) -> SeatRow:
        """Seated, and nothing revealed."""
        logs, holder = self.ledger.logs_of(settled.round, seat), settled.seats[seat]
        who, missing = self._who(holder), "reveal" if "commit" in logs else "commit"
        state, text = "missed", f"{who} did not {missing} in time. Not paid."
        if "stop" in logs:
            state, text = "stopped", f"{who} stopped: it disagreed, or was slashed. Not paid."
        evidence = tuple(self._logs(settled.round, seat))
        return SeatRow(state, text, self._account(holder), evidence=evidence)

    def _findings(
        self, settled: SettledRound, seat: SeatIndex, holder: Holder
    ) -> Iterator[tuple[str, str]]:
        """States that are true of a revealed seat, each with its sentence, as they came about."""
        reveal, terms = settled.reveals[seat], self.view.require_terms()
        if reveal.segments < terms.segments:
            yield "partial", "It did a part of the round."
        yield from self._merged(settled, seat)
        yield from self._audited(settled, seat)
        if settled.struck >> seat & 1:
            yield "keyless", "It showed no key in time."
        if seat in settled.leaks:
            yield "keyless", f"{self.names(settled.leaks[seat])} showed its key before its time."
        for game in self.ledger.games_by_seat.get((settled.round, seat), []):
            about = parties(game.claim)
            state = "mismatch" if about and about[1] is Role.PROVIDER and game.is_open else "paid"
            end = "open" if game.is_open else words(game.outcome)
            yield state, f"Game {game.id} about it{through_round(game.claim)}: {end}."
        if settled.round >= holder.lost_from:
            yield (
                "slashed",
                f"Its holder was slashed and lost its pay from round {holder.lost_from} on.",
            )

    def _merged(self, settled: SettledRound, seat: SeatIndex) -> Iterator[tuple[str, str]]:
        """What became of a revealed update."""
        record, reveal, whole = (
            settled.record,
            settled.reveals[seat],
            self.view.require_terms().segments,
        )
        if not record.available >> seat & 1:
            having = sum(has >> seat & 1 for has in settled.votes.values())
            members = record.committee.bit_count()
            later = " Later more than half had it." if settled.pay >> seat & 1 else ""
            yield "unavailable", f"Only {having} of {members} members had its update.{later}"
        elif settled.slashed >> seat & 1:
            yield "excluded", "Available, and not merged: its holder had been slashed before."
        elif settled.verdict.excluded >> seat & 1:
            why = (
                "it was accused"
                if settled.accused >> seat & 1
                else "it stood out among the updates"
            )
            yield "excluded", f"Available, and excluded from the merge: {why}."
        elif not is_whole_enough(reveal.segments, whole):
            vain = (
                " Nothing was merged, so it earns nothing." if settled.unearned >> seat & 1 else ""
            )
            yield "partial", f"Available, and too short to be merged.{vain}"
        elif settled.verdict.merged:
            yield "paid", "Available and merged."
        else:
            yield "paid", "Available; nothing was merged."

    def _audited(self, settled: SettledRound, seat: SeatIndex) -> Iterator[tuple[str, str]]:
        if not settled.drawn >> seat & 1:
            return
        is_audited = False
        for auditor, body in settled.opened_reports.items():
            for entry in body.entries:
                if entry.seat != seat:
                    continue
                is_audited, who = True, self.names(self.view.verifiers[auditor].account)
                contest = settled.contests.get((auditor, seat))
                if contest is not None and contest.by is not None:
                    yield "drawn", f"{who} said valid, with work tags that were shown to be wrong."
                elif contest is not None and contest.is_wrong:
                    yield "drawn", f"{who} said valid, and game {contest.game} showed otherwise."
                elif entry.is_valid:
                    yield "valid", f"{who} trained it again: fine."
                else:
                    yield "mismatch", f"{who} trained it again: segment {entry.at} has a mismatch."
        if not is_audited:
            yield "drawn", "Drawn to be audited."

    # --- words and evidence ---

    def _account(self, holder: HolderId) -> Address:
        return self.view.providers[holder].account

    def _who(self, holder: HolderId) -> str:
        return self.names(self._account(holder))

    def _of_whole(self, segments: int) -> str:
        return f"{segments} of {self.view.require_terms().segments} segments"

    def _logs(self, round: int, seat: SeatIndex) -> Iterator[Mapping[str, Any]]:
        logs = self.ledger.logs_of(round, seat)
        return (log_line(name, item) for name, item in logs.items())

    def _auditors_logs(self, settled: SettledRound, seat: SeatIndex) -> Iterator[Mapping[str, Any]]:
        for auditor, body in settled.opened_reports.items():
            item = self.ledger.audit_reports.get((settled.round, auditor))
            if item is not None and any(entry.seat == seat for entry in body.entries):
                yield log_line(
                    f"audit report of {self.names(self.view.verifiers[auditor].account)}", item
                )
        for game in self.ledger.games_by_seat.get((settled.round, seat), []):
            logs = self.ledger.game_logs.get(game.id)
            if logs:
                yield log_line(f"game {game.id}", logs[0])
