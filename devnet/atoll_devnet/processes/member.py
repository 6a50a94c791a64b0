"""One member of a local network.

Run as `python -m atoll_devnet.processes.member ROLE --config FILE [--cheat NAME]`.

It is `atoll_node`'s or `atoll_verifier`'s service, told which seat or slot to wait for and,
perhaps, what to do wrong; or an outsider who watches.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

import atoll.service.watcher
import atoll_node.service
import atoll_verifier.service
from atoll.service.config import ServiceConfig
from atoll.service.main import main
from atoll_devnet.cheats.catalogue import provider_behaviour, verifier_behaviour, watcher_player
from atoll_devnet.processes.seating import Place, placed_provider, placed_verifier
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier.behaviour import VerifierBehaviour

PROGRAM = "atoll_devnet.processes.member"


def run(arguments: list[str]) -> int:
    """Serves until it is told to stop; what it exits with."""
    parser = ArgumentParser(PROGRAM)
    parser.add_argument("role", choices=("provider", "verifier", "watcher"))
    parser.add_argument("--cheat")
    parser.add_argument("--place", type=int, nargs=3, metavar=("INDEX", "PROVIDERS", "VERIFIERS"))
    chosen, rest = parser.parse_known_args(arguments)
    place = Place(*chosen.place) if chosen.place else None

    async def provide(config: ServiceConfig) -> None:
        behaviour = provider_behaviour(chosen.cheat) if chosen.cheat else ProviderBehaviour()
        behaviour = placed_provider(behaviour, place) if place else behaviour
        await atoll_node.service.serve(config, behaviour)

    async def verify(config: ServiceConfig) -> None:
        behaviour = verifier_behaviour(chosen.cheat) if chosen.cheat else VerifierBehaviour()
        behaviour = placed_verifier(behaviour, place) if place else behaviour
        await atoll_verifier.service.serve(config, behaviour)

    async def watch(config: ServiceConfig) -> None:
        player = watcher_player(chosen.cheat) if chosen.cheat else None
        await atoll.service.watcher.serve(config, player)

    serve = {"provider": provide, "verifier": verify, "watcher": watch}
    return main(PROGRAM, serve[chosen.role], rest)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
