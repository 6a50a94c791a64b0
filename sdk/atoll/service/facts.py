"""What finished work leaves behind, for both roles. Keys carry the slot; each job has its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from atoll.law.manifest import Manifest
from atoll.law.words import Digest, Role
from atoll.service.journal import Fact, Facts


@dataclass(frozen=True, slots=True)
class SpecReady(Fact):
    """The manifest was fetched, has the chain's terms, and this machine reproduces its numerics."""

    manifest: bytes

    @property
    def key(self) -> str:
        return "spec"


@dataclass(frozen=True, slots=True)
class JobRefused(Fact):
    """This job is not for this machine, and why; nothing is staked on it."""

    reason: str

    @property
    def key(self) -> str:
        return "refused"


@dataclass(frozen=True, slots=True)
class DataReady(Fact):
    """Every shard of the dataset is in the store."""

    cid: bytes

    @property
    def key(self) -> str:
        return "data"


@dataclass(frozen=True, slots=True)
class OpeningReady(Fact):
    """The global state that a round starts from is in the store and has the settled digest.

    `params_root` is what every seat's opening state must have.
    """

    round: int
    digest: Digest
    cid: bytes
    params_root: Digest

    @property
    def key(self) -> str:
        return opening_key(self.round, self.digest)


def opening_key(round_: int, digest: Digest | None) -> str:
    """Where a round's opening state is found; round 0 has no verdict to name a digest."""
    return "opening:0" if round_ == 0 or digest is None else f"opening:{round_}:{digest.hex()[:16]}"


@dataclass(frozen=True, slots=True)
class BondReleased(Fact):
    """The bond of a role was unlocked, when this many rounds were settled.

    `was_over` tells the last release from one between two memberships.
    """

    role: Role
    settled_rounds: int
    was_over: bool

    @property
    def key(self) -> str:
        return release_key(self.role)


@dataclass(frozen=True, slots=True)
class RoundsUnpinned(Fact):
    """The blocks of rounds below this one are not kept any more."""

    below: int

    @property
    def key(self) -> str:
        return "unpinned"


def release_key(role: Role) -> str:
    """Where `BondReleased` is found."""
    return f"released:{role.name.lower()}"


PER_START = frozenset({"spec", "refused"})
"""Keys of facts about this machine, which a restart (with another version, say) finds out anew."""

SHARED_KINDS: tuple[type[Fact], ...] = (
    SpecReady,
    JobRefused,
    DataReady,
    OpeningReady,
    BondReleased,
    RoundsUnpinned,
)


def manifest_of(facts: Facts) -> Manifest | None:
    """The job's manifest once it is here."""
    spec = facts.get(SpecReady, "spec")
    return None if spec is None else _parse(spec.manifest)


@lru_cache(maxsize=64)
def _parse(data: bytes) -> Manifest:
    return Manifest.from_bytes(data)
