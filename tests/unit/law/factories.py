"""Valid things of the protocol to break one at a time, and a scripted job that emits events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from eth_utils.address import to_checksum_address
from tests.jobs import PLAIN

from atoll.law import events as ev
from atoll.law import hashing, trace
from atoll.law.canonical import dag_cbor_cid
from atoll.law.draws import batch_digest
from atoll.law.evidence import breaks_circuit, compute_evidence, compute_outcome
from atoll.law.manifest import DataSpec, Manifest, NumericsSpec
from atoll.law.rounds import JobView, apply
from atoll.law.settlement import build_verdict
from atoll.law.words import (
    ZERO_DIGEST,
    Address,
    Attempt,
    Bitmap,
    BlockRef,
    Digest,
    Domain,
    Fault,
    Finding,
    JobId,
    JobStatus,
    Phase,
    Report,
    Reveal,
    RoundIndex,
    SeatIndex,
    SegmentIndex,
    Slot,
    Terms,
    VerifierIndex,
    bits,
)


def digest(name: object) -> Digest:
    """32 bytes that nobody chose."""
    return Digest(hashlib.sha256(str(name).encode()).digest())


def address(name: object) -> Address:
    return Address(to_checksum_address(digest(name)[:20]))


def cid(name: object) -> bytes:
    return dag_cbor_cid(digest(name))


DOMAIN = Domain(31337, address("rounds"))
JOBS = address("jobs")
JOB = JobId(7)
SLOT = Slot(DOMAIN, JOB, RoundIndex(3), Attempt(1))
SEAT = SeatIndex(2)


def make_manifest(changes: Mapping[str, object] | None = None) -> Manifest:
    """The demo's manifest; `changes` are of its `JobSpec`, by key path."""
    data = DataSpec(
        root=digest("tokens"),
        cid=cid("data"),
        nodes_cid=cid("nodes"),
        dtype="uint8",
        masked=False,
        train_tokens=1_000_000,
        eval_cid=None,
        eval_tokens=0,
        eval_batches=0,
        tokenizer_cid=cid("tokenizer"),
    )
    numerics = NumericsSpec(
        mode="native",
        software_class="test",
        code_digest=digest("code"),
        probe_digest=digest("probe"),
        tolerance=None,
    )
    return PLAIN.but(changes or {}).resolve(data, None, numerics, now=0)


def make_reveal(name: object = 0, steps: int = 40, reset: bool = False) -> Reveal:
    return Reveal(
        trace_root=digest(f"trace {name}"),
        update_root=digest(f"update {name}"),
        optimiser_root=digest(f"optimiser {name}"),
        steps=steps,
        reset=reset,
        salt=digest(f"salt {name}"),
        update_cid=cid(f"update {name}"),
        trace_cid=cid(f"trace {name}"),
    )


def make_trace(
    manifest: Manifest,
    slot: Slot = SLOT,
    seat: SeatIndex = SEAT,
    steps: int | None = None,
    data_seed: Digest = ZERO_DIGEST,
) -> tuple[trace.TraceDocument, Reveal]:
    """A whole trace, diverged where `steps` is below H, with the reveal that speaks of it."""
    inner = manifest.inner
    steps = inner.steps if steps is None else steps
    count = trace.leaf_count(steps, inner.steps, inner.segment)
    roots = [trace.StateRoots(*(digest((i, part)) for part in range(4))) for i in range(count + 1)]
    leaves: list[trace.TraceLeaf] = []
    for i in range(count):
        diverged = steps < inner.steps and i == count - 1
        first = i * inner.segment
        last = steps if diverged else first + inner.segment - 1
        offsets = [manifest.batch_offsets(data_seed, seat, s) for s in range(first, last + 1)]
        leaves.append(
            trace.TraceLeaf(
                slot=slot,
                seat=seat,
                segment=SegmentIndex(i),
                first_step=first,
                last_step=last,
                kind=trace.LeafKind(diverged),
                state_digest=roots[i + 1].digest(),
                batch_digest=batch_digest(offsets),
                loss_bits=trace.DIVERGED_LOSS_BITS if diverged else 0x40490FDB,
                work_word=digest(f"work {i}"),
                previous=leaves[-1].hash if leaves else ZERO_DIGEST,
            )
        )
    states = tuple(cid(f"state {i}") for i in range(count + 1))
    document = trace.TraceDocument(slot, seat, tuple(leaves), states, tuple(roots))
    reveal = replace(
        make_reveal(),
        trace_root=document.trace_root,
        optimiser_root=roots[-1].optimiser_root,
        steps=steps,
    )
    return document, reveal


