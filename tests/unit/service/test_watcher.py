"""What an outsider with a bond does, and what a provider does when it is challenged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of

from atoll.protocol import events as ev
from atoll.protocol.audit_reports import VALID, AuditEntry
from atoll.protocol.claims import SeatStatements
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import NO_HOLDER, ZERO_DIGEST, Address, Digest, Role, SeatIndex
from atoll.service.duties.challenge import NotChallenged, SendChallenge
from atoll.service.duties.game import (
    BondCollected,
    NoMove,
    SendCollect,
    SendConclude,
    SendMove,
    SendTimeOut,
)
from atoll.service.duties.material import DoFetchSpec, SpecReady
from atoll.service.duties.replay_seat import DoReplay, SeatReplayed
from atoll.service.duties.send_keeper_calls import SendKeeperCall
from atoll.service.duties.unpin import DoUnpin, decide_unpin
from atoll.service.duties.watch import CameTooLate, NoteTooLate, SendLeak, is_sampled
from atoll.service.entries import Entries
from atoll.service.machine import AnyCommand, Head, State
from atoll.service.watcher import Player, decide

SEAT = SeatIndex(2)
HOLDER = PROVIDERS[SEAT]
OPENED = ev.StepsOpened(1, (digest("state"),), b"works")


@pytest.fixture
def script() -> Script:
    """Round 0 of a job with a judge is settled."""
    made = Script.ready(make_terms(program=PROGRAM.root))
    made.net.advance()
    made.honest_round()
    return made


def player(
    script: Script, me: Address = WATCHER, entries: Entries | None = None, **how: Any
) -> State[Any]:
    return state_of(script.net, me, Player(**how), entries)


def found(script: Script, state: State[Any], at: int = VALID, seat: int = SEAT) -> State[Any]:
    """Our replay of a seat gave this."""
    told = script.net.view.settled[0].reveals[SeatIndex(seat)]
    key = f"replay.v1:0:{seat}:{told.commitment.hex()}"
    work_tags = tuple(script.secrets[0, seat][1])
    entry = SeatReplayed(AuditEntry(SeatIndex(seat), at, digest("own")), work_tags, 1.0)
    return replace(state, entries=state.entries.plus(key, entry))


def wanted(state: State[Any], kind: type[Any] = object) -> list[Any]:
    commands: list[AnyCommand] = [c for d in decide(state) for c in d.commands]
    return [command for command in commands if isinstance(command, kind)]


def claim(script: Script, segment: int = 1) -> Claim:
    settled_round = script.net.view.settled[0]
    return SeatStatements(script.net.view, settled_round, SEAT, MODEL, PROGRAM).claim(segment)


def begin(script: Script, challenger: Address = WATCHER) -> None:
    said = claim(script)
    script.net.emit(ev.Challenged(1, said.holder, challenger, 10**20, said, b"evidence"))
    script.net.emit(ev.Began(1, said.holder))


# --- what it looks at ---


def test_every_seat_is_replayed_while_it_can_be_disputed(script: Script) -> None:
    assert [c.seat for c in wanted(player(script), DoReplay)] == [0, 1, 2, 3]
    script.net.wait_until(script.net.settled[0].ends["window"])
    assert wanted(player(script), DoReplay) == []


def test_its_own_seat_and_who_was_slashed_are_excluded(script: Script) -> None:
    assert [c.seat for c in wanted(player(script, HOLDER), DoReplay)] == [0, 1, 3]
    script.net.slash(Role.PROVIDER, script.net.settled[0].holders[SEAT], WATCHER)
    assert [c.seat for c in wanted(player(script), DoReplay)] == [0, 1, 3]


def test_a_share_is_drawn_anew_for_every_round_and_by_everyone(script: Script) -> None:
    settled_round = script.net.view.settled[0]
    seats = list(map(SeatIndex, range(256)))
    drawn = [seat for seat in seats if is_sampled(WATCHER, settled_round, seat, 0.25)]
    assert 40 < len(drawn) < 90  # 64 expected, 7 a standard deviation
    another = replace(
        settled_round, record=replace(settled_round.record, audit_seed=digest("another"))
    )
    assert drawn != [seat for seat in seats if is_sampled(WATCHER, another, seat, 0.25)]
    assert drawn != [seat for seat in seats if is_sampled(HOLDER, settled_round, seat, 0.25)]
    replays = [c.seat for c in wanted(player(script, share=0.25), DoReplay)]
    assert replays == [seat for seat in drawn if seat < 4]


def test_a_player_that_only_defends_looks_at_nothing(script: Script) -> None:
    assert wanted(player(script, watches=False)) == []


def test_a_window_that_ends_before_the_replay_does_is_told_once(script: Script) -> None:
    state = player(script)
    (replay,) = [c for c in wanted(state, DoReplay) if c.seat == SEAT]
    at_work = replace(state, in_flight={replay.key: replay})
    assert wanted(at_work, NoteTooLate) == []
    over = script.net.settled[0].ends["window"]
    late = replace(at_work, head=Head(script.net.number, over))
    (note,) = wanted(late, NoteTooLate)
    assert (note.round, note.seat) == (0, SEAT)
    told = replace(late, entries=late.entries.plus(note.key, CameTooLate()))
    assert wanted(told, NoteTooLate) == []
    assert wanted(found(script, late), NoteTooLate) == []  # it came in time


# --- what it disputes ---


def test_only_what_differs_is_challenged_once_audit_is_over(script: Script) -> None:
    mismatch = found(script, player(script), at=1)
    assert wanted(mismatch, SendChallenge) == []
    script.net.wait_until(script.net.settled[0].ends["audit"])
    mismatch = found(script, player(script), at=1)
    (challenge,) = wanted(mismatch, SendChallenge)
    assert (challenge.round, challenge.seat, challenge.at) == (0, SEAT, 1)
    assert wanted(found(script, player(script)), SendChallenge) == []
    refused = mismatch.entries.plus(challenge.key, NotChallenged("it cannot be"))
    assert wanted(replace(mismatch, entries=refused), SendChallenge) == []


@pytest.mark.parametrize(
    ("outcome", "again"), [(Outcome.SENT_HOME, True), (Outcome.CHALLENGER_LOST, False)]
)
def test_what_was_sent_home_is_challenged_again_and_what_was_lost_is_not(
    script: Script, outcome: Outcome, again: bool
) -> None:
    script.net.wait_until(script.net.settled[0].ends["audit"])
    begin(script)
    assert wanted(found(script, player(script), at=1), SendChallenge) == []
    script.net.emit(ev.Ended(1, outcome))
    assert bool(wanted(found(script, player(script), at=1), SendChallenge)) == again


def test_a_mask_that_hides_other_work_tags_is_disputed_when_the_key_is_shown(
    script: Script,
) -> None:
    net = script.net
    net.wait_until(net.settled[0].ends["open"])
    script.show_keys(0, [SEAT])
    honest = found(script, player(script))
    assert wanted(honest, SendChallenge) == []
    told = net.view.settled[0].reveals[SEAT]
    key = f"replay.v1:0:{SEAT}:{told.commitment.hex()}"
    work_tags = tuple(script.secrets[0, SEAT][1])
    others = (*work_tags[:3], digest("another work_tag"), *work_tags[4:])
    entry = SeatReplayed(AuditEntry(SEAT, VALID, digest("own")), others, 1.0)
    lied = replace(honest, entries=honest.entries.plus(key, entry))
    (challenge,) = wanted(lied, SendChallenge)
    assert challenge.at == 3


def test_an_auditor_that_knew_the_work_tags_is_held_to_its_valid_entry(script: Script) -> None:
    net = script.net
    seat = min(net.settled[0].drawn)
    id = next(auditor for auditor in script.auditors(0) if seat in net.duties(0, auditor))
    script.audit_report(0, id)
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, id)
    alone = wanted(found(script, player(script), at=1, seat=seat), SendChallenge)
    assert [c.member for c in alone] == [NO_HOLDER]  # without the key nobody is held to it
    net.wait_until(net.settled[0].ends["open"])
    script.show_keys(0, [seat])
    both = wanted(found(script, player(script), at=1, seat=seat), SendChallenge)
    assert [c.member for c in both] == [NO_HOLDER, id]
    assert len({c.key for c in both}) == 2
    update_proof = wanted(found(script, player(script), at=8, seat=seat), SendChallenge)
    assert [c.member for c in update_proof] == [NO_HOLDER]
    author = net.member(Role.VERIFIER, id).account
    own = wanted(found(script, player(script, author), at=1, seat=seat), SendChallenge)
    assert [c.member for c in own] == [NO_HOLDER]
    net.slash(Role.PROVIDER, net.settled[0].holders[seat], WATCHER)
    after = wanted(found(script, player(script), at=1, seat=seat), SendChallenge)
    assert [c.member for c in after] == [id]


# --- what it earns otherwise ---


def test_a_key_that_it_was_told_is_shown_while_audit_runs(script: Script) -> None:
    key: Digest = script.secrets[0, SEAT][0]
    keys = (digest("nobody's"), key)
    (leak,) = wanted(player(script, keys=keys), SendLeak)
    assert (leak.round, leak.seat, leak.key_shown) == (0, SEAT, key)
    assert wanted(player(script, HOLDER, keys=keys), SendLeak) == []  # nobody takes its own
    script.net.leak(0, SEAT, key, WATCHER)
    assert wanted(player(script, keys=keys), SendLeak) == []


def test_a_key_comes_too_late_when_audit_is_over(script: Script) -> None:
    script.net.wait_until(script.net.settled[0].ends["audit"])
    assert wanted(player(script, keys=(script.secrets[0, SEAT][0],)), SendLeak) == []


def test_it_does_what_pays_and_leaves_the_rest_to_members(script: Script) -> None:
    script.net.wait_until(script.net.settled[0].ends["half"] + 1000)
    script.net.emit(ev.GatewayAnnounced(VERIFIERS[0], "http://v:1"))
    kinds = {c.what.value for c in wanted(player(script), SendKeeperCall)}
    assert kinds <= {"contest", "settleContest"}


# --- games ---


def test_each_side_moves_when_it_is_its_turn(script: Script) -> None:
    begin(script)
    assert wanted(player(script), SendMove) == []
    (move,) = wanted(player(script, HOLDER, watches=False), SendMove)
    assert (move.game, move.moves, move.is_holder) == (1, 0, True)
    script.net.emit(OPENED)
    assert wanted(player(script, HOLDER, watches=False), SendMove) == []
    (move,) = wanted(player(script), SendMove)
    assert (move.moves, move.is_holder) == (1, False)


def test_a_delegate_plays_for_the_holder_alone(script: Script) -> None:
    """It moves and concludes for it, and collects nothing; what the other side owes is not its."""
    delegate = VERIFIERS[2]
    begin(script)

    def made(kind: type[Any], defends: Address | None = HOLDER) -> list[Any]:
        return wanted(player(script, delegate, watches=False, defends=defends), kind)

    (move,) = made(SendMove)
    assert (move.game, move.moves, move.is_holder) == (1, 0, True)
    assert made(SendMove, None) == made(SendMove, PROVIDERS[0]) == []
    script.net.emit(OPENED)
    assert made(SendMove) == []
    late = Head(script.net.number, script.net.view.games[1].deadline)
    state = player(script, delegate, watches=False, defends=HOLDER)
    assert [c.game for c in wanted(replace(state, head=late), SendTimeOut)] == [1]
    script.net.emit(ev.Decided(1, Outcome.CHALLENGER_LOST))
    assert [c.game for c in made(SendConclude)] == [1]
    script.net.emit(ev.Ended(1, Outcome.CHALLENGER_LOST))
    assert made(SendCollect) == made(SendConclude) == []


def test_who_is_challenged_by_its_own_delegate_gets_no_move_of_the_other_side(
    script: Script,
) -> None:
    begin(script)  # by WATCHER
    both = {"watches": False, "defends": HOLDER}
    (move,) = wanted(player(script, WATCHER, **both), SendMove)
    assert move.is_holder
    script.net.emit(OPENED)
    (move,) = wanted(player(script, WATCHER, **both), SendMove)
    assert not move.is_holder
    script.net.emit(ev.Decided(1, Outcome.HOLDER_LOST))
    assert wanted(player(script, VERIFIERS[2], **both), SendConclude) == []


def test_a_move_that_nobody_can_make_is_not_asked_for_again(script: Script) -> None:
    begin(script)
    state = player(script, HOLDER)
    (move,) = wanted(state, SendMove)
    entries = state.entries.plus(move.key, NoMove("nothing differs"))
    assert wanted(replace(state, entries=entries), SendMove) == []


@pytest.mark.parametrize(("late", "expected"), [(-1, False), (0, True)])
def test_who_lets_its_time_run_out_is_timed_out_by_the_other(
    script: Script, late: int, expected: bool
) -> None:
    begin(script)
    deadline = script.net.view.games[1].deadline
    head = Head(script.net.number, deadline + late)
    assert bool(wanted(replace(player(script), head=head), SendTimeOut)) == expected
    assert bool(wanted(replace(player(script, HOLDER), head=head), SendMove)) != expected


@pytest.mark.parametrize("outcome", [Outcome.HOLDER_LOST, Outcome.CHALLENGER_LOST])
def test_who_won_has_the_game_pay(script: Script, outcome: Outcome) -> None:
    begin(script)
    script.net.emit(OPENED)
    script.net.emit(ev.Decided(1, outcome))
    winner = WATCHER if outcome is Outcome.HOLDER_LOST else HOLDER
    for me in (WATCHER, HOLDER):
        state = player(script, me)
        assert bool(wanted(state, SendConclude)) == (me == winner)
        assert wanted(state, SendMove) == []


def behind(script: Script, me: Address = WATCHER) -> None:
    """A game of the holder's friend is played, and ours waits."""
    begin(script, VERIFIERS[3])
    said = claim(script, segment=2)
    script.net.emit(ev.Challenged(2, said.holder, me, 10**20, said, b"evidence"))


