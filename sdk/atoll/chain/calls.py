"""What can be sent to the contracts: one typed method a function, named as in Solidity.

Rule of this file: a method only encodes. Whether and when a call is sent is the queue's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from eth_abi.abi import encode as abi_encode

from atoll.chain.abi import registry
from atoll.chain.decode import to_abi
from atoll.chain.deployment import Deployment
from atoll.protocol.audit_reports import Body
from atoll.protocol.claims import shown
from atoll.protocol.games.calls import calldata
from atoll.protocol.games.claims import Claim, Move
from atoll.protocol.views import SettledRound
from atoll.protocol.words import (
    NO_BITS,
    ZERO_DIGEST,
    Address,
    Bitmap,
    Digest,
    Facts,
    HolderId,
    JobId,
    Params,
    PlaceIndex,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    Verdict,
)

_NO_DIGESTS: Final = (ZERO_DIGEST,) * 5
_NO_PLACES: Final = (NO_BITS,) * 5
_NO_FACTS: Final = Facts(*_NO_DIGESTS, *_NO_PLACES)


@dataclass(frozen=True, slots=True)
class Call:
    """One function call, ready to be put into a transaction.

    Attributes:
        label: the function's name, for messages and for the gas report.
        permissionless: anyone may do it, so that finding it done by another is no failure.
        stake: wei of the stake token that the sender loses unless it is done in time; what one of
            its transactions may cost follows from it.
    """

    to: Address
    data: bytes
    label: str
    permissionless: bool = False
    stake: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """A holder, and up to which of its rounds it is to be paid."""

    job: JobId
    role: Role
    id: HolderId
    to: RoundIndex


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

    def advance(self, job: JobId) -> Call:
        """Moves a job on whose deadline has passed, or which has members enough."""
        return self.build("advance", job, permissionless=True)

    def commit(self, job: JobId, seat: SeatIndex, seed: Digest, commitment: Digest) -> Call:
        """`seed` is the data seed that it was made for, here and below."""
        return self.build("commit", job, seat, seed, commitment)

    def reveal(self, job: JobId, seat: SeatIndex, seed: Digest, reveal: Reveal) -> Call:
        return self.build("reveal", job, seat, seed, reveal)

    def word(self, job: JobId, place: PlaceIndex, seed: Digest, has: Bitmap) -> Call:
        """The seats whose updates a committee member has."""
        return self.build("word", job, place, seed, has)

    def seed_audit(self, job: JobId) -> Call:
        return self.build("seedAudit", job, permissionless=True)

    def settle(
        self,
        job: JobId,
        words: Mapping[PlaceIndex, Bitmap],
        certified: tuple[Verdict, Sequence[Address], bytes],
    ) -> Call:
        """`words` are all of the committee draw, in the chain's order.

        Args:
            certified: a verdict, the committee's accounts by ascending place, its certificate.
                Without the accounts the contract reads them, which is dearer for it.
        """
        said = (bytes(words), list(words.values()))
        verdict, accounts, certificate = certified
        shown = (verdict, list(accounts), certificate)
        return self.build("settle", job, *said, shown, permissionless=True)

    def settle_late(self, job: JobId, words: Mapping[PlaceIndex, Bitmap]) -> Call:
        """From the job's expiry on, without a certificate."""
        said = (bytes(words), list(words.values()))
        return self.build("settleLate", job, *said, permissionless=True)

    def sign(self, job: JobId, facts: Facts, id: HolderId, certificate: bytes) -> Call:
        """One more signature of the last settled round: the certificate of a committee of one."""
        return self.build("sign", job, facts, id, certificate, permissionless=True)

    # Members

    def sit(self, job: JobId, seat: SeatIndex) -> Call:
        """Needs free stake for the bond."""
        return self.build("sit", job, seat, contract="Members")

    def leave_seat(self, job: JobId) -> Call:
        return self.build("leaveSeat", job)

    def disagree(self, job: JobId, seed: Digest, root: Digest) -> Call:
        """Leaves without a miss; `root` is the digest of the model that we computed instead."""
        return self.build("disagree", job, seed, root)

    def cut_seat(self, job: JobId, seat: SeatIndex) -> Call:
        return self.build("cutSeat", job, seat, permissionless=True)

    def enrol(self, job: JobId, place: PlaceIndex, bond: int) -> Call:
        """Needs free stake for the bond, in wei."""
        return self.build("enrol", job, place, bond)

    def ready(self, job: JobId) -> Call:
        """ "I hold manifest, data and model." """
        return self.build("ready", job, contract="Members")

    def leave_pool(self, job: JobId) -> Call:
        return self.build("leavePool", job)

    def cut_member(self, job: JobId, round_: RoundIndex, id: HolderId) -> Call:
        return self.build("cutMember", job, round_, id, permissionless=True)

    def release(self, job: JobId, role: Role, id: HolderId) -> Call:
        return self.build("release", job, role, id, permissionless=True)

    def announce_gateway(self, url: str) -> Call:
        return self.build("announceGateway", url)

    # Audits

    def seal_audit_report(self, job: JobId, round_: RoundIndex, audit_report: Digest) -> Call:
        return self.build("sealAuditReport", job, round_, audit_report)

    def open_audit_report(self, past: SettledRound, id: HolderId, body: Body, salt: Digest) -> Call:
        """Opens the member's audit report about a settled round."""
        said = (past.facts, body.to_bytes(), salt)
        return self.build("open", past.slot.job, past.round, id, *said, contract="Audits")

    def show_key(self, job: JobId, round_: RoundIndex, key: Digest, stake: int = 0) -> Call:
        """Warning: before the end of AUDIT anyone can take half of the pay with it.

        Args:
            stake: the bond, which falls without the key; wei.
        """
        return replace(self.build("key", job, round_, key, contract="Audits"), stake=stake)

    def leak(self, past: SettledRound, seat: SeatIndex, key: Digest) -> Call:
        """Shows a key that somebody told, for half of the seat's pay."""
        return self.build("leak", shown(past, seat), key, permissionless=True)

    def contest(self, past: SettledRound, seat: SeatIndex, id: HolderId) -> Call:
        """An opened *fine* is not what the seat's key gives. Needs the key and the opened body."""
        said = (past.bodies[id].to_bytes(), past.known_key(seat))
        return self.build("contest", shown(past, seat), id, *said, permissionless=True)

    def settle_contest(self, past: SettledRound, seat: SeatIndex, id: HolderId) -> Call:
        where = (past.slot.job, past.round, id, past.seats[seat])
        return self.build("settleContest", *where, permissionless=True)

    def report_missing_key(self, past: SettledRound, seat: SeatIndex) -> Call:
        return self.build("reportMissingKey", shown(past, seat), permissionless=True)

    def no_key(self, past: SettledRound, seat: SeatIndex) -> Call:
        return self.build("noKey", shown(past, seat), permissionless=True)

    def absent(self, past: SettledRound, id: HolderId, seat: SeatIndex) -> Call:
        """The auditor said nothing about a drawn seat of its own."""
        where = (past.slot.job, past.round, id, seat, past.facts)
        return self.build("absent", *where, _opened(past, id), permissionless=True)

    def dropped(self, past: SettledRound, id: HolderId, seat: SeatIndex) -> Call:
        """An opened *differs* was not challenged by its author."""
        where = (past.slot.job, past.round, id, seat, past.seats[seat])
        return self.build("dropped", *where, _opened(past, id), permissionless=True)

    def proven(self, past: SettledRound, id: HolderId, seat: SeatIndex) -> Call:
        """An opened *differs* is about a seat that has fallen: its fee."""
        where = (past.slot.job, past.round, id, past.seats[seat])
        return self.build("proven", *where, _opened(past, id), permissionless=True)

    # Words

    def late_vote(self, job: JobId, round_: RoundIndex, id: HolderId, has: Bitmap) -> Call:
        """ "I have these updates now", for their pay."""
        return self.build("lateVote", job, round_, id, has)

    def grant(self, past: SettledRound, seat: SeatIndex, following: SettledRound | None) -> Call:
        """More than half of this round's and the next one's committee have the seat's update.

        Args:
            following: the next round, where that is settled.
        """
        facts = (past.facts, _NO_FACTS if following is None else following.facts)
        said = (bytes(past.words), list(past.words.values()))
        having = (*facts, past.committee_seed, *said, list(past.late))
        return self.build("grant", past.slot.job, past.round, seat, having, permissionless=True)

    def equivocated(
        self,
        past: SettledRound,
        id: HolderId,
        shown: Sequence[tuple[Verdict, Sequence[Address], bytes]],
    ) -> Call:
        """A member signed two verdicts about one round's words.

        Args:
            shown: twice a verdict, accounts, and a certificate by those of them that it names.
        """
        where = (past.slot.job, past.round, id, past.facts.seed, past.facts.words)
        both = [(verdict, list(accounts), one) for verdict, accounts, one in shown]
        return self.build("equivocated", *where, both, permissionless=True)

    # Keys of certificates

    def register(self, key: bytes, proof: bytes) -> Call:
        """Makes a BLS12-381 key the sender's for ever; `proof` is the key's signature of that."""
        return self.build("register", key, proof)

    def keep(self, accounts: Sequence[Address]) -> Call:
        """Has the sum of these accounts' keys kept, which makes their certificates cheaper."""
        return self.build("keep", list(accounts), permissionless=True)

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
        return self.build("refund", job, permissionless=True)

    def claim(self, job: JobId, role: Role, id: HolderId, to: RoundIndex) -> Call:
        """Pays a holder for its rounds up to, not including, `to`, which must be FINAL."""
        return self.build("claim", job, role, id, to, contract="Jobs", permissionless=True)

    def claim_many(self, dues: Sequence[Due]) -> Call:
        """The same for several holders, of one job or of many, in one transaction."""
        return self.build("claimMany", dues, contract="Jobs", permissionless=True)

    def claim_credit(self, job: JobId, account: Address) -> Call:
        return self.build("claimCredit", job, account, permissionless=True)

    def collect(self, account: Address) -> Call:
        """Sends an account's payee what could not be sent when it was claimed."""
        return self.build("collect", account, permissionless=True)

    def burn(self, job: JobId, to: RoundIndex) -> Call:
        """Burns what was revealed and is not paid, of the rounds up to, not including, `to`."""
        return self.build("burn", job, to, contract="Jobs", permissionless=True)

    # Games

    def challenge_claim(self, evidence: bytes, bond: int) -> Call:
        """Begins a game about what the evidence shows. Needs an allowance for the game contract."""
        return self.build("challenge", evidence, bond, contract="Game")

    def play(self, game: int, claim: Claim, move: Move, stake: int = 0) -> Call:
        """A move of a game about that claim.

        Args:
            stake: the bond of who moves, which a clock that runs out costs; wei.
        """
        data, label = calldata(game, claim, move), f"Game.{type(move).__name__}"
        return Call(self._addresses["Game"], data, label, stake=stake)

    def time_out(self, game: int) -> Call:
        """Ends a game in which who is to move has no time left."""
        return self.build("timeout", game, contract="Game", permissionless=True)

    def conclude(self, game: int) -> Call:
        """Has a game that is decided pay."""
        return self.build("conclude", game, contract="Game", permissionless=True)

    def crowded_out(self, evidence: bytes) -> Call:
        """Says that one would challenge that, and that there is no room in the queue."""
        return self.build("crowdedOut", evidence, contract="Game")

    def end_fallen(self, set: Digest) -> Call:
        """Sends everybody home who plays about a bond that is gone already."""
        return self.build("endFallen", set, contract="Game", permissionless=True)

    def collect_bond(self, account: Address) -> Call:
        """Sends an account what games owe it."""
        return self.build("withdraw", account, contract="Game", permissionless=True)

    # Stakes

    def deposit(self, role: Role, amount: int) -> Call:
        """Needs an allowance of `amount` wei for the stakes contract."""
        return self.build("deposit", role, amount)

    def deposit_for(self, account: Address, role: Role, amount: int) -> Call:
        """The same by the account's owner, of its own tokens."""
        return self.build("depositFor", account, role, amount)

    def unbond(self, account: Address, role: Role, amount: int) -> Call:
        """Only its owner, which of most accounts is the account itself."""
        return self.build("unbond", account, role, amount)

    def withdraw(self, account: Address, role: Role, unbond_id: int) -> Call:
        """Only its owner, to whom it goes."""
        return self.build("withdraw", account, role, unbond_id, contract="Stakes")

    # Owners

    def propose_owner(self, account: Address, owner: Address) -> Call:
        """Only its owner: who shall be the next one; nothing changes before that one accepts."""
        return self.build("proposeOwner", account, owner)

    def accept_owner(self, account: Address) -> Call:
        return self.build("acceptOwner", account)

    def set_payee(self, account: Address, payee: Address) -> Call:
        """Only its owner: where its pay goes. Warning: nobody accepts it."""
        return self.build("setPayee", account, payee)

    # The network's owner

    def set_paused(self, paused: bool) -> Call:
        """Only the network's owner, as all of these but the two that apply."""
        return self.build("setPaused", paused)

    def propose_params(self, params: Params) -> Call:
        return self.build("proposeParams", params)

    def propose_policy(self, policy: Address) -> Call:
        """A policy of certificates that jobs may name; once applied it is allowed for ever."""
        return self.build("proposePolicy", policy)

    def drop_proposals(self) -> Call:
        return self.build("dropProposals")

    def apply_params(self) -> Call:
        return self.build("applyParams", permissionless=True)

    def apply_policy(self) -> Call:
        return self.build("applyPolicy", permissionless=True)

    def transfer_ownership(self, owner: Address) -> Call:
        """Nothing changes before that one accepts; the zero address takes a proposal back."""
        return self.build("transferOwnership", owner, contract="Config")

    def accept_ownership(self) -> Call:
        return self.build("acceptOwnership", contract="Config")

    # The token

    def approve(self, spender: Address, amount: int) -> Call:
        return self.build("approve", spender, amount, contract="AtollToken")

    def transfer(self, to: Address, amount: int) -> Call:
        return self.build("transfer", to, amount, contract="AtollToken")


def _opened(past: SettledRound, id: HolderId) -> bytes:
    """What an auditor opened; empty for nothing."""
    body = past.bodies.get(id)
    return b"" if body is None else body.to_bytes()
