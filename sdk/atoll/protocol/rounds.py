"""The round machine, mirrored: a job's view is a fold over its events.

Rule of this file: one pure function an event. Events of other jobs, and of stakes, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from atoll.protocol import events as ev
from atoll.protocol.audit_rates import rate_in
from atoll.protocol.audits import AUDIT_HANDLERS
from atoll.protocol.clocks import (
    MOST_REPEATS,
    AuditClock,
    last_audits,
    last_moment,
    seed_due,
    votes_end,
)
from atoll.protocol.committee_draws import draw_audits, draw_duties, next_committee
from atoll.protocol.disputes import DISPUTE_HANDLERS
from atoll.protocol.events import ContractEvent
from atoll.protocol.holders import Holder
from atoll.protocol.membership import MEMBERSHIP_HANDLERS, Handler, put, with_holder
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.open_rounds import OpenRound, SeatCommit, SeatReveal
from atoll.protocol.pay import duties_left
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    NO_BITS,
    Bitmap,
    BlockRef,
    Digest,
    HolderId,
    JobStatus,
    Phase,
    Role,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Terms,
    bits,
    to_bitmap,
)
from atoll.protocol.views import JobView

__all__ = ["JobView", "apply", "apply_all"]


def apply(view: JobView, event: ContractEvent, block: BlockRef) -> JobView:
    """The view after one more event, in the order of the chain's logs. Pure.

    Args:
        block: the block that holds the event.
    """
    if getattr(event, "job_id", view.job_id) != view.job_id:
        return view
    handler = _HANDLERS.get(type(event))
    return view if handler is None else replace(handler(view, event, block), block=block)


def apply_all(view: JobView, events: Iterable[tuple[ContractEvent, BlockRef]]) -> JobView:
    """Folds `apply` over events with their blocks, oldest first."""
    for event, block in events:
        view = apply(view, event, block)
    return view


def _running(view: JobView) -> OpenRound:
    """The contracts speak of the open round only while there is one."""
    if view.open is None:
        raise ValueError(f"no round of job {view.job_id} is open")
    return view.open


def _with(view: JobView, **changes: Any) -> JobView:
    """The view with these fields of its open round replaced."""
    running = replace(_running(view), **changes)
    return replace(view, open=running, phase=running.phase)


# --- the open round ---


def _round_opened(view: JobView, event: ev.RoundOpened, block: BlockRef) -> JobView:
    """Members are fixed; so is who of them counts, whatever leaves later."""
    in_pool = Bitmap(event.ready | event.committee)
    seats = _holders(view.providers, event.seated, event.round)
    slots = _holders(view.verifiers, in_pool, event.round)
    running = OpenRound(
        round_id=view.round_id(event.round),
        phase=Phase.TRAIN,
        block=block,
        seed=event.seed,
        seated=event.seated,
        ready=event.ready,
        committee=event.committee,
        model=event.model,
        deadline=event.deadline,
        seats={SeatIndex(seat): holder for seat, holder in seats.items()},
        slots={SlotIndex(slot): holder for slot, holder in slots.items()},
        committee_seed=event.seed,
    )
    status = JobStatus.ACTIVE
    return replace(view, open=running, phase=Phase.TRAIN, round=event.round, status=status)


def _holders(
    everyone: Mapping[HolderId, Holder], which: Bitmap, round: RoundIndex
) -> dict[int, HolderId]:
    """The newest holder of each seat or slot that counts in the round."""
    holder_ids: dict[int, HolderId] = {}
    for holder in sorted(everyone.values(), key=lambda h: (h.counts_in(round), h.id)):
        if which >> holder.index & 1:
            holder_ids[holder.index] = holder.id
    return holder_ids


def _committed(view: JobView, event: ev.Committed, block: BlockRef) -> JobView:
    running = _running(view)
    commit = SeatCommit(running.seats[event.seat], event.account, event.commitment)
    return _with(view, commits=put(running.commits, event.seat, commit))


def _stopped(view: JobView, event: ev.Stopped, block: BlockRef) -> JobView:
    """It disagreed or was slashed, and is not waited for. Who disagreed is bound while an audit
    lasts."""
    running = _running(view)
    if any(event.root):
        until = AuditClock.of(view.require_terms(), block.timestamp).window_end
        holder = running.seats[event.seat]
        view = with_holder(view, Role.PROVIDER, holder, bound_until=until)
    return _with(view, stopped=Bitmap(running.stopped | 1 << event.seat))


def _reveal_opened(view: JobView, event: ev.RevealOpened, block: BlockRef) -> JobView:
    running = _running(view)
    view = _miss(view, Bitmap(running.counting & ~event.committed))
    return _with(view, phase=Phase.REVEAL, deadline=event.deadline)


def _phase_repeated(view: JobView, event: ev.PhaseRepeated, block: BlockRef) -> JobView:
    """Fewer than half of the seats were in time: nobody misses."""
    return _with(view, deadline=event.deadline)


def _miss(view: JobView, seats: Bitmap) -> JobView:
    """These seats' holders owed the phase that is over: nobody holds them now."""
    running = _running(view)
    for seat in map(SeatIndex, bits(seats)):
        holder = running.seats[seat]
        view = with_holder(view, Role.PROVIDER, holder, missed=running.round)
    return replace(view, held=Bitmap(view.held & ~seats))


