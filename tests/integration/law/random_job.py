"""A job on a real chain whose members act at random, mirrored after every transaction.

Rule of this file: every choice comes from one seeded generator, so a failure repeats by its seed.
"""

from __future__ import annotations

import random
from dataclasses import astuple, dataclass, field, replace
from hashlib import sha256
from typing import Any

from eth_utils.address import to_checksum_address
from tests.integration.chain.local_anvil import Anvil
from tests.unit.law.factories import address, cid, digest, make_manifest

from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog, decode_log
from atoll.law import hashing
from atoll.law.merkle import claims_tree
from atoll.law.rounds import JobView, apply
from atoll.law.settlement import build_verdict
from atoll.law.words import (
    TOKEN,
    Address,
    BlockRef,
    Digest,
    Domain,
    Fault,
    Finding,
    JobId,
    JobStatus,
    Offence,
    Outcome,
    Phase,
    Report,
    Reveal,
    Role,
    SeatIndex,
    SegmentIndex,
    bits,
)

JOB = JobId(1)
PROVIDERS = [address(f"random provider {i}") for i in range(7)]
VERIFIERS = [address(f"random verifier {i}") for i in range(6)]
SUBMITTER = address("random submitter")
BLOCKS = [f"block {i}".encode() for i in range(4)]
MANIFEST = make_manifest(
    {
        "members.seats": 5,
        "members.max_verifiers": 5,
        "money.provider_bond": 2 * TOKEN,
        "money.verifier_bond": 2 * TOKEN,
        "windows.train": 500,
        "windows.reveal": 500,
        "windows.report": 500,
        "windows.confirm": 500,
        "windows.attest": 2000,
        "windows.dispute": 700,
        "rounds": 3,
    }
)


