"""What a member of a round's pool says of a claim that no trace decides, and when."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.unit.protocol.script import VERIFIERS, Script
from tests.unit.protocol.test_obligations import claim_about

from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.disputes import DISPUTE_HANDLERS
from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.game_machine import Clock
from atoll.protocol.types import ZERO_DIGEST, Address, BlockRef, RoundIndex, SeatIndex
from atoll.service.duties import testify
from atoll.service.duties.replay_seat import DoReplay, SeatReplayed
from atoll.service.duties.testify import SendTestimony, decide_testimony, is_right

ME, SEAT, SEGMENTS = VERIFIERS[0], SeatIndex(1), 4
TAGS = tuple(digest(f"tag {i}") for i in range(SEGMENTS))
VALID = SeatReplayed(AuditEntry.valid(SEAT, ME, TAGS), TAGS, 1.0)


def mismatch(at: int) -> SeatReplayed:
    return SeatReplayed(AuditEntry(SEAT, at, digest("own")), TAGS[:at], 1.0)


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.honest_round()
    return made


def game_of(script: Script, **changes: Any) -> GameRecord:
    claim = claim_about(script.net.view, SEAT, 2, is_update_proof=False)
    clock = Clock(script.net.now, 10, 100, 50)
    return GameRecord(7, Address("0x" + "ee" * 20), 50, replace(claim, program=ZERO_DIGEST),
                      b"", clock=clock, **changes)  # fmt: skip


@pytest.mark.parametrize(
    ("segment", "is_update_proof", "replay", "right"),
    [
        (2, False, VALID, True),
        (3, True, VALID, True),
        (2, False, mismatch(2), False),
        (2, False, mismatch(1), False),
        (2, False, mismatch(3), True),
        (3, True, mismatch(SEGMENTS), False),
        (3, False, mismatch(SEGMENTS), True),
        (2, False, replace(VALID, earlier=(RoundIndex(0), 1)), False),
    ],
)
def test_a_claim_is_right_where_all_up_to_its_end_is(
    script: Script, segment: int, is_update_proof: bool, replay: SeatReplayed, right: bool
) -> None:
    claim = claim_about(script.net.view, SEAT, segment, is_update_proof=is_update_proof)
    assert is_right(claim, SEGMENTS, replay) is right


def test_a_work_tag_that_is_claimed_is_compared(script: Script) -> None:
    claim = claim_about(script.net.view, SEAT, 2, is_update_proof=False)
    assert is_right(replace(claim, work_tag=TAGS[2]), SEGMENTS, VALID)
    assert not is_right(replace(claim, work_tag=TAGS[1]), SEGMENTS, VALID)


def decided(
    script: Script, game: GameRecord, monkeypatch: Any, replay: SeatReplayed | None
) -> tuple[Any, ...]:
    monkeypatch.setattr(testify, "spec_of", lambda entries: b"manifest")
    monkeypatch.setattr(testify, "replaying", lambda view, r, seat, *_: ("replays", r.round, seat))
    entries = SimpleNamespace(of=lambda kind, *about: replay if kind is DoReplay else None)
    view = replace(script.net.view, games={game.id: game})
    state: Any = SimpleNamespace(me=ME, view=view, now=script.net.now, entries=entries)
    return decide_testimony(state).commands


def test_who_was_ready_replays_and_says_once(script: Script, monkeypatch: Any) -> None:
    game = game_of(script)
    assert decided(script, game, monkeypatch, None) == (("replays", 0, SEAT),)
    (said,) = decided(script, game, monkeypatch, mismatch(1))
    assert isinstance(said, SendTestimony)
    assert (said.game, said.is_right) == (7, False)
    assert script.net.view.verifiers[said.holder].account == ME
    asked = replace(game, testimonies={ME: False})
    assert decided(script, asked, monkeypatch, mismatch(1)) == ()
    played = replace(game, claim=replace(game.claim, program=digest("program")))
    assert decided(script, played, monkeypatch, mismatch(1)) == ()


def test_what_is_said_is_in_the_view(script: Script) -> None:
    game, block = game_of(script), BlockRef(1, digest("block"), script.net.now)
    assert game.deadline == script.net.now + 10 + 100 + 50
    view = replace(script.net.view, games={7: game})
    view = DISPUTE_HANDLERS[ev.Testified](view, ev.Testified(7, ME, is_right=True), block)
    assert view.games[7].testimonies == {ME: True}
    other = ev.Testified(8, ME, is_right=True)
    assert DISPUTE_HANDLERS[ev.Testified](view, other, block) == view
