"""A network in bad chaos: jobs go on being submitted while things break, until a deadline.

Rule of this file: it only starts what ended, as an operator's machine would; everything else is the
services' own to mend. What ends by itself is a finding.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from atoll.errors import ChainError
from atoll.job.spec import JobSpec
from atoll.protocol.keeper_calls import keeper_calls
from atoll.protocol.types import JobId
from atoll.protocol.views import JobView
from atoll.service.duties.send_keeper_calls import is_over
from atoll.service.session import Session
from atoll_devnet.chaos.growth import Growth
from atoll_devnet.chaos.invariants import Signatures, Verdict, judge, lacking, misremembered
from atoll_devnet.chaos.submitter import Submission, submission
from atoll_devnet.processes.cluster import STAKE_TOKENS, Cluster, Member
from atoll_devnet.processes.links import Links
from atoll_devnet.processes.process import last_line
from atoll_devnet.processes.warm import MemberProcess

LOOK_SECONDS = 0.5
SAMPLE_SECONDS = 10.0
RESTART_SECONDS = 2.0
GRACE_SECONDS = 30.0
"""What a trouble causes may show so much later."""
EVERYONE = "everyone"
ONE_WRITER = "wait until it has sent its transactions"
CALM_SECONDS = 600.0
"""So long everything may take to come to its end once the chaos is fine."""
Tell = Callable[[str], None]
Fault = Callable[["Storm"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class StormConfig:
    """A network, its chaos and how long it lasts.

    Attributes:
        job: every job is this one, with another seed.
        at_once: jobs that are open at a time.
        seconds: how long new jobs are submitted and things break.
        pause: seconds between two troubles, in the mean.
        is_rooted: some members have a small disk or a link of their own, which takes root.
    """

    folder: Path
    job: JobSpec
    providers: int = 3
    verifiers: int = 3
    at_once: int = 2
    seconds: float = 60.0
    pause: float = 5.0
    seed: int = 0
    is_rooted: bool = False


@dataclass
class Storm:
    """A running network, what was done to it, and what was seen.

    Attributes:
        done: how often each trouble was made.
        findings: sentences; what honest software does not do.
        chain_alone: held while something is done to the chain.
        small_disks: members that have a small one each; `full_disks` are full; spares: who comes
            and goes.
        links: of the members that have one; `linked` says which, `disturbed` which do not work.
        first_block: before it no reorg goes: the network was made there, or Anvil was started last,
            which has no states from before.
        now: the chain's clock.
    """

    config: StormConfig
    cluster: Cluster
    session: Session
    tell: Tell
    random: Random
    began: float = field(default_factory=time.monotonic)
    done: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    chain_alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    small_disks: list[Member] = field(default_factory=list)
    full_disks: set[str] = field(default_factory=set)
    spares: list[Member] = field(default_factory=list)
    links: Links | None = None
    linked: dict[str, int] = field(default_factory=dict)
    disturbed: set[str] = field(default_factory=set)
    first_block: int = 0
    submissions: list[Submission] = field(default_factory=list)
    signatures: Signatures = field(default_factory=Signatures)
    growth: Growth = field(default_factory=Growth)
    now: int = 0
    _is_calm: bool = False
    _excuses: Counter[str] = field(default_factory=Counter)
    _ended: dict[str, float] = field(default_factory=dict)
    _sampled: float = 0.0

    @property
    def views(self) -> dict[JobId, JobView]:
        """Every job as the chain tells it."""
        return dict(self.session.follower.views)

    @property
    def settled(self) -> int:
        """Rounds of all jobs that have settled."""
        return sum(len(view.settled) for view in self.views.values())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def note(self, what: str) -> None:
        """Counts a trouble and tells of it."""
        self.done[what.split(":", maxsplit=1)[0]] += 1
        self.tell(f"{self.seconds:6.1f} s  {what}")

    def find(self, what: str) -> None:
        """Something that honest software does not do."""
        self.findings.append(what)
        self.tell(f"{self.seconds:6.1f} s  FOUND: {what}")

    async def start_chain(self) -> None:
        """After it has ended, with what it wrote."""
        await self.cluster.chain.start()
        self.first_block = await self.cluster.chain.block_number()

    @contextmanager
    def excused(self, name: str) -> Iterator[None]:
        """A process may end by itself inside, and for a while behind; `EVERYONE` is all."""
        self._excuses[name] += 1
        try:
            yield
        finally:
            loop = asyncio.get_running_loop()
            loop.call_later(GRACE_SECONDS, self._excuses.subtract, [name])

    async def some_time(self, mean: float) -> None:
        """Waits for half of a mean to half more."""
        await asyncio.sleep(mean * (0.5 + self.random.random()))

    # --- what goes on beside the chaos ---

    async def follow(self) -> None:
        """Follows the chain, samples the members, submits jobs, starts what ended; for ever."""
        while True:
            news = await self.session.follower.poll_patiently()
            self.now = news.head.timestamp if news.head else self.now
            self._sample()
            self._submit()
            self._start_what_ended()
            await asyncio.sleep(LOOK_SECONDS)

    def _sample(self) -> None:
        if time.monotonic() - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = time.monotonic()
        self.signatures.look(self.cluster.members)
        self.growth.look(self.cluster.members, self.settled)

    def _submit(self) -> None:
        """One more job where fewer are open; a key has one writer, so one pays at a time."""
        is_paying = any(submitted.job is None for submitted in self.submissions)
        open_ = [submitted for submitted in self.submissions if not submitted.has_ended]
        if self._is_calm or is_paying or len(open_) >= self.config.at_once:
            return
        submitted = submission(self.cluster, self.config.job, len(self.submissions))
        self.submissions.append(submitted)
        submitted.process.start()
        self.tell(
            f"{self.seconds:6.1f} s  {submitted.name} starts; {self.settled} rounds have settled"
        )

    def _start_what_ended(self) -> None:
        """As an operator's machine does, some seconds later."""
        now = time.monotonic()
        for name, process in self.processes():
            if process.is_running or process.exit_code in {None, 0}:
                self._ended.pop(name, None)
                continue
            if name not in self._ended:
                self._ended[name] = now
                self._look_why(name, process)
            elif now - self._ended[name] > RESTART_SECONDS:
                del self._ended[name]
                process.start()

    def _look_why(self, name: str, process: MemberProcess) -> None:
        ending = f"{name} ended with code {process.exit_code}: {last_line(process.log_file)[:300]}"
        # A key has one writer: who submits while another pays is told so, and starts again.
        is_second = process.exit_code == 2 and ONE_WRITER in ending
        if is_second or self._excuses[name] or self._excuses[EVERYONE]:
            self.tell(f"{self.seconds:6.1f} s  {ending}")
        else:
            self.find(ending)

    def processes(self) -> Iterator[tuple[str, MemberProcess]]:
        """Of members and submitters, with their names."""
        yield from ((member.name, member.process) for member in self.cluster.members)
        yield from ((submitted.name, submitted.process) for submitted in self.submissions)

    # --- the end ---

    async def calm(self) -> None:
        """Waits until every job has come to its end, and all bonds and pay are home."""
        self._is_calm = True
        for member in self.spares:  # to claim what they earned
            member.process.start()
        until = time.monotonic() + CALM_SECONDS
        while not self.is_over():
            if time.monotonic() > until:
                self.find(f"jobs did not end in {CALM_SECONDS:.0f} s of fine chaos")
                break
            await asyncio.sleep(LOOK_SECONDS)
        self.signatures.look(self.cluster.members)
        self.findings += defects(self.cluster.members)

    def is_over(self) -> bool:
        """Whether every job that was submitted has ended, and nothing is due in any."""
        jobs = [submitted.job for submitted in self.submissions]
        views = [self.views.get(job) for job in jobs if job is not None]
        return len(views) == len(jobs) and all(
            view is not None and is_over(view, self.now) and not any(keeper_calls(view, self.now))
            for view in views
        )

    async def verdict(self) -> dict[str, Any]:
        """What became of everything, in JSON values."""
        chain, follower = self.session.chain, self.session.follower
        self.findings += await misremembered(self.session, self.cluster.folder / "anew")
        jobs = [await judge(chain, follower, job) for job in sorted(self.views)]
        stake = STAKE_TOKENS * 10**self.cluster.deployment.decimals
        lacks = {
            member.name: await lacking(chain, member, stake, follower)
            for member in self.cluster.members
        }
        return {
            "seconds": round(self.seconds),
            "done": dict(sorted(self.done.items())),
            "kills": sum(count for what, count in self.done.items() if what.startswith("kills")),
            "jobs": len(jobs),
            "rounds": sum(job.rounds for job in jobs),
            "lost": [f"job {job.job}: {job.lost}" for job in jobs if job.lost],
            "signed": self.signatures.subjects,
            "signed_twice": list(dict.fromkeys(self.signatures.faults)),
            "slashed": _of(jobs, "slashed"),
            "money": _of(jobs, "money"),
            "missed_duties": _of(jobs, "missed_duties"),
            "lacks_wei": {name: str(wei) for name, wei in lacks.items() if wei},
            "findings": self.findings,
            "growth": self.growth.to_json_value(),
        }


