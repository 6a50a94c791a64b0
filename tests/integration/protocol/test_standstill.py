"""A chain that stops, and a provider that sleeps, on a real node: who pays for it, and how much.

Time is the node's: blocks whose timestamps catch up, as after a sequencer's outage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.protocol.chains import START, Chain
from tests.integration.protocol.live import Live, live_terms
from tests.support.contracts import FOREVER, Refused
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.protocol import events as ev
from atoll.protocol.types import Phase, Role, Terms

MINUTE, HOUR = 60, 3_600
STOPS = (40 * MINUTE, 2 * HOUR)
"""Base stood still for 33 minutes in 2025, and for 116 in 2026."""
SLEEPS = (10 * MINUTE, HOUR, 8 * HOUR)
SLEEPER = 0
ROUNDS = 60
"""More than a night has."""


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    node = start_anvil(
        "--block-base-fee-per-gas", "0", "--auto-impersonate", "--timestamp", str(START - 10)
    )
    yield node
    stop(node)


@pytest.fixture(scope="module")
def chain(anvil: Anvil) -> Chain:
    return Chain(anvil)


def started(chain: Chain, terms: Terms, *, verifiers: int = 4) -> Script:
    net = Live(chain, terms)
    for seat in range(4):
        net.join(PROVIDERS[seat], seat)
    for slot in range(verifiers):
        net.enrol(VERIFIERS[slot], slot, terms.verifier_bond)
        net.say_ready(VERIFIERS[slot])
    net.wait(1)
    net.advance()
    return Script(net)


def reported(script: Script, *rounds: int) -> None:
    """Whoever wants somebody's bond sends every report that the contracts may take."""
    net = script.net
    for round in rounds:
        for seat in net.settled[round].holders:
            tried(partial(net.report_missing_key, round, seat))
        for id in net.settled[round].slots.values():
            tried(partial(net.report_absent, round, id))
            tried(partial(net.penalise_member, round, id))
    for seat in range(4):
        tried(partial(net.penalise_seat, seat))


def tried(report: Callable[[], None]) -> None:
    with suppress(Refused):
        report()


def unharmed(script: Script) -> None:
    """Nobody's bond is touched, and no id has ended."""
    harms = ev.Missed | ev.HolderSlashed
    assert [event for event, _ in script.net.log if isinstance(event, harms)] == []
    for m in script.net.members.values():
        bond = m.bond, m.to, m.slashed
        assert bond == (script.net.terms.provider_bond, FOREVER, False)


@pytest.mark.parametrize("seconds", STOPS)
def test_a_chain_that_stops_in_every_phase_of_a_round_takes_nobodys_bond(
    chain: Chain, seconds: int
) -> None:
    script = started(chain, patient(chain))
    net = script.net
    assert isinstance(net, Live)

    def stands_still(phase: Phase) -> None:
        net.wait(seconds)
        net.advance()
        assert net.phase is phase

    stands_still(Phase.TRAIN)
    script.commit(0)
    stands_still(Phase.TRAIN)
    for seat in sorted(net.waited):
        script.commit(seat)
    stands_still(Phase.REVEAL)
    for seat in range(4):
        script.reveal(seat)
    stands_still(Phase.MERGE)
    script.say()
    net.wait(1)
    script.settle()
    reported(script, 0)
    unharmed(script)
    net.check()
    assert net.settled[0].pay == {0, 1, 2, 3}


@pytest.mark.parametrize("seconds", STOPS)
@pytest.mark.parametrize("stage", ["audit", "open", "keys", "window"])
def test_a_chain_that_stops_behind_a_round_takes_nobodys_bond(
    chain: Chain, seconds: int, stage: str
) -> None:
    """From the begin of a window to its end nobody's transaction is in a block."""
    script = started(chain, patient(chain))
    net = script.net
    assert isinstance(net, Live)
    ends, round = net.settled[script.honest_round()].ends, 0
    if stage != "audit":
        for id in script.auditors(round):
            script.audit_report(round, id)
        net.wait_until(ends["audit"])
    if stage in {"keys", "window"}:
        for id in script.auditors(round):
            script.open(round, id)
        net.wait_until(ends["open"])
    if stage == "window":
        script.show_keys(round)
    net.wait(seconds)
    assert net.now < ends["window"]  # or nothing could be reported, whatever the rules are
    net.advance()  # the round that runs meanwhile is repeated
    reported(script, round)
    unharmed(script)
    net.check()


@pytest.mark.parametrize("seconds", STOPS)
def test_a_chain_that_stops_in_each_round_takes_no_bond_of_who_audits_alone(
    chain: Chain, seconds: int
) -> None:
    """However often: the keys that nobody could show are missing, too."""
    script = started(chain, alone(chain), verifiers=1)
    net = script.net
    for count in range(5):
        round = script.honest_round()
        (id,) = script.auditors(round)
        if count % 2:
            script.audit_report(round, id)
            net.wait_until(net.settled[round].ends["audit"])
        net.wait(seconds)
        net.advance()
        reported(script, round)
        unharmed(script)
    net.check()


