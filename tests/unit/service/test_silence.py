"""What an operator is told of a chain that brings nothing: why, what helps, and once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.unit.chain.test_index import CONFIRMATIONS, DEPLOYMENT, Node

from atoll.chain.contracts import AtollChain
from atoll.chain.follower import Follower
from atoll.chain.index import EventIndex
from atoll.chain.logs import LogReader
from atoll.chain.rpc import FailoverProvider
from atoll.service.health_status import KnownOfService, blocking

WORKS = KnownOfService(silent_seconds=1.0, room=1 << 40)


class Forgetful(Node):
    """Drops old blocks."""

    keeps = 1 << 30

    async def ask(self, method: str, params: list[Any], read: Any) -> Any:
        if method == "eth_call":
            return await super().ask(method, params, read)
        is_old = params[0] != "latest" and int(params[0], 16) <= len(self.hashes) - self.keeps
        return read(None) if is_old else await super().ask(method, params, read)


@pytest.mark.parametrize("silent_seconds", [None, 90.0])
async def test_an_endpoint_that_has_dropped_what_a_turn_needs_is_named_with_what_helps(
    tmp_path: Path, silent_seconds: float | None
) -> None:
    node = Forgetful(21)
    chain = AtollChain("http://127.0.0.1:1", DEPLOYMENT)
    chain.events = LogReader(cast(FailoverProvider, node), DEPLOYMENT.addresses)
    index = EventIndex(chain, confirmations=CONFIRMATIONS, path=tmp_path / "index")
    follower = Follower(index, DEPLOYMENT)
    node.announce(2, 0, "http://old.example.org")
    await follower.poll_patiently()
    node.turn(to_block=10, blocks=12)
    node.keeps = 8
    with capture_logs() as logs:
        for _ in range(3):
            await follower.poll_patiently()
    assert [(each["event"], "has dropped old blocks" in each["next"]) for each in logs] == [
        ("the chain does not answer", True)
    ]
    known = replace(WORKS, silent_seconds=silent_seconds)
    found = blocking(replace(known, silence=follower.silence, helps=follower.helps))
    assert found is not None
    assert "has no block 2, and has later ones" in found.text
    assert found.next_step.startswith("use another RPC endpoint")
    node.keeps, node.logs = 1 << 30, []
    with capture_logs() as logs:
        await follower.poll_patiently()
    assert "the chain answers again" in [each["event"] for each in logs]
    assert (follower.silence, follower.helps) == ("", "")
    index.close()


def test_a_chain_that_answers_and_does_not_grow_is_not_called_silent() -> None:
    found = blocking(replace(WORKS, silent_seconds=90.0))
    assert found is not None
    assert found.text == "the chain answers, and has had no new block for 90 s"
    assert "keeps up" in found.next_step and found.is_fault
