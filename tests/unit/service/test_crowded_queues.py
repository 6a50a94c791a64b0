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

from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.audits import with_settled
from atoll.protocol.game_records import GameRecord, accusation
from atoll.protocol.games.game_machine import Clock, Outcome
from atoll.protocol.obligations import Duty
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
    net: Network,
    monkeypatch: Any,
    bonds: list[tuple[Address, int]],
    balance: int,
    *,
    owed: bool,
    among: bool = False,
) -> tuple[str, int] | None:
    """Which call is made, with what bond: behind the game that is played and those that wait.

    Args:
        owed: whether our audit report says so of the seat.
        among: whether the others are owed.
    """
    claim = replace(claim_about(net.view, SEAT, 2, is_update_proof=False), lowest_bond=LEAST)
    clock = Clock(1, 1, 1, 1)
    another = replace(claim, segment=5)
    records = [
        GameRecord(i, who, bond, another, b"", clock=None if i else clock, is_owed=among)
        for i, (who, bond) in enumerate(bonds)
    ]
    view = replace(net.view, games={**net.view.games, **{game.id: game for game in records}})
    if owed and not view.settled[0].opened_reports:
        id = next(id for id, holder in view.verifiers.items() if holder.account == ME)
        report = AuditReport((AuditEntry(SEAT, 2, digest("mismatch")),))
        view = with_settled(view, RoundIndex(0), opened_reports={id: report})

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
        challenge_owed=lambda evidence, bond, auditor, body: ("challengeOwed", bond),
    )
    chain = SimpleNamespace(token_balance=token_balance, head=head)
    follower = SimpleNamespace(views={view.job_id: view})
    context = SimpleNamespace(me=ME, chain=chain, follower=follower)
    effects: Any = SimpleNamespace(calls=calls, context=context)
    zero = Digest(bytes(32))
    wanted = SendChallenge(RoundIndex(0), SEAT, 2, b"", zero, owed=owed)
    made: Any = await wanted._call(effects, view, claim, b"")
    return None if made is None else (str(made[0]), int(made[1]))


async def test_an_accusation_bids_what_it_has(net: Network, monkeypatch: Any) -> None:
    bond = net.terms.provider_bond
    assert await bid(net, monkeypatch, [], 10 * bond, owed=True) == ("challengeOwed", bond)
    assert await bid(net, monkeypatch, [], LEAST + 1, owed=True) == ("challengeOwed", LEAST + 1)
    assert await bid(net, monkeypatch, [], 10 * bond, owed=False) == ("challenge", bond)


async def test_something_is_left_for_every_other_accusation(monkeypatch: Any) -> None:
    """Of seats in one hand: who puts all it has on the first would have dropped the second."""
    script = Script.ready(make_terms(f=0, min_verifiers=1), slots=1)
    script.honest_round()
    net, (id,) = script.net, script.auditors(0)
    at = (2).to_bytes(2, "big")
    body = b"".join(bytes([seat]) + at + digest("mismatch") for seat in sorted(net.duties(0, id)))
    script.audit_report(0, id, body)
    net.wait_until(net.settled[0].ends["audit"])
    script.open(0, id)
    others = len(net.duties(0, id)) - 1
    bond = net.terms.provider_bond
    found = await bid(net, monkeypatch, [], bond, owed=True)
    assert others > 0 and found == ("challengeOwed", bond - others * LEAST)
    assert await bid(net, monkeypatch, [], LEAST, owed=True) == ("challengeOwed", LEAST)


async def test_beside_games_of_ours_the_least_is_enough(net: Network, monkeypatch: Any) -> None:
    """What is not owed asks for n times that; owed ones do not count."""
    for n in range(1, 5):
        ours = [(ME, 200)] * n
        found = await bid(net, monkeypatch, ours, 10**30, owed=True)
        assert found == ("challengeOwed", LEAST)
        found = await bid(net, monkeypatch, ours, 10**30, owed=False)
        assert found == ("challenge", (n + 1) * LEAST)
        found = await bid(net, monkeypatch, ours, 10**30, owed=False, among=True)
        assert found == ("challenge", LEAST)
    others = [(Address(WATCHER), 200)] * 3
    bond = net.terms.provider_bond
    assert await bid(net, monkeypatch, others, 10**30, owed=True) == ("challengeOwed", bond)


def with_earlier(net: Network, outcome: Outcome, *, owed: bool = True) -> None:
    """A game of ours about what we accuse."""
    claim = replace(claim_about(net.view, SEAT, 2, is_update_proof=False), lowest_bond=LEAST)
    game = GameRecord(9, ME, LEAST, claim, b"", outcome=outcome, is_owed=owed)
    net.view = replace(net.view, games={game.id: game})