@pytest.mark.parametrize("seconds", STOPS)
def test_a_chain_that_stops_in_OPEN_alone_is_excused_three_times_and_slashes_nobody(
    chain: Chain, seconds: int
) -> None:
    """It moves again while keys are shown. From the fourth time on a lone auditor's absence costs
    what a missed duty does."""
    terms = alone(chain, key_seconds=9_000, window_seconds=60_000)
    script = started(chain, terms, verifiers=1)
    net = script.net
    for count in range(1, 5):
        round = script.honest_round()
        (id,) = script.auditors(round)
        script.audit_report(round, id)
        net.wait_until(net.settled[round].ends["audit"])
        net.wait(seconds)
        script.show_keys(round)
        reported(script, round)  # too early
        net.wait_until(net.settled[round].ends["keys"])
        net.advance()
        reported(script, *range(round + 1))
        auditor = net.member(Role.VERIFIER, id)
        first = terms.verifier_bond // 100
        assert terms.verifier_bond - auditor.bond == (first if count == 4 else 0)
        assert not auditor.slashed
    net.check()


def test_one_stop_in_which_many_rounds_OPEN_ends_is_one_excuse(chain: Chain) -> None:
    script = started(chain, alone(chain, key_seconds=3_000, window_seconds=18_000), verifiers=1)
    net = script.net
    rounds = [script.honest_round() for _ in range(5)]
    net.wait_until(net.settled[rounds[-1]].ends["open"])
    for round in rounds:
        script.show_keys(round)
    net.wait_until(net.settled[rounds[-1]].ends["keys"])
    net.advance()
    reported(script, *reversed(rounds))
    unharmed(script)
    excuses = [event for event, _ in net.log if isinstance(event, ev.Excused)]
    assert [event.round for event in excuses] == [rounds[-1]]
    net.check()


def alone(chain: Chain, **changes: Any) -> Terms:
    """Of a pool of one, which audits every seat of every round."""
    terms = {"rounds": 8, "f": 0, "min_verifiers": 1, "game_seconds": 9_000, "audit_seconds": 100}
    windows = {"window_seconds": 18_000, "expiry": chain.now + 900_000}
    return live_terms(**{**terms, **windows, **changes})


def patient(chain: Chain) -> Terms:
    """Of a network whose chain may stand still for two and a half hours."""
    return live_terms(
        rounds=3, game_seconds=9_000, window_seconds=18_000, expiry=chain.now + 300_000
    )


@pytest.mark.parametrize("seconds", SLEEPS)
def test_a_drawn_provider_that_sleeps_loses_its_pay_meanwhile_and_an_eighth_at_most(
    chain: Chain, seconds: int
) -> None:
    terms = live_terms(
        rounds=ROUNDS, f=0, min_providers=2, train_seconds=600, window_seconds=20_000,
        expiry=chain.now + 300_000,
    )  # fmt: skip
    script = started(chain, terms)
    net = script.net
    assert isinstance(net, Live)
    awake, drawn = script.honest_round(), script.honest_round()
    assert SLEEPER in net.settled[drawn].drawn
    provider = net.member(Role.PROVIDER, net.settled[drawn].holders[SLEEPER])
    wakes = net.now + seconds
    found_valid(script, awake, drawn)
    while net.now < wakes:
        without_it(script)
        reported(script, awake, drawn)
    if seconds < HOUR:
        net.show_key(drawn, SLEEPER, script.secrets[drawn, SLEEPER][0])
    reported(script, awake, drawn)
    net.wait_until(net.settled[-1].ends["window"])
    paid, burnt = net.claim(Role.PROVIDER, provider.id, min(provider.to, len(net.settled)))
    net.check()
    bond = terms.provider_bond
    assert not provider.slashed
    assert bond - bond // 8 <= provider.bond < bond  # and that it slept is noticed
    assert (paid, burnt) == (net.worth(provider, awake), 0)
    assert paid == terms.segments * terms.segment_pay
    others = [m for m in net.members.values() if m is not provider]
    assert {(m.bond, m.to) for m in others} == {(bond, FOREVER)}


def found_valid(script: Script, awake: int, drawn: int) -> None:
    """Both rounds are audited, and everybody shows its keys but who sleeps, of the second."""
    net = script.net
    for round in (awake, drawn):
        for id in script.auditors(round):
            script.audit_report(round, id)
    for stage, act in (("audit", script.open), ("open", None)):
        for round in (awake, drawn):
            net.wait_until(net.settled[round].ends[stage])
            for id in script.auditors(round) if act else ():
                script.open(round, id)
    script.show_keys(awake)
    script.show_keys(drawn, net.settled[drawn].drawn - {SLEEPER})
    net.wait_until(net.settled[drawn].ends["keys"])


def without_it(script: Script) -> None:
    """A round of everybody else; the time of its training passes."""
    net = script.net
    seats = sorted(net.waited - {SLEEPER})
    net.wait_until(net.deadline - 10)
    for seat in seats:
        script.commit(seat)
    if net.phase is Phase.TRAIN:
        net.wait_until(net.deadline)
        net.advance()
    for seat in seats:
        script.reveal(seat)
    script.say()
    net.wait(1)
    script.settle()