@pytest.mark.parametrize(("late", "expected"), [(-1, False), (0, True)])
def test_a_game_that_ours_waits_behind_is_timed_out(
    script: Script, late: int, expected: bool
) -> None:
    """Two who are one would else let it stand until ours is sent home."""
    behind(script)
    state = player(script)
    deadline = script.net.view.games[1].deadline + state.setup.keeper.stagger_s
    out = wanted(replace(state, head=Head(script.net.number, deadline + late)), SendTimeOut)
    assert [each.game for each in out] == [1] * expected
    nobodys = player(script, VERIFIERS[2])
    assert wanted(replace(nobodys, head=Head(script.net.number, deadline)), SendTimeOut) == []


@pytest.mark.parametrize("outcome", [Outcome.HOLDER_LOST, Outcome.CHALLENGER_LOST])
def test_a_game_that_ours_waits_behind_is_concluded(script: Script, outcome: Outcome) -> None:
    behind(script)
    script.net.emit(OPENED)
    script.net.emit(ev.Decided(1, outcome))
    state = player(script)
    turns = {
        bool(wanted(replace(state, head=Head(script.net.number, state.now + later)), SendConclude))
        for later in range(100 * state.setup.keeper.stagger_s)
    }
    assert turns == {False, True}  # the winner's turn comes as well


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.NONE])
def test_only_whom_a_game_left_something_collects(script: Script, outcome: Outcome) -> None:
    """Shams, which cost a stranger little when they are sent home, would else cost the honest."""
    begin(script)
    script.net.emit(ev.Ended(1, outcome))
    winner = HOLDER if outcome is Outcome.CHALLENGER_LOST else WATCHER
    for me in (HOLDER, WATCHER):
        assert bool(wanted(player(script, me), SendCollect)) == (me == winner)


