"""What must hold after any chaos: nothing is lost, nothing signed twice, nobody honest slashed.

Rule of this file: it looks from outside, at the chain and at the members' files, and asks nobody.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from atoll.chain.contracts import AtollChain
from atoll.chain.database import open_read_only
from atoll.chain.follower import Follower
from atoll.job.ledger.ledger import Ledger
from atoll.protocol.types import JobId, JobStatus, Role
from atoll.protocol.views import JobView
from atoll.service.session import Session, open_session
from atoll.storage.storage import StoreConfig
from atoll_devnet.processes.cluster import Member

LOOKS, LOOK_SECONDS = 40, 0.5
"""At the chain, for two readers to have come to one block."""


@dataclass
class Signatures:
    """What members' journals have claimed, as it was first seen: a subject is claimed once, for
    ever.

    Attributes:
        faults: sentences; none of honest software, whatever was killed.
    """

    faults: list[str] = field(default_factory=list)
    _seen: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def subjects(self) -> int:
        """How many were seen."""
        return len(self._seen)

    def look(self, members: Iterable[Member]) -> None:
        """Reads every journal; one that cannot be read now is looked at again the next time."""
        for member in members:
            signed = _signed(member)
            if signed is not None:
                self._compare(member.name, signed)

    def _compare(self, name: str, signed: dict[str, bytes]) -> None:
        for subject, content in signed.items():
            before = self._seen.setdefault((name, subject), content)
            if before != content:
                self.faults.append(f"{name} signed {subject} twice")
        for who, subject in self._seen:
            if who == name and subject not in signed:
                self.faults.append(f"{name} forgot that it signed {subject}")


def _signed(member: Member) -> dict[str, bytes] | None:
    if not member.journal_file.exists():
        return None
    try:
        with closing(open_read_only(member.journal_file)) as database:
            rows = database.execute("SELECT subject, content FROM signed").fetchall()
    except sqlite3.Error:
        return None
    return {subject: bytes(content) for subject, content in rows}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one job.

    Attributes:
        lost: why it did not come to its end; empty where it did.
        slashed: who was slashed, or is accused by an auditor; nobody, where everyone is honest.
        missed_duties: those that nobody did in time.
        money: what does not add up.
    """

    job: JobId
    rounds: int
    lost: str
    slashed: tuple[str, ...]
    missed_duties: tuple[str, ...]
    money: tuple[str, ...]


async def judge(chain: AtollChain, follower: Follower, job: JobId) -> Verdict:
    """Holds a job's events against its contract. Raises RpcUnavailable."""
    view, block = follower.views[job], hex(follower.confirmed)
    ledger = Ledger.of(view, follower.history(), view.block.timestamp)
    slashed = [f"{loss.account} in round {loss.round}" for loss in ledger.losses if loss.is_slash]
    missed = (loss for loss in ledger.losses if not loss.is_slash)
    return Verdict(
        job=job,
        rounds=len(view.settled),
        lost=_lost(view),
        slashed=(*slashed, *_accused(view)),
        missed_duties=tuple(f"{loss.account}: {loss.why}, round {loss.round}" for loss in missed),
        money=tuple(ledger.faults_against(await chain.escrow(job, block))),
    )


def _lost(view: JobView) -> str:
    if view.status is not JobStatus.DONE:
        return f"it is {view.status.name.lower()} after {len(view.settled)} rounds"
    rounds = view.require_terms().rounds
    return "" if len(view.settled) == rounds else f"{len(view.settled)} of {rounds} rounds settled"


def _accused(view: JobView) -> Iterator[str]:
    for settled_round in view.settled:
        for auditor, body in settled_round.opened_reports.items():
            for entry in body.entries:
                if not entry.is_valid and (auditor, entry.seat) not in settled_round.contests:
                    who = view.verifiers[auditor].account
                    yield f"seat {entry.seat} in round {settled_round.round}, which {who} accuses"


async def misremembered(session: Session, folder: Path) -> list[str]:
    """Jobs that a session which saw every reorg tells otherwise than one that begins now.

    Args:
        session: goes on being polled by somebody else.
        folder: for the one that begins, which was not there before.
    """
    config = replace(session.config, folder=folder, store=StoreConfig(folder / "store"))
    async with open_session(config) as anew:
        for _ in range(LOOKS):
            await anew.follower.poll()
            if anew.follower.history() == session.follower.history():
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return ["who saw every reorg remembers other events than the chain has"]
        views, remembered = anew.follower.views, session.follower.views
        return [
            f"job {job}: who saw every reorg has another view of it than who reads it now"
            for job in sorted({*views, *remembered})
            if views.get(job) != remembered.get(job)
        ]


async def lacking(chain: AtollChain, member: Member, start: int, follower: Follower) -> int:
    """Wei that a member's wallet and stakes lack of what it started with and was paid.

    What it was penalised is counted as lacking.
    """
    stakes = [await chain.stake(member.account, role) for role in Role]
    held = sum(stake.active + stake.unbonding for stake in stakes)
    paid = sum(view.paid.get(member.account, 0) for view in follower.views.values())
    return start + paid - held - await chain.token_balance(member.account)
