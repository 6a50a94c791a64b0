"""What is fetched of a provider, and how large it may be; more than that is malformed."""

from __future__ import annotations

from atoll.errors import TooLarge
from atoll.numerics.state_layout import first_moment_bytes, moment_layout, trained_count
from atoll.protocol.manifest import Manifest
from atoll.storage.errors import MalformedDag

UNFETCHABLE_CONTENT = (ValueError, TooLarge, MalformedDag)
"""Not a CID, more bytes than allowed, or blocks that are not a file: no other source can help."""
HEADER_BYTES = 1 << 20
"""More than an update's headers, and the bytes between its sections."""


def max_update_bytes(manifest: Manifest) -> int:
    """No canonical update of this job is larger."""
    width = manifest.codec.properties.bytes_per_value
    changes, factored = width * trained_count(manifest), 4 * moment_layout(manifest).factored
    sampled = manifest.sampled_bytes
    return changes + first_moment_bytes(manifest) + factored + sampled + HEADER_BYTES
