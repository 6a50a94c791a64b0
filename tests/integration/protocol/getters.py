"""What the contracts answer about a job, and what its view says: each as (what, theirs, ours).

Rule of this file: every getter that has anything to say about the view is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eth_utils.address import to_checksum_address
from tests.integration.protocol.chains import Chain

from atoll.protocol import pay
from atoll.protocol.game_records import GameRecord
from atoll.protocol.hashing import record_hash
from atoll.protocol.holders import Holder
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.owners import Ownership, ownership_of
from atoll.protocol.played import rebuilt
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import NO_ROUND, Address, Phase, Role, bits, to_bitmap
from atoll.protocol.views import JobView

Compared = tuple[object, object, object]
FOREVER = 2**24 - 1
NOBODY = Address("0x" + "00" * 20)
WAITING, DECIDED, OVER = 1, 10, 11
KEPT = 26
"""Bytes of a hash that the contracts keep."""


def compared(chain: Chain, view: JobView) -> Iterator[Compared]:
    """Everything of one job."""
    yield from _state(chain, view)
    for role in Role:
        for id in range(1, len(view.holders(role)) + 2):
            yield from _holder(chain, view, role, id)
    for settled_round in view.settled:
        yield from _settled(chain, view, settled_round)
    yield from _games(chain, view)
    yield from _money(chain, view)


def owners_compared(
    chain: Chain, owners: Mapping[Address, Ownership], accounts: tuple[Address, ...]
) -> Iterator[Compared]:
    """Who moves each account's stake, whom it pays, and who may accept to be its owner."""
    for account in accounts:
        names = ("ownerOf", "payeeOf", "proposedOwnerOf")
        said = [to_checksum_address(chain.call(chain.jobs, name, account)[0]) for name in names]
        ours = ownership_of(owners, account)
        yield account, said, [ours.owner, ours.payee, ours.proposed or NOBODY]


def _state(chain: Chain, view: JobView) -> Iterator[Compared]:
    (state,) = chain.call(chain.rounds, "state", view.job_id)
    yield "head", state[:3], (view.status, view.phase, view.round)
    yield "held", state[8], view.held
    unpenalised = to_bitmap(h.index for h in view.providers.values() if h.missed != NO_ROUND)
    yield "owing", state[11], unpenalised
    yield "model", state[16], view.model
    if view.open is not None:
        yield from _running(state, view.open)
    elif view.phase is Phase.WAITING:
        yield "waiting", state[3:8], (state[3], 0, bytes(32), bytes(32), state[7])
        yield "ready", state[12], view.ready_slots(view.round)
        yield "seated", state[9:11], (0, 0)


def _running(state: tuple[object, ...], running: OpenRound) -> Iterator[Compared]:
    yield "committee_draw", state[3:6], (running.committee_draw, running.deadline, running.seed)
    yield "seeds", state[6:8], (running.next_seed, running.audit_seed)
    yield "seated", state[9], running.standing
    done = running.committed if running.phase is Phase.TRAIN else running.revealed
    if running.phase is not Phase.MERGE:
        yield "waiting", state[10], running.standing & ~done
    yield "pool", state[12:14], (running.ready, running.committee)
    yield "reveals", state[14], running.reveal_accumulator
    votes = state[15]
    assert isinstance(votes, bytes)
    yield "votes", votes[:28], running.votes_accumulator[:28]
    ranks = [at for at, slot in enumerate(bits(running.committee)) if slot in running.votes]
    yield "spoke", int.from_bytes(votes[28:], "big"), to_bitmap(ranks)


def _holder(chain: Chain, view: JobView, role: Role, id: int) -> Iterator[Compared]:
    (said,) = chain.call(chain.members, "holderOf", view.job_id, role, id)
    ours = next((h for h in view.holders(role).values() if h.id == id), None)
    if ours is None:
        yield (role, id), to_checksum_address(said[0]), NOBODY
        return
    account, index, start, to, claimed_to, is_released, is_slashed = said
    theirs = (to_checksum_address(account), index, start, to, is_released, is_slashed)
    end = FOREVER if ours.to == NO_ROUND else ours.to
    what = (ours.account, ours.index, ours.start, end, ours.is_released, ours.is_slashed)
    yield (role, id), theirs, what
    yield (role, id, "claimed"), max(start, claimed_to), ours.claimed_to
    yield (
        (role, id, "bond"),
        chain.call(chain.members, "bondOf", view.job_id, role, id)[0],
        ours.bond,
    )
    if is_slashed and role is Role.PROVIDER:
        (lost,) = chain.call(chain.members, "lostFrom", view.job_id, role, id)
        yield (role, id, "lost"), lost, ours.lost_from
    yield from _part(chain, view, ours)


