"""What `atoll earnings` tells of games won and lost is what the chain has of everybody in them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.integration.chain.one_round import ROUND, SEAT, OneRound
from tests.integration.chain.test_account_cli import config_of, has, pass_time, told
from tests.integration.chain.test_job_cli import Submitted, submitted
from tests.support.identities import digest
from typer.testing import CliRunner

from atoll import Client
from atoll.cli.main import app
from atoll.numerics.init import initial_global_state
from atoll.protocol.claims import SeatStatements
from atoll.protocol.games.moves import Claim, OpenSteps, ProgramPart
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import TOKEN, ZERO_DIGEST, Address
from atoll.train.own_run import model_roots, program_header

__all__ = ["submitted"]
GIVEN = 500 * TOKEN
"""What either challenger has at first."""
BOND = 21 * TOKEN + 1
FIRST, SECOND = 1, 2
"""Games."""
PROVIDER, VERIFIER, LOSER, WINNER = range(1, 5)
"""Whose account of Anvil's it is; the submitter's is the one before."""


@dataclass
class Challenged:
    """A settled round whose seat two accounts say is wrong, one game after the other.

    Attributes:
        claim, evidence: of the seat's first segment, of which nothing is shown but its digests.
        opening: the holder's first move, which anybody could make up.
    """

    submitted: Submitted
    members: OneRound
    manifest: Manifest
    claim: Claim
    evidence: bytes
    opening: OpenSteps

    def account(self, number: int) -> Address:
        return Address(self.submitted.accounts[number].address)

    def begin(self) -> None:
        """The second game waits for the end of the first."""
        calls, send = self.members.chain.calls, self.members.send
        game = self.members.chain.deployment.addresses["Game"]
        for account in (self.account(LOSER), self.account(WINNER)):
            send(self.account(0), calls.transfer(account, GIVEN))
            send(account, calls.approve(game, BOND))
            send(account, calls.challenge(self.evidence, BOND))

    def answer(self) -> None:
        """The holder's first move in the first game."""
        self.members.send(
            self.account(PROVIDER),
            self.members.chain.calls.play(FIRST, self.claim, self.opening),
        )

    def run_out(self, game: int) -> None:
        """Whoever is to move is silent until its clock is over."""
        terms = self.manifest.terms
        pass_time(self.submitted, terms.game_seconds + terms.move_seconds)
        self.members.send(self.account(VERIFIER), self.members.chain.calls.timeout(game))


async def challenged(submitted: Submitted) -> Challenged:
    manifest = await submitted.until_settled()
    members = await submitted.members(1)
    async with Client(submitted.anvil.url, submitted.deployment, None, submitted.home) as client:
        members.examine((await client.attach(1).view()).settled[ROUND], manifest)
        view = await client.attach(1).view()
    await members.chain.close()
    model = initial_global_state(manifest)
    header = program_header(manifest, model.digest())
    said = replace(
        SeatStatements.of(view, ROUND, SEAT, model_roots(model), header), key=ZERO_DIGEST
    )
    claim, whole = said.claim(0), header.header
    states = [digest(step) for step in range(whole.segment - 1)]
    part = ProgramPart(whole.to_bytes(), 0, header.leaves, header.proof)
    works = bytes((8 + 4 * whole.micro_batches) * whole.segment)  # zeros are finite
    opening = OpenSteps(part, (*states, claim.closing), works)
    return Challenged(submitted, members, manifest, claim, said.evidence(0), opening)


@pytest.fixture
def games(submitted: Submitted) -> Challenged:
    return asyncio.run(challenged(submitted))


