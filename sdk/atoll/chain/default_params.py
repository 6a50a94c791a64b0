"""What a new network's parameters are, by the chain that it is deployed on.

Rule of this file: pure; a table of chains and how long each may take nobody's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from atoll.chain.deployment import DEVELOPMENT_CHAINS
from atoll.protocol.token_units import MOST_DECIMALS
from atoll.protocol.types import Params

_HOUR: Final = 3_600
MIN_MOVE: Final = 60
"""Seconds in which a transaction is in a block, and seen by everybody, while a chain goes on."""
OP_STACK: Final = 12 * _HOUR
"""A deposit from L1 is in a block by then, whatever the sequencer does (its sequencing window)."""
ETHEREUM: Final = _HOUR
"""No block was missed for longer; a proposer that keeps somebody out proposes one block."""
BASE: Final = 8453
LONGEST_PAUSE: Final[Mapping[int, int]] = MappingProxyType({
    1: ETHEREUM, 11155111: ETHEREUM,
    10: OP_STACK, 11155420: OP_STACK, BASE: OP_STACK, 84532: OP_STACK,
})  # fmt: skip
"""Seconds that a chain may stand still or keep a transaction out: Base stood still for 33 minutes
in 2025, and for 116 in 2026."""


def default_params(chain_id: int, decimals: int = MOST_DECIMALS) -> Params:
    """What the configuration contract starts with, in units of a token of so many decimals;
    penalties and shares are basis points of a bond.

    A development chain stands still with its users, and its games are over in seconds. Of a chain
    that the table does not name, the longest of them is taken.
    """
    bond = 10**decimals
    is_development = chain_id in DEVELOPMENT_CHAINS
    pause = LONGEST_PAUSE.get(chain_id, max(LONGEST_PAUSE.values()))
    return Params(
        penalty_bps=100,
        winner_share_bps=3000,
        min_window=1 if is_development else MIN_MOVE,
        min_move=1 if is_development else MIN_MOVE,
        min_punishable=1 if is_development else pause,
        min_provider_bond=bond,
        min_verifier_bond=bond,
    )
