"""Every cheat by name.

Rule of this file: it imports neither torch nor a chain, so that names can be checked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll.service.watcher import Player
    from atoll_node.behaviour import ProviderBehaviour
    from atoll_verifier.behaviour import VerifierBehaviour

PROVIDER_CHEATS: Mapping[str, str] = {
    "lazy": "skips half the steps and fills the trace plausibly",
    "sign-flip": "trains honestly and sends the update negated",
    "scale": "trains honestly and sends the update ten times as large",
    "forge-moments": "moves the model honestly and sends moments that nobody has",
    "poison-segment": "trains one segment a round on planted text",
    "copy": "repeats another seat's commitment, then another seat's last update",
    "wrong-data": "trains on other data than its draws",
    "stale-model": "trains from the model of the round before",
    "garbage": "sends bytes that are no update",
    "garbage-nan": "sends floating-point NaNs where the update's integers belong",
    "garbage-shapes": "sends the well-formed update of another model",
    "withhold": "commits and reveals, and serves nothing",
    "late-serve": "withholds its trace until it is challenged, then puts it on the chain",
    "no-reveal": "commits and never reveals",
}
VERIFIER_CHEATS: Mapping[str, str] = {
    "rubber-stamp": "claims every segment as replayed and replays none",
    "false-accuse": "reports an honest seat every round",
    "false-challenge": "says each round that it cannot fetch what everyone can",
    "false-loss": "says that every model is better than it is",
    "offline": "attests that it is ready, then does nothing",
}


WATCHER_CHEATS: Mapping[str, str] = {
    "sham": "disputes honest work with a run in which one bit is another",
}


def check_watcher_cheat(name: str) -> str:
    """The name itself. Raises ConfigError when there is no such cheat."""
    return _check(name, WATCHER_CHEATS, "watcher")


def watcher_player(name: str) -> Player:
    """What a watcher with this cheat does. Raises ConfigError when there is no such cheat."""
    from atoll.service.watcher import Player  # noqa: PLC0415 (loads the services)

    check_watcher_cheat(name)
    players = "atoll_devnet.cheats.players"
    return Player(function=f"{players}:sham_move", replay=f"{players}:sham_replay")


def check_provider_cheat(name: str) -> str:
    """The name itself. Raises ConfigError when there is no such cheat."""
    return _check(name, PROVIDER_CHEATS, "provider")


def check_verifier_cheat(name: str) -> str:
    """The name itself. Raises ConfigError when there is no such cheat."""
    return _check(name, VERIFIER_CHEATS, "verifier")


def provider_behaviour(name: str) -> ProviderBehaviour:
    """What a provider with this cheat does. Raises ConfigError when there is no such cheat."""
    from atoll_devnet.cheats.providers import BEHAVIOURS  # noqa: PLC0415 (loads the services)

    return BEHAVIOURS[check_provider_cheat(name)]()


def verifier_behaviour(name: str) -> VerifierBehaviour:
    """What a verifier with this cheat does. Raises ConfigError when there is no such cheat."""
    from atoll_devnet.cheats.verifiers import BEHAVIOURS  # noqa: PLC0415 (loads the services)

    return BEHAVIOURS[check_verifier_cheat(name)]()


def _check(name: str, known: Mapping[str, str], role: str) -> str:
    if name not in known:
        raise ConfigError(
            f"no {role} cheat is called {name!r}", next_step=f"use one of {', '.join(known)}"
        )
    return name
