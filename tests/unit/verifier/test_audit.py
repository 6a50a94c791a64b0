"""What an auditor seals, opens and accuses of: late, after a lost disk, or not at all."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from eth_abi.abi import decode
from tests.support.identities import digest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.protocol.script import VERIFIERS, WATCHER, Script
from tests.unit.protocol.test_obligations import claim_about
from tests.unit.service.held import state_of

from atoll.chain.abi import registry
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, HolderId, Role, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.duties.challenge import SendChallenge
from atoll.service.duties.join_and_leave import SendJoin, SendLeave
from atoll.service.duties.material import DoFetchSpec, JobRefused, SpecReady
from atoll.service.duties.replay_seat import DoReplay, SeatReplayed
from atoll.service.duties.updates import DoGetUpdate
from atoll.service.entries import Entries
from atoll.service.machine import Ordered, State
from atoll.train.replay import SeatReplay
from atoll_verifier import service
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.duties.audit import (
    AuditReportSealed,
    SealAuditReport,
    SendAuditReport,
    SendOpen,
)
from atoll_verifier.machine import decide, step

CALLS = Calls(Deployment(31337, 0, dict.fromkeys(REQUIRED, WATCHER)))


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def audited(script: Script, round: int) -> tuple[Address, HolderId, SettledRound, list[SeatIndex]]:
    """Somebody with the most duties in a settled round, and their seats."""
    busiest = max(
        script.auditors(round), key=lambda auditor: len(script.net.duties(round, auditor))
    )
    id = HolderId(busiest)
    seats = [SeatIndex(seat) for seat in sorted(script.net.duties(round, id))]
    view = script.net.view
    return view.verifiers[id].account, id, view.settled[round], seats


def of(script: Script, me: Address, behaviour: VerifierBehaviour | None = None) -> State[Any]:
    return state_of(script.net, me, behaviour or VerifierBehaviour())


def at(state: State[Any], now: int) -> State[Any]:
    return replace(state, head=replace(state.head, time=now))


def seen(
    state: State[Any], settled_round: SettledRound, seat: SeatIndex, **more: Any
) -> State[Any]:
    """The seat is replayed, and differs in its first segment."""
    key = f"replay.v1:{settled_round.round}:{seat}:{settled_round.reveals[seat].commitment.hex()}"
    entry = replace(SeatReplayed(AuditEntry(seat, 0, digest("own")), (), 1.0), **more)
    return replace(state, entries=state.entries.plus(key, entry))


def test_late_in_audit_what_is_replayed_by_then_is_sealed() -> None:
    script = Script.ready(make_terms(rounds=1), slots=3)
    me, id, settled_round, seats = audited(script, script.honest_round())
    nothing, one = of(script, me), seen(of(script, me), settled_round, seats[0])
    assert len(seats) == 2
    late = (
        settled_round.clock.audit_end
        - (settled_round.clock.audit_end - settled_round.clock.settled_at) // 6
    )
    assert wanted(at(one, late - 1), SealAuditReport) == []
    assert [c.seat for c in wanted(at(one, late - 1), DoReplay)] == seats[1:]
    (seal,) = wanted(at(one, late), SealAuditReport)
    assert [entry.seat for entry in AuditReport.from_bytes(seal.body).entries] == seats[:1]
    assert wanted(at(nothing, late), SealAuditReport) == []
    assert [c.seat for c in wanted(at(nothing, late), DoReplay)] == seats
    # Once it is sent, only a whole replay can give what was sealed again.
    script.net.audit_report(0, id, digest("sealed on a disk that is lost"))
    opening = seen(at(of(script, me), settled_round.clock.audit_end), settled_round, seats[0])
    assert wanted(opening, SealAuditReport) == []
    assert [c.seat for c in wanted(opening, DoReplay)] == seats[1:]


async def test_a_replay_waits_for_none_that_is_due_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a closed job, whose last audit is long, beside those of the next one."""
    script = Script.ready()
    me, _, settled_round, _ = audited(script, script.honest_round())
    state, told = of(script, me), list[object]()

    async def model(*_: object) -> bytes:
        return b"model"

    async def work(*_: object, due: int) -> SeatReplay:
        told.append(due)
        return SeatReplay((), 0, digest("own"), 1.0)

    monkeypatch.setattr("atoll.service.duties.replay_seat.model_of_round", model)
    journal = SimpleNamespace(measure=lambda *_: None)
    context = SimpleNamespace(me=me, journal=journal)
    effects: Any = SimpleNamespace(context=context, store_dir="", work=work)
    for replay in wanted(state, DoReplay):
        await replay.perform(effects, state.view)
    assert set(told) == {settled_round.clock.audit_end}


