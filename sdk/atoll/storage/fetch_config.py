"""The limits of fetches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from atoll.storage.unixfs import MAX_BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Limits of every fetch.

    Attributes:
        parallel: blocks requested at once in one fetch, and of one gateway.
        at_once: blocks requested at once in all; those for whom they are take turns. Half as many
            more are for outsiders, who wait for nobody else and nobody else for them.
        slow_s: a request that takes longer is not counted among these, so that gateways which drip
            hold up nobody's requests to others.
        connect_timeout_s: to learn a gateway's address, and to open a connection.
        block_timeout_s: for a whole block, however slowly its bytes keep coming.
        hedge_min_s: a second gateway is asked for a block that takes four times as long as blocks
            lately took (of the first, nobody knows), but not before this.
        hedge_max_s: ... and no later than this. A third waits twice as long, and so on.
        relay_min_s: a gateway that is itself getting a block just now is given up when it delivers
            nothing for four times as long as blocks lately took, but not before this.
        relay_max_s: ... and no later than this, whatever else it delivers.
        passes: how often all gateways are asked before a block counts as not found. While one of
            them is slow, preferred ones are asked more often: who did not have it may by then.
            A pass after which one has no room, and said when it will, does not count.
        pass_pause_s: pause before the second pass, doubled before each later one.
        max_block_bytes: the largest block accepted.
        bytes_per_s: download limit for all fetches together; None for none.
        private_addresses: whether gateways of this machine and of networks around it are asked.
            Not where strangers name them.
        greet: an `Authorization` header for a gateway's address, which gives us room there.
    """

    parallel: int = 8
    at_once: int = 64
    slow_s: float = 1.0
    connect_timeout_s: float = 5.0
    block_timeout_s: float = 20.0
    hedge_min_s: float = 0.25
    hedge_max_s: float = 2.0
    relay_min_s: float = 5.0
    relay_max_s: float = 20.0
    passes: int = 3
    pass_pause_s: float = 0.25
    max_block_bytes: int = MAX_BLOCK_BYTES
    bytes_per_s: float | None = None
    private_addresses: bool = True
    greet: Callable[[str], str] | None = None
