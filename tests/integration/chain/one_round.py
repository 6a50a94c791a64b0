"""One provider and one verifier who take a job of one round from its creation to its last payment.

They send what the machines would send, and train nothing: the model is the manifest's initial one.
"""

from __future__ import annotations

from dataclasses import dataclass

from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.keys import sign_typed
from atoll.numerics.init import initial_global_state
from atoll.protocol import hashing
from atoll.protocol.audit_reports import AuditEntry, AuditReport, audit_report_hash
from atoll.protocol.call_structs import Certified
from atoll.protocol.certificates import certificate_bytes
from atoll.protocol.checkpoint_commitments import CheckpointCommitments, key_hash
from atoll.protocol.manifest import Manifest
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.typed_data import enrolment
from atoll.protocol.types import (
    ZERO_DIGEST,
    Address,
    Bitmap,
    Digest,
    JobId,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Verdict,
)
from atoll.protocol.views import JobView
from atoll.storage.local import LocalStore

SEAT, SLOT = SeatIndex(0), SlotIndex(0)
ROUND = RoundIndex(0)
ALL = Bitmap(1)
KEY, SALT = Digest(b"\x05" * 32), Digest(b"\x07" * 32)
LOSS = bytes.fromhex("4016000000000000")
"""5.5 nats a target."""


@dataclass
class OneRound:
    """The members of the job; both accounts are unlocked in the node."""

    anvil: Anvil
    chain: AtollChain
    job: JobId
    accounts: tuple[LocalAccount, LocalAccount]

    @property
    def provider(self) -> Address:
        return Address(self.accounts[0].address)

    @property
    def verifier(self) -> Address:
        return Address(self.accounts[1].address)

    async def join(self, funder: Address) -> None:
        """Tokens, stakes, seat and slot, readiness."""
        calls, terms = self.chain.calls, await self.chain.terms(self.job)
        stakes = self.chain.deployment.addresses["Stakes"]
        for account, role, bond in (
            (self.provider, Role.PROVIDER, terms.provider_bond),
            (self.verifier, Role.VERIFIER, terms.verifier_bond),
        ):
            self.send(funder, calls.transfer(account, bond))
            self.send(account, calls.approve(stakes, bond))
            self.send(account, calls.deposit(role, bond))
        self.send(self.provider, calls.join(self.job, SEAT))
        members = self.chain.deployment.addresses["Members"]
        where = (self.chain.deployment.chain_id, members, self.job, SLOT)
        message = enrolment(*where, bond=terms.verifier_bond, account=self.verifier)
        shown = sign_typed(self.accounts[1], message)
        self.send(self.verifier, calls.enrol(self.job, SLOT, terms.verifier_bond, shown))
        self.send(self.verifier, calls.ready(self.job))

    async def work(self, manifest: Manifest, has: Bitmap = ALL) -> None:
        """From the first advance to the word that says which updates are there."""
        calls = self.chain.calls
        self.anvil.mine()  # the first committee is drawn from who was ready a block earlier
        self.send(self.provider, calls.advance(self.job))
        state = await self.chain.state(self.job)
        assert state.phase is Phase.TRAIN
        reveal = Reveal(
            update_root=hashing.sha256(b"update"),
            key_hash=key_hash(KEY),
            salt=SALT,
            checkpoint_commitments=CheckpointCommitments.of(
                *_checkpoint_commitments(manifest), KEY
            ).to_bytes(),
            update_cid=manifest.cid(),
        )
        round_id = JobView.of(self.chain.deployment.domain, self.job).round_id(ROUND)
        commitment = hashing.commitment(
            round_id, state.seed, SEAT, self.provider, reveal=reveal, model=ZERO_DIGEST
        )
        self.send(self.provider, calls.commit(self.job, SEAT, state.seed, commitment))
        self.send(self.provider, calls.reveal(self.job, SEAT, state.seed, reveal))
        self.send(self.verifier, calls.vote(self.job, SLOT, state.seed, has))
        self.anvil.mine()

    def settle(self, view: JobView, model: tuple[Digest, bytes]) -> None:
        """Certifies a model and settles the round, which is the job's last."""
        running = view.open
        assert running is not None and running.is_merge_over
        merged = running.available.bit_count()
        verdict = Verdict(Bitmap(0), merged, *model, LOSS)
        about = (running.round_id, running.seed, running.votes_accumulator, verdict)
        signature = sign_typed(self.accounts[1], hashing.certificate_message(*about))
        certificate = certificate_bytes([self.verifier], {self.verifier: signature})
        calls = self.chain.calls
        certified = Certified(verdict, (self.verifier,), certificate)
        self.send(self.provider, calls.settle_words(self.job, running.votes, certified))
        self.anvil.mine()

    def audit(self, settled_round: SettledRound, manifest: Manifest) -> None:
        """Audit report, opening, key, each in its window; the clock is then where pay is final."""
        self.examine(settled_round, manifest)
        self.wait_until(settled_round.clock.window_end)

    def examine(self, settled_round: SettledRound, manifest: Manifest) -> None:
        """Audit report, opening and key, each in its window; the round can be challenged then."""
        calls, id = self.chain.calls, settled_round.slots[SLOT]
        duty = AuditEntry.valid(SEAT, self.verifier, _checkpoint_commitments(manifest)[1])
        body = AuditReport((duty,))
        seed = settled_round.record.audit_seed
        sealed = audit_report_hash(
            settled_round.round_id, seed, id, self.verifier, body=body.hash, salt=SALT
        )
        self.send(self.verifier, calls.seal_audit_report(self.job, ROUND, sealed))
        self.wait_until(settled_round.clock.audit_end)
        self.send(self.verifier, calls.about(settled_round).open_audit_report(id, body, SALT))
        self.wait_until(settled_round.clock.open_end)
        self.send(self.provider, calls.show_key(self.job, ROUND, KEY))

    def wait_until(self, second: int) -> None:
        """A block at or after that unix second."""
        newest = self.anvil.ask("eth_getBlockByNumber", "latest", False)
        missing = second - int(newest["timestamp"], 16)
        if missing > 0:
            self.anvil.ask("evm_increaseTime", missing)
        self.anvil.mine(2)

    def send(self, sender: Address, call: Call) -> None:
        """One transaction of an unlocked account; raises if it is refused or reverts."""
        order = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}", "gas": "0x7a1200"}
        sent = self.anvil.ask("eth_sendTransaction", order)
        while (receipt := self.anvil.ask("eth_getTransactionReceipt", sent)) is None:
            continue
        if receipt["status"] != "0x1":
            raise RuntimeError(f"{call.label} reverted")


def _checkpoint_commitments(manifest: Manifest) -> tuple[list[Digest], list[Digest]]:
    """States and plain work tags of a whole round, made up."""
    numbers = range(manifest.segments)
    return [hashing.sha256(b"s%d" % j) for j in numbers], [
        hashing.sha256(b"w%d" % j) for j in numbers
    ]


def initial_model(manifest: Manifest, store: LocalStore) -> tuple[Digest, bytes]:
    """Digest and binary CID of the untrained model, which goes into the store."""
    state = initial_global_state(manifest)
    return state.digest(), store.add_bytes(state.to_bytes()).to_bytes()
