"""Pay and what is burnt."""

from __future__ import annotations

from tests.support.contracts.audits import Audits
from tests.support.contracts.values import FOREVER, Member, need, stake_for

from atoll.protocol import events as ev
from atoll.protocol.types import HolderId, Role, RoundIndex


class Contracts(Audits):
    """One job on one chain. Actions raise Refused where the contracts would."""

    def worth(self, m: Member, round: int) -> int:
        """What a holder earned in a settled round, slashes apart."""
        settled_round, terms = self.settled[round], self.terms
        if m.role is Role.PROVIDER:
            is_its = settled_round.holders.get(m.index) == m.id and m.index in settled_round.pay
            price = terms.segment_pay
            return is_its * settled_round.done.get(m.index, 0) * price
        body = settled_round.opened_reports.get(m.id, b"")
        duties = (body[at : at + 35] for at in range(0, len(body), 35))
        seats = {duty[0] for duty in duties if duty[1:3] == b"\xff\xff"}
        taken = {s for id, s in settled_round.contests if id == m.id}
        signed = settled_round.slots.get(m.index) == m.id and m.index in settled_round.signed
        return signed * terms.sign_fee + len(seats - taken) * terms.duty_fee

    def claim(self, role: Role, id: int, to: int) -> tuple[int, int]:
        m = self.member(role, id)
        need(max(m.claimed_to, m.start) < to <= min(m.to, len(self.settled)), "no such rounds")
        need(self.now >= self.settled[to - 1].ends["window"], "not final")
        paid = burnt = 0
        for round in range(max(m.claimed_to, m.start), to):
            if round < m.lost_from:
                paid += self.worth(m, round)
            else:
                burnt += self.worth(m, round)
        m.claimed_to = to
        self.claimed += paid
        self.burnt += burnt
        where = (role, HolderId(id), RoundIndex(to), paid, burnt)
        self.emit(ev.Claimed(self.job, m.account, *where))
        if role is Role.PROVIDER and not (m.slashed or m.released):
            self._retain(m, paid)
        return paid, burnt

    def _retain(self, m: Member, earned: int) -> None:
        """A half joins the bond, until more of it makes no rate lower."""
        terms, burnt = self.terms, stake_for(self.terms, 0)
        part = min(earned // 2, stake_for(terms, terms.rate_steps) - burnt - m.retained)
        if not part:
            return
        m.retained, m.bond = m.retained + part, m.bond + part
        self.emit(ev.Retained(self.job, m.account, HolderId(m.id), part))
        steps = max(n for n in range(16) if stake_for(terms, n) <= burnt + m.retained)
        if steps == m.steps_in(FOREVER) or m.to != FOREVER:
            return
        # Seats lie 28 to a word, which has one round from which on it counts.
        word = m.index // 28
        start = RoundIndex(max(self.following, self.seasoned_from.get(word, 0)))
        self.seasoned_from[word] = start
        m.seasoned.append((start, steps))
        self.emit(ev.Seasoned(self.job, m.account, HolderId(m.id), start, steps))

    def burn(self, to: int) -> None:
        need(self.burnt_to < to <= len(self.settled), "no such rounds")
        need(self.now >= self.settled[to - 1].ends["window"], "not over")
        price = self.terms.segment_pay
        amount = sum(
            settled_round.done[s] * price
            for settled_round in self.settled[self.burnt_to : to]
            for s in settled_round.done
            if s not in settled_round.pay | settled_round.unearned
        )
        self.burnt_to = to
        self.burnt += amount
        self.emit(ev.Burnt(self.job, RoundIndex(to), amount))
