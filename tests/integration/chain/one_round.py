"""One provider and one verifier who take a job of one round from its creation to its last payment.

They send what the machines would send, and train nothing: the model is the manifest's initial one.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.settlement import build_verdict
from tests.integration.chain.local_anvil import Anvil

from atoll.bits.init import initial_global_state
from atoll.chain.calls import Call
from atoll.chain.contracts import AtollChain
from atoll.content.local import LocalStore
from atoll.law import hashing
from atoll.law.manifest import Manifest
from atoll.law.views import JobView
from atoll.law.words import (
    Address,
    Attempt,
    Digest,
    Finding,
    JobId,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    Verdict,
)

SEAT = SeatIndex(0)
SLOT = (RoundIndex(0), Attempt(0))


@dataclass
class OneRound:
    """The members of the job; both accounts are unlocked in the node."""

    anvil: Anvil
    chain: AtollChain
    job: JobId
    provider: Address
    verifier: Address

    async def join(self, funder: Address) -> None:
        """Tokens, stakes, places, readiness."""
        calls, terms = self.chain.calls, await self.chain.terms(self.job)
        stakes = self.chain.deployment.addresses["Stakes"]
        for account, role, bond in (
            (self.provider, Role.PROVIDER, terms.provider_bond),
            (self.verifier, Role.VERIFIER, terms.verifier_bond),
        ):
            self.send(funder, calls.transfer(account, bond))
            self.send(account, calls.approve(stakes, bond))
            self.send(account, calls.deposit(role, bond))
        self.send(self.provider, calls.join_as_provider(self.job))
        self.send(self.verifier, calls.join_as_verifier(self.job))
        self.send(self.verifier, calls.attest_ready(self.job))

    async def work(self, manifest: Manifest) -> None:
        """From the first poke to the call for attestations."""
        calls, terms = self.chain.calls, manifest.terms
        await self.poke_until(Phase.TRAIN)
        reveal = Reveal(
            trace_root=hashing.sha256(b"trace"),
            update_root=hashing.sha256(b"update"),
            optimiser_root=hashing.sha256(b"optimiser"),
            steps=terms.steps,
            reset=True,
            salt=bytes(32),
            update_cid=manifest.cid(),
            trace_cid=manifest.cid(),
        )
        commitment = await self.chain.commitment_of(
            self.job, *SLOT, SEAT, sender=self.provider, reveal=reveal
        )
        self.send(self.provider, calls.commit(self.job, *SLOT, commitment))
        self.send(self.provider, calls.reveal(self.job, *SLOT, reveal))
        await self.poke_until(Phase.REPORT)
        finding = Finding(SEAT, (1 << manifest.segments) - 1)
        ballot = calls.ballot(
            self.job, *SLOT, findings=[finding], reports=[], replay_root=Digest(bytes(32))
        )
        self.send(self.verifier, ballot)
        self.anvil.mine()

    def settle(self, view: JobView, manifest: Manifest, merged: tuple[Digest, bytes]) -> Verdict:
        """Attests and settles the only verdict that the evidence allows."""
        calls, verdict = self.chain.calls, build_verdict(view, manifest, *merged)
        hash_ = hashing.verdict_hash(view.slot, verdict)
        self.send(self.verifier, calls.attest(self.job, *SLOT, hash_))
        self.send(self.provider, calls.settle(self.job, verdict))
        self.anvil.mine()
        return verdict

    def pass_time(self, seconds: int) -> None:
        self.anvil.ask("evm_increaseTime", seconds)
        self.anvil.mine(2)

    async def poke_until(self, phase: Phase) -> None:
        for _ in range(5):
            if (await self.chain.state(self.job)).phase is phase:
                return
            self.anvil.mine(3)
            self.send(self.provider, self.chain.calls.poke(self.job))
        raise RuntimeError(f"the job does not reach {phase.name}")

    def send(self, sender: Address, call: Call) -> None:
        """One transaction of an unlocked account; raises if it is refused or reverts."""
        order = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}", "gas": "0x7a1200"}
        sent = self.anvil.ask("eth_sendTransaction", order)
        while (receipt := self.anvil.ask("eth_getTransactionReceipt", sent)) is None:
            continue
        if receipt["status"] != "0x1":
            raise RuntimeError(f"{call.label} reverted")


def initial_model(manifest: Manifest, store: LocalStore) -> tuple[Digest, bytes]:
    """Digest and binary CID of the untrained model, which goes into the store."""
    state = initial_global_state(manifest)
    return state.digest(), store.add_bytes(state.to_bytes()).to_bytes()
