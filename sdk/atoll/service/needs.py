"""What a job takes of a member's machine, by arithmetic over its manifest alone.

Rule of this file: pure; bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.numerics.state_layout import max_params_bytes, max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Role
from atoll.service.update_limits import max_update_bytes
from atoll.train.memory_needs import provider_bytes, verifier_bytes

_TOKEN_BYTES: Final = {"uint8": 1, "uint16": 2, "uint32": 4}


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is here, bytes."""

    memory: int
    disk: int


def memory_of(role: Role, manifest: Manifest) -> int:
    """What a member's largest part holds at once, whatever the rounds' updates are."""
    needed = provider_bytes if role is Role.PROVIDER else verifier_bytes
    return needed(manifest, max_update_bytes(manifest))


def least_disk(manifest: Manifest) -> int:
    """Its data, its model, and the updates of one round; a long audit window keeps more rounds."""
    updates = manifest.terms.seats * max_update_bytes(manifest)
    return data_bytes(manifest) + max_state_bytes(manifest) + updates


def data_bytes(manifest: Manifest) -> int:
    """What everybody fetches once: tokens, and weights that are content."""
    data, width = manifest.data, _TOKEN_BYTES[manifest.data.dtype]
    evaluated = data.eval_batches * manifest.inner.batch * (manifest.model.seq + 1)
    weights = 0 if manifest.init.cid is None else max_params_bytes(manifest.model)
    return width * (data.train_tokens + evaluated) + weights
