"""Behind a closed job come its last audit and games: whoever starts again needs the manifest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from tests.unit.service.held import state_of

from atoll.protocol.types import Address, Phase
from atoll.service import watcher
from atoll.service.duties.material import DoFetchSpec
from atoll.service.entries import Entries
from atoll.service.machine import State
from atoll_node import machine as provider
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier import machine as verifier
from atoll_verifier.behaviour import VerifierBehaviour

OUTSIDER = Address("0x" + "77" * 20)


@pytest.fixture
def script() -> Script:
    """A job that is done, whose only round's AUDIT runs."""
    made = Script.ready(make_terms(rounds=1))
    made.honest_round()
    assert made.net.view.phase is Phase.CLOSED
    return made


def restarted(script: Script, me: Address, behaviour: Any) -> State[Any]:
    """Knows nothing: what was checked before is checked again."""

    return replace(state_of(script.net, me, behaviour), entries=Entries())


def fetches(decisions: Any) -> bool:
    return any(isinstance(c, DoFetchSpec) for d in decisions for c in d.commands)


def test_members_of_a_job_that_is_done_get_its_manifest_again(script: Script) -> None:
    seat = restarted(script, PROVIDERS[0], ProviderBehaviour())
    assert fetches(provider.decide(seat))
    place = restarted(script, VERIFIERS[0], VerifierBehaviour())
    assert fetches(verifier.decide(place))


def test_who_had_no_part_does_not_but_looks_on_as_a_watcher(script: Script) -> None:
    assert not fetches(provider.decide(restarted(script, OUTSIDER, ProviderBehaviour())))
    assert fetches(watcher.decide(restarted(script, OUTSIDER, watcher.Player())))
    playing = watcher.Player(watches=False)
    assert not fetches(watcher.decide(restarted(script, OUTSIDER, playing)))


def test_once_all_is_final_nobody_does(script: Script) -> None:
    script.net.wait_until(script.net.settled[0].ends["window"])
    assert not fetches(provider.decide(restarted(script, PROVIDERS[0], ProviderBehaviour())))
    assert not fetches(watcher.decide(restarted(script, OUTSIDER, watcher.Player())))
