"""A certificate that is not our own merge: whoever merged stops, says so, and leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.contracts import reveal_of
from tests.support.identities import cid, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.protocol.round_list import RoundList
from atoll.protocol.types import Address, Role, Verdict
from atoll.service.duties.disagreement import NoteDisagreement, SendDisagree, disagreement
from atoll.service.duties.join_and_leave import SendJoin, SendLeave
from atoll.service.duties.merge import DoMerge, RoundMerged
from atoll.service.duties.round_start import DoPrepareRoundStart, RoundStartReady
from atoll.service.entries import Entries
from atoll.service.machine import Head, State
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.commit import SendCommit, SendReveal
from atoll_node.duties.train import DoTrain, Trained
from atoll_node.machine import decide as node
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.duties.committee import SendSign, SignVerdict
from atoll_verifier.machine import decide as verifier

ME = PROVIDERS[0]


@pytest.fixture
def script() -> Script:
    """At MERGE of round 0, every vote cast."""
    made = Script.ready()
    made.net.advance()
    made.train()
    made.say()
    return made


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    decide = node if isinstance(state.setup.behaviour, ProviderBehaviour) else verifier
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def at(net: Network, state: State[Any]) -> State[Any]:
    """The same machine, with what has happened since."""
    return replace(state, view=net.view, head=Head(net.number, net.now), block=net.number)


def merged(script: Script, me: Address = ME, **changes: Any) -> State[Any]:
    """A member that merged round 0 to what the certificate will say, but for these."""
    behaviour = ProviderBehaviour() if me in PROVIDERS else VerifierBehaviour()
    own = replace(script.net.verdict(set(), 4), **changes)
    return with_merge(with_updates(state_of(script.net, me, behaviour)), own)


def settled(script: Script, state: State[Any]) -> State[Any]:
    script.settle()
    return at(script.net, state)


OTHER = digest("another model")


def test_a_provider_with_another_model_says_so_and_trains_on_neither(script: Script) -> None:
    state = settled(script, merged(script, state=OTHER))
    (say,) = wanted(state, SendDisagree)
    assert (say.round, say.data_seed, say.root) == (1, script.net.seed, OTHER)
    (note,) = wanted(state, NoteDisagreement)
    assert note.found.own == OTHER
    for kind in (DoTrain, DoPrepareRoundStart, SendCommit, SendLeave):
        assert wanted(state, kind) == []
    script.net.disagree(ME)  # which the contract takes, without a missed duty
    gone = at(script.net, state)
    assert wanted(gone, SendDisagree) == wanted(gone, SendJoin) == wanted(gone, SendLeave) == []
    assert not any(holder.penalties for holder in gone.view.providers.values())


def test_who_has_missed_the_deadline_says_nothing_that_is_refused(script: Script) -> None:
    state = settled(script, merged(script, state=OTHER))
    running = script.net.view.open
    assert running is not None and wanted(state, SendDisagree)
    late = replace(state, head=Head(script.net.number, running.deadline))
    assert wanted(late, SendDisagree) == []
    assert wanted(late, SendLeave)


def test_who_agrees_takes_the_model_from_its_own_merge(script: Script) -> None:
    state = settled(script, merged(script, cid=cid("ours")))
    assert disagreement(state) is None
    assert wanted(state, SendDisagree) == wanted(state, NoteDisagreement) == []
    (initial_state,) = wanted(state, DoPrepareRoundStart)
    assert initial_state.cid == cid("ours")


def test_a_merge_that_the_certificate_overtook_is_finished_and_held_against_it(
    script: Script,
) -> None:
    ready = with_updates(state_of(script.net, ME, ProviderBehaviour()))
    state = settled(script, ready)
    (merge,) = wanted(state, DoMerge)
    assert merge.round_id.round == 0
    assert len(wanted(state, DoPrepareRoundStart)) == 1  # which nobody waits for
    late = Verdict(script.net.view.settled[0].verdict.excluded, 4, OTHER, cid("x"), bytes(8))
    found = replace(state, entries=state.entries.plus(merge.key, RoundMerged(late)))
    assert len(wanted(found, SendDisagree)) == 1


def committed(script: Script) -> State[Any]:
    """Round 1 is committed to from the certified model, and only then our own merge came."""
    state = settled(script, merged(script, state=OTHER))
    reveal = reveal_of("mine", 8)[0]
    model = script.net.view.model
    key = ":".join(map(str, ("train.v1", 1, 0, script.net.seed.hex(), model.hex())))
    entries = state.entries.plus(key, Trained(1, reveal, model, 1.0, 1.0))
    initial_state = DoPrepareRoundStart(1, b"", b"", model)
    ready = RoundStartReady(cid("certified"), model)
    state = replace(state, entries=entries.plus(initial_state.key, ready))
    script.net.commit(ME, script.net.commitment(ME, 0, reveal))
    return state


def test_who_has_committed_opens_it_and_leaves_afterwards(script: Script) -> None:
    state = at(script.net, committed(script))
    assert wanted(state, SendDisagree) == []
    assert len(wanted(state, SendLeave)) == 1
    for seat in (1, 2, 3):
        script.commit(seat)
    (reveal,) = wanted(at(script.net, state), SendReveal)
    script.net.reveal(ME, reveal.reveal)


def test_what_stopped_us_is_remembered_and_a_reorg_takes_it_back(script: Script) -> None:
    state = settled(script, merged(script, state=OTHER))
    (note,) = wanted(state, NoteDisagreement)
    entries = state.entries.plus(note.key, note.found).after_restart()
    noted = replace(state, entries=entries)
    assert disagreement(noted) == note.found
    assert wanted(noted, NoteDisagreement) == []
    settled_round = state.view.settled[0]
    turned = replace(settled_round, verdict=replace(settled_round.verdict, state=OTHER))
    view = replace(noted.view, settled=RoundList([turned]))
    assert disagreement(replace(noted, view=view)) is None


def test_a_verifier_signs_nothing_that_it_did_not_compute_and_leaves(script: Script) -> None:
    me = VERIFIERS[0]
    state = settled(script, merged(script, me, state=OTHER))
    assert wanted(state, SendSign) == wanted(state, SignVerdict) == []
    assert len(wanted(state, NoteDisagreement)) == 1
    (leave,) = wanted(state, SendLeave)
    assert leave.role is Role.VERIFIER
    script.net.leave_pool(me)
    script.train()  # in MERGE nobody leaves
    assert wanted(at(script.net, merged_again(state)), SendLeave) == []


def merged_again(state: State[Any]) -> State[Any]:
    (note,) = wanted(state, NoteDisagreement)
    return replace(state, entries=state.entries.plus(note.key, note.found))


def test_a_verifier_that_merges_late_signs_what_it_merged(script: Script) -> None:
    last = max(script.net.committee)
    me = script.net.at(Role.VERIFIER, last, 0).account
    state = with_updates(state_of(script.net, me, VerifierBehaviour()))
    own = script.net.verdict(set(), 4)
    script.net.settle(script.net.committee - {last})
    state = at(script.net, state)
    (merge,) = wanted(state, DoMerge)
    state = replace(state, entries=state.entries.plus(merge.key, RoundMerged(own)))
    (sign,) = wanted(state, SignVerdict)
    assert sign.digest == script.net.view.settled[0].digest
    another = replace(own, state=OTHER)
    lone = replace(state, entries=state.entries.plus(merge.key, RoundMerged(another)))
    assert wanted(lone, SignVerdict) == []


def test_a_verifier_that_came_too_late_for_the_model_fetches_it_to_sign(script: Script) -> None:
    last = max(script.net.committee)
    me = script.net.at(Role.VERIFIER, last, 0).account
    state = state_of(script.net, me, VerifierBehaviour())
    script.net.settle(script.net.committee - {last})
    bare = Entries(
        {
            key: entry
            for key, entry in state.entries._by_key.items()
            if not key.startswith(DoPrepareRoundStart.kind)
        }
    )
    lacking = replace(at(script.net, state), entries=bare)
    assert 0 in [c.round for c in wanted(lacking, DoPrepareRoundStart)]
    assert wanted(lacking, DoMerge) == []
