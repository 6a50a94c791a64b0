"""Strangers on a node: calls at random, several in a block, and the view that the logs give.

Rule of this file: no call is checked before it is sent, and nothing is asked of a second model of
the contracts. A call may be refused; what the contracts then answer is compared with the fold.
"""

from __future__ import annotations

from tests.integration.protocol.chains import Contract
from tests.integration.protocol.crowd_audits import CrowdAudits
from tests.integration.protocol.crowd_job import (
    FAR,
    FEW,
    MOVE,
    Sent,
)
from tests.integration.protocol.plays import move_of, works_of
from tests.support.contracts import reveal_of
from tests.support.identities import cid, digest
from tests.unit.protocol.models import MODEL

from atoll.protocol.events import Settled
from atoll.protocol.games.calls import calldata
from atoll.protocol.hashing import commitment, keccak256
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.rounds import apply, record_of
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    TOKEN,
    Address,
    Bitmap,
    BlockRef,
    HolderId,
    Phase,
    Reveal,
    Role,
    SeatIndex,
    SlotIndex,
    Verdict,
    bits,
)


class Crowd(CrowdAudits):
    """With calls of running rounds, of games and of money."""

    def some_block(self) -> None:
        """One to eight calls; what a round's end is made of comes in one block often."""
        calls: list[Sent] = []
        running = self.view.open
        if running is not None and running.phase is Phase.MERGE and self.rng.random() < 0.2:
            calls = self._end_of(running)
        if len(self.signers) > len(FEW):  # whose words are as many more
            steps = (self._step() for _ in range(self.rng.choice([0, 8, 24])))
            calls += [sent for sent in steps if sent is not None]
        for _ in range(self.rng.choice([1, 2, 3, 5, 8])):
            kinds = (*[self._step] * 4, *[self._audit] * 4, self._money, self._anything)
            sent = self.rng.choice(kinds)()
            if sent is not None:
                calls.append(sent)
        calls += self._moves()
        self.block(calls, self.rng.choice([0, 0, 1, 1, 2, 3, 5, 10, 15, 40]))

    # --- what moves a round on ---

    def _step(self) -> Sent | None:
        running, rounds = self.view.open, self.chain.rounds
        if running is None:
            return self._gather()
        if self.rng.random() < 0.08:
            return (self.someone(), rounds, "advance", (self.job,))
        step = {Phase.TRAIN: self._commit, Phase.REVEAL: self._reveal, Phase.MERGE: self._merge}
        return step[running.phase](running)

    def _gather(self) -> Sent:
        rng, members = self.rng, self.chain.members
        account = self.someone()
        bond = self.terms.verifier_bond * rng.choice([10, 11, 12, 13]) // 10
        signer, slot = rng.choice(self.signers), rng.randrange(self.terms.slots)
        shown = self.chain.enrolment(signer, self.job, slot, bond)
        return rng.choice(
            [
                (account, members, "join", (self.job, rng.randrange(self.terms.seats))),
                (signer, members, "enrol", (self.job, slot, bond, shown)),
                (signer, members, "ready", (self.job,)),
                (account, members, "penaliseSeat", (self.job, rng.randrange(self.terms.seats))),
                (account, self.chain.rounds, "advance", (self.job,)),
            ]
        )

    def _commit(self, running: OpenRound) -> Sent | None:
        left = list(bits(running.counting & ~running.committed))
        if not left:
            return None
        seat = SeatIndex(self.rng.choice(left))
        account = self.view.providers[running.seats[seat]].account
        name = f"{running.seed.hex()} {seat} {self.rng.random()}"
        reveal = self._made_up(name, self.rng.choice([8, 8, 8, 6, 5, 0]))
        made = commitment(
            running.round_id, running.seed, seat, account, reveal=reveal, model=running.model
        )
        self.committed[made] = reveal
        return (account, self.chain.rounds, "commit", (self.job, seat, running.seed, made))

    def _made_up(self, name: str, segments: int) -> Reveal:
        """A reveal whose words are of norms and losses, of a round that nobody trained."""
        works = [works_of(f"{name} {segment}") for segment in range(segments)]
        words = [keccak256(each) for each in works]
        self.works |= dict(zip(words, works, strict=True))
        reveal, key, _ = reveal_of(name, segments, words)
        self.keys[reveal.key_hash] = key, tuple(words)
        return reveal

    def _reveal(self, running: OpenRound) -> Sent | None:
        left = list(bits(running.committed & ~running.revealed))
        if not left:
            return None
        seat = SeatIndex(self.rng.choice(left))
        commit = running.commits[seat]
        what = (self.job, seat, running.seed, self.committed[commit.commitment])
        return (commit.account, self.chain.rounds, "reveal", what)

    def _merge(self, running: OpenRound) -> Sent:
        rng, rounds = self.rng, self.chain.rounds
        dice, words = rng.random(), (bytes(running.votes), list(running.votes.values()))
        if dice < 0.1:
            return (self.someone(), rounds, "seedAudit", (self.job,))
        if dice < 0.15:
            return (self.someone(), rounds, "settleLate", (self.job, *words))
        left = [p for p in map(SlotIndex, bits(running.committee)) if p not in running.votes]
        if left and dice < 0.8:
            slot = rng.choice(left)
            account = self.view.verifiers[running.slots[slot]].account
            has = rng.choice([running.revealed] * 4 + [rng.getrandbits(4), 2**256 - 1])
            return (account, rounds, "vote", (self.job, slot, running.seed, has))
        return self._settle(running)

    def _settle(self, running: OpenRound) -> Sent:
        available = list(bits(running.available))
        out = Bitmap(
            sum(1 << s for s in available[: min(self.terms.f, self.rng.choice([0, 0, 1]))])
        )
        count = self.rng.choice([0, *[len(available) - out.bit_count()] * 4])
        state = MODEL.digest(running.round + 1)
        verdict = Verdict(out, count, state, cid(state.hex()), bytes(8))
        accounts = committee_accounts(self.view, running)
        signers = [account for account in accounts if self.rng.random() < 0.9]
        message = running.digest_of(verdict)
        shown = (verdict, accounts, self._certificate(accounts, signers, message))
        self._expect(running, verdict, signers)
        words = (bytes(running.votes), list(running.votes.values()))
        return (self.someone(), self.chain.rounds, "settle", (self.job, *words, shown))

    def _end_of(self, running: OpenRound) -> list[Sent]:
        """A settlement with what its seats and auditors say before and behind it."""
        accounts = [self.view.verifiers[id].account for id in running.slots.values()]
        early = (self.job, running.round, digest("early"))
        calls: list[Sent] = [
            (self.rng.choice(accounts), self.chain.audits, "sealAuditReport", early)
        ]
        calls.append(self._settle(running))
        settled_round = self.view.settled_round(running.round)
        if settled_round is not None:
            behind = [
                self._leak(settled_round),
                *(self._key(settled_round) for _ in settled_round.seats),
                self._audit_report(settled_round),
            ]
            calls += [sent for sent in behind if sent is not None]
        return calls

    def _expect(self, running: OpenRound, verdict: Verdict, signers: list[Address]) -> None:
        """What follows in the same block may speak of the round as settled."""
        certificate = running.digest_of(verdict)
        record = record_of(self.view, running, verdict.excluded, certificate)
        if not any(record.audit_seed):
            return
        slots = map(SlotIndex, bits(running.committee))
        signed = [p for p in slots if self.view.verifiers[running.slots[p]].account in signers]
        event = Settled(
            self.job,
            running.round,
            certificate,
            verdict,
            record.available,
            Bitmap(sum(1 << p for p in signed)),
            record,
        )
        self.view = apply(self.view, event, BlockRef(0, running.seed, self.chain.now))

    def _moves(self) -> list[Sent]:
        """What those who play owe, by whoever it is, or now and then by another."""
        calls: list[Sent] = []
        for record in self.view.games.values():
            if not (record.is_open and record.clock) or self.rng.random() < 0.3:
                continue
            found = move_of(record, self.works)
            if found is None:
                continue
            by_holder, move = found
            who = record.claim.holder if by_holder else record.challenger
            if self.rng.random() < 0.1:
                who = self.someone()
            data = calldata(record.id, record.claim, move)
            calls.append((who, self.chain.game, MOVE, (data,)))
        return calls

    # --- money ---

    def _money(self) -> Sent:
        rng, chain, job = self.rng, self.chain, self.job
        role = rng.choice(list(Role))
        id, to = self.some_id(role), rng.randrange(len(self.view.settled) + 2)
        dues = [(job, r, self.some_id(r), rng.randrange(to + 1)) for r in Role]
        amount = rng.choice([0, 1, TOKEN])
        kinds: list[tuple[Contract, str, tuple[object, ...]]] = [
            (chain.jobs, "claim", (job, role, id, to)),
            (chain.jobs, "claimMany", (dues,)),
            (chain.jobs, "claimCredit", (job, self.someone())),
            (chain.jobs, "collect", (self.someone(),)),
            (chain.jobs, "burn", (job, to)),
            (chain.jobs, "refund", (job,)),
            (chain.jobs, "fund", (job, 0)),
            (chain.jobs, "sink", ()),
            (chain.members, "release", (job, role, id)),
            (chain.members, "release", (job, role, id)),
            (chain.stakes, "burn", ()),
            (chain.stakes, "deposit", (role, amount)),
        ]
        return (self.someone(), *rng.choice(kinds))

    def _anything(self) -> Sent:
        rng, chain, job = self.rng, self.chain, self.job
        account, running = self.someone(), self.view.open
        seed = digest("none") if running is None else running.seed
        seat, id = rng.randrange(self.terms.seats), self.some_id(Role.VERIFIER)
        kinds: list[tuple[Contract, str, tuple[object, ...]]] = [
            (chain.members, "join", (job, seat)),
            (chain.members, "leaveSeat", (job,)),
            (chain.members, "disagree", (job, seed, digest("another"))),
            (chain.members, "penaliseSeat", (job, rng.choice([seat, 255, 65535]))),
            (chain.members, "ready", (job,)),
            (chain.members, "leavePool", (job,)),
            (chain.members, "penaliseMember", (job, self.some_round(), id)),
            (chain.members, "announceGateway", (f"http://{rng.random()}",)),
            (chain.jobs, "proposeOwner", (self.someone(), self.someone())),
            (chain.jobs, "acceptOwner", (self.someone(),)),
            (chain.jobs, "setPayee", (self.someone(), self.someone())),
            (chain.audits, "sealAuditReport", (job, rng.choice([self.some_round(), FAR]), seed)),
            (chain.audits, "key", (job, rng.choice([self.some_round(), FAR]), seed)),
        ]
        if self.has_bls and running is not None and rng.random() < 0.2:
            return (account, chain.policy, "keep", (committee_accounts(self.view, running),))
        if rng.random() < 0.005:
            return (self.net.view.submitter, chain.jobs, "cancel", (job,))
        if rng.random() < 0.15:
            return self._gather()
        return (account, *rng.choice(kinds))


class Asked:
    """As `anybody.differences` wants it: what runs and what is settled, from the view alone."""

    def __init__(self, crowd: Crowd) -> None:
        self.chain, self.job, self.terms = crowd.chain, crowd.job, crowd.terms
        self.folded = crowd.view
        running = crowd.view.open
        self.votes = {} if running is None else dict(running.votes)
        self.settled = [Bodies(settled_round) for settled_round in crowd.view.settled]

    def wait(self, seconds: int) -> None:
        self.chain.now += seconds

    def duties(self, round: int, id: HolderId) -> set[int]:
        return set(self.folded.settled[round].duties_of(id))


class Bodies:
    """What was opened of a round, as bytes."""

    def __init__(self, settled_round: SettledRound) -> None:
        self.opened_reports = {
            id: body.to_bytes() for id, body in settled_round.opened_reports.items()
        }
