"""What a view answers of its members: where they serve, and whose bond may still be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import DOMAIN, JOB, address
from tests.unit.law.script import PROVIDERS, VERIFIERS, WATCHER, Script
from tests.unit.law.test_claims import SEAT, played, said_of

from atoll.errors import ProtocolError
from atoll.law import events as ev
from atoll.law.games.machine import Outcome
from atoll.law.upkeep import upkeep
from atoll.law.views import GameRecord, JobView
from atoll.law.words import Address, Role


def test_gateways_are_those_that_members_announced_the_submitters_first() -> None:
    net = Script.ready().net
    for account, url in (
        (VERIFIERS[1], "http://verifier"),
        (PROVIDERS[2], "http://shared"),
        (PROVIDERS[0], "http://before"),
        (PROVIDERS[3], "http://shared"),
        (WATCHER, "http://stranger"),
        (address("submitter"), "http://submitter"),
        (PROVIDERS[0], "http://provider"),
    ):
        net.emit(ev.GatewayAnnounced(account, url))
    submitters, *members = net.view.gateway_urls()
    assert submitters == "http://submitter"
    assert members == ["http://provider", "http://shared", "http://verifier"]


def over(view: JobView, outcome: Outcome) -> JobView:
    return replace(view, games={1: replace(view.games[1], outcome=outcome)})


@pytest.mark.parametrize("who", [PROVIDERS[SEAT], WATCHER])
def test_who_plays_is_bound_until_the_game_is_over(who: Address) -> None:
    script = played()
    claim, view = said_of(script).claim(0), script.net.view
    holder = view.holder_of(PROVIDERS[SEAT])
    assert holder is not None
    gone = {**view.providers, holder.id: replace(holder, is_released=True)}
    view = replace(view, providers=gone)
    assert not view.is_bound(who)
    playing = replace(view, games={1: GameRecord(1, WATCHER, 1, claim, b"")})
    assert playing.is_bound(who)
    assert not playing.is_bound(VERIFIERS[7])
    assert not over(playing, Outcome.SENT_HOME).is_bound(who)


def test_a_part_binds_until_its_bond_is_home_and_the_newest_is_the_accounts() -> None:
    net = Script.ready().net
    assert net.view.is_bound(PROVIDERS[0]) and not net.view.is_bound(WATCHER)
    net.leave_seat(PROVIDERS[0])
    assert net.view.is_bound(PROVIDERS[0])
    net.release(Role.PROVIDER, 1)
    assert not net.view.is_bound(PROVIDERS[0]) and net.view.standing(PROVIDERS[0]) is None
    known = net.view.holder_of(PROVIDERS[0])
    assert known is not None and (known.id, known.is_released) == (1, True)
    net.sit(PROVIDERS[0], 0)
    again = net.view.standing(PROVIDERS[0])
    assert again is not None and again.id == 5
    assert net.view.ids_of(PROVIDERS[0], Role.PROVIDER) == {1, 5}
    assert net.view.ids_of(PROVIDERS[0], Role.VERIFIER) == set()


def test_of_a_job_that_is_not_known_yet_there_are_no_terms_and_nothing_is_due() -> None:
    unknown = JobView.of(DOMAIN, JOB)
    with pytest.raises(ProtocolError, match="is not known yet"):
        unknown.require_terms()
    assert list(upkeep(unknown, 1 << 40)) == []
