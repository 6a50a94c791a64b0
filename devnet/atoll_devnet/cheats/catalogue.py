"""Every cheat by name, and what several of them in one process are.

Rule of this file: it imports neither torch nor a chain, so that names can be checked at once. A
text names one cheat or several, `stall+flip5`, of which no two decide the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from atoll.errors import ConfigError
from atoll.protocol.obligations import Duty

if TYPE_CHECKING:
    from atoll.service.watcher import Player
    from atoll_node.behaviour import ProviderBehaviour
    from atoll_verifier.behaviour import VerifierBehaviour

T = TypeVar("T")
PROVIDER_CHEATS: Mapping[str, str] = {
    # what is trained
    "lazy": "trains every second segment and guesses where the others end",
    "hollow": "trains the first segment only and invents what follows",
    "poison-segment": "trains one segment a round on planted text, and stands by it in a game",
    "poison-reset-period": "trains a reset period's first segment on planted text, then is honest",
    "wrong-data": "trains on other data than its draws",
    "stale-model": "trains from the model of the round before",
    "copy": "trains nothing and sends another seat's last update",
    "partial": "trains one segment a round, says so, and wants to be paid for ever",
    "alternate": "trains one segment in every second round, so that all who do merge nothing",
    "wrong-work-tags": "trains honestly and invents the work tags that show it",
    # what is sampled, in a job with a task
    "pick-rollouts": "samples twice and keeps what has the higher rewards",
    "stale-policy": "samples a whole round by the parameters that it began with",
    "reward-one": "learns every completion as if it were the best of its group",
    "edit-rollouts": "changes a token of each step's first completion",
    "infinite": "samples by parameters a number of which is infinite, and learns from that",
    "endless": "goes on with completions that have ended",
    "no-ids": "trains honestly and sends zeros for what it sampled",
    "wrong-ids": "trains honestly and says that it sampled something else",
    # what is sent of it
    "sign-flip": "trains honestly and sends the update negated",
    "flip5": "trains honestly and sends -5 times its update",
    "scale": "trains honestly and sends the update ten times as large",
    "noise": "trains honestly and sends noise as large as its update",
    "omniscient": "knows every seat's update and pulls the mean as far as their spread hides it",
    "forged-moments": "sends an honest update with the first moment turned round and ten times it",
    "forged-second-moments": "sends an honest update with second moments a thousand times smaller",
    "nan-moments": "sends an honest update whose factored second moments are NaNs",
    "garbage": "sends bytes that are no update",
    "garbage-shapes": "sends the well-formed update of another model",
    # what is served of it
    "withhold": "serves nothing to anyone",
    "stall": "takes every request and never answers it",
    "drip": "answers one request in four seconds, whoever asks",
    "half-served": "answers every second request for a block",
    # what is said on the chain
    "no-reveal": "commits and never reveals",
    "no-key": "is drawn and never shows the key of its work tags",
}
VERIFIER_CHEATS: Mapping[str, str] = {
    "null": "replays nothing and says of every seat that it is valid",
    "copier": "replays nothing and repeats another auditor's audit report",
    "no-open": "never opens its audit reports",
    "no-sign": "never signs a certificate",
    "wrong-merge": "signs another model than its merge gave",
    "wrong-coordinate": "certifies a merge that is another at one number",
    "wrong-exponent": "certifies another grid for a tensor than the updates vote for",
    "wrong-gram": "certifies an inner product that no updates have, and what follows from it",
    "wrong-leaf": "certifies another number of the model than the outer step gives",
    "dropped": "certifies a merge without an update that it has",
    "serves-nobody": "certifies the merge, and serves nobody anything",
    "false-have": "says that it has the updates that it lacks, and none of those that it has",
    "false-mismatch": "accuses the first seat that it finds honest, and plays that to its end",
    "no-challenge": "accuses, and never brings it before the judge",
    "false-valid": "says of every seat that it is valid, whatever its replay gives",
    "lazy-check": "takes the ids of an update as they are, and invents what lies below them",
    "offline": "says that it is ready, then does nothing",
}
WATCHER_CHEATS: Mapping[str, str] = {
    "sham": "challenges honest work, with a bond and a run in which one bit is another",
}
_KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "provider": PROVIDER_CHEATS,
    "verifier": VERIFIER_CHEATS,
    "watcher": WATCHER_CHEATS,
}
_NEVER: Final[Mapping[str, frozenset[Duty]]] = {
    "no-reveal": frozenset({Duty.REVEAL}),
    "no-key": frozenset({Duty.KEY}),
    "copier": frozenset({Duty.AUDIT_REPORT, Duty.OPEN}),
    "no-open": frozenset({Duty.OPEN}),
    "no-sign": frozenset({Duty.SIGN}),
    "no-challenge": frozenset({Duty.CHALLENGE}),
    "offline": frozenset(Duty) - {Duty.READY},
}

_SERVES_NOBODY: Final = frozenset({"serves-nobody", "stall", "withhold"})
"""Whoever waits for something that only one of these has waits for nothing."""


def check_provider_cheat(text: str) -> str:
    """The text itself. Raises as `provider_behaviour`."""
    if len(_names(text, PROVIDER_CHEATS, "provider")) > 1:
        provider_behaviour(text)
    return text


def check_verifier_cheat(text: str) -> str:
    """The text itself. Raises as `verifier_behaviour`."""
    if len(_names(text, VERIFIER_CHEATS, "verifier")) > 1:
        verifier_behaviour(text)
    return text


def check_watcher_cheat(text: str) -> str:
    """The text itself. Raises ConfigError when there is no such cheat."""
    _names(text, WATCHER_CHEATS, "watcher")
    return text


def never_does(kind: str, text: str) -> frozenset[Duty]:
    """Duties that a member of this kind with this cheat never does; the empty text is honest.

    Raises ConfigError when one of its names is no such cheat.
    """
    names = _names(text, _KNOWN[kind], kind) if text else ()
    return frozenset[Duty]().union(*(_NEVER.get(name, frozenset()) for name in names))


def never_serves(kind: str, text: str) -> bool:
    """Whether a member of this kind with this cheat gives nobody anything that it has.

    Raises ConfigError when one of its names is no such cheat.
    """
    return not _SERVES_NOBODY.isdisjoint(_names(text, _KNOWN[kind], kind) if text else ())


def provider_behaviour(text: str) -> ProviderBehaviour:
    """What a provider with these cheats does.

    Raises ConfigError when there is no such cheat, or two decide the same thing.
    """
    from atoll_devnet.cheats.providers import BEHAVIOURS  # noqa: PLC0415 (loads the services)

    names = _names(text, PROVIDER_CHEATS, "provider")
    return _combined(names, BEHAVIOURS)()


def verifier_behaviour(text: str) -> VerifierBehaviour:
    """What a verifier with these cheats does. Raises as `provider_behaviour`."""
    from atoll_devnet.cheats.verifiers import BEHAVIOURS  # noqa: PLC0415 (loads the services)

    names = _names(text, VERIFIER_CHEATS, "verifier")
    return _combined(names, BEHAVIOURS)()


def watcher_player(text: str) -> Player:
    """What a watcher with this cheat does. Raises ConfigError when there is no such cheat."""
    from atoll.service.watcher import Player  # noqa: PLC0415 (loads the services)
    from atoll_devnet.cheats.verifiers import SHAM_MOVE, SHAM_REPLAY  # noqa: PLC0415 (as above)

    check_watcher_cheat(text)
    return Player(function=SHAM_MOVE, replay=SHAM_REPLAY)


def _names(text: str, known: Mapping[str, str], kind: str) -> tuple[str, ...]:
    names = tuple(text.split("+"))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no {kind} cheat is called {name!r}", next_step=f"use some of {', '.join(known)}"
            )
    return names


def _combined(names: tuple[str, ...], known: Mapping[str, type[T]]) -> type[T]:
    """One class that departs wherever one of the named does."""
    decided: dict[str, str] = {}
    for name in names:
        for hook in _decides(known[name]):
            if hook in decided:
                raise ConfigError(
                    f"{decided[hook]} and {name} decide the same thing",
                    next_step="combine cheats that train, send, serve or say something else",
                )
            decided[hook] = name
    bases = tuple(known[name] for name in names)
    return bases[0] if len(bases) == 1 else type("+".join(names), bases, {})


def _decides(kind: type[object]) -> list[str]:
    """The hooks that a cheat has of its own."""
    return [name for name in vars(kind) if not name.startswith("_")]
