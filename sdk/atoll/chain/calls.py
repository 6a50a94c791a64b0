"""What can be sent to the contracts: one typed method a function, named as in Solidity.

Rule of this file: a method only encodes. Whether and when a call is sent is the queue's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode as abi_encode

from atoll.chain.abi import registry
from atoll.chain.decode import to_abi
from atoll.chain.deployment import Deployment
from atoll.law.games.calls import calldata
from atoll.law.games.claims import Claim, Move
from atoll.law.words import (
    Address,
    Attempt,
    Digest,
    Finding,
    JobId,
    Offence,
    Report,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Verdict,
    VerifierIndex,
)


@dataclass(frozen=True, slots=True)
class Call:
    """One function call, ready to be put into a transaction.

    Attributes:
        label: the function's name, for messages and for the gas report.
        permissionless: anyone may do it, so that finding it done by another is no failure.
    """

    to: Address
    data: bytes
    label: str
    permissionless: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """An ERC-2612 signature."""

    deadline: int
    v: int
    r: bytes
    s: bytes


class Calls:
    """Builds calls to one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._addresses = deployment.addresses

    def build(
        self, name: str, *args: Any, contract: str | None = None, permissionless: bool = False
    ) -> Call:
        """Any function, by its Solidity name; the typed methods are the better way.

        Args:
            args: dataclasses, enums and plain values, in ABI order.
            contract: which contract, where more than one has a function of this name.
        Raises:
            ChainError: no such function.
        """
        function = registry().function(name, contract)
        data = function.selector + abi_encode(function.inputs, [to_abi(value) for value in args])
        return Call(self._addresses[function.contract], data, name, permissionless)

    # Rounds

    def poke(self, job: JobId) -> Call:
        """Moves a job on whose deadline has passed or whose beacon block is known."""
        return self.build("poke", job, permissionless=True)

    def commit(self, job: JobId, round_: RoundIndex, attempt: Attempt, commitment: Digest) -> Call:
        return self.build("commit", job, round_, attempt, commitment)

    def reveal(self, job: JobId, round_: RoundIndex, attempt: Attempt, reveal: Reveal) -> Call:
        return self.build("reveal", job, round_, attempt, reveal)

    def ballot(
        self,
        job: JobId,
        round_: RoundIndex,
        attempt: Attempt,
        *,
        findings: Sequence[Finding],
        reports: Sequence[Report],
        replay_root: Digest,
    ) -> Call:
        """A verifier's findings and reports of one audit; from half time on also a supplement."""
        return self.build(
            "ballot", job, round_, attempt, tuple(findings), tuple(reports), replay_root
        )

    def challenge(
        self, job: JobId, round_: RoundIndex, attempt: Attempt, *, report: Report
    ) -> Call:
        """A report of WITHHELD: its evidence is the SHA-256 of the block that nobody serves."""
        where = (report.seat, report.segment, report.evidence)
        return self.build("challenge", job, round_, attempt, *where)

    def withdraw_challenge(
        self, job: JobId, round_: RoundIndex, attempt: Attempt, index: int
    ) -> Call:
        """Takes the caller's part in a challenge back, while it is unanswered."""
        return self.build("withdrawChallenge", job, round_, attempt, index)

    def answer_challenge(
        self, job: JobId, round_: RoundIndex, attempt: Attempt, index: int, block: bytes
    ) -> Call:
        """Puts the challenged block on the chain."""
        return self.build("answerChallenge", job, round_, attempt, index, block)

    def vote(
        self,
        job: JobId,
        round_: RoundIndex,
        attempt: Attempt,
        *,
        agree: int,
        disagree: int,
        cannot_fetch: int,
    ) -> Call:
        """On every open report; bit i of a map speaks of report i, the maps are disjoint."""
        return self.build("vote", job, round_, attempt, agree, disagree, cannot_fetch)

    def attest(
        self,
        job: JobId,
        round_: RoundIndex,
        attempt: Attempt,
        verdict_hash: Digest,
        proof: bytes = b"",
    ) -> Call:
        return self.build("attest", job, round_, attempt, verdict_hash, proof)

    def settle(self, job: JobId, verdict: Verdict) -> Call:
        return self.build("settle", job, verdict, permissionless=True)

    def finalise(self, job: JobId) -> Call:
        """The oldest settled round whose dispute window has passed."""
        return self.build("finalise", job, permissionless=True)

    def punish(self, job: JobId, round_: RoundIndex, offence: Offence, index: int) -> Call:
        """Index: a seat, a report or a verifier, as the offence says."""
        return self.build("punish", job, round_, offence, index, permissionless=True)

    def credit(
        self, job: JobId, round_: RoundIndex, role: Role, index: SeatIndex | VerifierIndex
    ) -> Call:
        """Pays a member of a round that ran out of attempts from the evidence alone."""
        return self.build(
            "credit", job, round_, role, index, contract="Rounds", permissionless=True
        )

    def reaudit(self, job: JobId) -> Call:
        """The owner of the configuration audits a halted round again."""
        return self.build("reaudit", job)

    # Roster

    def join_as_provider(self, job: JobId) -> Call:
        return self.build("joinAsProvider", job)

    def leave_as_provider(self, job: JobId) -> Call:
        return self.build("leaveAsProvider", job)

    def join_as_verifier(self, job: JobId) -> Call:
        return self.build("joinAsVerifier", job)

    def leave_as_verifier(self, job: JobId) -> Call:
        return self.build("leaveAsVerifier", job)

    def attest_ready(self, job: JobId) -> Call:
        """ "I hold the manifest and every shard." """
        return self.build("attestReady", job)

    def announce_gateway(self, url: str) -> Call:
        return self.build("announceGateway", url)

    def release_bond(self, job: JobId, role: Role, account: Address) -> Call:
        return self.build("releaseBond", job, role, account, permissionless=True)

    # Jobs

    def create(
        self, spec_digest: Digest, spec_cid: bytes, terms: Terms, policy: Address, funding: int
    ) -> Call:
        """Needs an allowance of `funding` wei for the jobs contract."""
        return self.build("create", spec_digest, spec_cid, terms, policy, funding)

    def fund(self, job: JobId, amount: int) -> Call:
        return self.build("fund", job, amount)

    def cancel(self, job: JobId) -> Call:
        return self.build("cancel", job, contract="Jobs")

    def refund(self, job: JobId) -> Call:
        return self.build("refund", job)

    def claim(self, job: JobId, account: Address, cumulative: int, proof: Sequence[bytes]) -> Call:
        """Pays `account` what the claims tree says, less what it was paid already."""
        return self.build("claim", job, account, cumulative, tuple(proof), permissionless=True)

    # Games

    def challenge_claim(self, evidence: bytes, bond: int) -> Call:
        """Begins a game about what the evidence shows. Needs an allowance for the game contract."""
        return self.build("challenge", evidence, bond, contract="Game")

    def play(self, game: int, claim: Claim, move: Move) -> Call:
        """A move of a game about that claim."""
        data = calldata(game, claim, move)
        return Call(self._addresses["Game"], data, f"Game.{type(move).__name__}")

    def time_out(self, game: int) -> Call:
        """Ends a game in which who is to move has no time left."""
        return self.build("timeout", game, contract="Game", permissionless=True)

    def conclude(self, game: int) -> Call:
        """Has a game that is decided pay."""
        return self.build("conclude", game, contract="Game", permissionless=True)

    def collect_bond(self, account: Address) -> Call:
        """Sends an account what games owe it."""
        return self.build("withdraw", account, contract="Game", permissionless=True)

    # Stakes

    def deposit(self, role: Role, amount: int) -> Call:
        """Needs an allowance of `amount` wei for the stakes contract."""
        return self.build("deposit", role, amount)

    def deposit_with_permit(self, role: Role, amount: int, permit: Permit) -> Call:
        return self.build(
            "depositWithPermit", role, amount, permit.deadline, permit.v, permit.r, permit.s
        )

    def thaw(self, role: Role, amount: int) -> Call:
        return self.build("thaw", role, amount)

    def withdraw(self, role: Role, thaw_id: int) -> Call:
        return self.build("withdraw", role, thaw_id)

    # The token

    def approve(self, spender: Address, amount: int) -> Call:
        return self.build("approve", spender, amount, contract="AtollToken")

    def transfer(self, to: Address, amount: int) -> Call:
        return self.build("transfer", to, amount, contract="AtollToken")
