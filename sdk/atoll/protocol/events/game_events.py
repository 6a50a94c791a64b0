"""Events of Game, named and ordered as in the ABI.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.protocol.games.game_machine import Outcome as GameOutcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.types import Address, Digest


@dataclass(frozen=True, slots=True)
class Challenged:
    """Somebody says that a claim is false.

    Attributes:
        id: of the game, from 1.
        holder: who made the claim.
        bond: wei.
        evidence: what shows the claim.
    """

    id: int
    holder: Address
    challenger: Address
    bond: int
    claim: Claim
    evidence: bytes


@dataclass(frozen=True, slots=True)
class Owed:
    """A drawn auditor owes this challenge, so it comes before those that nobody owes."""

    id: int


@dataclass(frozen=True, slots=True)
class Began:
    """A game is played, and its clocks run."""

    id: int
    holder: Address


@dataclass(frozen=True, slots=True)
class Decided:
    """A proof decided a game."""

    id: int
    outcome: GameOutcome


@dataclass(frozen=True, slots=True)
class Ended:
    """A game is over, and paid."""

    id: int
    outcome: GameOutcome


@dataclass(frozen=True, slots=True)
class CrowdedOut:
    """Somebody would challenge a claim, and the queue is full."""

    challenger: Address
    claim: Claim


@dataclass(frozen=True, slots=True)
class NotTold:
    """A game ended of which the contract of claims could not be told.

    Attributes:
        set: the bond that the claim stood on.
    """

    id: int
    set: Digest


@dataclass(frozen=True, slots=True)
class BondReturned:
    """An account's payee has what games owed the account.

    Attributes:
        amount: wei.
    """

    account: Address
    amount: int


@dataclass(frozen=True, slots=True)
class StepsOpened:
    """The holder shows the states of a segment.

    Attributes:
        states: digests after each step.
        works: of each step the norm and every micro-batch's loss.
    """

    id: int
    states: tuple[Digest, ...]
    works: bytes


@dataclass(frozen=True, slots=True)
class StepPicked:
    """The challenger names the first step that differs.

    Attributes:
        step: within the segment.
    """

    id: int
    step: int


@dataclass(frozen=True, slots=True)
class TracePosted:
    """The holder shows the top of the tree over a step's operations.

    Attributes:
        nodes: how many operations the step has.
        layer: six levels below the top.
    """

    id: int
    root: Digest
    nodes: int
    layer: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class LayerRevealed:
    """The holder shows the layer below the tree node in dispute."""

    id: int
    layer: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    """The challenger names the first tree node of a layer that differs.

    Attributes:
        level: leaves being 0.
        index: within the level.
    """

    id: int
    level: int
    index: int


@dataclass(frozen=True, slots=True)
class NodePicked:
    """The challenger names the first operation that differs.

    Attributes:
        node: its number in the trace.
        digest: of its result.
        size: bytes of it.
    """

    id: int
    node: int
    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class TokenPicked:
    """The challenger names the first generated token that differs: the search goes on in its
    trace.

    Attributes:
        token: its number in the step's batch.
    """

    id: int
    token: int


@dataclass(frozen=True, slots=True)
class LeafPosted:
    """The holder shows the bytes in dispute."""

    id: int
    leaf: bytes