def test_an_audit_report_that_could_not_be_opened_is_replaced_while_there_is_time() -> None:
    """One of another audit seed, which a reorg left; or of a disk that is lost."""
    script = Script.ready(make_terms(rounds=1), slots=3)
    me, id, settled_round, seats = audited(script, script.honest_round())
    script.net.audit_report(0, id, digest("of another audit seed"))
    assert [c.seat for c in wanted(of(script, me), DoReplay)] == seats

    def all_seen() -> State[Any]:
        return seen(seen(of(script, me), settled_round, seats[0]), settled_round, seats[1])

    # Of a lost disk's nothing is excluded: it may be the whole one.
    late = at(seen(of(script, me), settled_round, seats[0]), settled_round.clock.audit_end - 1)
    assert wanted(late, SealAuditReport) == []
    (seal,) = wanted(all_seen(), SealAuditReport)
    sealed = seal.key, AuditReportSealed(seal.body, digest("salt"))

    def sending() -> list[Any]:
        state = all_seen()
        return wanted(replace(state, entries=state.entries.plus(*sealed)), SendAuditReport)

    (audit_report,) = sending()
    script.net.audit_report(0, id, audit_report.audit_report)
    assert sending() == []


class Mute(VerifierBehaviour):
    def sent_audit_report(self, settled_round: SettledRound, audit_report: Digest) -> Digest | None:
        return None

    def skips_opening(self, view: JobView) -> bool:
        return True


def test_a_behaviour_may_keep_its_audit_report_to_itself() -> None:
    script = Script.ready()
    me, id, settled_round, seats = audited(script, script.honest_round())
    (seal,) = wanted(seen(of(script, me), settled_round, seats[0]), SealAuditReport)
    sealed = AuditReportSealed(seal.body, digest("salt"))

    def holding(behaviour: VerifierBehaviour) -> State[Any]:
        state = of(script, me, behaviour)
        return replace(state, entries=state.entries.plus(seal.key, sealed))

    (audit_report,) = wanted(holding(VerifierBehaviour()), SendAuditReport)
    assert (
        wanted(holding(Mute()), SendAuditReport) == wanted(holding(Mute()), SealAuditReport) == []
    )
    script.net.audit_report(0, id, audit_report.audit_report)
    script.net.wait_until(settled_round.clock.audit_end)
    assert len(wanted(holding(VerifierBehaviour()), SendOpen)) == 1
    assert wanted(holding(Mute()), SendOpen) == []


def test_what_is_sealed_is_sent_and_opened_by_a_machine_that_replays_no_more() -> None:
    """As while the probe is tried again after a start, or where a new version fails it."""
    script = Script.ready()
    me, id, settled_round, seats = audited(script, script.honest_round())
    (seal,) = wanted(seen(of(script, me), settled_round, seats[0]), SealAuditReport)

    def refused(*more: tuple[str, Any]) -> State[Any]:
        state = of(script, me)
        entries = dict(state.entries._by_key) | {
            DoFetchSpec(b"", ZERO_DIGEST).key: JobRefused("bits")
        }
        return replace(state, entries=Entries(entries | dict(more)))

    assert wanted(refused(), DoReplay) == wanted(refused(), SealAuditReport) == []
    sealed = seal.key, AuditReportSealed(seal.body, digest("salt"))
    (audit_report,) = wanted(refused(sealed), SendAuditReport)
    script.net.audit_report(0, id, audit_report.audit_report)
    script.net.wait_until(settled_round.clock.audit_end)
    assert len(wanted(refused(sealed), SendOpen)) == 1


