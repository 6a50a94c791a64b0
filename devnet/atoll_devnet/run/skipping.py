"""Skips what is left of a window once everyone who is going to act in it has acted.

Rule of this file: only the chain says who has acted and only the network knows who never will, so
that a slow machine is waited for and nobody but the absent ever meets a deadline through this.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from atoll.law.duties import supplement_of

from atoll.errors import ChainError, ConfigError
from atoll.law.manifest import Manifest
from atoll.law.views import JobView
from atoll.law.words import Bitmap, JobStatus, Phase, SeatIndex, VerifierIndex, bits, to_bitmap
from atoll_devnet.processes.cluster import Cluster, Member
from atoll_devnet.report.observer import Observer

LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Absent:
    """Who does not act, whatever happens.

    Attributes:
        seats: whose provider is gone.
        mute: who commit and cannot or will not reveal.
        verifiers: who are gone or stay idle.
    """

    seats: Bitmap
    mute: Bitmap
    verifiers: Bitmap


def next_moment(view: JobView, manifest: Manifest, absent: Absent, now: int) -> int | None:
    """Chain time before which nothing more can happen; None while anyone may still act."""
    state = view.state
    if state.status is not JobStatus.ACTIVE or _is_awaited(view, manifest, absent, now):
        return None
    waits_for_half = state.phase is Phase.REPORT and now < view.half_time
    moment = view.half_time if waits_for_half else state.deadline
    return moment if moment > now else None


async def skip_windows(cluster: Cluster, observer: Observer) -> None:
    """Moves the chain's clock whenever a window is only waited out; until cancelled.

    Raises:
        ConfigError: the chain is not Anvil.
    """
    if cluster.config.backend != "anvil":
        raise ConfigError("only Anvil skips windows", next_step="use the anvil chain")
    manifest, skipped = Manifest.from_bytes(observer.watched.manifest), 0
    while True:
        view = observer.view
        if view is not None:
            moment = next_moment(view, manifest, absent_of(cluster, view), observer.now)
            if moment is not None and moment > skipped:
                skipped = moment
                await _skip(cluster, moment)
        await asyncio.sleep(LOOK_SECONDS)


def absent_of(cluster: Cluster, view: JobView) -> Absent:
    """Processes that ended, and cheats that consist in not acting; members sit in order."""
    commits = [commit.commitment for commit in view.work.commits.values()]

    def is_mute(member: Member) -> bool:
        mine = view.work.commits.get(SeatIndex(member.index))
        copied = member.cheat == "copy" and mine is not None and commits.count(mine.commitment) > 1
        return member.cheat == "no-reveal" or copied

    return Absent(
        seats=to_bitmap(m.index for m in cluster.providers if not m.process.is_running),
        mute=to_bitmap(m.index for m in cluster.providers if is_mute(m)),
        verifiers=to_bitmap(
            m.index for m in cluster.verifiers if m.cheat == "offline" or not m.process.is_running
        ),
    )


async def _skip(cluster: Cluster, moment: int) -> None:
    try:
        await cluster.chain.rpc("evm_setNextBlockTimestamp", moment)
    except ChainError:
        return  # a block of that time or later came first


def _is_awaited(view: JobView, manifest: Manifest, absent: Absent, now: int) -> bool:
    """Whether someone may still act in the running phase before its next moment."""
    state, present = view.state, Bitmap(view.state.verifiers & ~absent.verifiers)
    match state.phase:
        case Phase.TRAIN:
            return bool(state.seated & ~state.committed & ~absent.seats)
        case Phase.REVEAL:
            return bool(state.committed & ~state.revealed & ~absent.seats & ~absent.mute)
        case Phase.REPORT:
            return _audits(view, manifest, present, now)
        case Phase.CONFIRM:
            return any(_votes(view, VerifierIndex(v)) for v in bits(present))
        case Phase.ATTEST:
            attested = to_bitmap(view.work.attestations)
            return bool(present & ~attested) or view.has_quorum
    return True


def _audits(view: JobView, manifest: Manifest, present: Bitmap, now: int) -> bool:
    if present & ~to_bitmap(view.ballots) or any(r.awaits_answer for r in view.attempt_reports):
        return True
    if now < view.half_time:
        return False
    # Which seats stand out is not on the chain: any may, and then falls to someone else as a whole.
    seats = tuple(view.reveals)
    return any(
        supplement_of(view, manifest, VerifierIndex(v), seats)
        for v in bits(present)
        if not view.ballots[VerifierIndex(v)].is_supplemented
    )


def _votes(view: JobView, verifier: VerifierIndex) -> bool:
    unsaid = any(not report.reporters >> verifier & 1 for report in view.attempt_reports)
    return unsaid and verifier not in view.votes
