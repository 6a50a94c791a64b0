"""What an account has beside pay: shares of slashed bonds, and what its stake must be."""

from __future__ import annotations

from tests.support.identities import digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.job.holdings import HeldByContracts, Share, holdings
from atoll.protocol import events as ev
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import (
    TOKEN,
    ZERO_DIGEST,
    Address,
    HolderId,
    JobId,
    MissedDuty,
    Role,
    RoundIndex,
    SeatIndex,
)


def test_a_game_won_is_a_share_in_the_winners_stake() -> None:
    script = Script.ready(make_terms(rounds=1))
    script.audit(script.honest_round())
    net, liar = script.net, script.net.at(Role.PROVIDER, 2, 0)
    net.emit(ev.Deposited(liar.account, Role.PROVIDER, 10 * TOKEN))
    fault, parts = digest("fault"), (10 * TOKEN, WATCHER, 3 * TOKEN, 7 * TOKEN)
    net.emit(ev.Slashed(liar.account, Role.PROVIDER, fault, *parts))
    net.slash(Role.PROVIDER, liar.id, WATCHER)
    events = [event for event, _ in net.log]
    won, lost = holdings(events, WATCHER), holdings(events, liar.account)
    assert won.shares == (Share(liar.account, net.job, 3 * TOKEN),)
    assert (won.won, won.staked) == (3 * TOKEN, 3 * TOKEN)
    assert list(won.faults(HeldByContracts(3 * TOKEN, 0, 0))) == []
    assert (lost.shares, lost.slashed, lost.staked) == ((), 10 * TOKEN, 0)
    assert list(won.faults(HeldByContracts(0, 5, 7))) == [
        f"0 wei are staked, and {3 * TOKEN} by the events",
        "7 wei are kept, and 0 by the events",
        "5 wei are owed by games, and 0 by the events",
    ]


def test_a_penalty_without_a_winner_is_nobodys_share() -> None:
    cutter, other = VERIFIERS[0], PROVIDERS[0]
    nobody = Address("0x" + "00" * 20)
    events: list[ev.ContractEvent] = [
        ev.Deposited(cutter, Role.VERIFIER, 5 * TOKEN),
        ev.Slashed(cutter, Role.VERIFIER, digest("miss"), TOKEN, nobody, 0, TOKEN),
        ev.Withdrawn(cutter, Role.VERIFIER, 0, 2 * TOKEN),
        ev.BondReturned(cutter, 7),
    ]
    has = holdings(events, cutter)
    assert (has.staked, has.slashed, has.returned, has.shares) == (2 * TOKEN, TOKEN, 7, ())
    assert holdings(events, other).staked == 0


def test_two_certificates_are_a_share_in_their_job() -> None:
    signer, job, id = VERIFIERS[0], JobId(7), HolderId(1)
    events: list[ev.ContractEvent] = [
        ev.Slashed(signer, Role.VERIFIER, digest("two"), 4 * TOKEN, WATCHER, TOKEN, 3 * TOKEN),
        ev.Missed(job, signer, Role.VERIFIER, id, RoundIndex(0), MissedDuty.EQUIVOCATED, 4 * TOKEN),
    ]
    assert holdings(events, WATCHER).shares == (Share(signer, job, TOKEN),)


HOLDER = PROVIDERS[1]


def game(id: int, challenger: Address, bond: int) -> ev.Challenged:
    """One about the holder's seat in job 7."""
    claim = Claim(
        holder=HOLDER,
        set=bond_set(JobId(7), Role.PROVIDER, HolderId(2)),
        position=ZERO_DIGEST,
        program=ZERO_DIGEST,
        is_update_proof=False,
        seat=SeatIndex(1),
        round=RoundIndex(0),
        segment=0,
        data_seed=ZERO_DIGEST,
        initial_state=ZERO_DIGEST,
    )
    return ev.Challenged(id, HOLDER, challenger, bond, claim, b"")


def test_a_games_bond_is_told_until_games_have_sent_it() -> None:
    events: list[ev.ContractEvent] = [
        game(1, WATCHER, 9), game(2, WATCHER, 20), game(3, WATCHER, 40), game(4, WATCHER, 80),
        ev.Ended(1, Outcome.CHALLENGER_LOST), ev.Ended(4, Outcome.SENT_HOME),
        ev.Ended(2, Outcome.CHALLENGER_LOST),
    ]  # fmt: skip
    mine, holders = holdings(events, WATCHER), holdings(events, HOLDER)
    assert [(g.id, g.job, g.lost, g.home, g.at_stake) for g in mine.games] == [
        (1, 7, 9, 0, 0), (2, 7, 20, 0, 0), (3, 7, 0, 0, 40), (4, 7, 0, 80, 0),
    ]  # fmt: skip
    assert (mine.bonds, mine.gained, mine.owed) == (149, 0, 80)
    assert (holders.bonds, holders.gained) == (0, 4 + 10)
    assert holders.owed == 4 + 10
    events += [ev.Ended(3, Outcome.HOLDER_LOST), ev.BondReturned(WATCHER, 120)]
    events += [ev.BondReturned(HOLDER, 10), ev.BondReturned(HOLDER, 0)]
    mine, holders = holdings(events, WATCHER), holdings(events, HOLDER)
    assert (mine.owed, mine.returned) == (0, 120)
    assert holders.owed == 4


def test_what_a_payee_could_not_be_sent_is_kept_until_it_is_collected() -> None:
    me = PROVIDERS[0]
    events: list[ev.ContractEvent] = [ev.Kept(me, 5), ev.Collected(me, 5), ev.Kept(me, 6)]
    assert holdings(events, me).kept == 6
