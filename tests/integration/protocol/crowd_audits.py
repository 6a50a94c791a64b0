"""What strangers say behind a settlement: audit reports, keys, contests, late votes, challenges."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.protocol.crowd_job import OUTSIDER, CrowdJob, Sent
from tests.support.identities import digest
from tests.unit.protocol.models import MODEL, PROGRAM

from atoll.errors import ProtocolError
from atoll.protocol.audit_reports import AuditEntry, AuditReport, audit_report_hash
from atoll.protocol.claims import SeatStatements, shown
from atoll.protocol.hashing import certificate_hash, keccak256
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    Address,
    Digest,
    HolderId,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    Verdict,
    bits,
)


class CrowdAudits(CrowdJob):
    """With calls about settled rounds."""

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
        if rng.random() < 0.3:
            return self._owed(settled_round)
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

    def _owed(self, settled_round: SettledRound) -> Sent | None:
        """What an auditor said of a seat, by itself or by another."""
        said = [
            (id, report, entry)
            for id, report in settled_round.opened_reports.items()
            for entry in report.entries
            if not entry.is_valid
        ]
        if not said:
            return None
        id, report, entry = self.rng.choice(said)
        try:
            statements = SeatStatements.of(
                self.view, settled_round.round, entry.seat, MODEL, PROGRAM
            )
            is_update_proof = entry.at == statements.segments
            evidence = statements.evidence(
                entry.at - is_update_proof, is_update_proof=is_update_proof
            )
        except (ProtocolError, IndexError):
            return None
        who = self.view.verifiers[id].account if self.rng.random() < 0.8 else OUTSIDER
        bond = self.terms.provider_bond // 10
        return (who, self.chain.game, "challengeOwed", (evidence, bond, id, report.to_bytes()))
