"""One verifier of a local network.

Run as `python -m atoll_devnet.processes.verifier --config FILE [--cheat NAME]`.

It is `atoll_verifier`'s service, told when to join and, perhaps, what to do wrong.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from atoll.service.config import ServiceConfig
from atoll.service.main import main
from atoll_devnet.cheats.catalogue import verifier_behaviour
from atoll_devnet.processes.seating import Place, placed_verifier
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.service import VerifierService


def run(arguments: list[str]) -> int:
    """Serves until it is told to stop; what it exits with."""
    parser = ArgumentParser("atoll_devnet.processes.verifier")
    parser.add_argument("--cheat")
    parser.add_argument("--place", type=int, nargs=3, metavar=("INDEX", "PROVIDERS", "VERIFIERS"))
    chosen, rest = parser.parse_known_args(arguments)

    async def serve(config: ServiceConfig) -> None:
        behaviour = verifier_behaviour(chosen.cheat) if chosen.cheat else VerifierBehaviour()
        if chosen.place:
            behaviour = placed_verifier(behaviour, Place(*chosen.place))
        await VerifierService(config, behaviour).run()

    return main("atoll_devnet.processes.verifier", serve, rest)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
