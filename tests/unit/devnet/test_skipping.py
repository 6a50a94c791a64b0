"""A window is skipped once nobody has anything to do in it; never while somebody may."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import JOB, digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol import events as ev
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.moves import Claim
from atoll.protocol.obligations import Duty
from atoll.protocol.types import Address, Role, SeatIndex
from atoll_devnet.run.skipping import (
    FAR,
    NO_JOBS,
    MemberStatus,
    in_vain,
    is_waiting,
    next_moment,
    told_by,
)
from atoll_node.duties.commit import shown_from

NOTHING: frozenset[Duty] = frozenset()
EVERYTHING = frozenset(Duty)
NO_KEYS: frozenset[str] = frozenset()


def told(account: Address, never: frozenset[Duty] = NOTHING) -> MemberStatus:
    return MemberStatus(account, FAR, never=never)


def everyone(**changes: frozenset[Duty]) -> list[MemberStatus]:
    """All members, at rest; of some it is said what they never do: p0 … and v0 …"""
    named = {f"p{i}": account for i, account in enumerate(PROVIDERS[:4])}
    named |= {f"v{i}": account for i, account in enumerate(VERIFIERS[:4])}
    return [told(account, changes.get(name, NOTHING)) for name, account in named.items()]


def waits(job: Script, members: list[MemberStatus] | None = None, since: int = 0) -> bool:
    return is_waiting(job.net.view, job.net.now, members or everyone(), since)


def moment(job: Script) -> int | None:
    return next_moment(job.net.view, job.net.now)


@pytest.fixture
def job() -> Script:
    job = Script.ready()
    job.net.advance()
    return job


def audited() -> Script:
    """A job of one round that is settled: everybody is audited."""
    job = Script.ready(make_terms(rounds=1))
    job.honest_round()
    return job


def test_nothing_is_skipped_before_a_job_has_opened() -> None:
    assert moment(Script.ready()) is None


def test_training_waits_for_whoever_still_trains(job: Script) -> None:
    for seat in range(3):
        job.commit(seat)
    assert moment(job) == job.net.deadline
    assert not waits(job)
    assert waits(job, everyone(p3=EVERYTHING))
    assert not waits(job, everyone(p2=EVERYTHING))


def test_revealing_waits_for_whoever_can_reveal(job: Script) -> None:
    for seat in range(4):
        job.commit(seat)
    for seat in range(3):
        job.reveal(seat)
    assert not waits(job)
    assert waits(job, everyone(p3=frozenset({Duty.REVEAL})))
    assert not waits(job, everyone(p3=frozenset({Duty.COMMIT})))


def test_a_merge_waits_for_votes_and_for_its_settlement(job: Script) -> None:
    job.train()
    job.say(range(2))
    assert not waits(job)
    assert waits(job, everyone(v2=EVERYTHING, v3=EVERYTHING))
    running = job.net.view.open
    assert running is not None
    job.net.wait_until(running.half_merge)
    assert moment(job) == running.votes_end < running.deadline  # then the two can settle
    job.say(range(2, 4))
    assert not waits(job)  # the signatures are owed


def test_signatures_of_a_committee_draw_that_too_few_sign_are_not_waited_for(job: Script) -> None:
    job.train()
    job.say(range(4))
    running, silent = job.net.view.open, frozenset({Duty.SIGN})
    assert running is not None
    assert not waits(job, everyone(v3=silent))  # three of four are enough
    assert waits(job, everyone(v2=silent, v3=silent))
    job.net.wait_until(running.deadline)
    assert not waits(job, everyone(v2=silent, v3=silent))  # the next committee is due


def test_an_audit_is_waited_out_by_whoever_replays_and_then_skipped_window_by_window() -> None:
    job = audited()
    settled_round = job.net.settled[0]
    first, *others = job.auditors(0)
    for id in others:
        job.audit_report(0, id)
    assert moment(job) == settled_round.ends["audit"]
    assert not waits(job)
    replays = job.net.member(Role.VERIFIER, first).account
    assert waits(job, [told(a, EVERYTHING if a == replays else NOTHING) for a in VERIFIERS[:4]])
    job.audit_report(0, first)
    assert waits(job)
    job.net.wait_until(settled_round.ends["audit"])
    assert not waits(job)  # who has an audit report opens it
    for id in job.auditors(0):
        job.open(0, id)
    assert waits(job)
    shown = shown_from(job.net.view, job.net.view.settled[0])
    assert (
        moment(job) == shown > settled_round.ends["open"]
    )  # keys come a while after the last opening
    job.net.wait_until(settled_round.ends["open"])
    assert waits(job)
    job.net.wait_until(shown)
    assert not waits(job)
    job.show_keys(0)
    assert waits(job)
    assert moment(job) == settled_round.ends["window"]  # nothing is due at the ends between
    job.net.wait_until(settled_round.ends["window"])
    assert moment(job) is None


def test_a_window_is_left_where_somebody_did_not_show_its_key() -> None:
    job = audited()
    settled_round = job.net.settled[0]
    for id in job.auditors(0):
        job.audit_report(0, id)
    job.net.wait_until(settled_round.ends["audit"])
    for id in job.auditors(0):
        job.open(0, id)
    job.net.wait_until(shown_from(job.net.view, job.net.view.settled[0]))
    job.show_keys(0, [0, 1, 2])
    assert waits(job, everyone(p3=frozenset({Duty.KEY})))
    assert moment(job) == settled_round.ends["keys"]
    job.net.wait_until(settled_round.ends["keys"])
    assert not waits(job, everyone(p3=frozenset({Duty.KEY})))  # it is struck


def test_what_is_due_is_not_skipped_whoever_does_it(job: Script) -> None:
    for seat in range(3):
        job.commit(seat)
    gone = everyone(p3=EVERYTHING)
    assert waits(job, gone)
    job.net.wait_until(job.net.deadline)
    assert not waits(job, gone)  # somebody advances


@pytest.mark.parametrize("change", ["busy", "behind"])
def test_who_computes_or_has_not_taken_the_last_event_is_waited_for(change: str) -> None:
    job = audited()
    for id in job.auditors(0):
        job.audit_report(0, id)
    calm = replace(told(PROVIDERS[7]), taken=job.net.view.block.number)
    assert waits(job, [*everyone(), calm])
    behind = replace(calm, taken=calm.taken - 1)
    restless = replace(calm, busy=frozenset({JOB})) if change == "busy" else behind
    assert not waits(job, [*everyone(), restless])
    sent = calm.taken + 1  # by somebody, which the job's events do not tell yet
    assert not waits(job, [*everyone(), calm], sent)
    assert waits(job, [*everyone(), replace(calm, taken=sent)], sent)


def test_a_status_tells_at_which_jobs_it_works_and_in_which_it_tries_a_move_again() -> None:
    status = {"taken": 7, "sent": 5, "under_way": [], "failing": []}
    assert told_by(status, PROVIDERS[0], NOTHING, NO_KEYS) == MemberStatus(PROVIDERS[0], 7, sent=5)
    trains = {**status, "under_way": ["2:train.v1:0", "11:fetch-data.v1"]}
    assert told_by(trains, PROVIDERS[0], NOTHING, NO_KEYS).busy == {2, 11}
    move = {"job": 3, "command": "game-move.v1:3:0", "times": 1, "text": "no endpoint answers"}
    again = {**status, "failing": [move]}
    assert told_by(again, PROVIDERS[0], NOTHING, NO_KEYS).plays_on == {3}
    refused = "Game.PostUpdateProof reverted: WrongUpdate(given=0xc2, claimed=0x94)"
    hopeless = {**status, "failing": [{**move, "text": refused}]}
    assert told_by(hopeless, PROVIDERS[0], NOTHING, NO_KEYS).plays_on == NO_JOBS
    other = {**status, "failing": [{**move, "command": "fetch-data.v1"}]}
    assert told_by(other, PROVIDERS[0], NOTHING, NO_KEYS).plays_on == NO_JOBS


def test_what_who_serves_nobody_revealed_is_gotten_in_vain(job: Script) -> None:
    job.train()
    job.say()
    job.settle()
    job.train()
    silent = PROVIDERS[2]
    vain = in_vain(job.net.view, {silent})
    rounds = (job.net.view.settled[0], job.net.view.open)
    commitments = [r.reveals[SeatIndex(2)].commitment.hex() for r in rounds if r is not None]
    assert vain == {f"{JOB}:fetch-update.v1:{n}:{told}" for n, told in enumerate(commitments)}
    assert in_vain(job.net.view, set()) == NO_KEYS


def test_who_gets_only_what_never_comes_neither_works_nor_votes_before_half_of_merge(
    job: Script,
) -> None:
    job.train()
    running, silent = job.net.view.open, PROVIDERS[2]
    assert running is not None
    vain = in_vain(job.net.view, {silent})
    (never,) = vain
    other = f"{JOB}:fetch-update.v1:0:{running.reveals[SeatIndex(1)].commitment.hex()}"

    def all_say(under_way: list[str], failing: list[str]) -> list[MemberStatus]:
        commands = [{"job": JOB, "command": key.partition(":")[2]} for key in failing]
        status = {"taken": FAR, "sent": 0, "under_way": under_way, "failing": commands}
        return [told_by(status, account, NOTHING, vain) for account in VERIFIERS[:4]]

    assert waits(job, all_say([never], []))
    assert waits(job, all_say([], [never]))
    assert moment(job) == running.half_merge
    assert not waits(job, all_say([], []))  # it has them all, and says so
    assert not waits(job, all_say([never, other], []))
    assert not waits(job, all_say([never], [other]))  # it asks again
    assert not waits(job, all_say([never, f"{JOB}:merge.v1:0"], []))
    job.net.wait_until(running.half_merge)
    assert not waits(job, all_say([never], []))


def test_a_move_is_waited_for_from_who_tries_it_again_and_else_the_clock_runs_out() -> None:
    job = audited()
    job.audit(0)
    net, seat = job.net, SeatIndex(2)
    holder = net.view.settled[0].seats[seat]
    claim = Claim(
        holder=PROVIDERS[seat],
        set=bond_set(JOB, Role.PROVIDER, holder),
        position=digest("place"),
        program=digest("program"),
        is_update_proof=False,
        seat=seat,
        round=0,
        segment=2,
        data_seed=digest("seed"),
        initial_state=digest("initial_state"),
        holder_seconds=5,
        challenger_seconds=5,
        move_seconds=3,
    )
    net.emit(ev.Challenged(1, PROVIDERS[seat], WATCHER, 10**18, claim, b"evidence"))
    net.emit(ev.Began(1, PROVIDERS[seat]))
    net.wait(1)
    rest = [member for member in everyone() if member.account != PROVIDERS[seat]]
    assert waits(job, [*rest, told(PROVIDERS[seat])])
    again = replace(told(PROVIDERS[seat]), plays_on=frozenset({JOB}))
    assert not waits(job, [*rest, again])
    game = net.view.games[1]
    assert game.clock is not None
    late = game.clock.since + 3
    assert moment(job) == late  # from then on the challenger may have time for others
    net.wait_until(late)
    assert moment(job) == game.deadline == late + 5