def _revealed(view: JobView, event: ev.Revealed, block: BlockRef) -> JobView:
    running = _running(view)
    commit = running.commits[event.seat]
    reveal = SeatReveal(commit.holder, event.account, commit.commitment, event.reveal)
    return _with(view, reveals=put(running.reveals, event.seat, reveal))


def _merge_opened(view: JobView, event: ev.MergeOpened, block: BlockRef) -> JobView:
    """Who is accused or was slashed is fixed now, so that everybody merges the same."""
    running, now = _running(view), block.timestamp
    view = _miss(view, Bitmap(running.committed & ~event.revealed))
    accused = view.accused(now)
    slashed = {holder for holder, item in view.providers.items() if item.is_slashed}
    return _with(
        view,
        phase=Phase.MERGE,
        next_seed=event.next_seed,
        deadline=event.deadline,
        half_merge=now + view.require_terms().merge_seconds // 2,
        seed_due=seed_due(view.require_terms(), now),
        votes_end=votes_end(view.require_terms(), event.deadline),
        accused=_seats_of(running, accused),
        slashed=_seats_of(running, slashed),
    )


def _seats_of(running: OpenRound, holders: set[HolderId]) -> Bitmap:
    return to_bitmap(seat for seat, holder in running.seats.items() if holder in holders)


def _audit_seeded(view: JobView, event: ev.AuditSeeded, block: BlockRef) -> JobView:
    return _with(view, audit_seed=event.audit_seed)


def _said(view: JobView, event: ev.Voted, block: BlockRef) -> JobView:
    return _with(view, votes=put(_running(view).votes, event.slot, event.has))


def _committee_drawn(view: JobView, event: ev.CommitteeDrawn, block: BlockRef) -> JobView:
    """A committee draw that did not settle is over; the next one casts its own votes."""
    running = _running(view)
    silent = _silent_now(running)
    drawn = _holders(view.verifiers, event.committee, event.round)
    slots = {SlotIndex(slot): holder for slot, holder in drawn.items()}
    return _with(
        view,
        committee=event.committee,
        committee_draw=event.committee_draw,
        committee_seed=next_committee(
            running.audit_seed if event.committee_draw == 1 else running.committee_seed,
            event.committee_draw,
        ),
        deadline=event.deadline,
        votes_end=votes_end(view.require_terms(), event.deadline),
        slots={**slots, **running.slots},
        votes={},
        silent=Bitmap(running.silent | silent),
    )


# --- ends of a round ---


def record_of(
    view: JobView, running: OpenRound, excluded: Bitmap, certificate: Digest
) -> RoundRecord:
    """What the contract keeps of a round that is settled now."""
    rate = rate_in(view.require_terms(), is_last=view.is_last(running.round))
    drawn = draw_audits(
        running.audit_seed,
        running.revealed,
        excluded,
        rate=rate,
        left=duties_left(view),
        steps=_steps_in(view, running),
    )
    return RoundRecord(
        seed=running.seed,
        audit_seed=running.audit_seed,
        reveals=running.reveal_accumulator,
        votes=running.votes_accumulator,
        model=running.model,
        revealed=running.revealed,
        available=running.available,
        excluded=excluded,
        ready=running.ready,
        committee=running.committee,
        drawn=drawn,
        certificate=certificate,
    )


def _steps_in(view: JobView, running: OpenRound) -> dict[SeatIndex, int]:
    """What seats had come down by when the round opened."""
    round = running.round
    return {s: view.providers[holder].steps_in(round) for s, holder in running.seats.items()}


def _settled(view: JobView, event: ev.Settled, block: BlockRef) -> JobView:
    settled_round = _settled_round(view, event, block)
    view = _miss(view, _short_again(view, settled_round))
    following = RoundIndex(event.round + 1)
    settled = view.settled.plus(settled_round)
    return replace(view, settled=settled, open=None, phase=Phase.WAITING, round=following)


def _short_again(view: JobView, settled_round: SettledRound) -> Bitmap:
    """Seats that were short, and under the same holder in one of the two rounds before, too.

    That is a bucket: two are put in by a short round, one is taken out by another, and three are a
    missed duty, which ends the holder.
    """
    lately = view.settled[-2:]
    return to_bitmap(
        seat
        for seat in map(SeatIndex, bits(settled_round.short))
        if any(
            before.short >> seat & 1 and before.seats[seat] == settled_round.seats[seat]
            for before in lately
        )
    )


