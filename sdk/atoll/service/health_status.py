"""What keeps a service from its work, as one status with numbers and the next step.

Rule of this file: pure. What is known is put in; the worst of it comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from atoll.chain import response_checks

SILENT_SECONDS: Final = 60.0
LEAST_ROOM: Final = 1 << 30
REPEATED: Final = 3
"""Failures of one command in a row that are more than bad luck."""
MONEY: Final = frozenset({"InsufficientFunds"})
DISK: Final = frozenset({"DiskFull"})
POLICY: Final = frozenset({"NotOurPolicy"})
MISSING: Final = frozenset({"NotFound"})


@dataclass(frozen=True, slots=True)
class Failing:
    """A command that did not take place: why, what helps, and how often in a row."""

    kind: str
    text: str
    next_step: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class KnownOfService:
    """What a service knows of itself.

    Attributes:
        silent_seconds: since the chain's last new block; None before the first.
        silence: why the chain does not answer, and `helps` what helps; empty where it does.
        room: bytes that are free where it writes.
        jobs: that it follows and that have not ended.
        strange: those of them in which the account has no place.
        refused: of the strange ones, those that are not for this service, and why.
        measured: those that are being looked at.
        failing: by job and command.
        waiting: what its transactions wait for, in words.
        defects: jobs whose machine does not step, and why.
        gateway: why it serves nothing; empty where it does.
        alerts: of its jobs, the gravest first of each.
        gathering: jobs in which the account has a place and no round runs, and what they wait for.
        sits_out: why it takes no part in anything; empty where it does.
        doppelganger: why it waits for another service with its key; empty where it is alone.
    """

    silent_seconds: float | None = None
    silence: str = ""
    helps: str = ""
    room: int = 1 << 60
    jobs: int = 1
    strange: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    measured: frozenset[int] = frozenset()
    failing: Mapping[tuple[int, str], Failing] = field(default_factory=dict)
    waiting: Sequence[str] = ()
    defects: Mapping[int, str] = field(default_factory=dict)
    gateway: str = ""
    alerts: Sequence[HealthStatus] = ()
    gathering: Mapping[int, str] = field(default_factory=dict)
    sits_out: str = ""
    doppelganger: str = ""


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """Why it does not work, and what to do about it.

    Attributes:
        name: a word, the same for the same cause.
        is_fault: whether somebody has to do something; else it waits for others.
    """

    name: str
    text: str
    next_step: str
    is_fault: bool = True

    def to_json_value(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "text": self.text,
            "next_step": self.next_step,
            "is_fault": self.is_fault,
        }


def blocking(known: KnownOfService) -> HealthStatus | None:
    """The one state that has to change first, in a line; None where it works."""
    first = _first(known)
    # Some of the words are strangers'.
    return None if first is None else replace(first, text=response_checks.text(first.text))


def _first(known: KnownOfService) -> HealthStatus | None:
    if known.silent_seconds is None or known.silent_seconds > SILENT_SECONDS:
        return _silent(known)
    if known.doppelganger:
        step = "stop the other service; to move one, `atoll journal export` there and import here"
        return HealthStatus("doppelganger", known.doppelganger, step)
    return _here(known) or _grave(known) or _rest(known)


def _silent(known: KnownOfService) -> HealthStatus:
    """Nothing new comes of the chain."""
    since, step = known.silent_seconds, "check rpc_urls: `atoll doctor --config …`"
    if since is None or known.silence:
        state = "has not answered yet" if since is None else f"has not answered for {since:.0f} s"
        why = f": {known.silence}" if known.silence else ""
        return HealthStatus("chain", f"the chain {state}{why}", known.helps or step)
    text = f"the chain answers, and has had no new block for {since:.0f} s"
    return HealthStatus("chain", text, f"look whether the node keeps up; {step}")


def _here(known: KnownOfService) -> HealthStatus | None:
    """What this machine lacks."""
    if known.room < LEAST_ROOM:
        text = f"{known.room / (1 << 30):.2f} GiB are free where the service writes"
        return HealthStatus("disk", text, "free some room; nothing is lost until then")
    if known.gateway:
        text = f"nothing is served, which costs a seat the round's pay: {known.gateway}"
        return HealthStatus("gateway", text, "free the gateway's port, or look at the log")
    return None


def _grave(known: KnownOfService) -> HealthStatus | None:
    """What costs a bond, or keeps it from all work."""
    for alert in known.alerts:
        if alert.is_fault:
            return alert
    ours = _ours(known)
    for name, kinds, among in (
        ("disk", DISK, known.failing), ("money", MONEY, ours), ("policy", POLICY, ours)
    ):  # fmt: skip
        worst = _worst(among, kinds)
        if worst is not None:
            return HealthStatus(name, *worst)
    return None


def _ours(known: KnownOfService) -> Mapping[tuple[int, str], Failing]:
    """Failures that keep it from its work.

    Who has a place is at work, whatever keeps it out of further jobs; and what nobody serves of a
    job that anyone may announce is that job's fault.
    """
    has_place = known.jobs > len(known.strange)
    return {
        (job, key): why
        for (job, key), why in known.failing.items()
        if job not in known.strange or not (has_place or why.kind in MISSING)
    }


def _rest(known: KnownOfService) -> HealthStatus | None:
    if known.waiting:
        text = f"{len(known.waiting)} transactions wait; the first: {known.waiting[0]}"
        step = "raise fees.max_fee_gwei, or wait: `atoll tx list --config …`"
        return HealthStatus("fees", text, step)
    repeated = [each for each in _ours(known).values() if each.times >= REPEATED]
    if repeated:
        worst = max(repeated, key=lambda each: each.times)
        text = f"failed {worst.times} times in a row: {worst.text}"
        return HealthStatus("failing", text, worst.next_step or "look at the log for the cause")
    if known.defects:
        job, cause = min(known.defects.items())
        return HealthStatus(
            "defect", f"job {job} does not step: {cause}", "report this, with the log"
        )
    if known.alerts:
        return known.alerts[0]
    return _idle(known)


def _idle(known: KnownOfService) -> HealthStatus | None:
    """Why it has nothing to do, which is nobody's fault; None where it has."""
    if known.sits_out:
        ordered = "`atoll node resume`, or `atoll verifier resume`"
        step = "wait, or change [schedule]" if "schedule" in known.sits_out else ordered
        return HealthStatus("sits out", f"the service {known.sits_out}", step, is_fault=False)
    if known.jobs == 0:
        text = "no open job is known that this service could take part in"
        return HealthStatus("no job", text, "wait for one, or look at [policy]", is_fault=False)
    if known.jobs == len(known.refused):
        job, why = max(known.refused.items())
        text = f"no open job is for this service; the newest, job {job}: {why}"
        step = "wait for another one, or change what the refusal names"
        return HealthStatus("refused", text, step, is_fault=False)
    if known.measured and known.jobs == len(known.strange):
        job = min(known.measured)
        text = f"job {job} is being looked at: whether it is for this machine, and how fast it is"
        return HealthStatus("measures", text, "wait: it takes some minutes", is_fault=False)
    if known.gathering and len(known.gathering) == known.jobs - len(known.strange):
        job, what = min(known.gathering.items())
        step = f"wait for others; `atoll watch {job}` tells who comes"
        return HealthStatus("members", f"job {job} {what}", step, is_fault=False)
    return None


def _worst(
    failing: Mapping[tuple[int, str], Failing], kinds: frozenset[str]
) -> tuple[str, str] | None:
    for (job, _), failure in sorted(failing.items()):
        if failure.kind in kinds:
            return (
                f"job {job}: {failure.text}",
                failure.next_step or "look at the log for the cause",
            )
    return None
