"""Jobs at random: contracts, fold and the tests' own model say the same."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.integration.protocol.anybody import differences
from tests.integration.protocol.chains import Chain
from tests.integration.protocol.folding import carry_out, finish, started
from tests.integration.protocol.live import Live, live_terms
from tests.support.contracts import Refused
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script

from atoll.protocol import pay
from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls
from atoll.protocol.obligations import Duty, Obligation, obligations_of
from atoll.protocol.types import (
    NO_ROUND,
    Address,
    Phase,
)


def give(script: Script, owed: Obligation, rng: random.Random) -> None:
    """What is owed is taken: honestly, or now and then with a lie."""
    net, round, id = script.net, owed.round, owed.holder
    everything = sum(1 << seat for seat in net.seated)
    match owed.duty:
        case Duty.COMMIT:
            script.commit(owed.seats[0], rng.choice([None, None, None, 5, 6, 0]))
        case Duty.REVEAL:
            script.reveal(owed.seats[0])
        case Duty.READY:
            net.say_ready(net.members[_verifier(net, id)].account)
        case Duty.VOTE:
            has = rng.choice([everything] * 3 + [rng.getrandbits(4)])
            net.say(net.members[_verifier(net, id)].account, has)
        case Duty.SIGN if net.phase is Phase.MERGE and round == net.round:
            available = sorted(net.available())
            out = set(available[: min(net.terms.f, rng.choice([0, 0, 1]))])
            net.settle(set(net.committee), out, rng.choice([None, None, 0]))
        case Duty.SIGN:
            net.sign(id)
        case Duty.AUDIT_REPORT:
            honest = script.body(round, id)
            script.audit_report(round, id, rng.choice([honest, honest, honest[:-1] + b"\0"]))
        case Duty.OPEN:
            script.open(round, id)
        case Duty.KEY:
            script.show_keys(round, owed.seats)


def _verifier(net, id):  # type: ignore[no-untyped-def]
    return next(key for key in net.members if key[0] == 1 and key[1] == id)


ACTIONS = 90
ASKED = 0.3
"""How often, behind an action, the contracts are asked what they would take of anybody."""
LEFT_UNDONE = frozenset({Duty.KEY, Duty.AUDIT_REPORT, Duty.OPEN, Duty.VOTE, Duty.SIGN})
"""By those that are lazy."""


@pytest.mark.parametrize("seed", [10, 12, 17, 169, 226, 298])
def test_a_job_at_random_is_the_same_in_all_three(chain: Chain, seed: int) -> None:
    rng = random.Random(seed)
    terms = live_terms(
        rounds=3,
        expiry=chain.now + rng.choice([300, 900, 100_000]),
        f=rng.choice([0, 1]),
        min_providers=2,
        min_verifiers=1,
        slots=rng.choice([3, 5]),
    )
    script = started(chain, terms, 4, 3)
    net = script.net
    assert isinstance(net, Live)
    lazy = {rng.choice(PROVIDERS[:4]), rng.choice(VERIFIERS[:3])}
    for _ in range(ACTIONS):
        if net.phase is Phase.CLOSED:
            break
        act(script, net, lazy, rng)
        if rng.random() < ASKED:
            assert differences(net) == set()
    net.check()
    while net.phase is not Phase.CLOSED:
        net.wait_until(max(net.deadline, terms.expiry))
        assert differences(net) == set()
        calls = {one.call: one for one in keeper_calls(net.folded, net.chain.now)}
        carry_out(net, calls.get(KeeperCallKind.SETTLE_LATE) or calls[KeeperCallKind.ADVANCE])
    for end in sorted(
        {end for settled_round in net.settled for end in settled_round.ends.values()}
    ):
        if end > net.chain.now:
            net.wait_until(end)
            assert differences(net) == set()
    finish(net)
    assert differences(net) == set()
    net.check()
    bound = {m.id for m in net.members.values() if not m.released}
    assert not bound, f"bonds of {bound} are locked"
    assert all(m.missed == NO_ROUND for m in net.folded.providers.values())
    (escrow,) = chain.call(chain.jobs, "escrowOf", net.job)
    assert escrow[:4] == (net.funded, net.claimed, net.refunded, net.burnt)
    assert chain.call(chain.jobs, "refundable", net.job) == (pay.refundable(net.folded),)


def act(script: Script, net: Live, lazy: set[Address], rng: random.Random) -> None:
    """One thing at random: time, a member's whim, a duty, a call of anybody's."""
    dice = rng.random()
    if dice < 0.12:
        net.wait(rng.choice([5, 20, 40, 100, 300]))
    elif dice < 0.2:
        whim(net, rng)
    elif dice < 0.3:
        calls = list(keeper_calls(net.folded, net.chain.now))
        if calls:
            carry_out(net, rng.choice(calls))
    else:
        owed = [
            each
            for account in (*PROVIDERS, *VERIFIERS)
            for each in obligations_of(net.folded, account, net.chain.now)
            if account not in lazy or each.duty not in LEFT_UNDONE
        ]
        if owed:
            give(script, rng.choice(owed), rng)
        elif net.phase is Phase.WAITING:
            with suppress(Refused):
                net.advance()
        else:
            net.wait(15)


def whim(net: Live, rng: random.Random) -> None:
    """It may be refused, by both."""
    provider, verifier = rng.choice(PROVIDERS), rng.choice(VERIFIERS)
    bond = net.terms.verifier_bond * rng.choice([10, 11, 12]) // 10
    with suppress(Refused):
        rng.choice(
            [
                lambda: net.join(provider, rng.randrange(4)),
                lambda: net.leave_seat(provider),
                lambda: net.disagree(provider),
                lambda: net.enrol(verifier, rng.randrange(net.terms.slots), bond),
                lambda: net.say_ready(verifier),
                lambda: net.leave_pool(verifier),
            ]
        )()
