"""What the contracts would take of anybody now, asked of a node; and what the law says of it.

Rule of this file: nothing is sent. Every call that `atoll.protocol.keeper_calls` knows is tried
about everyone and everything that it could be about, so that neither side takes what the other does
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.integration.protocol.chains import Contract
from tests.integration.protocol.live import Live
from tests.unit.protocol.script import WATCHER

from atoll.protocol.claims import shown
from atoll.protocol.keeper_calls import KeeperCall, KeeperCallKind, burnable_to, keeper_calls
from atoll.protocol.pay import claimable_to
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import HolderId, Role, SeatIndex
from atoll.protocol.views import JobView

Key = tuple[object, ...]
"""A call, and what it is about: as far as the two could differ."""
Asked = tuple[Key, Contract, str, tuple[object, ...]]
ENTRY_BYTES = 35
UNASKED = frozenset({KeeperCallKind.CLAIM, KeeperCallKind.BURN})
"""Those that the law names only where they are worth their gas: `_money` has all of them."""


def differences(net: Live) -> set[Key]:
    """What one side takes in the next second, and the other does not."""
    now = _next_block(net)
    law = {_key(call) for call in keeper_calls(net.folded, now) if call.call not in UNASKED}
    asked = [*_everything(net, now), *_of_money(net, now)]
    return law ^ _money(net.folded, now) ^ {key for key, *what in asked if _takes(net, *what)}


def _next_block(net: Live) -> int:
    """An empty one; unix seconds. What is asked of the newest block has its time."""
    now = net.chain.now
    net.chain.anvil.ask("evm_setNextBlockTimestamp", now)
    net.chain.anvil.ask("evm_mine")
    net.wait(1)
    return now


def _takes(net: Live, contract: Contract, name: str, arguments: tuple[object, ...]) -> bool:
    data = "0x" + contract.calldata(name, *arguments).hex()
    call = {"from": WATCHER, "to": contract.address, "data": data, "gas": hex(16_000_000)}
    try:
        net.chain.anvil.ask("eth_call", call, "latest")
    except RuntimeError as error:
        assert "revert" in str(error), error
        return False
    return True


def _key(one: KeeperCall) -> Key:
    match one.call:
        case KeeperCallKind.ADVANCE | KeeperCallKind.SEED_AUDIT | KeeperCallKind.SETTLE_LATE:
            return (one.call,)
        case KeeperCallKind.PENALISE_SEAT:
            return (one.call, one.seat)
        case KeeperCallKind.PENALISE_MEMBER | KeeperCallKind.ABSENT:
            return (one.call, one.round, one.holder)
        case KeeperCallKind.REPORT_MISSING_KEY | KeeperCallKind.LEAK:
            return (one.call, one.round, one.seat)
        case KeeperCallKind.RELEASE:
            return (one.call, one.role, one.holder)
    return (one.call, one.round, one.holder, one.seat)


def _everything(net: Live, now: int) -> Iterator[Asked]:
    chain, job, view = net.chain, net.job, net.folded
    votes = getattr(net, "votes", {})  # there are none before the first round
    yield (KeeperCallKind.ADVANCE,), chain.rounds, "advance", (job,)
    # The contract takes it a block after MERGE opened; the law waits for votes that bring it along.
    if view.open is None or now >= view.open.seed_due:
        yield (KeeperCallKind.SEED_AUDIT,), chain.rounds, "seedAudit", (job,)
    late = (job, bytes(votes), list(votes.values()))
    yield (KeeperCallKind.SETTLE_LATE,), chain.rounds, "settleLate", late
    for seat in range(net.terms.seats):
        yield (KeeperCallKind.PENALISE_SEAT, seat), chain.members, "penaliseSeat", (job, seat)
    # Of a round that is void at the last moment the contract still takes penalties of who was
    # silent in a replaced committee draw. The law lets go of it with the round: whoever wanted one
    # had all that time.
    for round in range(len(view.settled) + (view.open is not None)):
        for id in view.verifiers:
            yield (
                (KeeperCallKind.PENALISE_MEMBER, round, id),
                chain.members,
                "penaliseMember",
                (job, round, id),
            )
    for role, holders in ((Role.PROVIDER, view.providers), (Role.VERIFIER, view.verifiers)):
        for id in holders:
            yield (KeeperCallKind.RELEASE, role, id), chain.members, "release", (job, role, id)
    for settled_round in view.settled:
        yield from _of_seats(net, settled_round)
        for id in view.verifiers:
            yield from _of_auditor(net, settled_round, id)


def _money(view: JobView, now: int) -> set[Key]:
    """Up to which round each holder's pay can be claimed, and what is lost be burnt."""
    burn = (
        {(KeeperCallKind.BURN, burnable_to(view, now))}
        if burnable_to(view, now) > view.burnt_to
        else set()
    )
    return burn | {
        (KeeperCallKind.CLAIM, holder.role, holder.id, to)
        for holder in (*view.providers.values(), *view.verifiers.values())
        if (to := claimable_to(view, holder, now)) > holder.claimed_to
    }


