"""Honest members of a `Network`, one action at a time: what tests leave out or do otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from coincurve import PrivateKey
from eth_hash.auto import keccak
from eth_utils.address import to_checksum_address
from tests.support.contracts import reveal_of
from tests.support.identities import accounts, digest
from tests.unit.protocol.network import Network

from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.types import Address, Digest, Phase, Reveal, Role, SeatIndex, Terms

PROVIDERS = accounts("provider", 8)
SECRETS = {
    Address(to_checksum_address(keccak(key.public_key.format(compressed=False)[1:])[-20:])): key
    for key in (PrivateKey(digest(f"verifier {i}")) for i in range(48))
}
VERIFIERS = list(SECRETS)[:8]
WATCHER = accounts("watcher", 1)[0]


@dataclass
class Script:
    """A network with members, and what they know that the chain does not.

    Attributes:
        secrets: by (round, seat) the key and the plain work_tags.
        salts: of audit reports, by (round, id) with their body.
    """

    net: Network
    secrets: dict[tuple[int, int], tuple[Digest, list[Digest]]] = field(default_factory=dict)
    salts: dict[tuple[int, int], tuple[bytes, Digest]] = field(default_factory=dict)
    reveals: dict[int, Reveal] = field(default_factory=dict)

    @classmethod
    def ready(cls, terms: Terms | None = None, seats: int = 4, slots: int = 4) -> Script:
        """Seats and slots taken, everybody ready, and nothing open yet."""
        net = Network(terms)
        for seat in range(seats):
            net.join(PROVIDERS[seat], seat)
        for slot in range(slots):
            net.enrol(VERIFIERS[slot], slot, net.terms.verifier_bond)
            net.say_ready(VERIFIERS[slot])
        net.wait(1)
        return cls(net)

    def account(self, seat: int) -> Address:
        return self.net.at(Role.PROVIDER, seat, self.net.round).account

    # --- a round ---

    def commit(self, seat: int, segments: int | None = None) -> None:
        net = self.net
        whole = net.terms.steps // net.terms.segment_steps
        name = f"{net.round} {net.seed.hex()} {seat}"
        done = whole if segments is None else segments
        reveal, key, work_tags = reveal_of(name, done)
        self.reveals[seat] = reveal
        self.secrets[net.round, seat] = (key, work_tags)
        who = self.account(seat)
        net.commit(who, net.commitment(who, seat, reveal))

    def reveal(self, seat: int) -> None:
        self.net.reveal(self.account(seat), self.reveals[seat])

    def train(self, partial: dict[int, int] | None = None) -> None:
        """Everybody that counts commits and reveals."""
        if self.net.phase is Phase.WAITING:
            self.net.advance()
        for seat in sorted(self.net.waited):
            self.commit(seat, (partial or {}).get(seat))
        for seat in sorted(self.net.waited):
            self.reveal(seat)

    def say(self, slots: Iterable[int] | None = None, has: int | None = None) -> None:
        """These of the committee, or all, have everything or what is given."""
        whole = sum(1 << seat for seat in self.net.seated)
        for slot in sorted(self.net.committee if slots is None else slots):
            account = self.net.at(Role.VERIFIER, slot, self.net.round).account
            self.net.say(account, whole if has is None else has)

    def settle(self, excluded: set[int] | None = None, merged: int | None = None) -> None:
        self.net.settle(set(self.net.committee), excluded, merged)

    def honest_round(self) -> int:
        """From its opening to its settlement; its number."""
        round = self.net.round
        self.train()
        self.say()
        self.net.wait(1)
        self.settle()
        return round

    # --- its audit ---

    def body(self, round: int, id: int, mismatch: dict[int, int] | None = None) -> bytes:
        """What an honest auditor says, but that these seats differ at these segments."""
        account = self.net.member(Role.VERIFIER, id).account
        duties = []
        for seat in sorted(self.net.duties(round, id)):
            at = (mismatch or {}).get(seat)
            work_tags = self.secrets[round, seat][1]
            valid = AuditEntry.valid(SeatIndex(seat), account, work_tags)
            duties.append(valid if at is None else AuditEntry(SeatIndex(seat), at, digest("own")))
        return AuditReport(tuple(duties)).to_bytes()

    def audit_report(self, round: int, id: int, body: bytes | None = None) -> None:
        body, salt = self.body(round, id) if body is None else body, digest(f"salt {round} {id}")
        account = int(self.net.member(Role.VERIFIER, id).account, 16)
        seed = self.net.settled[round].record.audit_seed
        sealed = self.net.tagged(
            "atoll.audit-report.v1", round, seed, id, account, keccak(body), salt
        )
        self.net.audit_report(round, id, sealed)
        self.salts[round, id] = (body, salt)

    def open(self, round: int, id: int) -> None:
        self.net.open_audit_report(round, id, *self.salts[round, id])

    def auditors(self, round: int) -> list[int]:
        """Ids with duties."""
        settled_round = self.net.settled[round]
        return [id for id in settled_round.slots.values() if self.net.duties(round, id)]

    def audit(self, *rounds: int) -> None:
        """Audit reports, openings, keys of everybody; the clock is then where keys end."""
        ends = {round: self.net.settled[round].ends for round in rounds}
        for round in rounds:
            for id in self.auditors(round):
                self.audit_report(round, id)
        due = [(ends[round]["audit"], self.open_all, round) for round in rounds]
        due += [(ends[round]["open"], self.show_keys, round) for round in rounds]
        for at, act, round in sorted(due, key=lambda item: item[0]):
            self.net.wait_until(at)
            act(round)
        self.net.wait_until(max(end["keys"] for end in ends.values()))

    def open_all(self, round: int) -> None:
        """Everybody opens."""
        for id in self.auditors(round):
            self.open(round, id)

    def guessed(self, round: int) -> tuple[int, SeatIndex]:
        """An audit with keys, in which one auditor guessed its first digest: who, of which seat."""
        ends, (guesser, *others) = self.net.settled[round].ends, self.auditors(round)
        body = AuditReport.from_bytes(self.body(round, guesser))
        guess = AuditReport((replace(body.entries[0], digest=digest("guess")), *body.entries[1:]))
        self.audit_report(round, guesser, guess.to_bytes())
        for id in others:
            self.audit_report(round, id)
        self.net.wait_until(ends["audit"])
        for id in self.auditors(round):
            self.open(round, id)
        self.net.wait_until(ends["open"])
        self.show_keys(round)
        return guesser, body.entries[0].seat

    def keyless(self, round: int, seat: int) -> None:
        """Every drawn seat but one shows its key, and that one is struck."""
        ends, drawn = self.net.settled[round].ends, self.net.settled[round].drawn
        self.net.wait_until(ends["open"])
        self.show_keys(round, set(drawn) - {seat})
        self.net.wait_until(ends["keys"])
        self.net.report_missing_key(round, seat)

    def show_keys(self, round: int, seats: Iterable[int] | None = None) -> None:
        drawn = self.net.settled[round].drawn
        for seat in sorted(drawn if seats is None else seats):
            self.net.show_key(round, seat, self.secrets[round, seat][0])
