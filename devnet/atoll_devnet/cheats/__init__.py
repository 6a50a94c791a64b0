"""Departures from the protocol, by name: what each strategy really does, inside a real process."""

from __future__ import annotations

from atoll_devnet.cheats.catalogue import (
    PROVIDER_CHEATS,
    VERIFIER_CHEATS,
    WATCHER_CHEATS,
    never_does,
    never_serves,
    provider_behaviour,
    verifier_behaviour,
    watcher_player,
)

__all__ = [
    "PROVIDER_CHEATS",
    "VERIFIER_CHEATS",
    "WATCHER_CHEATS",
    "never_does",
    "never_serves",
    "provider_behaviour",
    "verifier_behaviour",
    "watcher_player",
]