def _of_money(net: Live, now: int) -> Iterator[Asked]:
    """As far as the law says, and a round further."""
    jobs, view = net.chain.jobs, net.folded
    for holder in (*view.providers.values(), *view.verifiers.values()):
        last = claimable_to(view, holder, now)
        for to in (last, last + 1) if last > holder.claimed_to else (last + 1,):
            what: Any = (holder.role, holder.id, to)
            yield (KeeperCallKind.CLAIM, *what), jobs, "claim", (net.job, *what)
    last = burnable_to(view, now)
    for to in (last, last + 1) if last > view.burnt_to else (last + 1,):
        yield (KeeperCallKind.BURN, to), jobs, "burn", (net.job, to)


def _of_seats(net: Live, settled_round: SettledRound) -> Iterator[Asked]:
    audits, round = net.chain.audits, settled_round.round
    for seat in settled_round.reveals:
        evidence = shown(settled_round, seat)
        # Of who was slashed the pay is lost already, and a report of its missing key is worth
        # nothing.
        if not net.folded.providers[settled_round.seats[seat]].is_slashed:
            yield (
                (KeeperCallKind.REPORT_MISSING_KEY, round, seat),
                audits,
                "reportMissingKey",
                (evidence,),
            )
        # Of who did no segment the contract takes a key, too, which is worth nothing.
        for key in _keys(settled_round, seat) if settled_round.reveals[seat].segments else []:
            yield (KeeperCallKind.LEAK, round, seat), audits, "leak", (evidence, key)


def _of_auditor(net: Live, settled_round: SettledRound, id: HolderId) -> Iterator[Asked]:
    audits, job, round = net.chain.audits, net.job, settled_round.round
    body = net.settled[round].opened_reports.get(id, b"")
    named = {SeatIndex(body[at]) for at in range(0, len(body), ENTRY_BYTES)}
    left = min(net.duties(round, id) - named, default=0)
    absent = (job, round, id, left, settled_round.record, body)
    yield (KeeperCallKind.ABSENT, round, id), audits, "absent", absent
    for seat in named & settled_round.seats.keys():
        about: Any = (round, id, seat)
        holder = settled_round.seats[seat]
        yield (KeeperCallKind.DROPPED, *about), audits, "dropped", (job, *about, holder, body)
        yield (KeeperCallKind.PROVEN, *about), audits, "proven", (job, round, id, holder, body)
        settled = (job, round, id, holder)
        yield (KeeperCallKind.SETTLE_CONTEST, *about), audits, "settleContest", settled
        for game in net.folded.games:
            waiting = (job, round, id, holder, game, body)
            yield (KeeperCallKind.WITHHOLD, *about), audits, "withhold", waiting
        for key in _keys(settled_round, seat):
            contested = (shown(settled_round, seat), id, body, key)
            yield (KeeperCallKind.CONTEST, *about), audits, "contest", contested


def _keys(settled_round: SettledRound, seat: SeatIndex) -> list[object]:
    """What is known of a seat that revealed; the right one may be among them."""
    kinds = (settled_round.keys, settled_round.early_keys, settled_round.late_keys)
    known = [keys.get(seat) for keys in kinds]
    return [key for key in known if key is not None] if seat in settled_round.reveals else []
