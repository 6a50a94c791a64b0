"""A provider that says of one segment that it ends where it does not; run as a process.

`python -m tests.network.cheat --config FILE`
"""

from __future__ import annotations

import sys
from dataclasses import replace

from atoll.content.local import LocalStore
from atoll.law.words import Digest
from atoll.service.config import ServiceConfig
from atoll.service.main import main
from atoll.train.probe import configure_native
from atoll.train.round import TrainedRound, TrainTask, train_round
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.service import serve

SEGMENT = 1


def wrong_leaf(task: TrainTask, store_dir: str, extra: tuple[bytes, ...]) -> TrainedRound:
    """An honest round whose second leaf is invented, as of somebody who skipped the segment."""
    del extra
    configure_native()
    done = train_round(task, LocalStore(store_dir))
    states = list(done.states)
    states[SEGMENT] = Digest(b"\x01" * 32)
    return replace(done, states=tuple(states))


class Liar(ProviderBehaviour):
    train_function = "tests.network.cheat:wrong_leaf"


async def lie(config: ServiceConfig) -> None:
    await serve(config, Liar())


if __name__ == "__main__":
    sys.exit(main("tests.network.cheat", lie))
