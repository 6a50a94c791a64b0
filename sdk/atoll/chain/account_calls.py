"""Typed calls of Jobs, Stakes, Game, Config, AtollToken and DrandBeacon, named as in Solidity.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.chain.call import Call, CallBuilder
from atoll.protocol.call_structs import Due
from atoll.protocol.types import Address, Digest, HolderId, JobId, Params, Role, RoundIndex, Terms


class AccountCalls(CallBuilder):
    """One method a function; it only encodes."""

    # Jobs

    def create(
        self, spec_digest: Digest, spec_cid: bytes, terms: Terms, policy: Address, funding: int
    ) -> Call:
        """Opens a job and takes its funding. The parameters of this moment hold for all of the
        job's life.

        Args:
            spec_digest: SHA-256 digest in the manifest's CID.
            spec_cid: the manifest's binary CID.
            funding: must cover the terms' budget: every round at its dearest.
        """
        return self.build("create", spec_digest, spec_cid, terms, policy, funding, contract="Jobs")

    def fund(self, job_id: JobId, amount: int) -> Call:
        """Anyone may add to a job's escrow; what is not earned goes to the submitter."""
        return self.build("fund", job_id, amount, contract="Jobs")

    def cancel(self, job_id: JobId) -> Call:
        """Only the submitter. At once while the job waits for members; otherwise when its round
        ends.
        """
        return self.build("cancel", job_id, contract="Jobs")

    def claim(self, job_id: JobId, role: Role, id: HolderId, to: RoundIndex) -> Call:
        """Anyone: pays a holder's payee for its rounds from the last claimed one up to, not
        including, `to`, which must be FINAL. What is retained of a seat's pay joins its bond;
        what a slash took is burnt; what the payee cannot be sent waits for `collect`.
        """
        return self.build("claim", job_id, role, id, to, contract="Jobs", permissionless=True)

    def claim_many(self, dues: Sequence[Due]) -> Call:
        """Anyone: several of these, of one job or of many. What somebody else has claimed meanwhile
        is passed over; any other that cannot be paid reverts all. Claims of one account that
        follow each other are paid by one transfer.
        """
        return self.build("claimMany", dues, contract="Jobs", permissionless=True)

    def claim_credit(self, job_id: JobId, account: Address) -> Call:
        """Anyone: pays an account's payee what it got by contests or by showing a key; what it
        cannot be sent waits for `collect`.
        """
        return self.build("claimCredit", job_id, account, contract="Jobs", permissionless=True)

    def collect(self, account: Address) -> Call:
        """Anyone: sends an account's payee what could not be sent when it was due."""
        return self.build("collect", account, contract="Jobs", permissionless=True)

    def burn(self, job_id: JobId, to: RoundIndex) -> Call:
        """Anyone: burns what was earned and is not paid, of the rounds up to, not including,
        `to`.
        """
        return self.build("burn", job_id, to, contract="Jobs", permissionless=True)

    def refund(self, job_id: JobId) -> Call:
        """Anyone: sends the submitter's payee what can no longer be earned; after the claim
        deadline all that is left. What it cannot be sent waits for `collect`.
        """
        return self.build("refund", job_id, contract="Jobs", permissionless=True)

    def propose_owner(self, account: Address, owner: Address) -> Call:
        """Only the account's owner: who shall be the next one; zero takes a proposal back. Nothing
        changes before that one accepts, so that an address nobody has the key of becomes no
        owner.
        """
        return self.build("proposeOwner", account, owner, contract="Jobs")

    def accept_owner(self, account: Address) -> Call:
        """Only who is proposed: it is the owner from now on, and the payee. Exits under way are its
        own, at their dates.
        """
        return self.build("acceptOwner", account, contract="Jobs")

    def set_payee(self, account: Address, payee: Address) -> Call:
        """Only the account's owner: where pay goes. Warning: nobody accepts it, and what was paid
        to it is gone.
        """
        return self.build("setPayee", account, payee, contract="Jobs")

    # Stakes

    def deposit(self, role: Role, amount: int) -> Call:
        """Adds to the caller's active stake."""
        return self.build("deposit", role, amount, contract="Stakes")

    def deposit_for(self, account: Address, role: Role, amount: int) -> Call:
        """The same by the account's owner, so that stake never lies in the wallet of the key that
        works.
        """
        return self.build("depositFor", account, role, amount, contract="Stakes")

    def unbond(self, account: Address, role: Role, amount: int) -> Call:
        """Only the account's owner: starts an exit of stake that no lock holds. It can be withdrawn
        strictly after the unbonding delay.
        """
        return self.build("unbond", account, role, amount, contract="Stakes")

    def stakes_withdraw(self, account: Address, role: Role, id: int) -> Call:
        """Only the account's owner, and to it: pays out one exit, whoever began it."""
        return self.build("withdraw", account, role, id, contract="Stakes")

    # Game

    def challenge(self, evidence: bytes, bond: int) -> Call:
        """Challenges a claim with a bond, which the caller has allowed this contract to take."""
        return self.build("challenge", evidence, bond, contract="Game")

    def challenge_owed(self, evidence: bytes, bond: int, auditor: int, body: bytes) -> Call:
        """The same by a drawn auditor whose opened audit report accuses just that: for the lowest
        bond however many it has open, and before all that nobody owes. Once, and again where its
        game was sent home.

        Args:
            auditor: its id.
            body: what it opened.
        """
        return self.build("challengeOwed", evidence, bond, auditor, body, contract="Game")

    def crowded_out(self, evidence: bytes) -> Call:
        """Remembers that the caller would challenge, for which a queue that is full of owed games
        has no room. Takes nothing.
        """
        return self.build("crowdedOut", evidence, contract="Game")

    def timeout(self, id: int) -> Call:
        """Ends a game in which who is to move has no time left. Anyone may call."""
        return self.build("timeout", id, contract="Game", permissionless=True)

    def conclude(self, id: int) -> Call:
        """Ends a game that a proof decided: pays, slashes, and lets the next one begin. Anyone may
        call.
        """
        return self.build("conclude", id, contract="Game", permissionless=True)

    def game_withdraw(self, account: Address) -> Call:
        """Sends what an account is owed to its payee. Anyone may call."""
        return self.build("withdraw", account, contract="Game", permissionless=True)

    def name_delegate(self, delegate: Address) -> Call:
        """The caller names who may make its moves where others dispute what it said, beside itself;
        zero for nobody.
        """
        return self.build("nameDelegate", delegate, contract="Game")

    # Config

    def propose_params(self, proposed: Params) -> Call:
        return self.build("proposeParams", proposed, contract="Config")

    def propose_policy(self, policy: Address, is_allowed: bool) -> Call:
        """Allows a policy, or takes one back: no new job may name it then, and jobs that do go on
        with it.
        """
        return self.build("proposePolicy", policy, is_allowed, contract="Config")

    def drop_proposals(self) -> Call:
        return self.build("dropProposals", contract="Config")

    def apply_params(self) -> Call:
        """Anyone, once the delay has passed."""
        return self.build("applyParams", contract="Config", permissionless=True)

    def apply_policy(self) -> Call:
        return self.build("applyPolicy", contract="Config", permissionless=True)

    def set_paused(self, paused: bool) -> Call:
        """Stops new jobs. Everything in jobs that are open goes on."""
        return self.build("setPaused", paused, contract="Config")

    def accept_ownership(self) -> Call:
        return self.build("acceptOwnership", contract="Config")

    def transfer_ownership(self, new_owner: Address) -> Call:
        return self.build("transferOwnership", new_owner, contract="Config")

    # AtollToken

    def approve(self, spender: Address, value: int) -> Call:
        return self.build("approve", spender, value, contract="AtollToken")

    def transfer(self, to: Address, value: int) -> Call:
        return self.build("transfer", to, value, contract="AtollToken")

    # DrandBeacon

    def post(self, round: int, signature: bytes) -> Call:
        """Costs its sender the gas alone, and nothing is paid for it; who needs a draw posts the
        round that draws it.

        Args:
            signature: x ‖ y of a point of G1, 48 bytes each, big-endian.
        """
        return self.build("post", round, signature, contract="DrandBeacon", permissionless=True)