def test_what_a_game_left_is_collected_once(script: Script) -> None:
    begin(script)
    script.net.emit(ev.Ended(1, Outcome.HOLDER_LOST))
    state = player(script)
    (collect,) = wanted(state, SendCollect)
    done = replace(state, entries=state.entries.plus(collect.key, BondCollected()))
    assert wanted(done, SendCollect) == []


def test_rounds_of_open_games_keep_their_blocks(script: Script) -> None:
    begin(script)
    script.honest_round()
    script.honest_round()
    script.net.wait_until(max(settled_round.ends["window"] for settled_round in script.net.settled))
    assert decide_unpin(player(script)).commands == ()
    script.net.emit(ev.Ended(1, Outcome.SENT_HOME))
    (unpin,) = decide_unpin(player(script)).commands
    assert unpin.about == ()


def test_a_window_is_over_when_its_last_challenge_would_be_seen(script: Script) -> None:
    """One of its last block is in no view before it is confirmed, and its game needs the round's
    model, which whoever else had it lets go of as well.
    """
    script.honest_round()
    script.honest_round()
    end = script.net.settled[0].ends["window"]
    script.net.wait_until(end)
    state = player(script)
    assert decide_unpin(replace(state, block_time=end - 1)).commands == ()
    assert decide_unpin(replace(state, block_time=end)).commands == (DoUnpin(0, 1),)


