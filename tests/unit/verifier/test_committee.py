"""What a committee's member signs and sends: one verdict about some votes, and what stands now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_abi.abi import decode
from tests.support.identities import address, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import SECRETS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.chain.abi import registry
from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.errors import ProtocolError, RpcUnavailable
from atoll.protocol.certificates import CertificateKind, Ecdsa, alone, signer_of
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.types import Address, Bitmap, Digest, HolderId, SlotIndex, Verdict
from atoll.protocol.views import JobView
from atoll.service.duties.equivocation import note_name
from atoll.service.duties.merge import DoMerge
from atoll.service.duties.round_start import DoPrepareRoundStart
from atoll.service.effects import Effects
from atoll.service.entries import Done, Entries, NotYet
from atoll.service.journal import AlreadySigned, Journal
from atoll.service.machine import State
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.duties import committee
from atoll_verifier.duties.audit import SendAuditReport, SendOpen
from atoll_verifier.duties.committee import (
    SendReady,
    SendSettle,
    SendSign,
    SendVote,
    SignVerdict,
    VerdictSigned,
)
from atoll_verifier.machine import decide

ME, *OTHERS = VERIFIERS[:4]
POLICY = {"EcdsaPolicy": address("policy")}
DEPLOYMENT = Deployment(31337, 0, {**dict.fromkeys(REQUIRED, WATCHER), **POLICY})
CALLS = Calls(DEPLOYMENT)


def signed(by: Address, message: Digest) -> bytes:
    made = SECRETS[by].sign_recoverable(message, hasher=None)
    return made[:64] + bytes([made[64] + 27])


@dataclass
class Desk:
    """What a member's commands are carried out with: its journal, the clock, and what was sent."""

    journal: Journal
    view: JobView
    now: int
    sent: list[tuple[SendSettle, Any]] = field(default_factory=list)

    async def head(self, max_age: float) -> SimpleNamespace:
        return SimpleNamespace(timestamp=self.now)

    async def code_at(self, account: Address) -> bytes:
        return b""

    async def transact(self, view: JobView, command: SendSettle, call: Any) -> Done[Any]:
        self.sent.append((command, call))
        return Done(block=7)

    @property
    def effects(self) -> Effects:
        chain = SimpleNamespace(deployment=DEPLOYMENT, head=self.head, code_at=self.code_at)
        context = SimpleNamespace(
            me=ME,
            journal=self.journal,
            chain=chain,
            follower=SimpleNamespace(views={self.view.job_id: self.view}),
            sign=lambda message: signed(ME, message.digest),
        )
        calls = SimpleNamespace(settle_words=lambda *said: said)
        effects = SimpleNamespace(context=context, calls=calls, transact=self.transact)
        return cast(Effects, effects)


@pytest.fixture
def script() -> Script:
    """At MERGE of round 0, every vote cast."""
    made = Script.ready()
    made.train()
    made.say()
    return made


@pytest.fixture
def desk(script: Script, tmp_path: Path) -> Iterator[Desk]:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        yield Desk(journal, script.net.view, script.net.now)


VERDICT = Verdict(Bitmap(0), 4, digest("merged"), b"cid", bytes(8))


def running(desk: Desk) -> OpenRound:
    assert desk.view.open is not None
    return desk.view.open


def signing(desk: Desk, verdict: Verdict = VERDICT) -> SignVerdict:
    now = running(desk)
    where = (now.round, now.seed, now.votes_accumulator)
    return SignVerdict(*where, now.digest_of(verdict), verdict, desk.now)


async def test_one_verdict_about_the_same_votes_is_signed_and_served(desk: Desk) -> None:
    sign = signing(desk)
    for _ in range(2):  # a restart signs the same again
        entry = (await sign.perform(desk.effects, desk.view)).entry
        assert isinstance(entry, VerdictSigned)
        assert (entry.digest, entry.verdict, entry.at) == (sign.digest, VERDICT, desk.now)
        assert signer_of(sign.digest, entry.signature) == ME
        name = note_name(desk.view, sign.round, sign.digest)
        assert desk.journal.note(name) == entry.signature
    other = signing(desk, replace(VERDICT, state=digest("another model")))
    assert other.key == sign.key
    with pytest.raises(AlreadySigned):
        await other.perform(desk.effects, desk.view)
    assert desk.journal.note(note_name(desk.view, other.round, other.digest)) is None


def settling(desk: Desk, signers: Sequence[Address]) -> SendSettle:
    """With these members' signatures here; ours came at the desk's time."""
    now = running(desk)
    hash_ = now.digest_of(VERDICT)
    name = note_name(desk.view, now.round, hash_)
    for who in signers:
        desk.journal.publish(name if who == ME else f"{name}/{who}", signed(who, hash_))
    return SendSettle(now.round, hash_, VERDICT, desk.now)


async def test_a_whole_committee_settles_at_once(desk: Desk) -> None:
    settle = settling(desk, VERIFIERS[:4])
    assert (await settle.perform(desk.effects, desk.view)).block == 7
    ((command, (job, votes, shown)),) = desk.sent
    assert (command, job, votes) == (settle, desk.view.job_id, running(desk).votes)
    assert (shown.verdict, list(shown.accounts)) == (VERDICT, VERIFIERS[:4])
    assert Ecdsa().signers(settle.digest, shown.certificate, VERIFIERS[:4]) == 0b1111


