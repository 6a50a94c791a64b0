"""What each role needs for a job: bytes to fetch and to serve, memory, disk; and how long a round
lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from atoll.job.draft import Draft
from atoll.numerics.state_layout import max_state_bytes, seat_layout
from atoll.protocol.clocks import AuditClock
from atoll.protocol.manifest import Manifest
from atoll.service.needs import data_bytes
from atoll.service.pace import Pace, merge_seconds, train_seconds
from atoll.train.memory_needs import provider_bytes, submitter_bytes, verifier_bytes

BLOCK_SECONDS = 12
ROUND_TRANSACTIONS = 4
"""One after another: commit, reveal, vote, and the settlement, which opens the next round."""


@dataclass(frozen=True, slots=True)
class RoleNeeds:
    """What one member of a role needs, for the whole job; bytes."""

    name: str
    down: int
    up: int
    memory: int
    disk: int


def round_seconds(manifest: Manifest, pace: Pace) -> float:
    """Training, the merge, blocks: of members like this machine."""
    work = train_seconds(manifest, pace) + merge_seconds(manifest, pace)
    return work + ROUND_TRANSACTIONS * BLOCK_SECONDS


def submitter_needs(draft: Draft, pace: Pace) -> RoleNeeds:
    """Serves the data to whoever joins, and fetches the result."""
    manifest, terms = draft.manifest, draft.manifest.terms
    data = data_bytes(manifest)
    model = max_state_bytes(manifest)
    members = terms.seats + terms.slots
    memory, disk = submitter_bytes(manifest, pace.update_bytes), data + 2 * model
    return RoleNeeds("submitter", down=model, up=data * members, memory=memory, disk=disk)


def round_traffic(name: str, manifest: Manifest, pace: Pace) -> tuple[int, int]:
    """Bytes that a member fetches and serves in a round.

    Everybody fetches every update; a provider serves its own to all, a verifier serves on what it
    says to have.
    """
    terms = manifest.terms
    served = terms.slots + terms.seats if name == "provider" else terms.seats
    return terms.seats * pace.update_bytes, served * pace.update_bytes


def member_needs(name: str, manifest: Manifest, pace: Pace) -> RoleNeeds:
    """What a `provider` or `verifier` needs: it fetches the data, and keeps models and updates of
    the rounds that are not FINAL, and of those of a reset period that began before them; in a reset
    period also its seat's last state, or that of each seat, from its last replay.
    """
    terms = manifest.terms
    model, data = max_state_bytes(manifest), data_bytes(manifest)
    fetched, served = round_traffic(name, manifest, pace)
    behind = ceil(AuditClock.of(terms, 0).window_end / round_seconds(manifest, pace))
    kept = min(terms.rounds, manifest.reset_period + behind) + 1
    needed = provider_bytes if name == "provider" else verifier_bytes
    states = (1 if name == "provider" else terms.seats) * manifest.codec.is_stateful
    return RoleNeeds(
        name,
        down=data + model + terms.rounds * fetched,
        up=model + terms.rounds * served,
        memory=needed(manifest, pace.update_bytes),
        disk=data + kept * (fetched + model) + states * 4 * seat_layout(manifest).elements,
    )