@dataclass
class RandomJob:
    """The job, its members, and the view that must equal the chain.

    Attributes:
        now: timestamp of the next block, unix seconds.
        outcomes: what reports came to.
        tick: numbers reveals, so that no two are alike.
        compared: the phase in which everything was compared last.
    """

    anvil: Anvil
    chain: AtollChain
    rng: random.Random
    owner: Address
    now: int = 0
    tick: int = 0
    outcomes: set[Outcome] = field(default_factory=set)
    compared: Phase = Phase.WAITING
    reveals: dict[int, Reveal] = field(default_factory=dict)
    view: JobView = field(init=False)

    def __post_init__(self) -> None:
        addresses = self.chain.deployment.addresses
        domain = Domain(self.chain.deployment.chain_id, addresses["Rounds"])
        self.view = JobView.of(domain, addresses["Jobs"], JOB)
        block = self.anvil.ask("eth_getBlockByNumber", "latest", False)
        self.now = int(block["timestamp"], 16) + 1
        self.anvil.ask("anvil_autoImpersonateAccount", True)
        self.anvil.automine(False)

    # --- the chain ---

    async def send(self, sender: Address, name: str, *args: Any, contract: str = "Rounds") -> bool:
        """One transaction in a block of its own; False if it reverted. Compares view and chain."""
        call = self.chain.calls.build(name, *args, contract=contract)
        self.now += self.rng.randint(1, 3)
        self.anvil.ask("evm_setNextBlockTimestamp", self.now)
        order = {"from": sender, "to": call.to, "data": "0x" + call.data.hex()}
        order |= {"gas": hex(12_000_000), "gasPrice": "0x0"}
        tx_hash = self.anvil.ask("eth_sendTransaction", order)
        self.anvil.ask("evm_mine")
        receipt = self.anvil.ask("eth_getTransactionReceipt", tx_hash)
        number, block_hash = int(receipt["blockNumber"], 16), unhex(receipt["blockHash"])
        block = BlockRef(number, Digest(block_hash), self.now)
        for log in receipt["logs"]:
            event = decode_log(raw_log(log))
            if event is not None:
                self.view = apply(self.view, event, block)
        self.outcomes.update(report.outcome for report in self.view.reports)
        if receipt["logs"] and self.view.terms is not None:
            await self.compare()
        return bool(receipt["status"] == "0x1")

    async def compare(self) -> None:
        """The round's state always, and after each change of phase all that can be asked."""
        assert astuple(self.view.round_state()) == astuple(await self.chain.state(JOB))
        if self.view.state.phase is not self.compared:
            self.compared = self.view.state.phase
            await self.compare_all()

    async def compare_all(self) -> None:
        """Final rounds, optimiser roots, members, waiting list and credits are the contracts'."""
        final = await self.chain.final_rounds(JOB)
        assert final.count == self.view.final_rounds
        assert final.cumulative_total == sum(self.view.final_claims.values())
        for seat in map(SeatIndex, range(MANIFEST.terms.seats)):
            expected = self.view.last_optimiser_root(seat)
            assert await self.chain.last_optimiser_root(JOB, seat) == expected
        (waiting,) = await self.chain.read("waitingList", JOB, contract="Roster")
        assert [Address(to_checksum_address(who)) for who in waiting] == list(self.view.waiting)
        seated, verifiers, ready = await self.chain.read("membersOf", JOB, contract="Roster")
        assert bits(seated) == sorted(self.view.seats)
        assert bits(verifiers) == sorted(self.view.verifiers)
        assert bits(ready) == sorted(v for v, m in self.view.verifiers.items() if m.ready)
        credits_ = await self.chain.read("creditable", JOB, contract="Rounds")
        due = self.view.due_credits
        assert [bits(bitmap) for bitmap in credits_] == [
            sorted(c.index for c in due if c.role is role) for role in Role
        ]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def mine(self, blocks: int) -> None:
        self.anvil.mine(blocks)
        block = self.anvil.ask("eth_getBlockByNumber", "latest", False)
        self.now = max(self.now, int(block["timestamp"], 16))

    def skip(self, seconds: int) -> None:
        self.now += max(seconds, 0)

    async def poke(self) -> None:
        """Pokes, and checks that the view knew whether there was anything to do."""
        number = int(self.anvil.ask("eth_blockNumber"), 16) + 1
        state = self.rng.getstate()
        later = self.now + self.rng.randint(1, 3)
        self.rng.setstate(state)
        due = self.view.is_poke_due(later, number)
        assert await self.send(PROVIDERS[0], "poke", JOB) == due

    # --- setting up ---

    async def set_up(self) -> None:
        everyone = [*PROVIDERS, *VERIFIERS, SUBMITTER]
        addresses = self.chain.deployment.addresses
        for account in (*everyone, self.owner):
            self.anvil.ask("anvil_setBalance", account, hex(TOKEN))
        for account in everyone:
            amount = 10**6 * TOKEN
            await self.send(self.owner, "transfer", account, amount, contract="AtollToken")
            spender = addresses["Jobs" if account == SUBMITTER else "Stakes"]
            await self.send(account, "approve", spender, amount, contract="AtollToken")
        for account in (*PROVIDERS, *VERIFIERS):
            role = Role.PROVIDER if account in PROVIDERS else Role.VERIFIER
            assert await self.send(account, "deposit", role, 1000 * TOKEN, contract="Stakes")
        policy = addresses["CountingPolicy"]
        spec = (MANIFEST.digest(), MANIFEST.cid(), MANIFEST.terms, policy, 10**5 * TOKEN)
        assert await self.send(SUBMITTER, "create", *spec, contract="Jobs")
        for account in PROVIDERS[: self.rng.randint(2, 7)]:
            await self.send(account, "joinAsProvider", JOB, contract="Roster")
        for account in VERIFIERS[: self.rng.randint(3, 5)]:
            await self.send(account, "joinAsVerifier", JOB, contract="Roster")
            await self.send(account, "attestReady", JOB, contract="Roster")

    # --- behaviour ---

    async def step(self) -> None:
        """One phase, with members coming and going."""
        if self.chance(0.3):
            await self.shuffle_members()
        if is_over(self.view):
            return
        if self.view.finalisable(self.now):
            await self.send(PROVIDERS[1], "finalise", JOB)
        handlers = {
            Phase.WAITING: self.wait,
            Phase.SEEDING: self.beacon,
            Phase.TRAIN: self.train,
            Phase.REVEAL: self.reveal,
            Phase.DRAW: self.beacon,
            Phase.REPORT: self.report,
            Phase.CONFIRM: self.confirm,
            Phase.ATTEST: self.attest,
            Phase.HALTED: self.halted,
        }
        await handlers[self.view.state.phase]()

    async def shuffle_members(self) -> None:
        account = self.rng.choice(PROVIDERS)
        verifier = self.rng.choice(VERIFIERS)
        url = f"http://{self.rng.randint(0, 9)}"
        for sender, name in (
            (account, "leaveAsProvider" if self.chance(0.3) else "joinAsProvider"),
            (verifier, "leaveAsVerifier" if self.chance(0.2) else "joinAsVerifier"),
            (verifier, "attestReady"),
        ):
            await self.send(sender, name, JOB, contract="Roster")
        await self.send(account, "announceGateway", url, contract="Roster")
        if self.chance(0.02):
            await self.send(SUBMITTER, "cancel", JOB, contract="Jobs")

    async def wait(self) -> None:
        await self.poke()
        if self.view.state.phase is Phase.WAITING:
            await self.shuffle_members()

    async def beacon(self) -> None:
        await self.poke()
        self.mine(300 if self.chance(0.1) else self.rng.randint(1, 4))
        await self.poke()

    async def end_phase(self) -> None:
        """Pokes too early, then at the deadline, if the phase still runs."""
        await self.poke()
        self.skip(self.view.state.deadline - self.now)
        await self.poke()

    async def train(self) -> None:
        state, likely = self.view.state, self.rng.choice([1.0, 0.9, 0.5, 0.05])
        self.reveals = {}
        for seat, account in self.view.work.seats.items():
            self.tick += 1
            self.reveals[seat] = self.make_reveal()
            if self.chance(likely):
                value = hashing.commitment(self.view.train_slot, seat, account, self.reveals[seat])
                await self.send(account, "commit", JOB, state.round, state.attempt, value)
        if self.view.state.phase is Phase.TRAIN:
            await self.end_phase()

    def make_reveal(self) -> Reveal:
        steps = MANIFEST.terms.steps if self.chance(0.95) else self.rng.randint(0, 39)
        name = f"reveal {self.tick}"
        return Reveal(
            trace_root=digest(name + "t"),
            update_root=digest(name + "u"),
            optimiser_root=digest(name + "o"),
            steps=steps,
            reset=self.chance(0.1),
            salt=digest(name + "s"),
            update_cid=cid(name + "u"),
            trace_cid=cid(name + "t"),
        )

    async def reveal(self) -> None:
        state, likely = self.view.state, self.rng.choice([1.0, 0.9, 0.9, 0.3])
        for seat, account in self.view.work.seats.items():
            if self.chance(likely):
                slot = (JOB, state.round, state.attempt)
                await self.send(account, "reveal", *slot, self.reveals[seat])
        if self.view.state.phase is Phase.REVEAL:
            await self.end_phase()

    def some_findings(self, audit_set: int, likely: float) -> tuple[Finding, ...]:
        chosen = [SeatIndex(seat) for seat in bits(audit_set) if self.chance(likely)]
        return tuple(Finding(seat, self.rng.randint(1, 255)) for seat in chosen)

    def some_reports(self, audit_set: int, likely: float) -> tuple[Report, ...]:
        found = []
        for seat in map(SeatIndex, bits(audit_set)):
            if self.chance(likely):
                fault = self.rng.choice([Fault.WRONG_REPLAY, Fault.WRONG_REPLAY, Fault.WRONG_LINK,
                                         Fault.MALFORMED, Fault.OUT_OF_TOLERANCE])  # fmt: skip
                segment = SegmentIndex(self.rng.randint(0, 1))
                found.append(Report(seat, segment, fault, digest(self.tick)))
        return tuple(found)

    async def challenge(self, account: Address) -> None:
        """Some block is challenged; challenges are answered, taken back, or left to the vote."""
        state = self.view.state
        slot, number = (JOB, state.round, state.attempt), self.rng.randint(0, 3)
        seat, segment = self.rng.choice(bits(state.audit_set)), self.rng.randint(0, 1)
        missing = sha256(BLOCKS[number]).digest()
        await self.send(account, "challenge", *slot, seat, segment, missing)
        for record in self.view.attempt_reports:
            if not record.awaits_answer or self.view.state.phase is not Phase.REPORT:
                continue
            if self.chance(0.2):
                assert not await self.send(account, "answerChallenge", *slot, record.index, b"")
                block = next(b for b in BLOCKS if sha256(b).digest() == record.report.evidence)
                assert await self.send(account, "answerChallenge", *slot, record.index, block)
            elif self.chance(0.3):
                takes = self.rng.choice(list(self.view.snapshot.values())).account
                await self.send(takes, "withdrawChallenge", *slot, record.index)

    async def report(self) -> None:
        state = self.view.state
        challenging = self.rng.choice([0.0, 0.0, 0.4, 0.8])
        honest, accusing = self.rng.choice([1.0, 1.0, 1.0, 0.7]), self.rng.choice([0.0, 0.1, 0.8])
        for _ in range(2):
            for account in [member.account for member in self.view.snapshot.values()]:
                if self.chance(challenging):
                    await self.challenge(account)
                if self.view.state.phase is not Phase.REPORT:
                    return
                if self.chance(honest):
                    findings = self.some_findings(state.audit_set, honest)
                    reports = self.some_reports(state.audit_set, accusing)
                    slot = (JOB, state.round, state.attempt)
                    await self.send(account, "ballot", *slot, findings, reports, digest("r"))
            self.skip(self.view.half_time - self.now)
        if self.view.state.phase is Phase.REPORT:
            await self.end_phase()

    async def confirm(self) -> None:
        state, attempt_reports = self.view.state, self.view.attempt_reports
        leaning = self.rng.choice(
            [(8, 1, 1), (1, 8, 1), (1, 1, 8), (3, 3, 3), (9, 0, 0), (9, 0, 0)]
        )
        silent = self.rng.choice([0.0, 0.1, 0.6])
        for v, member in list(self.view.snapshot.items()):
            if self.view.state.phase is not Phase.CONFIRM:
                return
            if self.chance(silent):
                continue
            maps = [0, 0, 0]
            for report in attempt_reports:
                if not report.reporters >> v & 1:
                    maps[self.rng.choices(range(3), leaning)[0]] |= 1 << report.index
            await self.send(member.account, "vote", JOB, state.round, state.attempt, *maps)
        if self.view.state.phase is Phase.CONFIRM:
            await self.end_phase()

    async def attest(self) -> None:
        state = self.view.state
        if self.chance(0.1):
            self.mine(300)
        verdict = build_verdict(self.view, MANIFEST, digest(state.round), cid(state.round))
        value = hashing.verdict_hash(self.view.slot, verdict)
        slot = (JOB, state.round, state.attempt)
        onchain = await self.chain.verdict_hash(*slot, verdict)
        assert onchain == value
        likely = self.rng.choice([1.0, 1.0, 0.9, 0.3])
        for member in self.view.snapshot.values():
            if self.chance(likely):
                await self.send(member.account, "attest", *slot, value, b"")
        if self.chance(0.85):
            wrong = replace(verdict, tokens_total=verdict.tokens_total + 1)
            assert not await self.send(PROVIDERS[2], "settle", JOB, wrong)
            await self.send(PROVIDERS[2], "settle", JOB, verdict)
        if self.view.state.phase is Phase.ATTEST:
            await self.end_phase()
        if self.view.state.phase is Phase.ATTEST and self.view.slot.attempt == state.attempt:
            self.skip(MANIFEST.terms.attest_seconds)
            await self.poke()

    async def halted(self) -> None:
        if self.chance(0.6):
            assert await self.send(self.owner, "reaudit", JOB)
        else:
            self.skip(MANIFEST.terms.expiry - self.now)
            await self.poke()

    # --- the end ---

    async def wind_up(self) -> None:
        """What is due can be done once, what is not due cannot, and nobody is left unpaid."""
        self.skip(MANIFEST.terms.dispute_seconds)
        while self.view.finalisable(self.now):
            assert await self.send(PROVIDERS[0], "finalise", JOB)
        for fault in self.view.punishable(self.now):
            punishment = (JOB, fault.round, fault.offence, fault.index)
            assert await self.send(PROVIDERS[0], "punish", *punishment)
        assert self.view.due_faults == ()
        await self.compare_all()
        for offence in Offence:
            for index in range(6):
                again = (JOB, self.rng.randint(0, self.view.state.round), offence, index)
                assert not await self.send(PROVIDERS[0], "punish", *again)
        for credit in self.view.due_credits:
            due = (JOB, credit.round, credit.role, credit.index)
            assert await self.send(PROVIDERS[0], "credit", *due)
        assert self.view.due_credits == ()
        assert all(settled.is_consistent for settled in self.view.settled)
        await self.pay_out()

    async def pay_out(self) -> None:
        """Every claim and credit is paid, the rest refunded, and the escrow ends empty."""
        claims, credits_ = self.view.final_claims, self.view.credits
        tree = claims_tree(self.view.domain.chain_id, self.view.jobs, JOB, claims)
        for account in {*claims, *credits_}:
            due, cumulative = self.view.claimable(account), claims.get(account, 0)
            before = await self.chain.token_balance(account)
            proof = tree.proof(account) if account in claims else []
            assert await self.send(
                account, "claim", JOB, account, cumulative, proof, contract="Jobs"
            )
            assert self.view.claimable(account) == 0
            assert await self.chain.token_balance(account) == before + due
        assert await self.send(SUBMITTER, "refund", JOB, contract="Jobs")
        escrow = await self.chain.escrow(JOB)
        assert escrow.refunded == self.view.refunded
        assert escrow.balance == escrow.funded - escrow.claimed - escrow.refunded
        assert escrow.balance == 0


def raw_log(log: dict[str, Any]) -> RawLog:
    return RawLog(
        address=Address(to_checksum_address(log["address"])),
        topics=tuple(unhex(topic) for topic in log["topics"]),
        data=unhex(log["data"]),
        block_number=int(log["blockNumber"], 16),
        block_hash=unhex(log["blockHash"]),
        index=int(log["logIndex"], 16),
    )


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def is_over(view: JobView) -> bool:
    closed = {JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.DONE}
    return view.state.status in closed or view.state.phase is Phase.CLOSED