async def test_two_thirds_wait_for_the_others_a_little_while(desk: Desk) -> None:
    settle = settling(desk, VERIFIERS[:3])
    desk.now += 3
    with pytest.raises(NotYet, match="3 of 4 have signed"):
        await settle.perform(desk.effects, desk.view)
    desk.now += 1
    await settle.perform(desk.effects, desk.view)
    ((_, (_, _, shown)),) = desk.sent
    assert Ecdsa().signers(settle.digest, shown.certificate, VERIFIERS[:4]) == 0b0111


async def test_half_of_a_committee_never_settles(desk: Desk) -> None:
    settle = settling(desk, VERIFIERS[:2])
    desk.now += 1000
    with pytest.raises(NotYet, match="2 of 4 have signed"):
        await settle.perform(desk.effects, desk.view)
    assert desk.sent == []


async def test_a_signature_that_is_not_its_members_does_not_count(desk: Desk) -> None:
    settle = settling(desk, VERIFIERS[:3])
    name = note_name(desk.view, settle.round, settle.digest)
    desk.journal.publish(f"{name}/{VERIFIERS[2]}", signed(VERIFIERS[1], settle.digest))
    desk.now += 1000
    with pytest.raises(NotYet, match="2 of 4 have signed"):
        await settle.perform(desk.effects, desk.view)


async def test_the_accounts_of_a_drawn_committee_are_the_contracts_to_read(desk: Desk) -> None:
    """Where the committee is not the whole pool, it knows none beforehand to compare them with."""
    settle = settling(desk, VERIFIERS[:4])
    larger = replace(running(desk), ready=Bitmap(running(desk).ready | 1 << 9))
    desk.view = replace(desk.view, open=larger)
    await settle.perform(desk.effects, desk.view)
    ((_, (_, _, shown)),) = desk.sent
    assert shown.accounts == ()
    assert Ecdsa().signers(settle.digest, shown.certificate, VERIFIERS[:4]) == 0b1111


async def test_what_is_settled_or_of_other_votes_by_now_is_not_sent(desk: Desk) -> None:
    settle, asked = settling(desk, VERIFIERS[:4]), desk.view
    other = replace(running(desk), committee_seed=digest("the next committee"))
    for newer in (replace(asked, open=None), replace(asked, open=other)):
        desk.view = newer  # what the chain says since the command was decided on
        with pytest.raises(ProtocolError, match="is settled, or its votes are others"):
            await settle.perform(desk.effects, asked)
    assert desk.sent == []


async def test_what_is_asked_for_afterwards_takes_no_settlement_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[OpenRound]()

    async def unreachable(effects: Effects, view: JobView, round: OpenRound) -> None:
        asked.append(round)
        raise RpcUnavailable("gone")

    monkeypatch.setattr(committee, "ensure_sum", unreachable)
    settle = settling(desk, VERIFIERS[:4])
    assert (await settle.perform(desk.effects, desk.view)).block == 7
    assert asked == [running(desk)]


# --- calls ---


def arguments(call: Call, contract: str) -> tuple[Any, ...]:
    function = registry().function(call.label, contract)
    assert call.data[:4] == function.selector
    return decode(function.inputs, call.data[4:])


def test_what_is_said_of_a_round_is_what_the_contract_is_called_with(desk: Desk) -> None:
    view, now = desk.view, running(desk)
    ready = SendReady(HolderId(1)).call(CALLS, view)
    assert (ready.label, arguments(ready, "Members")) == ("ready", (view.job_id,))
    vote = SendVote(now.round, 0, SlotIndex(2), now.seed, Bitmap(0b101)).call(CALLS, view)
    assert (vote.label, arguments(vote, "Rounds")) == ("vote", (view.job_id, 2, now.seed, 0b101))


def test_a_late_signature_is_a_certificate_by_one(script: Script) -> None:
    script.settle()
    view = script.net.view
    signature = signed(ME, view.settled[0].digest)
    call = SendSign(view.settled[0].round, HolderId(1), signature).call(CALLS, view)
    job, _, holder, certificate = arguments(call, "Rounds")
    assert (call.label, job, holder) == ("sign", view.job_id, 1)
    assert certificate == alone(signature, CertificateKind.ECDSA)


def test_what_can_take_effect_once_is_named_by_what_it_is_about(desk: Desk) -> None:
    """Another content under the same name would be a second transaction about the same thing."""
    now, where = running(desk), (SlotIndex(0), running(desk).seed)
    vote = SendVote(now.round, 0, *where, Bitmap(1))
    assert vote.key == replace(vote, has=Bitmap(3)).key
    assert (
        len(
            {
                vote.key,
                replace(vote, committee_draw=1).key,
                replace(vote, data_seed=digest("b")).key,
            }
        )
        == 3
    )
    settle = SendSettle(now.round, digest("a"), VERDICT, 5)
    assert settle.key == replace(settle, at=6).key != replace(settle, digest=digest("b")).key
    sign = SendSign(now.round, HolderId(1), b"a signature")
    assert sign.key == replace(sign, signature=b"").key != replace(sign, holder=HolderId(2)).key
    kinds = (SendReady, SendVote, SendSettle, SendSign, SendAuditReport, SendOpen)
    # A place can be lost and taken anew; a reorg can bring an audit report to where it is void.
    assert [kind for kind in kinds if not kind.once] == [SendReady, SendAuditReport]


