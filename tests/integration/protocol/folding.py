"""Steps of jobs that contracts, fold and the tests' own model all go through."""

from __future__ import annotations

from tests.integration.protocol.chains import Chain
from tests.integration.protocol.live import Live
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.protocol.keeper_calls import KeeperCall, KeeperCallKind, keeper_calls
from atoll.protocol.types import (
    Terms,
)


def started(chain: Chain, terms: Terms, seats: int = 4, slots: int = 4) -> Script:
    net = Live(chain, terms)
    for seat in range(seats):
        net.join(PROVIDERS[seat], seat)
    for slot in range(slots):
        net.enrol(VERIFIERS[slot], slot, terms.verifier_bond)
        net.say_ready(VERIFIERS[slot])
    net.check()
    return Script(net)


def finish(net: Live) -> None:
    """Everything that anybody may do is done, until nothing is left."""
    for _ in range(60):
        calls = list(keeper_calls(net.folded, net.chain.now))
        if not calls:
            return
        carry_out(net, calls[0])


def carry_out(net: Live, one: KeeperCall) -> None:
    """What the law says would succeed must."""
    id, round, seat = one.holder, one.round, one.seat
    done = {
        KeeperCallKind.ADVANCE: net.advance,
        KeeperCallKind.SEED_AUDIT: net.seed_audit,
        KeeperCallKind.SETTLE_LATE: net.settle_late,
        KeeperCallKind.PENALISE_SEAT: lambda: net.penalise_seat(seat),
        KeeperCallKind.PENALISE_MEMBER: lambda: net.penalise_member(round, id),
        KeeperCallKind.ABSENT: lambda: net.report_absent(round, id),
        KeeperCallKind.REPORT_MISSING_KEY: lambda: net.report_missing_key(round, seat),
        KeeperCallKind.CONTEST: lambda: net.contest(round, id, seat, WATCHER),
        KeeperCallKind.SETTLE_CONTEST: lambda: net.settle_contest(round, id, seat),
        KeeperCallKind.LEAK: lambda: net.leak(round, seat, net.settled[round].keys[seat], WATCHER),
        KeeperCallKind.PROVEN: lambda: net.prove(round, id, seat),
        KeeperCallKind.CLAIM: lambda: net.claim(one.role, id, round),
        KeeperCallKind.BURN: lambda: net.burn(round),
        KeeperCallKind.RELEASE: lambda: net.release(one.role, id),
    }
    done[one.call]()
