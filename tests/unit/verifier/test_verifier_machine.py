"""What a verifier does next: a pure function of the chain's mirror, its journal and the clock."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import cid, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import VERIFIERS, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import Address, Bitmap, Digest, Role, SeatIndex, SlotIndex, Verdict
from atoll.service.duties.challenge import SendChallenge
from atoll.service.duties.join_and_leave import SendJoin
from atoll.service.duties.merge import DoMerge
from atoll.service.duties.replay_seat import DoReplay, SeatReplayed
from atoll.service.duties.send_keeper_calls import SendKeeperCall
from atoll.service.effects import Effects
from atoll.service.entries import Entries
from atoll.service.machine import State
from atoll_devnet.cheats import verifier_behaviour
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.duties.audit import (
    AuditReportSealed,
    SealAuditReport,
    SendAuditReport,
    SendOpen,
)
from atoll_verifier.duties.committee import (
    SendReady,
    SendSettle,
    SendSign,
    SendVote,
    SignVerdict,
    VerdictSigned,
)
from atoll_verifier.machine import decide

VERDICT = Verdict(Bitmap(0), 4, digest("merged"), cid("merged"), bytes(8))


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def verifier(net: Network, me: Address = VERIFIERS[0]) -> State[Any]:
    return state_of(net, me, VerifierBehaviour())


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def member(script: Script) -> Address:
    """Who is in the running round's committee."""
    place = min(script.net.committee)
    held = script.net.view.open
    assert held is not None
    return script.net.view.verifiers[held.slots[SlotIndex(place)]].account


def test_it_takes_a_slot_and_says_ready() -> None:
    net = Network()
    (join,) = wanted(verifier(net), SendJoin)
    net.enrol(VERIFIERS[0], join.index, join.bond)
    assert len(wanted(verifier(net), SendReady)) == 1
    net.say_ready(VERIFIERS[0])
    assert wanted(verifier(net), SendReady) == []


def test_its_vote_waits_for_updates_and_not_for_ever(script: Script) -> None:
    script.train()
    me, running = member(script), script.net.view.open
    assert running is not None
    assert wanted(verifier(script.net, me), SendVote) == []
    (word,) = wanted(with_updates(verifier(script.net, me)), SendVote)
    assert (word.has, word.data_seed) == (0b1111, script.net.seed)
    script.net.wait_until(running.votes_end - 1)
    (late,) = wanted(verifier(script.net, me), SendVote)
    assert late.has == 0


def test_its_vote_waits_for_the_model_and_not_for_ever(script: Script) -> None:
    """Without one it can sign nothing, and a word may be of use to nobody."""
    script.train()
    me, running = member(script), script.net.view.open
    assert running is not None
    half = running.votes_end - script.net.terms.merge_seconds // 4
    for moment, words in ((half - 1, 0), (half, 1)):
        script.net.wait_until(moment)
        without = replace(verifier(script.net, me), entries=Entries())
        assert len(wanted(with_updates(without), SendVote)) == words


def test_it_merges_signs_and_settles(script: Script) -> None:
    script.train()
    script.say()
    state = with_updates(verifier(script.net, member(script)))
    assert len(wanted(state, DoMerge)) == 1
    state = with_merge(state, VERDICT)
    (sign,) = wanted(state, SignVerdict)
    running = state.view.open
    assert running is not None
    assert sign.digest == running.digest_of(VERDICT)
    signed = VerdictSigned(sign.digest, VERDICT, bytes(65), state.now - 1000)
    state = replace(state, entries=state.entries.plus(sign.key, signed))
    assert wanted(state, SignVerdict) == []
    (settle,) = wanted(state, SendSettle)
    assert settle.digest == sign.digest


def test_who_is_excluded_of_a_certificate_adds_its_signature(script: Script) -> None:
    script.train()
    script.say()
    last = max(script.net.committee)
    running = script.net.view.open
    assert running is not None
    me = script.net.view.verifiers[running.slots[SlotIndex(last)]].account
    script.net.settle(script.net.committee - {last})
    settled_round = script.net.view.settled[0]
    assert wanted(verifier(script.net, me), SendSign) == []  # what it merged is not known here
    state = verifier(script.net, me)
    key = ":".join(
        (SignVerdict.kind, "0", settled_round.record.seed.hex(), settled_round.record.votes.hex())
    )
    mine = VerdictSigned(settled_round.digest, settled_round.verdict, b"\x01" * 65, 0)
    state = replace(state, entries=state.entries.plus(key, mine))
    (sign,) = wanted(state, SendSign)
    assert sign.signature == mine.signature
    mute = replace(state, setup=replace(state.setup, behaviour=verifier_behaviour("no-sign")))
    assert wanted(mute, SendSign) == []


def auditor(script: Script) -> tuple[Address, int, SettledRound]:
    """Account and id of somebody with duties in round 0."""
    script.honest_round()
    id = script.auditors(0)[0]
    settled_round = script.net.view.settled[0]
    return (
        next(h for h in script.net.view.verifiers.values() if h.id == id).account,
        id,
        settled_round,
    )


def seen(
    state: State[Any], settled_round: SettledRound, seats: tuple[int, ...], at: int
) -> State[Any]:
    entries = state.entries
    for seat in map(SeatIndex, seats):
        key = (
            f"replay.v1:{settled_round.round}:{seat}:{settled_round.reveals[seat].commitment.hex()}"
        )
        entries = entries.plus(key, SeatReplayed(AuditEntry(seat, at, digest("own")), (), 1.0))
    return replace(state, entries=entries)


