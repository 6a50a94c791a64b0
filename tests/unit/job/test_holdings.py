"""What an account has beside pay: shares of slashed bonds, and what its stake must be."""

from __future__ import annotations

from tests.unit.protocol.factories import digest, make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.holdings import Share, holdings
from atoll.protocol import events as ev
from atoll.protocol.words import TOKEN, Address, Role


def test_a_game_won_is_a_share_in_the_winners_stake() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.audit(script.honest_round())
    net, liar = script.net, script.net.at(Role.PROVIDER, 2, 0)
    net.emit(ev.Deposited(liar.account, Role.PROVIDER, 10 * TOKEN))
    fault, parts = digest("fault"), (10 * TOKEN, WATCHER, 3 * TOKEN, 7 * TOKEN)
    net.emit(ev.Slashed(liar.account, Role.PROVIDER, fault, *parts))
    net.fall(Role.PROVIDER, liar.id, WATCHER)
    events = [event for event, _ in net.log]
    won, lost = holdings(events, WATCHER), holdings(events, liar.account)
    assert won.shares == (Share(liar.account, net.job, 3 * TOKEN),)
    assert (won.won, won.staked, won.faults(3 * TOKEN)) == (3 * TOKEN, 3 * TOKEN, ())
    assert (lost.shares, lost.cut, lost.staked) == ((), 10 * TOKEN, 0)
    assert won.faults(0) == (f"0 wei are staked, and {3 * TOKEN} by the events",)


def test_a_cut_without_a_winner_is_nobodys_share() -> None:
    cutter, other = VERIFIERS[0], PROVIDERS[0]
    nobody = Address("0x" + "00" * 20)
    events: list[ev.ContractEvent] = [
        ev.Deposited(cutter, Role.VERIFIER, 5 * TOKEN),
        ev.Slashed(cutter, Role.VERIFIER, digest("miss"), TOKEN, nobody, 0, TOKEN),
        ev.Withdrawn(cutter, Role.VERIFIER, 0, 2 * TOKEN),
        ev.BondReturned(cutter, 7),
    ]
    has = holdings(events, cutter)
    assert (has.staked, has.cut, has.returned, has.shares) == (2 * TOKEN, TOKEN, 7, ())
    assert holdings(events, other).staked == 0
