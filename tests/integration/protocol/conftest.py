"""A chain that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.integration.protocol.chains import START, Chain


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    node = start_anvil(
        "--block-base-fee-per-gas",
        "0",
        "--auto-impersonate",
        "--timestamp",
        str(START - 10),
    )
    yield node
    stop(node)


@pytest.fixture(scope="module")
def chain(anvil: Anvil) -> Chain:
    return Chain(anvil)
