"""Where a job stands at a block: for programs, and as a person reads it.

Rule of this file: pure; numbers out of `atoll.protocol`'s views.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from atoll.job.event_text import tokens
from atoll.job.readable import moment, table_html
from atoll.job.serialization import plain_of
from atoll.protocol.types import BlockRef, Digest, JobId, JobStatus, Phase
from atoll.protocol.views import JobView
from atoll.storage.cid import cid_text


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """Where a job stands at a block.

    Attributes:
        committee_draw: of the committee that is to settle the round, from 0.
        deadline: unix seconds at which the phase ends; 0 where it waits for members.
        expiry: unix seconds from which on no round is opened.
        providers: seats that are held; `verifiers` slots that are, `ready` those that said so.
        enough_providers, enough_ready: with so many of both a round opens.
        final_rounds: of the settled ones, those whose pay nothing changes any more.
        funded_wei: paid in; it is paid out, burnt, refunded, or still there.
        model_digest, model_cid: of the newest model that a committee certified.
    """

    job: JobId
    status: JobStatus
    phase: Phase
    round: int
    rounds: int
    committee_draw: int
    deadline: int
    expiry: int
    providers: int
    verifiers: int
    ready: int
    enough_providers: int
    enough_ready: int
    settled_rounds: int
    final_rounds: int
    funded_wei: int
    paid_wei: int
    burnt_wei: int
    refunded_wei: int
    model_digest: Digest | None
    model_cid: bytes | None
    block: BlockRef

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be trained."""
        return self.status.is_closed

    @property
    def is_final(self) -> bool:
        """Whether nothing of it changes any more but where its money is."""
        return self.has_ended and self.final_rounds == self.settled_rounds

    @property
    def lacking(self) -> str:
        """What a job that waits for members has of them, and what would open a round; empty of one
        that lacks none.
        """
        enough = self.providers >= self.enough_providers and self.ready >= self.enough_ready
        if self.phase is not Phase.WAITING or enough:
            return ""
        return (
            f"{_of(self.providers, self.enough_providers)} seats are held, "
            f"{_of(self.ready, self.enough_ready)} verifiers are ready"
        )

    def to_json_value(self) -> dict[str, Any]:
        """For JSON: times in unix seconds, the CID as everywhere."""
        cid = None if self.model_cid is None else cid_text(self.model_cid)
        return plain_of(self) | {"model_cid": cid}

    def lines(self) -> dict[str, str]:
        """For a person, by name: amounts in tokens, times as dates; of a job that has ended, or
        waits for members, with what can be done.
        """
        data = self.to_json_value()
        out = self.paid_wei + self.burnt_wei + self.refunded_wei
        until = f", until {moment(self.deadline)} at the latest" if self.deadline else ""
        lines = {
            "job": str(self.job),
            "status": data["status"],
            "phase": f"{data['phase']}{until}",
            "rounds": f"{self.settled_rounds} of {self.rounds} settled, {self.final_rounds} final",
            "members": f"{self.providers} providers; {self.verifiers} verifiers, "
            f"{self.ready} of them ready",
            "funded": f"{tokens(self.funded_wei)} tokens",
            "paid": f"{tokens(self.paid_wei)} tokens",
            "burnt": f"{tokens(self.burnt_wei)} tokens",
            "refunded": f"{tokens(self.refunded_wei)} tokens",
            "left": f"{tokens(self.funded_wei - out)} tokens",
            "model": data["model_digest"] or "none is certified",
        }
        if data["model_cid"] is not None:
            lines["model CID"] = data["model_cid"]
        if self.lacking:
            ends = moment(self.expiry)
            lines["waits"] = f"for members: {self.lacking}; without them it ends at {ends}"
        if self.has_ended or self.lacking:
            lines["next"] = self.next_command
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {value}" for name, value in self.lines().items())

    def _repr_html_(self) -> str:
        return table_html(f"job {self.job}", self.lines())

    @property
    def next_command(self) -> str:
        """What the submitter of a job that has ended, or waits for members, does then."""
        back = f"`atoll job refund {self.job}` takes back what nobody earned"
        if self.lacking:
            serves = f"`atoll job serve {self.job}` serves the data, which verifiers need"
            return f"{serves}; `atoll job cancel {self.job}` ends the job at once, then {back}"
        if not self.settled_rounds:
            return back
        when = "" if self.is_final else ", once its last round is final"
        return f"`atoll job result {self.job} DIR` fetches the model{when}; {back}"

    @classmethod
    def of(cls, view: JobView, now: int = 0) -> JobSnapshot:
        """The snapshot of a view at `now`, or at its last event. Raises ProtocolError before the
        job exists.
        """
        pool, running, terms = view.pool(view.round), view.open, view.require_terms()
        there = view.gathered()
        return cls(
            job=view.job_id,
            status=view.status,
            phase=view.phase,
            round=view.round,
            rounds=terms.rounds,
            committee_draw=running.committee_draw if running else 0,
            deadline=running.deadline if running else 0,
            expiry=terms.expiry,
            providers=there.held,
            verifiers=len(pool),
            ready=there.ready,
            enough_providers=there.enough_held,
            enough_ready=there.enough_ready,
            settled_rounds=len(view.settled),
            final_rounds=final_rounds(view, max(now, view.block.timestamp)),
            funded_wei=view.funded,
            paid_wei=sum(view.paid.values()),
            burnt_wei=view.burnt,
            refunded_wei=view.refunded,
            model_digest=view.model if any(view.model) else None,
            model_cid=view.model_cid or None,
            block=view.block,
        )


def _of(there: int, enough: int) -> str:
    return f"{there} of {enough}" if there <= enough else str(there)


def final_rounds(view: JobView, now: int) -> int:
    """How many rounds are over for everybody: their windows have passed, no game is open."""
    passed = bisect_right(
        view.settled, now, key=lambda settled_round: settled_round.clock.window_end
    )
    return min([passed, *(game.claim.round for game in view.games.values() if game.is_open)])