def _part(chain: Chain, view: JobView, holder: Holder) -> Iterator[Compared]:
    said = chain.call(chain.members, "idOf", view.job_id, holder.account)
    ours = view.standing(holder.account)
    if said[1] or ours is not None:
        yield (holder.account, "part"), said, ours and (ours.role, ours.id)


def _settled(chain: Chain, view: JobView, settled_round: SettledRound) -> Iterator[Compared]:
    where = (view.job_id, settled_round.round)
    (times,) = chain.call(chain.rounds, "timesOf", *where)
    clock = settled_round.clock
    ends = (clock.settled_at, clock.audit_end, clock.open_end, clock.keys_end)
    yield (settled_round.round, "times"), times[:6], (*ends, clock.half, clock.window_end)
    pay_, lost, signed = chain.call(chain.rounds, "rowsOf", *where)
    unpaid = settled_round.record.revealed & ~settled_round.unearned & ~settled_round.pay
    yield (
        (settled_round.round, "rows"),
        (pay_, lost, signed),
        (settled_round.pay, unpaid, settled_round.signers),
    )
    (kept,) = chain.call(chain.rounds, "recordOf", *where)
    yield (
        (settled_round.round, "record"),
        (kept[:KEPT], True),
        (record_hash(settled_round.record)[:KEPT], settled_round.is_consistent),
    )
    (silent,) = chain.call(chain.rounds, "absentOf", *where)
    yield (settled_round.round, "silent"), silent, settled_round.silent
    (leaked,) = chain.call(chain.audits, "leakedOf", *where)
    yield (settled_round.round, "leaked"), leaked, to_bitmap(settled_round.leaks)
    for holder in settled_round.slots.values():
        yield from _audit_report(chain, view, settled_round, view.verifiers[holder])


def _audit_report(
    chain: Chain, view: JobView, settled_round: SettledRound, member: Holder
) -> Iterator[Compared]:
    """Of a member of the round: what it sealed in time, or how many of its duties earn."""
    account = member.account
    (record,) = chain.call(chain.audits, "auditReportOf", view.job_id, settled_round.round, account)
    value = int.from_bytes(record, "big")
    what = (settled_round.round, account, "sealAuditReport")
    if value >> 47 & 1:
        earning = pay.duties_paid(settled_round, member)
        yield what, value & (1 << 46) - 1, earning
        yield what, record[:KEPT], settled_round.opened_reports[member.id].hash[:KEPT]
        return
    yield what, None, settled_round.opened_reports.get(member.id)
    is_in_time = settled_round.clock.is_auditing(value & (1 << 46) - 1)
    ours = settled_round.audit_reports.get(member.id)
    yield what, record[:KEPT] if is_in_time else None, ours and ours[:KEPT]


def _games(chain: Chain, view: JobView) -> Iterator[Compared]:
    for game in view.games.values():
        (said,) = chain.call(chain.game, "gameOf", game.id)
        yield (game.id, "bond"), said[11], game.bond
        yield (game.id, "owed"), said[3], game.is_owed
        yield (game.id, "outcome"), said[8], game.decided or game.outcome
        yield (game.id, "open"), said[7] < OVER, game.is_open
        yield (game.id, "phase"), said[7], _phase(game)
        yield (game.id, "deadline"), chain.call(chain.game, "deadlineOf", game.id)[0], game.deadline


def _phase(game: GameRecord) -> int:
    """As a player rebuilds it from what was said."""
    if not game.is_open or game.decided:
        return DECIDED if game.is_open else OVER
    if not game.began_at:
        return WAITING
    return rebuilt(game.claim, game.began_at, game.moves).phase


def _money(chain: Chain, view: JobView) -> Iterator[Compared]:
    (escrow,) = chain.call(chain.jobs, "escrowOf", view.job_id)
    claimed = sum(view.paid.values())
    yield "escrow", escrow[:4], (view.funded, claimed, view.refunded, view.burnt)
    holders = (*view.providers.values(), *view.verifiers.values())
    for account in {*view.credits, *(holder.account for holder in holders)}:
        (credit,) = chain.call(chain.jobs, "creditOf", view.job_id, account)
        yield (account, "credit"), credit, view.credits.get(account, 0)
    if not view.status.is_closed:
        yield (
            "refundable",
            chain.call(chain.jobs, "refundable", view.job_id)[0],
            pay.refundable(view),
        )
