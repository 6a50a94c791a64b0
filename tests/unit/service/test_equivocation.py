"""Members that signed two verdicts about the same votes: found, and shown for half their bond."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import address, digest
from tests.unit.protocol.script import PROVIDERS, SECRETS, VERIFIERS, WATCHER, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.errors import NotFound
from atoll.protocol import events as ev
from atoll.protocol.certificates import CertificateKind, Ecdsa, alone, certificate_bytes
from atoll.protocol.hashing import certificate_hash
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.types import Address, Digest, HolderId, JobId, MissedDuty, RoundIndex
from atoll.protocol.views import JobView
from atoll.service.duties.equivocation import (
    DoCompareSigners,
    SendEquivocated,
    SignersCompared,
    TwoSignatures,
    note_name,
)
from atoll.service.effects import Effects
from atoll.service.machine import Head, State
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.machine import decide

ME = PROVIDERS[0]
OTHER = digest("another model")
DEPLOYMENT = Deployment(
    31337, 0, {**dict.fromkeys(REQUIRED, WATCHER), "EcdsaPolicy": address("policy")}
)
CALLS = Calls(DEPLOYMENT)


def signed(by: Address, message: Digest) -> bytes:
    made = SECRETS[by].sign_recoverable(message, hasher=None)
    return made[:64] + bytes([made[64] + 27])


@pytest.fixture
def found() -> tuple[State[Any], Digest]:
    """A provider whose merge of round 0 is another than the certificate; and its own digest."""
    script = Script.ready()
    script.net.advance()
    script.train()
    script.say()
    own = replace(script.net.verdict(set(), 4), state=OTHER)
    state = with_merge(with_updates(state_of(script.net, ME, ProviderBehaviour())), own)
    script.settle()
    for who in VERIFIERS[:4]:
        script.net.emit(ev.GatewayAnnounced(who, f"http://{who.lower()}:1"))
    settled_round = script.net.view.settled[0]
    message = certificate_hash(
        settled_round.round_id, settled_round.record.seed, settled_round.record.votes, own
    )
    return replace(
        state, view=script.net.view, head=Head(script.net.number, script.net.now)
    ), message


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


@dataclass
class Gateways:
    """What members serve, by account and name; whoever is slow does not answer."""

    notes: dict[tuple[str, str], bytes] = field(default_factory=dict)
    certificates: list[bytes] = field(default_factory=list)
    journal: dict[str, bytes] = field(default_factory=dict)

    async def note(self, gateway: str, name: str, max_bytes: int) -> bytes | None:
        who = gateway.removeprefix("http://").removesuffix(":1")
        if (who, "slow") in self.notes:
            raise NotFound("does not answer")
        return self.notes.get((who, name))

    def effects(self) -> Effects:
        async def certificates(number: int, job: JobId) -> list[bytes]:
            return self.certificates

        journal = SimpleNamespace(note=self.journal.get, publish=self.journal.__setitem__)

        async def code_at(account: Address) -> bytes:
            return b""

        chain = SimpleNamespace(certificates=certificates, deployment=DEPLOYMENT, code_at=code_at)
        context = SimpleNamespace(me=ME, journal=journal, chain=chain, fetcher_of=lambda job: self)
        return cast(Effects, SimpleNamespace(context=context))


async def compared(gateways: Gateways, view: JobView, message: Digest) -> tuple[TwoSignatures, ...]:
    command = DoCompareSigners(RoundIndex(0), message)
    entry = (await command.perform(gateways.effects(), view)).entry
    assert isinstance(entry, SignersCompared)
    return entry.found


async def test_who_served_a_signature_of_ours_and_is_in_the_certificate_is_found(
    found: tuple[State[Any], Digest],
) -> None:
    state, message = found
    settled_round = state.view.settled[0]
    committee = committee_accounts(state.view, settled_round)
    liar, slow = committee[0], committee[1]
    signatures = {who: signed(who, settled_round.digest) for who in committee}
    gateways = Gateways(certificates=[b"junk", certificate_bytes(committee, signatures)])
    ours = note_name(state.view, RoundIndex(0), message)
    gateways.notes[liar.lower(), ours] = signed(liar, message)
    gateways.notes[committee[2].lower(), ours] = signed(liar, message)  # copied: not its own
    gateways.notes[slow.lower(), "slow"] = b""
    (two,) = await compared(gateways, state.view, message)
    assert state.view.verifiers[two.holder].account == liar
    assert Ecdsa().signers(message, two.own, [liar]) == 1
    assert Ecdsa().signers(settled_round.digest, two.certified, two.together) & 1
    gateways.notes.clear()  # what was heard once is not lost with the liar's gateway
    assert len(await compared(gateways, state.view, message)) == 1


async def test_an_honest_committee_signed_one_verdict(found: tuple[State[Any], Digest]) -> None:
    state, message = found
    assert await compared(Gateways(), state.view, message) == ()


def test_it_is_looked_for_once_and_shown_until_it_is_penalised(
    found: tuple[State[Any], Digest],
) -> None:
    state, message = found
    settled_round = state.view.settled[0]
    (look,) = wanted(state, DoCompareSigners)
    assert look.digest == message
    holder = settled_round.slots[min(settled_round.slots)]
    who = state.view.verifiers[holder].account
    both = TwoSignatures(
        holder,
        alone(signed(who, message), CertificateKind.ECDSA),
        alone(signed(who, settled_round.digest), CertificateKind.ECDSA),
        (who,),
    )
    state = replace(state, entries=state.entries.plus(look.key, SignersCompared((both,))))
    assert wanted(state, DoCompareSigners) == []
    (show,) = wanted(state, SendEquivocated)
    assert show.call(CALLS, state.view).label == "equivocated"
    penalty = _penalised(state.view, holder)
    assert wanted(replace(state, view=penalty), SendEquivocated) == []


def _penalised(view: JobView, holder: HolderId) -> JobView:
    held = view.verifiers[holder]
    penalties = held.penalties | {(RoundIndex(0), MissedDuty.EQUIVOCATED)}
    return replace(view, verifiers={**view.verifiers, holder: replace(held, penalties=penalties)})


def test_nobody_is_suspected_where_the_certificate_is_our_own_merge() -> None:
    script = Script.ready()
    script.net.advance()
    script.train()
    script.say()
    own = script.net.verdict(set(), 4)
    state = with_merge(with_updates(state_of(script.net, ME, ProviderBehaviour())), own)
    script.settle()
    head = Head(script.net.number, script.net.now)
    state = replace(state, view=script.net.view, head=head)
    assert wanted(state, DoCompareSigners) == wanted(state, SendEquivocated) == []
