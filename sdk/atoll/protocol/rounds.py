"""The round machine, mirrored: a job's view is a fold over its events.

Rule of this file: one pure function an event. Events of other jobs, and of stakes, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from atoll.protocol import events as ev
from atoll.protocol.audits import AUDIT_HANDLERS
from atoll.protocol.clocks import AuditClock, last_audits, last_moment, seed_due, words_end
from atoll.protocol.committee_draws import audited_share, draw_duties, draw_seats, next_committee
from atoll.protocol.disputes import DISPUTE_HANDLERS
from atoll.protocol.events import ContractEvent
from atoll.protocol.holders import Holder
from atoll.protocol.membership import MEMBERSHIP_HANDLERS, Handler, put, with_holder
from atoll.protocol.merge_inputs import is_whole_enough
from atoll.protocol.open_rounds import OpenRound, SeatCommit, SeatReveal
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.protocol.words import (
    NO_BITS,
    Bitmap,
    BlockRef,
    Facts,
    HolderId,
    JobStatus,
    Phase,
    PlaceIndex,
    Role,
    RoundIndex,
    SeatIndex,
    Terms,
    bits,
    to_bitmap,
)

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
    places = _holders(view.verifiers, in_pool, event.round)
    running = OpenRound(
        slot=view.slot(event.round),
        phase=Phase.TRAIN,
        block=block,
        seed=event.seed,
        seated=event.seated,
        ready=event.ready,
        committee=event.committee,
        model=event.model,
        deadline=event.deadline,
        seats={SeatIndex(seat): holder for seat, holder in seats.items()},
        places={PlaceIndex(place): holder for place, holder in places.items()},
        committee_seed=event.seed,
    )
    status = JobStatus.ACTIVE
    return replace(view, open=running, phase=Phase.TRAIN, round=event.round, status=status)


def _holders(
    everyone: Mapping[HolderId, Holder], which: Bitmap, round: RoundIndex
) -> dict[int, HolderId]:
    """The newest holder of each seat or place that counts in the round."""
    found: dict[int, HolderId] = {}
    for holder in sorted(everyone.values(), key=lambda h: (h.counts_in(round), h.id)):
        if which >> holder.index & 1:
            found[holder.index] = holder.id
    return found


def _committed(view: JobView, event: ev.Committed, block: BlockRef) -> JobView:
    running = _running(view)
    commit = SeatCommit(running.seats[event.seat], event.account, event.commitment)
    return _with(view, commits=put(running.commits, event.seat, commit))


def _stopped(view: JobView, event: ev.Stopped, block: BlockRef) -> JobView:
    """It disagreed or fell, and is not waited for. Who disagreed is bound while an audit lasts."""
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
    """Who is accused or fell is fixed now, so that everybody merges the same."""
    running, now = _running(view), block.timestamp
    view = _miss(view, Bitmap(running.committed & ~event.revealed))
    accused = view.accused(now)
    fallen = {holder for holder, item in view.providers.items() if item.has_fallen}
    return _with(
        view,
        phase=Phase.MERGE,
        next_seed=event.next_seed,
        deadline=event.deadline,
        half_merge=now + view.require_terms().merge_seconds // 2,
        seed_due=seed_due(view.require_terms(), now),
        words_end=words_end(view.require_terms(), event.deadline),
        accused=_seats_of(running, accused),
        fallen=_seats_of(running, fallen),
    )


def _seats_of(running: OpenRound, holders: set[HolderId]) -> Bitmap:
    return to_bitmap(seat for seat, holder in running.seats.items() if holder in holders)


def _audit_seeded(view: JobView, event: ev.AuditSeeded, block: BlockRef) -> JobView:
    return _with(view, audit_seed=event.audit_seed)


def _said(view: JobView, event: ev.Said, block: BlockRef) -> JobView:
    return _with(view, words=put(_running(view).words, event.place, event.has))


def _committee_drawn(view: JobView, event: ev.CommitteeDrawn, block: BlockRef) -> JobView:
    """A committee draw that did not settle is over; the next one says its own words."""
    running = _running(view)
    silent = running.committee & ~to_bitmap(running.words)
    drawn = _holders(view.verifiers, event.committee, event.round)
    places = {PlaceIndex(place): holder for place, holder in drawn.items()}
    return _with(
        view,
        committee=event.committee,
        committee_draw=event.committee_draw,
        committee_seed=next_committee(
            running.audit_seed if event.committee_draw == 1 else running.committee_seed,
            event.committee_draw,
        ),
        deadline=event.deadline,
        words_end=words_end(view.require_terms(), event.deadline),
        places={**places, **running.places},
        words={},
        silent=Bitmap(running.silent | silent),
    )


# --- ends of a round ---


def facts_of(running: OpenRound, excluded: Bitmap) -> Facts:
    """What the contract keeps of a round that is settled now."""
    return Facts(
        seed=running.seed,
        audit_seed=running.audit_seed,
        reveals=running.reveal_accumulator,
        words=running.words_accumulator,
        model=running.model,
        revealed=running.revealed,
        available=running.available,
        excluded=excluded,
        ready=running.ready,
        committee=running.committee,
    )


def _settled(view: JobView, event: ev.Settled, block: BlockRef) -> JobView:
    past = _settled_round(view, event, block)
    view = _miss(view, _short_again(view, past))
    following = RoundIndex(event.round + 1)
    settled = (*view.settled, past)
    view = replace(view, settled=settled, open=None)
    return replace(view, phase=Phase.WAITING, round=following)


def _short_again(view: JobView, past: SettledRound) -> Bitmap:
    """Seats that were short, and under the same holder in one of the two rounds before, too.

    That is a bucket: two are put in by a short round, one is taken out by another, and three are a
    miss, which ends the holder.
    """
    lately = view.settled[-2:]
    return to_bitmap(
        seat
        for seat in map(SeatIndex, bits(past.short))
        if any(
            before.short >> seat & 1 and before.seats[seat] == past.seats[seat] for before in lately
        )
    )


def _short(running: OpenRound, event: ev.Settled, terms: Terms) -> Bitmap:
    """Seats that did too little to be merged; where nothing is certified the job ends, and nobody
    is short.
    """
    done = running.segments.items() if any(event.digest) else ()
    return to_bitmap(seat for seat, m in done if not is_whole_enough(m, terms.segments))


def _settled_round(view: JobView, event: ev.Settled, block: BlockRef) -> SettledRound:
    running, facts, terms = _running(view), event.facts, view.require_terms()
    now, early = block.timestamp, running.early_audit_reports.items()
    is_last, ready = view.is_last(event.round), facts.ready
    drawn = _drawn(running, facts, terms, is_last=is_last)
    revealed = facts.revealed.bit_count()
    audits = last_audits(revealed, ready.bit_count()) if is_last else 1
    short = _short(running, event, terms)
    return SettledRound(
        slot=running.slot,
        block=block,
        digest=event.digest,
        verdict=event.verdict,
        facts=facts,
        signers=event.signers,
        silent=_silent_in_all(running, now),
        seats=running.seats,
        places=running.places,
        reveals=running.reveals,
        words=running.words,
        clock=AuditClock.of(terms, now, audits=audits),
        drawn=to_bitmap(drawn),
        duties=draw_duties(facts.audit_seed, drawn, ready, is_last=is_last),
        pay=Bitmap(event.available if event.verdict.merged else event.available & ~short),
        short=short,
        early_keys=running.early_keys,
        audit_reports={holder: sealed.audit_report for holder, sealed in early if sealed.at == now},
        is_consistent=facts == facts_of(running, event.verdict.excluded),
        committee_seed=running.committee_seed,
        accused=running.accused,
        fallen=running.fallen,
    )


def _silent_in_all(running: OpenRound, settled_at: int) -> Bitmap:
    """Places that missed their word: in committee draws that were replaced, and in the one that
    settled.

    Who has said nothing while words are taken may yet have lacked an update.
    """
    is_over = settled_at >= running.words_end
    here = running.committee & ~to_bitmap(running.words) if is_over else NO_BITS
    return Bitmap(running.silent | here)


def _drawn(
    running: OpenRound, facts: Facts, terms: Terms, *, is_last: bool
) -> dict[SeatIndex, int]:
    """Seats that are audited, with their ordinals. Who revealed no segment claims nothing."""
    count = facts.revealed.bit_count()
    if terms.f and not is_last:
        count = audited_share(count, terms.share_bps, facts.ready.bit_count())
    drawn = draw_seats(facts.audit_seed, facts.revealed, facts.excluded, count)
    return {seat: at for seat, at in drawn.items() if running.segments.get(seat)}


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
    ev.Revealed: _revealed,
    ev.MergeOpened: _merge_opened,
    ev.AuditSeeded: _audit_seeded,
    ev.Said: _said,
    ev.CommitteeDrawn: _committee_drawn,
    ev.Settled: _settled,
    ev.Waiting: _waiting,
    ev.Closed: _closed,
}
