"""Strangers on a node: calls at random, several in a block, and the view that the logs give.

Rule of this file: no call is checked before it is sent, and nothing is asked of a second model of
the contracts. A call may be refused; what the contracts then answer is compared with the fold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.integration.protocol.live import Chain, Contract, Live, signature
from tests.integration.protocol.plays import move_of, works_of
from tests.support.contracts import reveal_of
from tests.support.identities import cid, digest
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.script import PROVIDERS, SECRETS, VERIFIERS

from atoll.chain.decode import RawLog, checksummed, decode_log
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold
from atoll.chain.indexed import Indexed
from atoll.errors import ProtocolError
from atoll.protocol import bls
from atoll.protocol.audit_reports import AuditEntry, AuditReport, audit_report_hash
from atoll.protocol.certificates import Bls, certificate_bytes
from atoll.protocol.claims import SeatStatements, shown
from atoll.protocol.events import ContractEvent, Settled
from atoll.protocol.games.calls import calldata
from atoll.protocol.hashing import certificate_hash, commitment, keccak256
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.rounds import apply, record_of
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    TOKEN,
    Address,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    Phase,
    Reveal,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Verdict,
    bits,
)
from atoll.protocol.views import JobView

OUTSIDER = PROVIDERS[5]
FEW = tuple(VERIFIERS[:5])
MANY = tuple(SECRETS)
"""More than a committee has."""
Sent = tuple[Address, Contract, str, tuple[object, ...]]
MOVE = "a move"
"""Stands for the name of a call whose one argument is its calldata."""
GAS = 12_000_000
FAR = 2**32 - 1


def bls_secret(account: Address) -> int:
    return bls.secret_of(account.encode())


class Crowd:
    """One job, whoever calls its contracts, and the fold of what these say.

    Attributes:
        signers: who may be a member.
        view: as of the last block; while a block is filled also with a settlement that is in it.
        events: of all contracts, up to the last block.
        keys: of reveals, with their plain work tags, by what the key hashes to.
        works: of segments, by their plain work tags.
        audit_reports: bodies and salts by what was sealed.
        taken: names of calls that were not refused.
    """

    def __init__(
        self, chain: Chain, net: Live, rng: random.Random, signers: tuple[Address, ...] = FEW
    ) -> None:
        self.chain, self.net, self.rng, self.signers = chain, net, rng, signers
        self.everybody = (*PROVIDERS[:5], *signers, OUTSIDER)
        self.has_bls = any(item["name"] == "keep" for item in chain.policy.abi if "name" in item)
        self.job, self.terms = net.job, net.terms
        names = (
            "Config", "Stakes", "Jobs", "Rounds", "Members", "Audits", "LateVotes", "Claims", "Game"
        )  # fmt: skip
        attributes = {"LateVotes": "late_votes"}
        addresses = {
            name: getattr(chain, attributes.get(name, name.lower())).address for name in names
        }
        self.deployment = Deployment(net.domain.chain_id, 0, addresses)
        self.fold = Fold(self.deployment, None)
        self.keys: dict[Digest, tuple[Digest, tuple[Digest, ...]]] = {}
        self.committed: dict[Digest, Reveal] = {}
        self.works: dict[Digest, bytes] = {}
        self.audit_reports: dict[Digest, tuple[bytes, Digest]] = {}
        self.taken: set[str] = set()
        self._read = 0
        self.items: list[Indexed] = []
        self.raws: list[RawLog] = []
        self.follow()

    @property
    def events(self) -> list[ContractEvent]:
        """What the contracts have said so far."""
        return [item.event for item in self.items]

    # --- blocks ---

    def turn_back(self, snapshot: str, now: int) -> None:
        """Takes back all blocks since a snapshot of the node (`evm_snapshot`), made at `now`."""
        self.chain.anvil.ask("evm_revert", snapshot)
        self.chain.now, self._read, self.items, self.raws = now, 0, [], []
        self.fold = Fold(self.deployment, None)
        self.follow()

    def follow(self) -> None:
        """Folds what the blocks since the last look say."""
        newest = self.chain.anvil.height()
        asked: dict[str, Any] = {"fromBlock": hex(self._read), "toBlock": hex(newest)}
        asked["address"] = list(self.deployment.addresses.values())
        for log in self.chain.anvil.ask("eth_getLogs", asked):
            block = self.chain.anvil.ask("eth_getBlockByNumber", log["blockNumber"], False)
            hash = Digest(bytes.fromhex(block["hash"][2:]))
            reference = BlockRef(int(block["number"], 16), hash, int(block["timestamp"], 16))
            topics = tuple(bytes.fromhex(topic[2:]) for topic in log["topics"])
            data, index = bytes.fromhex(log["data"][2:]), int(log["logIndex"], 16)
            raw = RawLog(
                checksummed(log["address"]), topics, data, reference.number, hash, index,
                timestamp=reference.timestamp,
            )  # fmt: skip
            event = decode_log(raw)
            if event is not None:
                self.raws.append(raw)
                self.items.append(Indexed(event, reference, index))
                self.fold.fold(self.items[-1])
        self._read = newest + 1
        self.view: JobView = self.fold.views[self.job]

    def block(self, calls: list[Sent], after: int) -> None:
        """Mines these calls in one block, `after` seconds later, and follows it."""
        chain, hashes = self.chain, []
        for sender, contract, name, arguments in calls:
            raw = arguments[0] if name == MOVE else contract.calldata(name, *arguments)
            assert isinstance(raw, bytes)
            data = "0x" + raw.hex()
            sent = {"from": sender, "to": contract.address, "data": data, "gas": hex(GAS)}
            hashes.append(chain.anvil.ask("eth_sendTransaction", sent))
        chain.now += after
        chain.anvil.ask("evm_setNextBlockTimestamp", chain.now)
        chain.anvil.ask("evm_mine")
        chain.now += 1
        assert not chain.anvil.pending()
        for hash, (_, _, name, _) in zip(hashes, calls, strict=True):
            if int(chain.anvil.ask("eth_getTransactionReceipt", hash)["status"], 16):
                self.taken.add(name)
        self.follow()

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

    # --- who and what ---

    def someone(self) -> Address:
        return self.rng.choice(self.everybody)

    def some_round(self) -> int:
        newest = len(self.view.settled)
        return self.rng.choice([max(0, newest - 1)] * 3 + [newest, self.rng.randrange(newest + 2)])

    def some_settled_round(self) -> SettledRound | None:
        settled = self.view.settled
        initial_state = [
            settled_round
            for settled_round in settled
            if settled_round.clock.is_opening(self.chain.now)
        ]
        if initial_state and self.rng.random() < 0.7:
            return self.rng.choice(initial_state)
        open_ = [
            settled_round
            for settled_round in settled
            if self.chain.now < settled_round.clock.window_end
        ]
        return self.rng.choice(open_ * 5 + list(settled)) if settled else None

    def some_id(self, role: Role) -> int:
        return self.rng.randrange(1, len(self.view.holders(role)) + 2)

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

    def _certificate(
        self, accounts: Sequence[Address], signers: Sequence[Address], message: Digest
    ) -> bytes:
        """Of these signers, in the way of this job."""
        if not self.has_bls:
            return certificate_bytes(accounts, {a: signature(a, message) for a in signers})
        signed = {a: bls.sign(bls_secret(a), message) for a in signers}
        return Bls({}).certificate(accounts, signed)

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
        record = record_of(self.view, running, verdict.excluded)
        if not any(record.audit_seed):
            return
        slots = map(SlotIndex, bits(running.committee))
        signed = [p for p in slots if self.view.verifiers[running.slots[p]].account in signers]
        event = Settled(
            self.job,
            running.round,
            running.digest_of(verdict),
            verdict,
            record.available,
            Bitmap(sum(1 << p for p in signed)),
            record,
        )
        self.view = apply(self.view, event, BlockRef(0, running.seed, self.chain.now))

    # --- audits ---

    def _audit(self) -> Sent | None:
        settled_round = self.some_settled_round()
        if settled_round is None:
            return self._early()
        if self.rng.random() < 0.5 and self.chain.now < settled_round.clock.keys_end:
            return self._due(settled_round)(settled_round)
        kinds = (
            self._audit_report,
            self._open,
            self._key,
            self._leak,
            self._of_seat,
            self._of_seat,
        )
        others = (self._of_auditor, self._of_auditor, self._of_auditor, self._challenge)
        more = (self._challenge, self._sign, self._late, self._grant, self._equivocated)
        return self.rng.choice((*kinds, *others, *more))(settled_round)

    def _due(self, settled_round: SettledRound) -> Callable[[SettledRound], Sent | None]:
        if settled_round.clock.is_auditing(self.chain.now):
            return self.rng.choice(
                [self._audit_report, self._audit_report, self._late, self._grant]
            )
        return self._open if settled_round.clock.is_opening(self.chain.now) else self._key

    def _early(self) -> Sent:
        audits, round = self.chain.audits, self.some_round()
        if self.rng.random() < 0.5:
            return (self.someone(), audits, "sealAuditReport", (self.job, round, digest("early")))
        return (self.someone(), audits, "key", (self.job, round, digest("early")))

    def _audit_report(self, settled_round: SettledRound) -> Sent | None:
        auditors = [settled_round.slots[slot] for slot in settled_round.duties]
        if not auditors:
            return None
        id = self.rng.choice(auditors)
        account = self.view.verifiers[id].account
        body = AuditReport(
            tuple(self._duty(settled_round, account, seat) for seat in settled_round.duties_of(id))
        )
        salt, raw = digest(f"salt {id}"), body.to_bytes()
        seed = settled_round.record.audit_seed
        sealed = audit_report_hash(
            settled_round.round_id, seed, id, account, body=keccak256(raw), salt=salt
        )
        self.audit_reports[sealed] = raw, salt
        return (
            account,
            self.chain.audits,
            "sealAuditReport",
            (self.job, settled_round.round, sealed),
        )

    def _duty(self, settled_round: SettledRound, account: Address, seat: SeatIndex) -> AuditEntry:
        reveal = settled_round.reveals[seat].reveal
        words = self.keys[reveal.key_hash][1]
        dice = self.rng.random()
        if dice < 0.2:
            return AuditEntry(seat, self.rng.choice([0, 3, len(words)]), digest("own"))
        return AuditEntry.valid(seat, account, words if dice < 0.8 else words[1:])

    def _open(self, settled_round: SettledRound) -> Sent | None:
        sealed = [
            (id, one)
            for id, one in settled_round.audit_reports.items()
            if one in self.audit_reports
        ]
        if not sealed:
            return None
        id, audit_report = self.rng.choice(sealed)
        what = (
            self.job,
            settled_round.round,
            id,
            settled_round.record,
            *self.audit_reports[audit_report],
        )
        return (self.view.verifiers[id].account, self.chain.audits, "open", what)

    def _known(self, settled_round: SettledRound) -> tuple[SeatIndex, Digest] | None:
        if not settled_round.reveals:
            return None
        seat = self.rng.choice(list(settled_round.reveals))
        right = self.keys[settled_round.reveals[seat].reveal.key_hash][0]
        return seat, self.rng.choice([right] * 5 + [digest("another"), Digest(bytes(32))])

    def _key(self, settled_round: SettledRound) -> Sent | None:
        known = self._known(settled_round)
        if known is None:
            return None
        account = self.view.providers[settled_round.seats[known[0]]].account
        return (account, self.chain.audits, "key", (self.job, settled_round.round, known[1]))

    def _leak(self, settled_round: SettledRound) -> Sent | None:
        known = self._known(settled_round)
        if known is None:
            return None
        return (
            self.someone(),
            self.chain.audits,
            "leak",
            (shown(settled_round, known[0]), known[1]),
        )

    def _of_seat(self, settled_round: SettledRound) -> Sent | None:
        if not settled_round.reveals:
            return None
        seat = self.rng.choice(list(settled_round.reveals))
        return (
            self.someone(),
            self.chain.audits,
            "reportMissingKey",
            (shown(settled_round, seat),),
        )

    def _of_auditor(self, settled_round: SettledRound) -> Sent | None:
        """About what somebody opened, or did not; of any holder that the seat ever had."""
        rng, audits, round = self.rng, self.chain.audits, settled_round.round
        known = self._known(settled_round)
        if known is None:
            return None
        seat, key = known
        id = HolderId(rng.choice([*settled_round.opened_reports, self.some_id(Role.VERIFIER)]))
        body = (
            settled_round.opened_reports[id].to_bytes()
            if id in settled_round.opened_reports
            else b""
        )
        holder = rng.choice([settled_round.seats[seat], self.some_id(Role.PROVIDER)])
        name, what = rng.choice(
            [
                ("absent", (self.job, round, id, seat, settled_round.record, body)),
                ("contest", (shown(settled_round, seat), id, body, key)),
                ("settleContest", (self.job, round, rng.choice([0, id, id]), holder)),
                ("dropped", (self.job, round, id, seat, holder, body)),
                ("proven", (self.job, round, id, holder, body)),
            ]
        )
        return (self.someone(), audits, name, what)

    def _sign(self, settled_round: SettledRound) -> Sent | None:
        unsigned = list(
            map(SlotIndex, bits(settled_round.record.committee & ~settled_round.signers))
        )
        if not unsigned:
            return None
        id = settled_round.slots[self.rng.choice(unsigned)]
        account = self.view.verifiers[id].account
        certificate = self._certificate([account], [account], settled_round.digest)
        return (
            account,
            self.chain.rounds,
            "sign",
            (self.job, settled_round.record, id, certificate),
        )

    def _late(self, settled_round: SettledRound) -> Sent | None:
        if not self.view.verifiers:
            return None
        member = self.rng.choice(list(self.view.verifiers.values()))
        what = (self.job, settled_round.round, member.id, self.rng.choice([15, 0, 1, 2**256 - 1]))
        return (member.account, self.chain.late_votes, "lateVote", what)

    def _grant(self, settled_round: SettledRound) -> Sent | None:
        told = settled_round.record.revealed & ~settled_round.pay
        seat = self.rng.choice([*bits(told or settled_round.record.revealed), 0])
        following = self.view.settled_round(RoundIndex(settled_round.round + 1))
        record = (settled_round.record, (following or settled_round).record)
        said = (
            settled_round.committee_seed,
            bytes(settled_round.votes),
            list(settled_round.votes.values()),
            list(settled_round.late),
        )
        what = (self.job, settled_round.round, seat, (*record, *said))
        return (self.someone(), self.chain.late_votes, "grant", what)

    def _equivocated(self, settled_round: SettledRound) -> Sent | None:
        signers = list(map(SlotIndex, bits(settled_round.signers)))
        if not signers or self.rng.random() < 0.7:
            return None
        id = settled_round.slots[self.rng.choice(signers)]
        account = self.view.verifiers[id].account
        both = []
        for name in self.rng.choice([("one", "two"), ("one", "one")]):
            verdict = Verdict(NO_BITS, 0, digest(name), b"", bytes(8))
            message = certificate_hash(
                settled_round.round_id,
                settled_round.record.seed,
                settled_round.record.votes,
                verdict,
            )
            signed = self._certificate([account], [account], message)
            both.append((verdict, [account], signed))
        what = (
            self.job,
            settled_round.round,
            id,
            settled_round.record.seed,
            settled_round.record.votes,
            both,
        )
        return (self.someone(), self.chain.late_votes, "equivocated", what)

    # --- games ---

    def _challenge(self, settled_round: SettledRound) -> Sent | None:
        rng, game = self.rng, self.chain.game
        open_ = [one for one in self.view.games.values() if one.is_open]
        if open_ and rng.random() < 0.4:
            one = rng.choice(open_)
            return (self.someone(), game, "timeout", (one.id,))
        try:
            said = SeatStatements.of(
                self.view,
                settled_round.round,
                rng.choice(list(settled_round.reveals)),
                MODEL,
                PROGRAM,
            )
            segment = rng.randrange(max(1, said.segments))
            evidence = said.evidence(segment)
        except (ProtocolError, IndexError):
            return None
        bond = rng.choice([1, 10, 10, 11]) * self.terms.provider_bond // 10
        accusers = [self.view.verifiers[id].account for id in settled_round.opened_reports] or [
            OUTSIDER
        ]
        who = rng.choice([*accusers, OUTSIDER])
        if rng.random() < 0.2:
            return (who, game, "crowdedOut", (evidence,))
        return (who, game, "challenge", (evidence, bond))

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