def test_it_replays_its_duties_seals_sends_and_opens_an_audit_report(script: Script) -> None:
    me, id, settled_round = auditor(script)
    state = verifier(script.net, me)
    seats = tuple(sorted(script.net.duties(0, id)))
    assert tuple(c.seat for c in wanted(state, DoReplay)) == seats
    state = seen(state, settled_round, seats, 0xFFFF)
    (seal,) = wanted(state, SealAuditReport)
    assert [entry.seat for entry in AuditReport.from_bytes(seal.body).entries] == list(seats)
    sealed = AuditReportSealed(seal.body, Digest(b"\x07" * 32))
    state = replace(state, entries=state.entries.plus(seal.key, sealed))
    (send,) = wanted(state, SendAuditReport)
    script.net.audit_report(0, id, send.audit_report)
    script.net.wait_until(settled_round.clock.audit_end)
    initial_state = replace(verifier(script.net, me), entries=state.entries)
    (opened,) = wanted(initial_state, SendOpen)
    script.net.open_audit_report(0, id, seal.body, sealed.salt)  # which the contract takes
    assert opened.sealed == sealed


def test_what_it_accused_of_is_brought_before_the_judge(script: Script) -> None:
    me, id, settled_round = auditor(script)
    seats = tuple(sorted(script.net.duties(0, id)))
    script.audit_report(0, id, script.body(0, id, {seats[0]: 2}))
    script.net.wait_until(settled_round.clock.audit_end)
    assert wanted(verifier(script.net, me), SendChallenge) == []
    script.open(0, id)
    (challenge,) = wanted(verifier(script.net, me), SendChallenge)
    assert (challenge.round, challenge.seat, challenge.at) == (0, seats[0], 2)
    state = verifier(script.net, me)
    shy = replace(state, setup=replace(state.setup, behaviour=verifier_behaviour("no-challenge")))
    assert wanted(shy, SendChallenge) == []


def test_work_tags_that_a_key_shows_to_be_false_are_challenged(script: Script) -> None:
    me, id, settled_round = auditor(script)
    seat, *_ = sorted(script.net.duties(0, id))
    script.audit_report(0, id)
    script.net.wait_until(settled_round.clock.audit_end)
    script.open(0, id)
    script.net.wait_until(settled_round.clock.open_end)
    told = settled_round.reveals[SeatIndex(seat)]

    def challenged(words: tuple[Digest, ...]) -> list[SendChallenge]:
        state = verifier(script.net, me)
        key = f"replay.v1:{settled_round.round}:{seat}:{told.commitment.hex()}"
        valid = SeatReplayed(AuditEntry.valid(SeatIndex(seat), me, words), words, 1.0)
        return wanted(replace(state, entries=state.entries.plus(key, valid)), SendChallenge)

    own = (digest("own"),) * told.segments
    assert challenged(own) == []  # nobody knows the masks yet
    script.show_keys(0, [seat])
    key = script.net.view.settled[0].key_of(SeatIndex(seat))
    assert key is not None
    true = told.checkpoint_commitments.work_tags(key)
    assert challenged(true) == []
    (challenge,) = challenged((*true[:2], digest("own"), *true[3:]))
    assert (challenge.round, challenge.seat, challenge.at) == (0, seat, 2)
    script.net.slash(Role.PROVIDER, settled_round.seats[SeatIndex(seat)], VERIFIERS[-1])
    assert challenged((*true[:2], digest("own"), *true[3:])) == []  # its bond is gone


def test_keeper_call_is_done_in_turns(script: Script) -> None:
    running = script.net.view.open
    assert running is not None
    script.net.wait_until(running.deadline)
    first = [me for me in VERIFIERS[:4] if wanted(verifier(script.net, me), SendKeeperCall)]
    assert first == []  # providers are before them in TRAIN
    script.net.wait(1000)
    assert all(wanted(verifier(script.net, me), SendKeeperCall) for me in VERIFIERS[:4])


async def test_a_lost_disk_seals_the_same_audit_report_and_opens_it(script: Script) -> None:
    me, id, settled_round = auditor(script)
    seats = tuple(sorted(script.net.duties(0, id)))
    first = seen(verifier(script.net, me), settled_round, seats, 0xFFFF)
    (seal,) = wanted(first, SealAuditReport)
    sealed = await sealing(seal, script, b"a key")
    (send,) = wanted(replace(first, entries=first.entries.plus(seal.key, sealed)), SendAuditReport)
    script.net.audit_report(0, id, send.audit_report)
    script.net.wait_until(settled_round.clock.audit_end)
    lost = verifier(script.net, me)
    assert tuple(c.seat for c in wanted(lost, DoReplay)) == seats
    assert wanted(lost, SendOpen) == []
    again = seen(lost, settled_round, seats, 0xFFFF)
    (resealed,) = wanted(again, SealAuditReport)
    entry = await sealing(resealed, script, b"a key")
    assert entry == sealed != await sealing(resealed, script, b"another key")
    (opened,) = wanted(replace(again, entries=again.entries.plus(resealed.key, entry)), SendOpen)
    script.net.open_audit_report(0, id, opened.sealed.body, opened.sealed.salt)


async def sealing(seal: SealAuditReport, script: Script, key: bytes) -> AuditReportSealed:
    context = SimpleNamespace(sign=lambda message: digest(key + message.digest) * 2)
    effects = cast(Effects, SimpleNamespace(context=context))
    entry = (await seal.perform(effects, script.net.view)).entry
    assert isinstance(entry, AuditReportSealed)
    return entry
