"""What became of each seat in each round, in a word, with its reason and where that is written.

Rule of this file: pure; words and numbers of `atoll.protocol`'s views, nothing that is not on the
chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from atoll.chain.indexed import Indexed
from atoll.job.event_text import Names, tokens, via, words
from atoll.job.history import History
from atoll.protocol import events as ev
from atoll.protocol.game_records import GameRecord, parties
from atoll.protocol.holders import Holder
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.pay import seat_pay
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import HolderId, Role, RoundIndex, SeatIndex
from atoll.storage.cid import cid_text

STATES: Final[Mapping[str, tuple[str, str]]] = {
    "fell": ("F", "fell: the holder lost its bond, and its pay from this round on"),
    "accused": ("A", "an auditor's result differs"),
    "missed": ("M", "missed a commit or a reveal"),
    "keyless": ("K", "showed no key, and is not paid"),
    "not-had": ("N", "revealed, but the committee had no copy"),
    "out": ("O", "excluded from the merge"),
    "partial": ("P", "did a part of the round"),
    "fine": ("✓", "drawn, and fine"),
    "drawn": ("D", "drawn, nobody has said anything yet"),
    "paid": ("·", "had, merged and paid"),
    "stopped": ("S", "stopped: it disagreed, or fell"),
    "trains": ("T", "trains"),
    "committed": ("C", "has committed"),
    "revealed": ("R", "has revealed"),
    "empty": ("", "nobody holds the seat"),
}
"""Each state's letter and meaning. Where two are true the one that stands first is shown."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A seat's round.

    Attributes:
        state: of STATES.
        text: everything that is known about it, in sentences.
        segments: that it revealed.
        paid_wei: for training, as things stand.
        evidence: what shows it: a name, and a CID or a place in the chain.
    """

    state: str
    text: str
    segments: int = 0
    paid_wei: int = 0
    evidence: tuple[Mapping[str, Any], ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "state": self.state,
            "text": self.text,
            "segments": self.segments,
            "paid_wei": str(self.paid_wei),
            "evidence": [dict(item) for item in self.evidence],
        }


EMPTY: Final = Cell("empty", "Nobody holds the seat.")


@dataclass(frozen=True)
class Places:
    """In which logs seats and auditors said what.

    Attributes:
        seats: by round, by seat, and by what it is.
        audit_reports: by round and auditor.
        games: by number, the challenge.
    """

    seats: Mapping[int, Mapping[int, Mapping[str, Indexed]]]
    audit_reports: Mapping[tuple[int, HolderId], Indexed]
    games: Mapping[int, Indexed]

    @classmethod
    def of(cls, history: History) -> Places:
        """The places of a job's events; of a round that opened twice the later ones."""
        seats: dict[int, dict[int, dict[str, Indexed]]] = defaultdict(lambda: defaultdict(dict))
        audit_reports: dict[tuple[int, HolderId], Indexed] = {}
        games: dict[int, Indexed] = {}
        for item in history.items:
            match item.event:
                case ev.RoundOpened() as event:
                    seats.pop(event.round, None)
                case ev.Committed() as event:
                    seats[event.round][event.seat]["commit"] = item
                case ev.Revealed() as event:
                    seats[event.round][event.seat]["reveal"] = item
                case ev.Stopped() as event:
                    seats[event.round][event.seat]["stop"] = item
                case ev.Struck() as event:
                    seats[event.round][event.seat]["no key"] = item
                case ev.Leaked() as event:
                    seats[event.round][event.seat]["early key"] = item
                case ev.Opened() as event:
                    audit_reports[event.round, event.id] = item
                case ev.Challenged() as event:
                    games[event.id] = item
                case _:
                    pass
        return cls(seats, audit_reports, games)

    def of_seat(self, round: int, seat: int) -> Mapping[str, Indexed]:
        """What was said of a seat's round, by what it is."""
        return self.seats.get(round, {}).get(seat, {})