def test_what_is_sealed_is_what_the_contracts_are_sent() -> None:
    script = Script.ready()
    _, id, settled_round, seats = audited(script, script.honest_round())
    view, job = script.net.view, script.net.job
    audit_report = SendAuditReport(settled_round.round, digest("report")).call(CALLS, view)
    function = registry().function("sealAuditReport")
    assert audit_report.data[:4] == function.selector
    assert decode(function.inputs, audit_report.data[4:]) == (job, 0, digest("report"))
    sealed = AuditReportSealed(
        AuditReport((AuditEntry(seats[0], 0, digest("own")),)).to_bytes(), digest("salt")
    )
    send = SendOpen(settled_round.round, id, sealed)
    opened, function = send.call(CALLS, view), registry().function("open", "Audits")
    assert opened.data[:4] == function.selector
    *where, _, body, salt = decode(function.inputs, opened.data[4:])
    assert (where, body, salt) == ([job, 0, id], sealed.body, sealed.salt)
    # Which audit report is opened is told by its salt; what it says is in the journal.
    assert send.key == replace(send, sealed=replace(sealed, body=b"other")).key
    assert send.key != replace(send, sealed=replace(sealed, salt=digest("other"))).key


def accusing() -> tuple[Script, Address, SettledRound, list[SeatIndex]]:
    """Somebody who has opened that a seat of the second round differs at 0, and its seats."""
    script = Script.ready()
    script.honest_round()
    me, id, settled_round, seats = audited(script, script.honest_round())
    script.audit_report(1, id, script.body(1, id, {seats[0]: 0}))
    script.net.wait_until(settled_round.clock.audit_end)
    script.open(1, id)
    return script, me, settled_round, seats


def test_a_mismatch_that_comes_from_an_earlier_round_is_played_about_that_one() -> None:
    script, me, settled_round, seats = accusing()
    for earlier, said in ((None, (1, 0, None)), ((RoundIndex(0), 4), (0, 4, 1))):
        state = seen(of(script, me), settled_round, seats[0], earlier=earlier)
        (challenge,) = wanted(state, SendChallenge)
        assert (challenge.round, challenge.at, challenge.through_round) == said
        assert (challenge.seat, challenge.owed) == (seats[0], True)
    (challenge,) = wanted(
        of(script, me), SendChallenge
    )  # by what it opened, where all else is lost
    assert (challenge.round, challenge.at, challenge.through_round) == (1, 0, None)
    held = state.entries._by_key.items()
    bare = Entries({key: entry for key, entry in held if not key.startswith("fetch-data.v1")})
    assert wanted(replace(state, entries=bare), SendChallenge) == []


def test_which_round_of_a_reset_period_is_false_is_found_again_where_the_journal_is_lost() -> None:
    script, me, settled_round, seats = accusing()
    state = of(script, me)
    assert wanted(state, DoReplay) == []
    carrying = make_manifest({"reset_period": 2, "codec.feedback": "0.9"})
    spec = DoFetchSpec(b"", ZERO_DIGEST).key, SpecReady(carrying.to_bytes())
    state = replace(state, entries=state.entries.plus(*spec))
    (replay,) = wanted(state, DoReplay)
    assert wanted(state, SendChallenge) == []
    assert (replay.round_id.round, replay.seat) == (1, seats[0])
    assert [earlier.round for earlier in replay.earlier] == [0]
    (challenge,) = wanted(
        seen(state, settled_round, seats[0], earlier=(RoundIndex(0), 4)), SendChallenge
    )
    assert (challenge.round, challenge.at, challenge.through_round) == (0, 4, 1)


