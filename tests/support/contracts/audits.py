"""Audit reports, keys, late votes and contests."""

from __future__ import annotations

from eth_hash.auto import keccak
from tests.support.contracts.settling import Settling
from tests.support.contracts.values import (
    FOREVER,
    Member,
    bitmap,
    hashed,
    need,
    numbers,
)

from atoll.protocol import events as ev
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    MissedDuty,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
)


class Audits(Settling):
    """What is said and found about a settled round."""

    def duties(self, round: int, id: int) -> set[int]:
        settled_round = self.settled[round]
        slot = next((p for p, held in settled_round.slots.items() if held == id), None)
        return {s for s, slots in settled_round.auditors.items() if slot in slots}

    def audit_report(self, round: int, id: int, audit_report: Digest) -> None:
        """The last one counts, if it was sealed in AUDIT."""
        settled_round = self.settled[round]
        need(id not in settled_round.opened_reports, "opened")
        settled_round.audit_reports.pop(id, None)
        if settled_round.at <= self.now < settled_round.ends["audit"]:
            settled_round.audit_reports[id] = audit_report
        account = self.member(Role.VERIFIER, id).account
        self.emit(ev.AuditReportSealed(self.job, account, RoundIndex(round), audit_report))

    def open_audit_report(self, round: int, id: int, body: bytes, salt: Digest) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["audit"] <= self.now < settled_round.ends["open"], "not now")
        m = self.member(Role.VERIFIER, id)
        parts = (settled_round.record.audit_seed, id, int(m.account, 16), keccak(body), salt)
        given = self.tagged("atoll.audit-report.v1", round, *parts)
        need(
            settled_round.audit_reports.get(id) == given
            and id not in settled_round.opened_reports
            and body,
            "another audit report",
        )
        seats = [body[at] for at in range(0, len(body), 35)]
        need(set(seats) <= self.duties(round, id) and seats == sorted(set(seats)), "no duties")
        settled_round.opened_reports[id] = body
        self.emit(ev.Opened(self.job, m.account, HolderId(id), RoundIndex(round), body))

    def show_key(self, round: int, seat: int, key: Digest) -> None:
        settled_round = self.settled[round]
        need(seat in settled_round.holders, "nobody's")
        need(any(key), "no key")
        if self.now > settled_round.at:
            settled_round.keys[seat] = key
            settled_round.shown_at[seat] = self.now
            if settled_round.ends["open"] <= self.now < settled_round.ends["keys"]:
                settled_round.in_time.add(seat)
        account = self.member(Role.PROVIDER, settled_round.holders[seat]).account
        self.emit(ev.KeyShown(self.job, account, RoundIndex(round), key))

    def leak(self, round: int, seat: int, key: Digest, by: Address) -> None:
        """The pay is burnt later, and nobody's gain."""
        settled_round = self.settled[round]
        need(self.now < settled_round.ends["audit"] and seat in settled_round.pay, "no")
        need(any(key) and hashed(key) == settled_round.reveals[seat].key_hash, "another key")
        need(self.member(Role.PROVIDER, settled_round.holders[seat]).account != by, "its own")
        settled_round.keys[seat] = key
        settled_round.shown_at[seat] = self.now
        settled_round.leaked.add(seat)
        settled_round.pay.discard(seat)
        self.emit(ev.Leaked(self.job, by, SeatIndex(seat), RoundIndex(round), key))
        self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))

    def late_vote(self, round: int, id: int, has: int) -> None:
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        need(self.now < settled_round.ends["audit"], "too late")
        need(m.start <= round + 1 and m.to > round, "not then")
        settled_round.late[id] = settled_round.late.get(id, 0) | has
        where = (RoundIndex(round), HolderId(id), Bitmap(has))
        self.emit(ev.LateVote(self.job, m.account, *where))

    def grant(self, round: int, seat: int) -> None:
        """More than half of both committees, of slots that said so in time or late."""
        settled_round = self.settled[round]
        need(self.now < settled_round.ends["audit"] and seat not in settled_round.leaked, "no")
        electors = numbers(settled_round.record.committee)
        if round + 1 < len(self.settled):
            electors |= numbers(self.settled[round + 1].record.committee)
        elif self.phase not in {Phase.WAITING, Phase.CLOSED}:
            electors |= self.committee
        told = {p for p, has in settled_round.votes.items() if has >> seat & 1}
        for id in (id for id, has in settled_round.late.items() if has >> seat & 1):
            m = self.member(Role.VERIFIER, id)
            when = round if settled_round.record.committee >> m.index & 1 else round + 1
            told |= {m.index} & electors if m.start <= when < m.to else set()
        need(2 * len(told) > len(electors), "not available")
        need(seat not in settled_round.unearned, "earned nothing")
        settled_round.pay.add(seat)
        self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))

    def _keyless(self, round: int, seat: int) -> Member:
        settled_round = self.settled[round]
        need(seat in settled_round.drawn, "not drawn")
        shown = settled_round.keys.get(seat)
        is_right = shown is not None and hashed(shown) == settled_round.reveals[seat].key_hash
        is_early = settled_round.shown_at.get(seat, 0) < settled_round.ends["keys"]
        need(not (is_right and is_early), "shown in time")
        return self.member(Role.PROVIDER, settled_round.holders[seat])

    def report_missing_key(self, round: int, seat: int) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["keys"] <= self.now < settled_round.ends["window"], "not now")
        m = self._keyless(round, seat)
        need(seat not in settled_round.struck, "done")
        settled_round.struck.add(seat)
        if seat in settled_round.pay:
            settled_round.pay.discard(seat)
            self.emit(ev.PayChanged(self.job, RoundIndex(round), bitmap(settled_round.pay)))
        self.emit(ev.Struck(self.job, RoundIndex(round), SeatIndex(seat)))
        if 2 * len(settled_round.in_time) >= settled_round.record.drawn.bit_count():
            self._missed(m, round, MissedDuty.KEY)

    def report_absent(self, round: int, id: int) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["open"] <= self.now < settled_round.ends["window"], "not now")
        body = settled_round.opened_reports.get(id, b"")
        left = self.duties(round, id) - {body[at] for at in range(0, len(body), 35)}
        need(left, "nothing excluded")
        record = settled_round.record
        owing = min(record.drawn.bit_count(), record.ready.bit_count())
        m = self.member(Role.VERIFIER, id)
        if 2 * len(settled_round.opened_reports) < owing and self._excuse(m, round):
            return
        self._missed(m, round, MissedDuty.AUDIT)

    def _excuse(self, m: Member, round: int) -> bool:
        """Whether the member had one of three left, and most keys of the round were shown."""
        settled_round, excuses = self.settled[round], self.excuses.setdefault(m.account, [])
        need(settled_round.ends["keys"] <= self.now, "not now")
        drawn = settled_round.record.drawn.bit_count()
        need(2 * len(settled_round.in_time) >= drawn, "the chain stood still")
        end, length = settled_round.ends["open"], self.terms.key_seconds
        need(all(not end - length < other < end + length for other in excuses), "excused")
        if len(excuses) == 3:
            return False
        excuses.append(end)
        where = (m.account, HolderId(m.id), RoundIndex(round))
        self.emit(ev.Excused(self.job, *where))
        return True

    def drop(self, round: int, id: int, seat: int) -> None:
        """An opened *mismatch* that was not played: half of what is left, once a seat."""
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        need(settled_round.ends["half"] <= self.now < settled_round.ends["window"], "not now")
        body = settled_round.opened_reports.get(id, b"")
        said = {body[at]: body[at + 1 : at + 3] for at in range(0, len(body), 35)}
        need(said.get(seat, b"\xff\xff") != b"\xff\xff", "accuses nobody")
        need((id, seat) not in settled_round.dropped, "done")
        settled_round.dropped.add((id, seat))
        m.bond -= m.bond // 2
        where = (m.role, HolderId(id), RoundIndex(round), MissedDuty.DROPPED)
        self.emit(ev.Missed(self.job, m.account, *where, m.bond))
        if m.to == FOREVER:
            self._end(m, self.following)
        self.emit(ev.Dropped(self.job, HolderId(id), RoundIndex(round), SeatIndex(seat)))

    def prove(self, round: int, id: int, seat: int) -> None:
        """Who accused a seat that has been slashed is credited the fee."""
        settled_round, m = self.settled[round], self.member(Role.VERIFIER, id)
        body = settled_round.opened_reports.get(id, b"")
        said = {body[at]: body[at + 1 : at + 3] for at in range(0, len(body), 35)}
        need(said.get(seat, b"\xff\xff") != b"\xff\xff", "accuses nobody")
        need(self.member(Role.PROVIDER, settled_round.holders[seat]).slashed, "not slashed")
        need((id, seat) not in settled_round.proven, "done")
        settled_round.proven.add((id, seat))
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.Proven(self.job, *where))
        self._credit(m.account, self.terms.duty_fee)

    def told(self, round: int, seat: int, account: Address) -> Digest:
        """What a *valid* of the account about this seat has to be, by the shown key."""
        settled_round = self.settled[round]
        checkpoint_commitments, key = (
            settled_round.reveals[seat].checkpoint_commitments,
            settled_round.keys[seat],
        )
        plain = b""
        for j in range(len(checkpoint_commitments) // 64):
            mask = hashed(key, j)
            hidden = checkpoint_commitments[64 * j + 32 : 64 * j + 64]
            plain += bytes(a ^ b for a, b in zip(hidden, mask, strict=True))
        return Digest(keccak(bytes.fromhex(account[2:]) + plain))

    def contest(self, round: int, id: int, seat: int, by: Address) -> None:
        settled_round = self.settled[round]
        need(settled_round.ends["open"] <= self.now < settled_round.ends["window"], "not now")
        need((id, seat) not in settled_round.contests, "done")
        need(not self.member(Role.PROVIDER, settled_round.holders[seat]).slashed, "slashed")
        need(
            seat in settled_round.keys
            and hashed(settled_round.keys[seat]) == settled_round.reveals[seat].key_hash,
            "key",
        )
        body = settled_round.opened_reports.get(id, b"")
        parts = [body[at : at + 35] for at in range(0, len(body), 35)]
        said = [p for p in parts if p[0] == seat and p[1:3] == b"\xff\xff"]
        account = self.member(Role.VERIFIER, id).account
        need(said and said[0][3:] != self.told(round, seat, account), "it is right")
        settled_round.contests[id, seat] = None
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.Contested(self.job, by, *where))

    def settle_contest(self, round: int, id: int, seat: int) -> None:
        settled_round = self.settled[round]
        need(self.now >= settled_round.ends["window"], "not final")
        need(
            (id, seat) in settled_round.contests and settled_round.contests[id, seat] is None, "no"
        )
        holder = self.member(Role.PROVIDER, settled_round.holders[seat])
        wrong = round < holder.lost_from
        settled_round.contests[id, seat] = wrong
        where = (HolderId(id), RoundIndex(round), SeatIndex(seat))
        self.emit(ev.ContestSettled(self.job, *where, wrong))
        m = self.member(Role.VERIFIER, id)
        if not wrong:
            self._credit(m.account, self.terms.duty_fee)
        elif (round, MissedDuty.DIGEST) not in m.penalties:
            self._missed(m, round, MissedDuty.DIGEST)

    def _credit(self, account: Address, amount: int) -> None:
        self.credits[account] = self.credits.get(account, 0) + amount
        self.emit(ev.Credited(self.job, account, amount))

    def claim_credit(self, account: Address) -> None:
        amount = self.credits.get(account, 0)
        self.credits[account] = 0
        self.claimed += amount
        self.emit(ev.CreditClaimed(self.job, account, amount))