@dataclass(frozen=True)
class Cells:
    """The cells of one job. Use `row`."""

    view: JobView
    places: Places
    names: Names
    games: Mapping[tuple[int, int], list[GameRecord]] = field(init=False)

    def __post_init__(self) -> None:
        games: dict[tuple[int, int], list[GameRecord]] = defaultdict(list)
        for game in self.view.games.values():
            games[game.claim.round, game.claim.seat].append(game)
        object.__setattr__(self, "games", games)

    def row(self, round: int) -> list[Cell]:
        """Every seat's cell of a round, settled or open."""
        past, running = self.view.settled_round(RoundIndex(round)), self.view.open
        seats = range(self.view.require_terms().seats)
        if past is not None:
            return [self._settled(past, SeatIndex(seat)) for seat in seats]
        if running is None or running.round != round:
            return [EMPTY for _ in seats]
        return [self._running(running, SeatIndex(seat)) for seat in seats]

    # --- the open round ---

    def _running(self, running: OpenRound, seat: SeatIndex) -> Cell:
        if not running.seated >> seat & 1:
            return EMPTY
        who, evidence = self._who(running.seats[seat]), tuple(self._logs(running.round, seat))
        if running.stopped >> seat & 1:
            return Cell("stopped", f"{who} stopped: it disagreed, or fell.", evidence=evidence)
        if seat in running.reveals:
            done = running.reveals[seat].segments
            said = sum(has >> seat & 1 for has in running.words.values())
            members = running.committee.bit_count()
            had = f" {said} of {members} members have its update." if running.words else ""
            text = f"{who} revealed {self._of_whole(done)}.{had}"
            return Cell("revealed", text, done, evidence=evidence)
        if seat in running.commits:
            return Cell("committed", f"{who} has committed.", evidence=evidence)
        if running.standing >> seat & 1:
            return Cell("trains", f"{who} trains.", evidence=evidence)
        return Cell("missed", f"{who} did not commit in time.", evidence=evidence)

    # --- settled ones ---

    def _settled(self, past: SettledRound, seat: SeatIndex) -> Cell:
        if seat not in past.seats:
            return EMPTY
        holder, who = self.view.providers[past.seats[seat]], self._who(past.seats[seat])
        logs = self.places.of_seat(past.round, seat)
        if seat not in past.reveals:
            return self._absent(past, seat, who)
        told = past.reveals[seat]
        findings = list(self._findings(past, seat, holder))
        states = [state for state, _ in findings]
        state = next((name for name in STATES if name in states), "paid")
        is_lost = past.round >= holder.lost_from
        amount = 0 if is_lost else seat_pay(self.view.require_terms(), past, seat)
        pay = f"Earns {tokens(amount)} tokens." if amount else "Not paid."
        done = f"{who} revealed {self._of_whole(told.segments)}."
        text = " ".join((done, *(text for _, text in findings), pay))
        evidence: list[Mapping[str, Any]] = []
        if told.reveal.update_cid:
            evidence.append({"what": "update", "cid": cid_text(told.reveal.update_cid)})
        evidence += [place(name, item) for name, item in logs.items()]
        evidence += self._auditors_logs(past, seat)
        return Cell(state, text, told.segments, amount, tuple(evidence))

    def _absent(self, past: SettledRound, seat: SeatIndex, who: str) -> Cell:
        """Seated, and nothing revealed."""
        logs = self.places.of_seat(past.round, seat)
        evidence = tuple(self._logs(past.round, seat))
        if "stop" in logs:
            text = f"{who} stopped: it disagreed, or fell. Not paid."
            return Cell("stopped", text, evidence=evidence)
        missing = "reveal" if "commit" in logs else "commit"
        return Cell("missed", f"{who} did not {missing} in time. Not paid.", evidence=evidence)

    def _findings(
        self, past: SettledRound, seat: SeatIndex, holder: Holder
    ) -> Iterator[tuple[str, str]]:
        """States that are true of a revealed seat, each with its sentence, as they came about."""
        told, terms = past.reveals[seat], self.view.require_terms()
        if told.segments < terms.segments:
            yield "partial", "It did a part of the round."
        yield from self._merged(past, seat)
        yield from self._audited(past, seat)
        if past.struck >> seat & 1:
            yield "keyless", "It showed no key in time."
        if seat in past.leaks:
            yield "keyless", f"{self.names(past.leaks[seat])} showed its key before its time."
        for game in self.games.get((past.round, seat), []):
            about = parties(game.claim)
            state = "accused" if about and about[1] is Role.PROVIDER and game.is_open else "paid"
            end = "open" if game.is_open else words(game.outcome)
            yield state, f"Game {game.id} about it{via(game.claim)}: {end}."
        if past.round >= holder.lost_from:
            yield "fell", f"Its holder fell and lost its pay from round {holder.lost_from} on."

    def _merged(self, past: SettledRound, seat: SeatIndex) -> Iterator[tuple[str, str]]:
        """What became of a revealed update."""
        facts, told, whole = past.facts, past.reveals[seat], self.view.require_terms().segments
        if not facts.available >> seat & 1:
            said = sum(has >> seat & 1 for has in past.words.values())
            members = facts.committee.bit_count()
            later = " Later more than half had it." if past.pay >> seat & 1 else ""
            yield "not-had", f"Only {said} of {members} members had its update.{later}"
        elif past.fallen >> seat & 1:
            yield "out", "Had, and not merged: its holder had fallen before."
        elif past.verdict.excluded >> seat & 1:
            why = "it was accused" if past.accused >> seat & 1 else "it stood out among the updates"
            yield "out", f"Had, and excluded from the merge: {why}."
        elif not is_whole_enough(told.segments, whole):
            vain = " Nothing was merged, so it earns nothing." if past.unearned >> seat & 1 else ""
            yield "partial", f"Had, and too short to be merged.{vain}"
        elif past.verdict.merged:
            yield "paid", "Had and merged."
        else:
            yield "paid", "Had; nothing was merged."

    def _audited(self, past: SettledRound, seat: SeatIndex) -> Iterator[tuple[str, str]]:
        if not past.drawn >> seat & 1:
            return
        said = False
        for auditor, body in past.bodies.items():
            for duty in body.duties:
                if duty.seat != seat:
                    continue
                said, who = True, self.names(self.view.verifiers[auditor].account)
                if (auditor, seat) in past.contests:
                    yield "drawn", f"{who} said fine, with words that were shown to be wrong."
                elif duty.is_fine:
                    yield "fine", f"{who} trained it again: fine."
                else:
                    yield "accused", f"{who} trained it again: segment {duty.at} differs."
        if not said:
            yield "drawn", "Drawn to be audited."

    # --- words and evidence ---

    def _who(self, holder: HolderId) -> str:
        return self.names(self.view.providers[holder].account)

    def _of_whole(self, segments: int) -> str:
        return f"{segments} of {self.view.require_terms().segments} segments"

    def _logs(self, round: int, seat: SeatIndex) -> Iterator[Mapping[str, Any]]:
        logs = self.places.of_seat(round, seat)
        return (place(name, item) for name, item in logs.items())

    def _auditors_logs(self, past: SettledRound, seat: SeatIndex) -> Iterator[Mapping[str, Any]]:
        for auditor, body in past.bodies.items():
            item = self.places.audit_reports.get((past.round, auditor))
            if item is not None and any(duty.seat == seat for duty in body.duties):
                yield place(
                    f"audit report of {self.names(self.view.verifiers[auditor].account)}", item
                )
        for game in self.games.get((past.round, seat), []):
            if game.id in self.places.games:
                yield place(f"game {game.id}", self.places.games[game.id])


def place(what: str, item: Indexed) -> dict[str, Any]:
    """Where an event is written: its block, its log's number in the block, its transaction."""
    tx = f"0x{item.transaction.hex()}" if item.transaction else None
    return {"what": what, "block": item.block.number, "log": item.log_index, "tx": tx}
