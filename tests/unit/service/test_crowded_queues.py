"""What an accusation bids, by what we have and by who plays about its holder already."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import VERIFIERS, WATCHER, Script
from tests.unit.protocol.test_obligations import claim_about

from atoll.protocol.game_records import GameRecord
from atoll.protocol.games.game_machine import Clock
from atoll.protocol.types import Address, Digest, RoundIndex, SeatIndex
from atoll.service.duties import challenge
from atoll.service.duties.challenge import SendChallenge

ME, SEAT, LEAST = VERIFIERS[0], SeatIndex(1), 50


@pytest.fixture
def net() -> Network:
    script = Script.ready()
    script.honest_round()
    return script.net


async def bid(
    net: Network, monkeypatch: Any, bonds: list[tuple[Address, int]], balance: int, *, owed: bool
) -> tuple[str, int]:
    """Which call is made, with what bond: behind the game that is played and those that wait."""
    claim = replace(claim_about(net.view, SEAT, 2, is_update_proof=False), lowest_bond=LEAST)
    clock = Clock(0, 1, 1, 1)
    records = [
        GameRecord(i, who, bond, claim, b"", clock=None if i else clock)
        for i, (who, bond) in enumerate(bonds)
    ]
    view = replace(net.view, games={game.id: game for game in records})

    async def token_balance(account: Address) -> int:
        return balance

    async def allow(effects: Any, bond: int) -> None:
        assert bond <= balance

    monkeypatch.setattr(challenge, "_allow", allow)

    async def head(max_age_s: float = 0.0) -> SimpleNamespace:
        return SimpleNamespace(timestamp=net.now)

    calls = SimpleNamespace(
        crowded_out=lambda evidence: ("crowdedOut", 0),
        challenge=lambda evidence, bond: ("challenge", bond),
    )
    chain = SimpleNamespace(token_balance=token_balance, head=head)
    follower = SimpleNamespace(views={view.job_id: view})
    context = SimpleNamespace(me=ME, chain=chain, follower=follower)
    effects: Any = SimpleNamespace(calls=calls, context=context)
    zero = Digest(bytes(32))
    wanted = SendChallenge(RoundIndex(0), SEAT, 2, b"", zero, owed=owed)
    made: Any = await wanted._call(effects, view, claim, b"")
    return (str(made[0]), int(made[1]))


async def test_an_accusation_bids_what_it_has(net: Network, monkeypatch: Any) -> None:
    bond = net.terms.provider_bond
    assert await bid(net, monkeypatch, [], 10 * bond, owed=True) == ("challenge", bond)
    assert await bid(net, monkeypatch, [], LEAST + 1, owed=True) == ("challenge", LEAST + 1)


async def test_something_is_left_for_every_other_accusation(monkeypatch: Any) -> None:
    """Of seats in one hand: who puts all it has on the first would have dropped the second."""
    script = Script.ready(make_terms(f=0, min_verifiers=1), slots=1)
    script.honest_round()
    net, (id,) = script.net, script.auditors(0)
    body = b"".join(
        bytes([seat]) + bytes(2) + digest("mismatch") for seat in sorted(net.duties(0, id))
    )
    script.audit_report(0, id, body)
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, id)
    others = len(net.duties(0, id)) - 1
    bond = net.terms.provider_bond
    found = await bid(net, monkeypatch, [], bond, owed=True)
    assert others > 0 and found == ("challenge", bond - others * LEAST)
    assert await bid(net, monkeypatch, [], LEAST, owed=True) == ("challenge", LEAST)


async def test_beside_a_game_of_ours_the_least_is_enough(net: Network, monkeypatch: Any) -> None:
    found = await bid(net, monkeypatch, [(ME, 200)], 10**30, owed=True)
    assert found == ("challenge", LEAST)


async def test_a_full_queue_is_outbid_or_told(net: Network, monkeypatch: Any) -> None:
    most = 10 * net.terms.provider_bond
    full = [(Address(WATCHER), most)] * 6
    assert await bid(net, monkeypatch, full, most + 1, owed=True) == ("challenge", most + 1)
    assert await bid(net, monkeypatch, full, most, owed=True) == ("crowdedOut", 0)
    ours = [*full[:5], (ME, most)]
    assert await bid(net, monkeypatch, ours, 10**30, owed=True) == ("crowdedOut", 0)
    assert await bid(net, monkeypatch, full, most + 1, owed=False) == ("challenge", most + 1)
