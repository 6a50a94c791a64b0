"""A seed that nobody asks for, on a node that keeps the hashes of blocks (EIP-2935)."""

from __future__ import annotations

from tests.integration.protocol.chains import Chain
from tests.integration.protocol.folding import started
from tests.integration.protocol.live import live_terms

BLOCKS = 300
"""More than the EVM remembers."""


def test_it_is_of_the_block_in_which_merge_opened(chain: Chain) -> None:
    """`Live` holds the chain's against the hash of that block."""
    script = started(chain, live_terms())
    net = script.net
    script.train()
    opened = net.block.number
    chain.anvil.mine(BLOCKS)
    net.wait(2 * BLOCKS)
    net.seed_audit()
    assert net.block.number > opened + 256
    running = net.folded.open
    assert running is not None
    assert any(running.audit_seed)
    assert running.audit_seed == net.audit_seed
