"""What a provider does next: a pure function of the chain's mirror, its journal and the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.contracts import reveal_of
from tests.support.identities import cid, digest
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import state_of, with_merge, with_updates

from atoll.protocol.hashing import commitment
from atoll.protocol.types import (
    ZERO_DIGEST,
    Bitmap,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Verdict,
)
from atoll.protocol.views import JobView
from atoll.service.duties.join_and_leave import SendJoin, SendLeave
from atoll.service.duties.merge import DoMerge, RoundMerged
from atoll.service.duties.round_start import DoPrepareRoundStart
from atoll.service.duties.updates import DoGetUpdate
from atoll.service.machine import State
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.duties.commit import SendCommit, SendKey, SendReveal
from atoll_node.duties.train import DoTrain, Trained
from atoll_node.machine import decide

ME = PROVIDERS[0]
REVEAL = reveal_of("mine", 8)[0]
VERDICT = Verdict(Bitmap(0), 4, digest("merged"), cid("merged"), bytes(8))


def wanted(state: State[Any], kind: type[Any]) -> list[Any]:
    return [c for d in decide(state) for c in d.commands if isinstance(c, kind)]


def provider(net: Network, behaviour: ProviderBehaviour | None = None) -> State[Any]:
    return state_of(net, ME, behaviour or ProviderBehaviour())


def trained(state: State[Any], reveal: Reveal = REVEAL, *, diverged: bool = False) -> State[Any]:
    """The running round is trained."""
    running = state.view.open
    assert running is not None
    parent = state.view.model if state.view.settled else digest("model 0")
    about = (running.round, 0, running.seed.hex(), parent.hex())
    key = ":".join(map(str, ("train.v1", *about)))
    entry = Trained(running.round, reveal, parent, 1.0, 1.0, diverged)
    return replace(state, entries=state.entries.plus(key, entry))


@pytest.fixture
def script() -> Script:
    made = Script.ready()
    made.net.advance()
    return made


def test_it_takes_a_free_seat_once_the_data_is_here() -> None:
    net = Network()
    (join,) = wanted(provider(net), SendJoin)
    assert 0 <= join.index < net.terms.seats
    assert wanted(replace(provider(net), entries=type(provider(net).entries)()), SendJoin) == []


def test_it_trains_the_running_round_once(script: Script) -> None:
    state = provider(script.net)
    (train,) = wanted(state, DoTrain)
    assert (train.round_id.round, train.seat, train.data_seed) == (0, 0, script.net.seed)
    assert wanted(trained(state), DoTrain) == []


def test_it_commits_to_what_it_trained(script: Script) -> None:
    state = trained(provider(script.net))
    (commit,) = wanted(state, SendCommit)
    running = state.view.open
    assert running is not None
    said = {"reveal": REVEAL, "model": ZERO_DIGEST}  # in round 0 the chain knows no model
    expected = commitment(running.round_id, running.seed, SeatIndex(0), ME, **said)
    assert commit.commitment == expected
    script.net.commit(ME, expected)
    assert wanted(trained(provider(script.net)), SendCommit) == []


@pytest.mark.parametrize("segments", [0, 5])
def test_it_leaves_a_model_that_nobody_can_train(script: Script, segments: int) -> None:
    """Whoever submits such a job would else take a penalty of every seat, every other round."""
    state = provider(script.net)
    few = reveal_of("mine", segments)[0]
    diverged = trained(state, few, diverged=True)
    assert len(wanted(diverged, SendLeave)) == 1
    assert len(wanted(diverged, SendCommit)) == 1  # the running round is owed
    assert wanted(trained(state, few), SendLeave) == []  # it was slow, and may be faster
    most = reveal_of("mine", 6)[0]
    assert wanted(trained(state, most, diverged=True), SendLeave) == []


@pytest.mark.parametrize("merges", [False, True])
def test_it_does_not_join_again_before_something_is_merged(script: Script, merges: bool) -> None:
    """With its bond home it would else train the same model for nothing, again and again."""
    net = script.net
    diverged = trained(provider(net), reveal_of("mine", 0)[0], diverged=True)
    net.leave_seat(ME)
    script.train({0: 0})
    script.say()
    net.wait(1)
    script.settle(merged=0)
    if merges:
        script.honest_round()
    mine = net.own(ME)
    assert mine is not None
    net.wait_until(net.settled[0].ends["window"] + 1)
    net.release(Role.PROVIDER, mine.id)
    assert len(wanted(provider(net), SendJoin)) == 1
    again = replace(provider(net), entries=diverged.entries)
    assert len(wanted(again, SendJoin)) == merges


def test_it_does_not_leave_in_the_last_round_which_none_follows() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.net.advance()
    few = reveal_of("mine", 0)[0]
    assert wanted(trained(provider(script.net), few, diverged=True), SendLeave) == []


def test_it_opens_what_it_committed_to(script: Script) -> None:
    for seat in range(4):
        script.commit(seat)
    assert script.net.phase is Phase.REVEAL
    (reveal,) = wanted(trained(provider(script.net)), SendReveal)
    assert reveal.reveal == REVEAL
    late = replace(provider(script.net))
    assert wanted(late, SendReveal) == []  # a journal without the training


def test_it_trains_the_next_round_from_its_own_merge(script: Script) -> None:
    script.train()
    state = provider(script.net)
    assert len(wanted(state, DoGetUpdate)) == 4
    assert wanted(state, DoMerge) == []  # of some updates nobody knows yet whether they are there
    script.say()
    state = with_updates(provider(script.net))
    (merge,) = wanted(state, DoMerge)
    assert merge.data_seed == script.net.seed
    ahead = with_merge(state, VERDICT)
    (train,) = wanted(ahead, DoTrain)
    running = state.view.open
    assert running is not None
    assert (train.round_id.round, train.data_seed) == (1, running.next_seed)
    assert (train.round_start_digest, train.initial_state) == (VERDICT.state, VERDICT.cid)


def test_training_goes_on_when_the_certificate_names_the_model_that_it_began_from(
    script: Script,
) -> None:
    """Else everybody would throw away at each settlement what it had computed since its merge."""
    net = script.net
    net.state_of = lambda round, merged: VERDICT.state
    script.train()
    script.say([0, 1, 2])
    ahead = with_merge(with_updates(provider(net)), VERDICT)
    (train,) = wanted(ahead, DoTrain)
    script.say([3])  # who is there was decided before
    later = replace(ahead, view=net.view)
    assert [command.key for command in wanted(later, DoTrain)] == [train.key]
    script.settle()
    settled = replace(ahead, view=net.view)
    assert wanted(settled, DoPrepareRoundStart)
    assert [command.key for command in wanted(settled, DoTrain)] == [train.key]


def test_it_trains_on_from_what_it_has_before_anybody_has_spoken(script: Script) -> None:
    script.train()
    silent = with_updates(provider(script.net))
    (foreseen,) = wanted(silent, DoMerge)
    silent = replace(silent, entries=silent.entries.plus(foreseen.key, RoundMerged(VERDICT)))
    (train,) = wanted(silent, DoTrain)
    running = silent.view.open
    assert running is not None
    assert (train.round_id.round, train.data_seed) == (1, running.next_seed)
    assert (train.round_start_digest, train.initial_state) == (VERDICT.state, VERDICT.cid)
    script.say()
    spoken = replace(silent, view=script.net.view)
    assert wanted(spoken, DoMerge) == []  # the words decide the same merge
    assert [command.key for command in wanted(spoken, DoTrain)] == [train.key]


def test_it_trains_on_from_blocks_that_are_not_confirmed_and_signs_nothing_by_them(
    script: Script,
) -> None:
    for seat in range(4):
        script.commit(seat)
    before = script.net.view
    for seat in range(4):
        script.reveal(seat)
    merging = with_updates(provider(script.net))
    (foreseen,) = wanted(merging, DoMerge)
    entries = merging.entries.plus(foreseen.key, RoundMerged(VERDICT))
    confirmed = trained(replace(merging, view=before, entries=entries))
    assert wanted(confirmed, DoTrain) == []
    ahead = replace(confirmed, ahead=merging.view)
    (train,) = wanted(ahead, DoTrain)
    assert [command.key for command in wanted(replace(merging, entries=entries), DoTrain)] == [
        train.key
    ]
    (reveal,) = wanted(ahead, SendReveal)  # what is confirmed is owed as it was
    assert wanted(confirmed, SendReveal) == [reveal]
    script.say()
    script.settle()
    opened = replace(confirmed, ahead=script.net.view)
    assert wanted(opened, SendCommit) == []


def test_votes_that_lack_what_it_has_make_it_merge_and_train_anew(script: Script) -> None:
    script.train()
    silent = with_updates(provider(script.net))
    (foreseen,) = wanted(silent, DoMerge)
    silent = replace(silent, entries=silent.entries.plus(foreseen.key, RoundMerged(VERDICT)))
    script.say(has=0b0111)  # seat 3 served us, and no member
    spoken = replace(silent, view=script.net.view)
    (merge,) = wanted(spoken, DoMerge)
    assert merge.key != foreseen.key
    assert [update.seat for update in merge.updates] == [0, 1, 2]
    assert wanted(spoken, DoTrain) == []  # and so what runs is cancelled
    other = Verdict(Bitmap(0), 3, digest("of three"), cid("of three"), bytes(8))
    merged = replace(spoken, entries=spoken.entries.plus(merge.key, RoundMerged(other)))
    (train,) = wanted(merged, DoTrain)
    assert train.round_start_digest == other.state


def test_a_key_is_shown_when_it_is_owed_and_not_before(script: Script) -> None:
    script.honest_round()
    net, settled_round = script.net, script.net.view.settled[0]
    seat = next(s for s in range(4) if settled_round.drawn >> s & 1)
    me = settled_round.reveals[SeatIndex(seat)].account
    for when, shown in ((settled_round.clock.open_end - 1, 0), (settled_round.clock.open_end, 0)):
        net.wait_until(when)
        assert len(wanted(state_of(net, me, ProviderBehaviour()), SendKey)) == shown
    net.wait_until(settled_round.clock.keys_end - 1)
    (key,) = wanted(state_of(net, me, ProviderBehaviour()), SendKey)
    assert (key.round, key.seat, key.data_seed) == (RoundIndex(0), seat, settled_round.record.seed)


class _Silent(ProviderBehaviour):
    def skips_commit(self, view: JobView) -> bool:
        return True


def test_a_behaviour_can_leave_a_duty_undone(script: Script) -> None:
    assert wanted(trained(provider(script.net, _Silent())), SendCommit) == []
