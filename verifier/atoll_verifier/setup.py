"""What does not change while a verifier's service runs, and its machine's memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from atoll.service.config import KeeperConfig
from atoll.service.machine import State
from atoll_verifier.behaviour import VerifierBehaviour


@dataclass(frozen=True, slots=True)
class VerifierSetup:
    """The machine's constants.

    Attributes:
        gateway_url: what is announced on chain.
        auto_claim: `never`, `each` or `end`.
    """

    gateway_url: str
    keeper: KeeperConfig = field(default_factory=KeeperConfig)
    auto_claim: str = "end"
    behaviour: VerifierBehaviour = field(default_factory=VerifierBehaviour)


VerifierState: TypeAlias = State[VerifierSetup]