@pytest.mark.parametrize(
    ("outcome", "owed", "call"),
    [
        (Outcome.CHALLENGER_LOST, True, "challenge"),
        (Outcome.HOLDER_LOST, True, "challenge"),
        (Outcome.SENT_HOME, True, "challengeOwed"),
        (Outcome.SENT_HOME, False, "challengeOwed"),
        (Outcome.CHALLENGER_LOST, False, "challengeOwed"),
    ],
)
async def test_an_accusation_is_owed_until_a_game_that_owed_it_is_played(
    net: Network, monkeypatch: Any, outcome: Outcome, owed: bool, call: str
) -> None:
    with_earlier(net, outcome, owed=owed)
    bond = net.terms.provider_bond
    assert await bid(net, monkeypatch, [], 10**30, owed=True) == (call, bond)


async def test_while_an_owed_game_is_open_the_accusation_is_not_owed_again(
    net: Network, monkeypatch: Any
) -> None:
    with_earlier(net, Outcome.NONE)
    assert await bid(net, monkeypatch, [], 10**30, owed=True) == ("challenge", LEAST)


async def test_who_found_no_room_may_challenge_as_owed_later(
    net: Network, monkeypatch: Any
) -> None:
    claim = replace(claim_about(net.view, SEAT, 2, is_update_proof=False), lowest_bond=LEAST)
    net.view = replace(net.view, crowded_out=frozenset({accusation(ME, claim)}))
    bond = net.terms.provider_bond
    assert await bid(net, monkeypatch, [], 10**30, owed=True) == ("challengeOwed", bond)


async def test_who_was_pushed_out_outbids_or_leaves_it(net: Network, monkeypatch: Any) -> None:
    """It has challenged already, which need not be said a second time."""
    with_earlier(net, Outcome.SENT_HOME)
    most = 10 * net.terms.provider_bond
    full = [(Address(WATCHER), most)] * 6
    for balance, call in ((most + 1, ("challengeOwed", most + 1)), (most, None)):
        assert await bid(net, monkeypatch, full, balance, owed=True, among=True) == call


async def test_what_further_accusations_ask_for_is_left(net: Network, monkeypatch: Any) -> None:
    """Each the least, about the same seat too."""
    about = [(0, (SEAT,)), (1, (SEAT,)), (2, (SEAT,)), (1, (SeatIndex(0),))]
    owed = [SimpleNamespace(round=r, seats=s, duty=Duty.CHALLENGE) for r, s in about]
    owed.append(SimpleNamespace(round=3, seats=(SEAT,), duty=Duty.KEY))
    monkeypatch.setattr(challenge, "obligations_of", lambda *_: owed)
    left, bond = 3 * LEAST, net.terms.provider_bond
    for balance, given in ((bond, bond - left), (left + 7, LEAST), (left + LEAST + 7, LEAST + 7)):
        found = await bid(net, monkeypatch, [], balance, owed=True)
        assert found == ("challengeOwed", given)


async def test_an_accusation_has_room_among_what_nobody_owes(
    net: Network, monkeypatch: Any
) -> None:
    """However large that is; anybody else outbids the smallest."""
    most = 10 * net.terms.provider_bond
    full = [(Address(WATCHER), most)] * 6
    assert await bid(net, monkeypatch, full, LEAST, owed=True) == ("challengeOwed", LEAST)
    assert await bid(net, monkeypatch, full, most + 1, owed=False) == ("challenge", most + 1)


async def test_a_queue_full_of_what_is_owed_is_outbid_or_told(
    net: Network, monkeypatch: Any
) -> None:
    most = 10 * net.terms.provider_bond
    full = [(Address(WATCHER), most)] * 6
    for balance, call in ((most + 1, ("challengeOwed", most + 1)), (most, ("crowdedOut", 0))):
        assert await bid(net, monkeypatch, full, balance, owed=True, among=True) == call
    ours = [*full[:5], (ME, most)]
    found = await bid(net, monkeypatch, ours, 10**30, owed=True, among=True)
    assert found == ("crowdedOut", 0)
    small = [(Address(WATCHER), 10)] * 6
    for balance, call in ((LEAST - 1, ("crowdedOut", 0)), (LEAST, ("challengeOwed", LEAST))):
        assert await bid(net, monkeypatch, small, balance, owed=True, among=True) == call
