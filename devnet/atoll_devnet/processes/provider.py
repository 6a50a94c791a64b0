"""One provider of a local network.

Run as `python -m atoll_devnet.processes.provider --config FILE [--cheat NAME]`.

It is `atoll_node`'s service, told which seat to wait for and, perhaps, what to do wrong.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from atoll.service.config import ServiceConfig
from atoll.service.main import main
from atoll_devnet.cheats.catalogue import provider_behaviour
from atoll_devnet.processes.seating import Place, placed_provider
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.service import ProviderService


def run(arguments: list[str]) -> int:
    """Serves until it is told to stop; what it exits with."""
    parser = ArgumentParser("atoll_devnet.processes.provider")
    parser.add_argument("--cheat")
    parser.add_argument("--place", type=int, nargs=3, metavar=("INDEX", "PROVIDERS", "VERIFIERS"))
    chosen, rest = parser.parse_known_args(arguments)

    async def serve(config: ServiceConfig) -> None:
        behaviour = provider_behaviour(chosen.cheat) if chosen.cheat else ProviderBehaviour()
        if chosen.place:
            behaviour = placed_provider(behaviour, Place(*chosen.place))
        await ProviderService(config, behaviour).run()

    return main("atoll_devnet.processes.provider", serve, rest)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
