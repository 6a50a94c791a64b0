"""A key that is not shown costs the bond, and what showing it may cost follows from that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.unit.chain.several import DEPLOYMENT
from tests.unit.protocol.script import Script

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import Deployment
from atoll.protocol.types import ZERO_DIGEST, RoundIndex, SeatIndex
from atoll.service.entries import Done
from atoll_node.duties.commit import SendKey


class Sending:
    """Signs anything, and remembers what was sent."""

    def __init__(self) -> None:
        addresses = {"Audits": DEPLOYMENT.addresses["Rounds"]}
        self.calls = Calls(Deployment(1, 0, addresses))
        self.context = SimpleNamespace(sign=lambda message: message.digest)
        self.sent: list[Call] = []

    async def transact(self, _: Any, __: Any, call: Call) -> Done[Any]:
        self.sent.append(call)
        return Done(block=7)


async def test_a_key_says_that_it_keeps_the_bond() -> None:
    script, effects = Script.ready(), Sending()
    script.honest_round()
    view = script.net.view
    await SendKey(RoundIndex(0), SeatIndex(1), ZERO_DIGEST).perform(cast(Any, effects), view)
    (call,) = effects.sent
    assert (call.label, call.stake) == ("key", view.require_terms().provider_bond)