class ScriptedJob:
    """Emits the events that the contracts would, one action at a time, and folds them.

    It decides nothing itself: outcomes and evidence come from `atoll.law.evidence`, which the
    contracts' own tests hold to the Solidity code.
    """

    def __init__(self, manifest: Manifest, providers: int = 4, verifiers: int = 3) -> None:
        self.manifest = manifest
        self.terms: Terms = manifest.terms
        self.view = JobView.of(DOMAIN, JOBS, JOB)
        self.number, self.now = 100, 1_000_000
        self.log: list[tuple[ev.ContractEvent, BlockRef]] = []
        terms_hash = hashing.terms_hash(self.terms)
        self.emit(
            ev.JobCreated(
                JOB,
                address("submitter"),
                manifest.digest(),
                manifest.cid(),
                terms_hash,
                self.terms,
                address("policy"),
                10**30,
            )
        )
        for seat in range(providers):
            self.emit(ev.ProviderSeated(JOB, SeatIndex(seat), address(f"provider {seat}")))
        for v in map(VerifierIndex, range(verifiers)):
            account, weight = address(f"verifier {v}"), self.terms.verifier_bond
            self.emit(ev.VerifierJoined(JOB, v, account, weight))
            self.emit(ev.VerifierReady(JOB, v, account))

    # --- the chain ---

    @property
    def block(self) -> BlockRef:
        return BlockRef(self.number, digest(f"block {self.number}"), self.now)

    def mine(self, seconds: int = 1) -> None:
        self.number += 1
        self.now += seconds

    def emit(self, event: ev.ContractEvent) -> None:
        self.log.append((event, self.block))
        self.view = apply(self.view, event, self.block)

    @property
    def here(self) -> tuple[JobId, RoundIndex, Attempt]:
        return JOB, self.view.state.round, self.view.state.attempt

    # --- training ---

    def open(self, beacon_block: int | None = None) -> None:
        if self.view.state.status is JobStatus.OPEN:
            self.emit(ev.JobStatusChanged(JOB, JobStatus.ACTIVE, "Opened"))
        beacon = self.number + self.terms.beacon_delay if beacon_block is None else beacon_block
        seated = Bitmap(sum(1 << seat for seat in self.view.seats))
        verifiers = Bitmap(sum(1 << v for v in self.view.verifiers))
        weight = sum(member.weight for member in self.view.verifiers.values())
        self.emit(ev.RoundOpened(*self.here, seated, verifiers, weight, beacon))

    def train(self) -> None:
        self.mine()
        state = self.view.state
        members = (state.seated, state.verifiers, state.total_weight)
        seed = digest(f"data {self.number}")
        self.emit(ev.TrainStarted(*self.here, *members, seed, self.now + self.terms.train_seconds))

    def commit(self, seat: int, reveal: Reveal | None = None) -> None:
        account = self.view.work.seats[SeatIndex(seat)]
        reveal = reveal or make_reveal(self.reveal_name(seat))
        value = hashing.commitment(self.view.train_slot, SeatIndex(seat), account, reveal)
        self.emit(ev.Committed(*self.here, SeatIndex(seat), account, value))

    def reveal_name(self, seat: int) -> str:
        return f"{self.view.state.round} {self.view.state.train_attempt} {seat}"

    def start_reveal(self) -> None:
        committed = self.view.state.committed
        self.emit(ev.RevealStarted(*self.here, committed, self.now + self.terms.reveal_seconds))

    def reveal(self, seat: int, reveal: Reveal | None = None) -> None:
        account = self.view.work.seats[SeatIndex(seat)]
        reveal = reveal or make_reveal(self.reveal_name(seat))
        self.emit(ev.Revealed(*self.here, SeatIndex(seat), account, reveal))

    # --- audit ---

    def arm(self, audit_set: int | None = None) -> None:
        state = self.view.state
        seats = state.revealed if audit_set is None else Bitmap(audit_set)
        beacon = self.number + self.terms.beacon_delay
        self.emit(ev.AuditArmed(*self.here, state.revealed, seats, beacon))

    def draw(self) -> None:
        self.mine(3)
        state = self.view.state
        beacon = digest(f"block {state.beacon_block}")
        seed = hashing.audit_seed(
            self.view.slot, state.commit_accumulator, state.reveal_accumulator, beacon
        )
        auditors = min(state.verifiers.bit_count(), self.terms.auditors + state.attempt)
        half = self.now + self.terms.report_seconds // 2
        end = self.now + self.terms.report_seconds
        self.emit(ev.AuditStarted(*self.here, seed, auditors, state.audit_set, half, end))

    def until_audit(
        self, seats: Iterable[int] | None = None, reveals: Mapping[int, Reveal] | None = None
    ) -> None:
        """From an opened round to the start of its audit; `seats` are those that take part."""
        chosen = bits(self.view.state.seated) if seats is None else list(seats)
        if self.view.state.phase is Phase.SEEDING:
            self.train()
        for seat in chosen:
            self.commit(seat, (reveals or {}).get(seat))
        self.start_reveal()
        for seat in chosen:
            self.reveal(seat, (reveals or {}).get(seat))
        self.arm()
        self.draw()

    def ballot(self, verifier: int, seats: Iterable[int], segments: int = 0b1111) -> None:
        v = VerifierIndex(verifier)
        findings = tuple(Finding(SeatIndex(seat), segments) for seat in seats)
        account = self.view.work.verifiers[v].account
        self.emit(ev.Balloted(*self.here, v, account, findings, digest(f"replay {v}")))

    def report(
        self, verifier: int, seat: int, fault: Fault = Fault.WRONG_REPLAY, segment: int = 0
    ) -> int:
        index = len(self.view.reports)
        report = Report(SeatIndex(seat), SegmentIndex(segment), fault, digest("evidence"))
        self.emit(ev.Reported(*self.here, index, VerifierIndex(verifier), report, True))
        return index

    def challenge(self, verifier: int, seat: int, block: bytes, segment: int = 0) -> int:
        """Verifier and block; the first challenge of a block, which nobody has raised yet."""
        index = len(self.view.reports)
        missing = Digest(sha256(block).digest())
        report = Report(SeatIndex(seat), SegmentIndex(segment), Fault.WITHHELD, missing)
        self.emit(ev.Reported(*self.here, index, VerifierIndex(verifier), report, True))
        return index

    def withdraw(self, verifier: int, index: int) -> None:
        self.emit(ev.ChallengeWithdrawn(*self.here, index, VerifierIndex(verifier)))

    def answer(self, index: int, block: bytes) -> None:
        accused = self.view.reports[index].accused
        self.emit(ev.ChallengeAnswered(*self.here, index, accused, block))

    def second(self, verifier: int, index: int) -> None:
        self.emit(ev.ReportSeconded(*self.here, index, VerifierIndex(verifier)))

    def confirm(self) -> None:
        self.emit(ev.ConfirmStarted(*self.here, self.now + self.terms.confirm_seconds))

    def vote(self, verifier: int, agree: int = 0, disagree: int = 0, cannot: int = 0) -> None:
        v = VerifierIndex(verifier)
        account = self.view.work.verifiers[v].account
        maps = (Bitmap(agree), Bitmap(disagree), Bitmap(cannot))
        self.emit(ev.Voted(*self.here, v, account, *maps))

    def resolve(self) -> None:
        """What `_resolve` of the contract does, up to the next phase."""
        self.mine()
        for report in self.view.attempt_reports:
            outcome = compute_outcome(
                report, self.view.votes, self.view.state.verifiers, self.terms
            )
            self.emit(ev.ReportResolved(*self.here, report.index, outcome))
        state = self.view.state
        if breaks_circuit(state.revealed, state.caught):
            self.emit(ev.CircuitBroken(*self.here, state.rejected))
            self.emit(ev.JobStatusChanged(JOB, JobStatus.HALTED, "Halted"))
            return
        evidence = compute_evidence(self.view)
        is_last = state.attempt + 1 >= self.terms.attempts
        if evidence.unresolved and not is_last:
            self.emit(ev.RoundVoided(*self.here, "Unresolved"))
            self.arm(evidence.unresolved)
        elif not evidence.accepted:
            self.void("NoneAccepted")
        else:
            self.attest_started()

    def attest_started(self) -> None:
        evidence = compute_evidence(self.view)
        state = self.view.state
        root = hashing.evidence_root(
            self.view.slot, evidence, state.audit_seed, state.reveal_accumulator
        )
        maps = (evidence.accepted, evidence.rejected, evidence.unresolved, evidence.caught)
        deadline = self.now + self.terms.attest_seconds
        self.emit(
            ev.AttestStarted(*self.here, *maps, evidence.dutiful, root, self.number, deadline)
        )

    # --- verdicts ---

    def attest(self, verifiers: Iterable[int] | None = None) -> Digest:
        self.mine()
        verdict = build_verdict(self.view, self.manifest, digest("merged"), cid("merged"))
        value = hashing.verdict_hash(self.view.slot, verdict)
        chosen = bits(self.view.state.verifiers) if verifiers is None else verifiers
        for v in map(VerifierIndex, chosen):
            member = self.view.work.verifiers[v]
            self.emit(ev.Attested(*self.here, v, member.account, value, member.weight))
        return value

    def settle(self) -> None:
        self.mine()
        verdict = build_verdict(self.view, self.manifest, digest("merged"), cid("merged"))
        value = hashing.verdict_hash(self.view.slot, verdict)
        until = self.now + self.terms.dispute_seconds
        self.emit(ev.RoundSettled(*self.here, value, verdict, until))

    def honest_round(self, reveals: Mapping[int, Reveal] | None = None) -> None:
        """A round in which everyone does everything, from its opening to its settlement."""
        self.open()
        self.until_audit(reveals=reveals)
        for v in bits(self.view.state.verifiers):
            self.ballot(v, bits(self.view.state.audit_set))
        self.resolve()
        self.attest()
        self.settle()

    def finalise(self) -> None:
        self.mine(self.terms.dispute_seconds)
        round_ = RoundIndex(self.view.final_rounds)
        verdict = self.view.settled[round_].verdict
        self.emit(ev.RoundFinalised(JOB, round_, verdict.claims_root, verdict.cumulative_total))

    def void(self, reason: str) -> None:
        self.emit(ev.RoundVoided(*self.here, reason))

    def close(self, status: JobStatus, reason: str) -> None:
        self.emit(ev.JobStatusChanged(JOB, status, reason))

    def void_no_quorum(self) -> None:
        """Nobody settled in time: what was not rejected is audited again."""
        self.mine(self.terms.attest_seconds)
        self.void("NoQuorum")
        self.arm(self.view.state.revealed & ~self.view.state.rejected)
