"""The tests' own nodes: what answers is the node that was started."""

from __future__ import annotations

import pytest
from tests.integration.chain import local_anvil
from tests.integration.chain.local_anvil import free_port, start_anvil, stop


def test_a_node_that_has_the_port_already_is_not_taken_for_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = start_anvil("--chain-id", "4242")
    taken = int(others.url.rpartition(":")[2])
    ports = iter((taken, free_port()))
    try:
        monkeypatch.setattr(local_anvil, "free_port", lambda: next(ports))
        ours = start_anvil("--chain-id", "4243")
        try:
            assert ours.url != others.url
            assert int(ours.ask("eth_chainId"), 16) == 4243
        finally:
            stop(ours)
    finally:
        stop(others)