def test_who_starts_again_lets_go_of_no_reset_period_before_it_knows_how_long_one_is(
    script: Script,
) -> None:
    """A seat's state comes from all of it, and the manifest says how long it is."""
    script.honest_round()
    script.honest_round()
    script.net.wait_until(max(settled_round.ends["window"] for settled_round in script.net.settled))
    state = player(script)
    for reset_period, expected in ((3, ()), (2, (DoUnpin(0, 2),))):
        changes = {"codec.feedback": "1", "reset_period": reset_period}
        manifest = make_manifest(changes).to_bytes()
        known = state.entries.plus(DoFetchSpec(b"", ZERO_DIGEST).key, SpecReady(manifest))
        assert decide_unpin(replace(state, entries=known)).commands == expected
        assert decide_unpin(replace(state, entries=known.after_restart())).commands == ()


def test_who_starts_again_behind_a_job_lets_go_of_all_but_its_last_merge() -> None:
    """Nothing is played any more, and nobody reads the manifest of a job that is over."""
    script = Script.ready(make_terms(rounds=2))
    script.net.advance()
    script.honest_round()
    script.honest_round()
    end = max(settled_round.ends["window"] for settled_round in script.net.settled)
    script.net.wait_until(end)
    again = replace(player(script, PROVIDERS[0]), entries=Entries())
    assert wanted(again, DoFetchSpec) == []
    assert decide_unpin(replace(again, block_time=end - 1)).commands == ()
    assert decide_unpin(again).commands == (DoUnpin(0, 1),)