def _of(jobs: list[Verdict], name: str) -> list[str]:
    return [f"job {job.job}: {what}" for job in jobs for what in getattr(job, name)]


def holds(verdict: dict[str, Any]) -> bool:
    """Whether nothing was lost, nothing signed twice, nobody slashed, and the ledgers add up."""
    return not any(verdict[n] for n in ("lost", "signed_twice", "slashed", "money", "findings"))


def defects(members: Iterable[Member]) -> Iterator[str]:
    """What services said of themselves: exceptions that nobody had thought of, by what they say."""
    for member in members:
        text = member.process.log_file.read_text(encoding="utf-8", errors="replace")
        lines = iter(text.splitlines())
        for line in lines:
            if '"level": "error"' in line:
                entry = json.loads(line)
                cause = str(entry.get("exception", "")).strip().rpartition("\n")[2]
                yield f"{member.name}: {entry['event']} {entry.get('command', '')}: {cause}"
            elif line.startswith("Traceback"):
                cause = next((each for each in lines if not each.startswith(" ")), "")
                yield f"{member.name}: a traceback in its log: {cause}"


async def rage(storm: Storm, weights: Mapping[Fault, int]) -> None:
    """Makes trouble until the time is over; what lasts goes on beside what comes next."""
    config = storm.config
    faults, shares = list(weights), list(weights.values())
    async with asyncio.TaskGroup() as group:
        while storm.seconds < config.seconds:
            await asyncio.sleep(storm.random.expovariate(1 / config.pause))
            (fault,) = storm.random.choices(faults, shares)
            group.create_task(_make(storm, fault))


async def _make(storm: Storm, fault: Fault) -> None:
    try:
        await fault(storm)
    except ChainError as error:
        storm.find(f"{fault.__name__}: the chain did not come back: {error}")
