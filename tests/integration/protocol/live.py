"""The contracts on a node and the network of the unit tests, side by side.

Rule of this file: every action is a transaction first, and then the same action of the network
that was written from the text. Both take it or both refuse it, and where they take it they say the
same events, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from tests.integration.protocol.chains import START, SUBMITTER, Chain, Reverted, signature
from tests.support.contracts import Refused, numbers
from tests.support.identities import cid, digest
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER

from atoll.protocol.call_structs import Shown
from atoll.protocol.certificates import certificate_bytes
from atoll.protocol.claims import shown
from atoll.protocol.events import EVENT_TYPES, ContractEvent, JobCreated
from atoll.protocol.rounds import apply
from atoll.protocol.types import (
    NO_ROUND,
    TOKEN,
    Address,
    BlockRef,
    Digest,
    Domain,
    JobId,
    Reveal,
    Role,
    SeatIndex,
    Terms,
)
from atoll.protocol.views import JobView


def live_terms(**changes: Any) -> Terms:
    return make_terms(**{"expiry": START + 200_000, "game_seconds": 150, **changes})


class Live(Network):
    """The network whose every action the chain does first.

    Attributes:
        folded: the view of the chain's own events.
    """

    def __init__(self, chain: Chain, terms: Terms) -> None:
        self.chain, self.expected = chain, list[ContractEvent]()
        self.is_live = False
        super().__init__(terms, 10**24)
        for account in (*PROVIDERS, *VERIFIERS, WATCHER):
            self._stake(account)
        funding = 10**24
        chain.send(SUBMITTER, chain.token, "approve", chain.jobs.address, funding)
        spec = (digest("spec"), cid("spec"), terms, chain.policy.address, funding)
        chain.send(SUBMITTER, chain.jobs, "create", *spec)
        created = next(e for e in chain.said() if isinstance(e, JobCreated))
        chain_id = int(chain.anvil.ask("eth_chainId"), 16)
        self.domain, self.job = Domain(chain_id, chain.rounds.address), JobId(created.job_id)
        self.folded = apply(JobView.of(self.domain, self.job), created, self._ref())
        self.view, self.log, self.now = self.folded, [], chain.now
        self.is_live = True

    def _stake(self, account: Address) -> None:
        chain, amount = self.chain, 10_000 * TOKEN
        chain.rich(account)
        chain.send(SUBMITTER, chain.token, "transfer", account, 2 * amount)
        chain.send(account, chain.token, "approve", chain.stakes.address, 2 * amount)
        for role in Role:
            chain.send(account, chain.stakes, "deposit", role, amount)

    def _ref(self) -> BlockRef:
        block = self.chain.block()
        hash = Digest(bytes.fromhex(block["hash"][2:]))
        return BlockRef(int(block["number"], 16), hash, int(block["timestamp"], 16))

    # --- both ---

    @property
    def block(self) -> BlockRef:
        return self._ref()

    def beacon(self) -> Digest:
        return Digest(bytes.fromhex(self.chain.block()["parentHash"][2:]))

    def wait(self, seconds: int) -> None:
        self.chain.now += seconds
        self.now = self.chain.now

    def emit(self, event: ContractEvent) -> None:
        super().emit(event)
        self.expected.append(event)

    def both(
        self, sent: tuple[Any, ...], act: Callable[[], Any], *, is_refused: bool = False
    ) -> Any:
        """A transaction, then the network's action at its time; compared."""
        self.now, self.expected = self.chain.now, []
        try:
            self.chain.send(*sent)
        except Reverted:
            is_refused = True
        try:
            result = act()
        except Refused:
            assert is_refused, f"only the text refuses {sent[2]}"
            raise
        finally:
            self.now = self.chain.now
        assert not is_refused, f"only the contracts refuse {sent[2]}"
        found, reference = self.chain.said(), self._ref()
        for event in found:
            self.folded = apply(self.folded, event, reference)
        said, expected = _comparable(found), _comparable(self.expected)
        assert said == expected, f"{sent[2]}: {said} on the chain, {expected} by the text"
        return result

    # --- every action ---

    def join(self, account: Address, seat: int) -> None:
        sent = (account, self.chain.members, "join", self.job, seat)
        self.both(sent, lambda: super(Live, self).join(account, seat))

    def leave_seat(self, account: Address) -> None:
        sent = (account, self.chain.members, "leaveSeat", self.job)
        self.both(sent, lambda: super(Live, self).leave_seat(account))

    def disagree(self, account: Address) -> None:
        root = digest("another model")
        sent = (account, self.chain.members, "disagree", self.job, self.seed, root)
        self.both(sent, lambda: super(Live, self).disagree(account))

    def penalise_seat(self, seat: int) -> None:
        sent = (WATCHER, self.chain.members, "penaliseSeat", self.job, seat)
        self.both(sent, lambda: super(Live, self).penalise_seat(seat))

    def enrol(self, account: Address, slot: int, bond: int) -> None:
        shown = self.chain.enrolment(account, self.job, slot, bond)
        sent = (account, self.chain.members, "enrol", self.job, slot, bond, shown)
        self.both(sent, lambda: super(Live, self).enrol(account, slot, bond))

    def say_ready(self, account: Address) -> None:
        sent = (account, self.chain.members, "ready", self.job)
        self.both(sent, lambda: super(Live, self).say_ready(account))

    def leave_pool(self, account: Address) -> None:
        sent = (account, self.chain.members, "leavePool", self.job)
        self.both(sent, lambda: super(Live, self).leave_pool(account))

    def release(self, role: Role, id: int) -> None:
        sent = (WATCHER, self.chain.members, "release", self.job, role, id)
        self.both(sent, lambda: super(Live, self).release(role, id))

    def penalise_member(self, round: int, id: int) -> None:
        sent = (WATCHER, self.chain.members, "penaliseMember", self.job, round, id)
        self.both(sent, lambda: super(Live, self).penalise_member(round, id))

    def advance(self) -> None:
        sent = (WATCHER, self.chain.rounds, "advance", self.job)
        self.both(sent, super().advance)

    def seed_audit(self) -> None:
        sent = (WATCHER, self.chain.rounds, "seedAudit", self.job)
        self.both(sent, super().seed_audit)

    def commit(self, account: Address, commitment: Digest) -> None:
        mine = self.own(account)
        seat = mine.index if mine else 0
        sent = (account, self.chain.rounds, "commit", self.job, seat, self.seed, commitment)
        self.both(sent, lambda: super(Live, self).commit(account, commitment))

    def reveal(self, account: Address, reveal: Reveal) -> None:
        mine = self.own(account)
        seat = mine.index if mine else 0
        sent = (account, self.chain.rounds, "reveal", self.job, seat, self.seed, reveal)
        self.both(sent, lambda: super(Live, self).reveal(account, reveal))

    def say(self, account: Address, has: int) -> None:
        mine = self.own(account)
        slot = mine.index if mine else 0
        sent = (account, self.chain.rounds, "vote", self.job, slot, self.seed, has)
        self.both(sent, lambda: super(Live, self).say(account, has))

    def settle(
        self, signers: set[int], excluded: set[int] | None = None, merged: int | None = None
    ) -> None:
        out = excluded or set()
        count = max(0, len(self.available() - out)) if merged is None else merged
        verdict = self.verdict(out, count)
        committee = [self.at(Role.VERIFIER, p, self.round).account for p in sorted(self.committee)]
        message = self.certified(verdict)
        signed = {
            account: signature(account, message)
            for slot, account in zip(sorted(self.committee), committee, strict=True)
            if slot in signers
        }
        said = (bytes(self.votes), list(self.votes.values()))
        certificate = certificate_bytes(committee, signed)
        shown = (verdict, committee, certificate)
        sent = (WATCHER, self.chain.rounds, "settle", self.job, *said, shown)
        self.both(sent, lambda: super(Live, self).settle(signers, excluded, merged))

    def settle_late(self) -> None:
        said = (bytes(self.votes), list(self.votes.values()))
        sent = (WATCHER, self.chain.rounds, "settleLate", self.job, *said)
        self.both(sent, super().settle_late)

    def sign(self, id: int) -> None:
        settled_round = self.settled[-1]
        account = self.member(Role.VERIFIER, id).account
        certificate = certificate_bytes(
            [account], {account: signature(account, settled_round.digest)}
        )
        sent = (account, self.chain.rounds, "sign", self.job, settled_round.record, id, certificate)
        self.both(sent, lambda: super(Live, self).sign(id))

    def cancel(self) -> None:
        self.both((SUBMITTER, self.chain.jobs, "cancel", self.job), super().cancel)

    def audit_report(self, round: int, id: int, audit_report: Digest) -> None:
        account = self.member(Role.VERIFIER, id).account
        sent = (account, self.chain.audits, "sealAuditReport", self.job, round, audit_report)
        self.both(sent, lambda: super(Live, self).audit_report(round, id, audit_report))

    def open_audit_report(self, round: int, id: int, body: bytes, salt: Digest) -> None:
        account = self.member(Role.VERIFIER, id).account
        what = (self.job, round, id, self.settled[round].record, body, salt)
        sent = (account, self.chain.audits, "open", *what)
        self.both(sent, lambda: super(Live, self).open_audit_report(round, id, body, salt))

    def show_key(self, round: int, seat: int, key: Digest) -> None:
        account = self.member(Role.PROVIDER, self.settled[round].holders[seat]).account
        sent = (account, self.chain.audits, "key", self.job, round, key)
        self.both(sent, lambda: super(Live, self).show_key(round, seat, key))

    def _shown(self, round: int, seat: int) -> Shown:
        return shown(self.folded.settled[round], SeatIndex(seat))

    def leak(self, round: int, seat: int, key: Digest, by: Address) -> None:
        sent = (by, self.chain.audits, "leak", self._shown(round, seat), key)
        self.both(sent, lambda: super(Live, self).leak(round, seat, key, by))

    def late_vote(self, round: int, id: int, has: int) -> None:
        account = self.member(Role.VERIFIER, id).account
        sent = (account, self.chain.late_votes, "lateVote", self.job, round, id, has)
        self.both(sent, lambda: super(Live, self).late_vote(round, id, has))

    def grant(self, round: int, seat: int) -> None:
        settled_round = self.folded.settled[round]
        record = (settled_round.record, self.settled[-1].record)
        said = (
            settled_round.committee_seed,
            bytes(settled_round.votes),
            list(settled_round.votes.values()),
            list(settled_round.late),
        )
        sent = (WATCHER, self.chain.late_votes, "grant", self.job, round, seat, (*record, *said))
        self.both(sent, lambda: super(Live, self).grant(round, seat))

    def contest(self, round: int, id: int, seat: int, by: Address) -> None:
        settled_round = self.settled[round]
        what = (
            self._shown(round, seat),
            id,
            settled_round.opened_reports.get(id, b""),
            settled_round.keys[seat],
        )
        sent = (by, self.chain.audits, "contest", *what)
        self.both(sent, lambda: super(Live, self).contest(round, id, seat, by))

    def settle_contest(self, round: int, id: int, seat: int) -> None:
        holder = self.settled[round].holders[seat]
        sent = (WATCHER, self.chain.audits, "settleContest", self.job, round, id, holder)
        self.both(sent, lambda: super(Live, self).settle_contest(round, id, seat))

    def prove(self, round: int, id: int, seat: int) -> None:
        settled_round = self.settled[round]
        about = (round, id, settled_round.holders[seat], settled_round.opened_reports.get(id, b""))
        sent = (WATCHER, self.chain.audits, "proven", self.job, *about)
        self.both(sent, lambda: super(Live, self).prove(round, id, seat))

    def report_missing_key(self, round: int, seat: int) -> None:
        sent = (WATCHER, self.chain.audits, "reportMissingKey", self._shown(round, seat))
        self.both(sent, lambda: super(Live, self).report_missing_key(round, seat))

    def report_absent(self, round: int, id: int) -> None:
        settled_round = self.settled[round]
        body = settled_round.opened_reports.get(id, b"")
        left = self.duties(round, id) - {body[at] for at in range(0, len(body), 35)}
        what = (self.job, round, id, min(left, default=0), settled_round.record, body)
        sent = (WATCHER, self.chain.audits, "absent", *what)
        self.both(sent, lambda: super(Live, self).report_absent(round, id))

    def claim(self, role: Role, id: int, to: int) -> tuple[int, int]:
        sent = (WATCHER, self.chain.jobs, "claim", self.job, role, id, to)
        found: tuple[int, int] = self.both(sent, lambda: super(Live, self).claim(role, id, to))
        return found

    def claim_credit(self, account: Address) -> None:
        sent = (WATCHER, self.chain.jobs, "claimCredit", self.job, account)
        self.both(sent, lambda: super(Live, self).claim_credit(account))

    def burn(self, to: int) -> None:
        sent = (WATCHER, self.chain.jobs, "burn", self.job, to)
        self.both(sent, lambda: super(Live, self).burn(to))

    # --- what the chain says of itself ---

    def check(self) -> None:
        """The fold of the chain's own log is what the contracts answer."""
        (state,) = self.chain.call(self.chain.rounds, "state", self.job)
        view = self.folded
        assert (view.status, view.phase, view.round) == state[:3]
        assert view == self.view
        assert (view.held, view.model) == (state[8], state[16])
        unpenalised = {h.index for h in view.providers.values() if h.missed != NO_ROUND}
        assert unpenalised == numbers(state[11])
        if view.open is not None:
            running = view.open
            assert (running.committee_draw, running.deadline, running.seed) == state[3:6]
            assert running.audit_seed == state[7]
            assert (running.ready, running.committee) == state[12:14]
            assert running.reveal_accumulator == state[14]
            assert running.votes_accumulator[:28] == state[15][:28]
        for settled_round in view.settled:
            self._check_round(settled_round.round)

    def _check_round(self, round: int) -> None:
        settled_round, chain = self.folded.settled[round], self.chain
        (times,) = chain.call(chain.rounds, "timesOf", self.job, round)
        clock = settled_round.clock
        ends = (clock.settled_at, clock.audit_end, clock.open_end, clock.keys_end)
        assert (*ends, clock.half, clock.window_end) == times[:6]
        pay, _, signed = chain.call(chain.rounds, "rowsOf", self.job, round)
        assert (numbers(settled_round.pay), numbers(settled_round.signers)) == (
            numbers(pay),
            numbers(signed),
        )
        assert settled_round.is_consistent


def _comparable(events: list[ContractEvent]) -> list[ContractEvent]:
    """Of the rounds and their members; stakes are not the network's."""
    kinds = {name for name in EVENT_TYPES if name not in _NOT_MODELLED}
    return [event for event in events if type(event).__name__ in kinds]


_NOT_MODELLED = frozenset({"Locked", "Unlocked", "Slashed", "Deposited", "JobCreated"})


def field_names(kind: type) -> Iterator[str]:
    """Of an event or a struct, as Solidity spells them."""
    for field in fields(kind):
        head, *tail = ("from" if field.name == "start" else field.name).split("_")
        yield head + "".join(part.capitalize() for part in tail)
