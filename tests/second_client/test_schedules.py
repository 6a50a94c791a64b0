"""The second client reads jobs of the contracts' model: who held what, and what each is paid.

The model (`tests/support/contracts/`) takes nothing of the product, and neither does the reader:
three programs have to agree, the product's machines that play the job among them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.second_client import chain, money
from tests.second_client.__main__ import Holders
from tests.support.event_documents import documents_of
from tests.support.manifests import make_terms
from tests.support.schedules import Cast, World, is_settled_up

from atoll.protocol import events as ev
from atoll.protocol.terms import terms_to_json_value

CASTS = {
    "honest": Cast(),
    "one keeps silent about certificates": Cast(verifier_cheats={4: "no-sign"}),
    "one votes for what it lacks": Cast(verifier_cheats={4: "false-have"}),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cast", CASTS)
def test_it_pays_what_the_contracts_pay(cast: str, seed: int) -> None:
    world = World(CASTS[cast], make_terms(rounds=3), seed=seed).until(is_settled_up)
    log = [event for event, _ in world.net.log if getattr(event, "job_id", None) == world.net.job]
    events = chain.read(documents_of(log))
    holders, settled = chain.holders_of(events), chain.rounds_of(events)
    assert len(settled) == world.net.terms.rounds
    terms = money.read_terms(terms_to_json_value(world.net.terms))
    worth = Counter[tuple[int, int]]()
    for number, told in enumerate(settled):
        held = Holders(holders, number, told)
        worth.update(held.paid(terms))
        record = world.net.settled[number]
        assert {seat: held.ids[chain.PROVIDER, seat] for seat in told["reveals"]} == record.holders
        assert told["pay"] == sum(1 << seat for seat in record.pay)
    claimed = Counter[tuple[int, int]]()
    for event in log:
        if isinstance(event, ev.Claimed):
            claimed[int(event.role), event.id] += event.amount
    assert worth == claimed
    assert len(claimed) > world.net.terms.seats