# --- decisions ---


class Unready(VerifierBehaviour):
    def may_say_ready(self, view: JobView) -> bool:
        return False


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def of(script: Script, me: Address = ME, behaviour: VerifierBehaviour | None = None) -> State[Any]:
    return state_of(script.net, me, behaviour or VerifierBehaviour())


def test_it_is_ready_once_the_model_is_here_and_if_it_wants_to_be() -> None:
    net = Network()
    net.enrol(ME, 0, net.terms.verifier_bond)
    held = state_of(net, ME, VerifierBehaviour())
    (ready,) = wanted(held, SendReady)
    assert ready.holder == 1
    assert wanted(replace(held, entries=Entries()), SendReady) == []
    assert wanted(state_of(net, ME, Unready()), SendReady) == []


def test_each_member_speaks_for_its_own_slot() -> None:
    script = Script.ready()
    script.train()
    for place, me in enumerate(VERIFIERS[:4]):
        (vote,) = wanted(with_updates(of(script, me)), SendVote)
        assert (vote.slot, vote.round, vote.committee_draw) == (place, 0, 0)


def having_signed(script: Script, me: Address, at: int, verdict: Verdict = VERDICT) -> State[Any]:
    """A member that signed this about the running votes at that time."""
    state = of(script, me)
    now = state.view.open
    assert now is not None
    about = (now.round, now.seed, now.votes_accumulator)
    sign = SignVerdict(*about, now.digest_of(verdict), verdict, at)
    entry = VerdictSigned(sign.digest, verdict, b"a signature", at)
    return replace(state, entries=state.entries.plus(sign.key, entry))


def at(state: State[Any], now: int) -> State[Any]:
    return replace(state, head=replace(state.head, time=now))


def test_a_verdict_is_sent_in_turn(script: Script) -> None:
    """Each leaves those before it four seconds."""
    for line, me in enumerate(VERIFIERS[:4]):
        state = having_signed(script, me, script.net.now)
        due = script.net.now + 4 * line
        assert wanted(at(state, due - 1), SendSettle) == []
        (settle,) = wanted(at(state, due), SendSettle)
        assert (settle.verdict, settle.at) == (VERDICT, script.net.now)


def test_nothing_settles_while_a_vote_may_change_what_is_available() -> None:
    script = Script.ready()
    script.train()
    script.say([0, 1])
    state = having_signed(script, ME, script.net.now - 1000)
    end = script.net.view.open
    assert end is not None
    assert wanted(at(state, end.votes_end - 1), SendSettle) == []
    assert len(wanted(at(state, end.votes_end), SendSettle)) == 1


def merged_late(script: Script, me: Address, verdict: Verdict) -> State[Any]:
    """The certificate came without this member, whose own merge is that verdict."""
    state = with_merge(with_updates(of(script, me)), verdict)
    place = next(p for p, who in enumerate(VERIFIERS) if who == me)
    script.net.settle(script.net.committee - {place})
    return replace(of(script, me), entries=state.entries)


def test_what_was_signed_before_the_certificate_came_is_not_signed_again(script: Script) -> None:
    verdict = script.net.verdict(set(), 4)
    state = merged_late(script, ME, verdict)
    (late,) = wanted(state, SignVerdict)
    entry = VerdictSigned(state.view.settled[0].digest, verdict, b"a signature", 0)
    state = replace(state, entries=state.entries.plus(late.key, entry))
    assert wanted(state, SignVerdict) == []
    (sign,) = wanted(state, SendSign)
    assert (sign.round, sign.holder, sign.signature) == (0, 1, b"a signature")
    other = replace(entry, digest=digest("another verdict's"))
    state = replace(state, entries=state.entries.plus(late.key, other))
    assert wanted(state, SendSign) == wanted(state, SignVerdict) == []


def test_who_lacks_what_a_merge_needs_gets_it_before_it_signs_late(script: Script) -> None:
    whole = merged_late(script, ME, script.net.verdict(set(), 4))
    bare = replace(whole, entries=Entries())
    assert wanted(bare, DoMerge) == wanted(bare, SignVerdict) == []
    assert [c for c in wanted(bare, DoPrepareRoundStart) if c.round == 0] == []  # no manifest yet
    kept = {
        key: entry
        for key, entry in whole.entries._by_key.items()
        if not key.startswith(DoMerge.kind)
    }
    unmerged = replace(whole, entries=Entries(kept))
    (merge,) = wanted(unmerged, DoMerge)
    assert merge.round_id.round == 0
    assert [c for c in wanted(unmerged, DoPrepareRoundStart) if c.round == 0] == []  # it has that