@pytest.mark.parametrize(
    ("outcomes", "comes_again"),
    [
        ([Outcome.NONE], False),
        ([Outcome.CHALLENGER_LOST], False),
        ([Outcome.SENT_HOME], True),
        ([Outcome.SENT_HOME, Outcome.NONE], False),
    ],
)
def test_an_accusation_that_was_pushed_out_comes_again_until_the_window_ends(
    outcomes: list[Outcome], comes_again: bool
) -> None:
    script, me, settled_round, seats = accusing()
    claim = claim_about(script.net.view, seats[0], 0, is_update_proof=False, window=1)
    games = {
        id: GameRecord(id, me, 1, claim, b"", outcome=outcome, is_owed=True)
        for id, outcome in enumerate(outcomes)
    }
    script.net.view = replace(script.net.view, games=games)
    clock = script.net.view.settled[1].clock
    for now, is_in_time in ((clock.half + 1, True), (clock.window_end, False)):
        state = at(seen(of(script, me), settled_round, seats[0]), now)
        challenges = wanted(state, SendChallenge)
        assert [c.seat for c in challenges] == seats[:1] * (comes_again and is_in_time)
        assert all(c.owed for c in challenges)
    script.net.slash(Role.PROVIDER, settled_round.seats[seats[0]], WATCHER)
    assert wanted(at(of(script, me), clock.half + 1), SendChallenge) == []


class Shy(VerifierBehaviour):
    def may_accuse(self, view: JobView) -> bool:
        return False


def test_who_may_not_accuse_challenges_no_false_work_tags_either() -> None:
    script = Script.ready()
    me, id, settled_round, seats = audited(script, script.honest_round())
    script.audit_report(0, id)
    script.net.wait_until(settled_round.clock.audit_end)
    script.open(0, id)
    script.net.wait_until(settled_round.clock.open_end)
    script.show_keys(0, [seats[0]])
    for behaviour, challenges in ((VerifierBehaviour(), 1), (Shy(), 0)):
        state = seen(of(script, me, behaviour), settled_round, seats[0], work_tags=(digest("own"),))
        assert len(wanted(state, SendChallenge)) == challenges
        assert wanted(at(state, settled_round.clock.window_end), SendChallenge) == []


# --- the machine and its service ---


class Offline(VerifierBehaviour):
    def is_offline(self, view: JobView) -> bool:
        return True


def test_who_is_offline_leaves_the_rounds_work_and_still_comes_and_goes() -> None:
    script = Script.ready()
    me, _, _, seats = audited(script, script.honest_round())
    assert [c.seat for c in wanted(of(script, me), DoReplay)] == seats
    offline = of(script, me, Offline())
    assert wanted(offline, DoReplay) == []
    assert len(wanted(replace(offline, sits_out="drains, as ordered"), SendLeave)) == 1
    assert len(wanted(of(script, VERIFIERS[4], Offline()), SendJoin)) == 1


def test_updates_are_fetched_by_who_has_a_place_and_by_nobody_else() -> None:
    script = Script.ready()
    script.train()
    held = wanted(of(script, VERIFIERS[0]), DoGetUpdate)
    assert {command.update.seat for command in held} == {0, 1, 2, 3}
    assert wanted(of(script, VERIFIERS[7]), DoGetUpdate) == []


def test_a_stranger_reads_a_jobs_manifest_unless_it_sits_out() -> None:
    stranger = replace(of(Script.ready(), VERIFIERS[7]), entries=Entries())
    assert len(wanted(stranger, DoFetchSpec)) == 1
    assert wanted(replace(stranger, sits_out="is paused, as ordered"), DoFetchSpec) == []


def test_an_order_is_folded_into_the_state_and_acted_on() -> None:
    state, commands = step(of(Script.ready(), VERIFIERS[0]), Ordered("drains, as ordered"))
    assert state.sits_out == "drains, as ordered"
    assert any(isinstance(command, SendLeave) for command in commands)


def test_of_a_job_that_is_not_known_yet_nothing_is_wanted() -> None:
    state = of(Script.ready(), VERIFIERS[0])
    unknown = replace(state, view=JobView.of(state.view.domain, state.view.job_id))
    assert [decision.commands for decision in decide(unknown)] == [()]


async def test_the_service_runs_an_honest_verifier_unless_it_is_told_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = list[tuple[Any, ...]]()

    async def run_role(*what: Any) -> None:
        ran.append(what)

    monkeypatch.setattr(service, "run_role", run_role)
    config: Any = object()
    shy = Shy()
    await service.serve(config)
    await service.serve(config, shy)
    (honest, told) = ran
    assert type(honest[2]) is VerifierBehaviour
    assert told == ("verifier", config, shy, step, shy.serve_function)