def _short(running: OpenRound, event: ev.Settled, terms: Terms) -> Bitmap:
    """Seats that did too little to be merged; where nothing is certified the job ends, and nobody
    is short.
    """
    done = running.segments.items() if any(event.digest) else ()
    return to_bitmap(seat for seat, m in done if not is_whole_enough(m, terms.segments))


def _settled_round(view: JobView, event: ev.Settled, block: BlockRef) -> SettledRound:
    running, record, terms = _running(view), event.record, view.require_terms()
    now, early = block.timestamp, running.early_audit_reports.items()
    audits, counts = 1, (record.drawn.bit_count(), record.ready.bit_count())
    if view.is_last(event.round):
        audits = last_audits(*counts)
    # Who revealed no segment claims nothing.
    working = to_bitmap(seat for seat, segments in running.segments.items() if segments)
    short = _short(running, event, terms)
    return SettledRound(
        round_id=running.round_id,
        block=block,
        digest=event.digest,
        verdict=event.verdict,
        record=record,
        signers=event.signers,
        silent=_silent_in_all(running, now),
        seats=running.seats,
        slots=running.slots,
        reveals=running.reveals,
        votes=running.votes,
        clock=AuditClock.of(terms, now, audits=audits),
        drawn=Bitmap(record.drawn & working),
        duties=_duties(record, working),
        pay=Bitmap(event.available if event.verdict.merged else event.available & ~short),
        short=short,
        early_keys=running.early_keys,
        audit_reports={holder: sealed.audit_report for holder, sealed in early if sealed.at == now},
        is_consistent=record == record_of(view, running, event.verdict.excluded, event.digest),
        committee_seed=running.committee_seed,
        accused=running.accused,
        slashed=running.slashed,
    )


def _silent_in_all(running: OpenRound, settled_at: int) -> Bitmap:
    """Slots that missed their vote: in committee draws that were replaced, and in the one that
    settled.

    Who has said nothing while votes are taken may yet have lacked an update.
    """
    here = _silent_now(running) if settled_at >= running.votes_end else NO_BITS
    return Bitmap(running.silent | here)


def _silent_now(running: OpenRound) -> Bitmap:
    """Slots that missed their vote in the committee draw that runs: none where most were silent, in
    the first of a round."""
    silent = running.committee & ~to_bitmap(running.votes)
    is_standstill = 2 * silent.bit_count() > running.committee.bit_count()
    is_early = running.committee_draw < MOST_REPEATS
    return NO_BITS if is_standstill and is_early else Bitmap(silent)


def _duties(record: RoundRecord, working: Bitmap) -> dict[SlotIndex, tuple[SeatIndex, ...]]:
    """Seats of each auditor, without those that have nothing to do again."""
    duties: dict[SlotIndex, tuple[SeatIndex, ...]] = {}
    for slot, seats in draw_duties(record.audit_seed, record.drawn, record.ready).items():
        if left := tuple(seat for seat in seats if working >> seat & 1):
            duties[slot] = left
    return duties


def _waiting(view: JobView, event: ev.Waiting, block: BlockRef) -> JobView:
    """A round that nobody committed to or revealed is void; or members are missing."""
    if view.open is not None:
        view = _miss(view, event.missed)
    return replace(view, open=None, phase=Phase.WAITING, round=event.round)


def _closed(view: JobView, event: ev.Closed, block: BlockRef) -> JobView:
    """A round that is void closes the job where it was cancelled or expired: who missed, missed.

    From the last moment on nobody owes anything any more.
    """
    running = view.open
    if running is not None and block.timestamp < last_moment(view.require_terms()):
        said = running.commits if running.phase is Phase.TRAIN else running.reveals
        owing = running.counting if running.phase is Phase.TRAIN else running.committed
        view = _miss(view, Bitmap(owing & ~to_bitmap(said)))
    closed = event.status
    return replace(view, open=None, phase=Phase.CLOSED, status=closed, closed_at=event.closed_at)


_HANDLERS: Final[Mapping[type, Handler]] = {
    **MEMBERSHIP_HANDLERS,
    **AUDIT_HANDLERS,
    **DISPUTE_HANDLERS,
    ev.RoundOpened: _round_opened,
    ev.Committed: _committed,
    ev.Stopped: _stopped,
    ev.RevealOpened: _reveal_opened,
    ev.PhaseRepeated: _phase_repeated,
    ev.Revealed: _revealed,
    ev.MergeOpened: _merge_opened,
    ev.AuditSeeded: _audit_seeded,
    ev.Voted: _said,
    ev.CommitteeDrawn: _committee_drawn,
    ev.Settled: _settled,
    ev.Waiting: _waiting,
    ev.Closed: _closed,
}