@dataclass
class Told:
    """What `atoll earnings` says of everybody, by the number of the account."""

    games: Challenged
    names: dict[int, tuple[object, ...]]

    @classmethod
    def of(cls, games: Challenged) -> Told:
        roles = {PROVIDER: "provider", VERIFIER: "verifier", LOSER: "verifier", WINNER: "verifier"}
        made = {n: ("--config", config_of(games.submitted, n, role)) for n, role in roles.items()}
        return cls(games, {0: (), **made})

    def check(self) -> dict[int, Any]:
        """Everybody's lines have no fault, and add up to all that the chain has of it."""
        found = {}
        for number, name in self.names.items():
            data = found[number] = told("earnings", *name)
            assert [x for part in (*data["jobs"], data["beside"]) for x in part["faults"]] == []
            self._check_sums(number, data)
        return found

    def _check_sums(self, number: int, data: dict[str, Any]) -> None:
        account, lies = self.games.account(number), data["lies"]
        beside = {name: int(wei) for name, wei in data["beside"].items() if name.endswith("_wei")}
        wallet = has(account, self.games.submitted)
        assert lies["wallets_wei"] == {account: str(wallet)}
        stakes = lies["stakes"]
        staked = sum(int(one["active_wei"]) + int(one["unbonding_wei"]) for one in stakes)
        waits = int(lies["owed_by_games_wei"]) + int(lies["kept_wei"])
        own = [game for game in data["beside"]["games"] if game["challenger"] == account]
        at_stake = sum(int(one["bond_wei"]) for one in own if one["outcome"] == "none")
        earned = sum(int(job["paid_wei"]) for job in data["jobs"])
        earned += beside["won_wei"] - beside["slashed_wei"] + beside["gained_wei"]
        earned -= sum(int(game["lost_wei"]) for game in own)
        put = beside["funded_wei"] - beside["refunded_wei"]
        assert wallet + staked + waits + at_stake == self.given(number) + earned - put

    def given(self, number: int) -> int:
        """Tokens that came to it from outside of the network."""
        terms = self.games.manifest.terms
        others = [0, terms.provider_bond, terms.verifier_bond, GIVEN, GIVEN]
        return others[number] if number else 10**27 - sum(others)

    def text(self, number: int) -> str:
        """What a person sees."""
        done = CliRunner().invoke(app, ["earnings", *map(str, self.names[number])])
        assert done.exit_code == 0, done.output
        return done.stdout


def test_every_wei_of_games_won_and_lost_is_told_and_lies_where_it_is_said(
    games: Challenged,
) -> None:
    everybody = Told.of(games)
    games.begin()
    open_ = everybody.check()
    assert [game["outcome"] for game in open_[PROVIDER]["beside"]["games"]] == ["none", "none"]
    assert "put up in games: 0 back, 21 at stake" in everybody.text(WINNER)

    games.answer()
    games.run_out(FIRST)  # the challenger was to move
    first = everybody.check()
    assert first[PROVIDER]["beside"]["gained_wei"] == str(BOND // 2)
    assert first[PROVIDER]["lies"]["owed_by_games_wei"] == str(BOND // 2)
    assert f"in game 1, half of the bond of {games.account(LOSER)}" in everybody.text(PROVIDER)
    assert "owed by games: `atoll claim`" in everybody.text(PROVIDER)
    assert f"in game 1 against {games.account(PROVIDER)}" in everybody.text(LOSER)

    games.run_out(SECOND)  # the holder was
    second = everybody.check()
    bond = games.manifest.terms.provider_bond
    (share,) = second[WINNER]["beside"]["shares"]
    assert (share["loser"], share["job"]) == (games.account(PROVIDER), 1)
    assert 0 < int(share["wei"]) < bond
    assert second[WINNER]["lies"]["owed_by_games_wei"] == str(BOND)
    assert f"of the bond of {games.account(PROVIDER)}, slashed in job 1" in everybody.text(WINNER)
    (lost,) = (x for x in second[PROVIDER]["jobs"][0]["lines"] if x["what"] == "penalties")
    assert lost["wei"] == str(bond)
    assert lost["text"].startswith(f"slashed for {games.account(WINNER)}: game 2, about segment ")

    for number, name in everybody.names.items():
        paid = told("claim", *name)
        assert (number in (PROVIDER, WINNER)) == bool(int(paid["claimed_wei"]))
    assert int(told("job", "refund", 1)["refunded_wei"]) > 0
    last = everybody.check()
    for data in last.values():
        assert data["lies"]["owed_by_games_wei"] == "0"
    assert last[WINNER]["beside"]["returned_wei"] == str(BOND)
    assert "waiting" not in everybody.text(WINNER)
