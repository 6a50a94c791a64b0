"""What is fetched of a provider, and how large it may be; more than that is malformed."""

from __future__ import annotations

from atoll.bits.layout import trained_count
from atoll.content.errors import MalformedDag
from atoll.errors import TooLarge
from atoll.law.manifest import Manifest

UNFETCHABLE_CONTENT = (ValueError, TooLarge, MalformedDag)
"""Not a CID, more bytes than allowed, or blocks that are not a file: no other source can help."""
HEADER_BYTES = 1 << 20
"""More than any update's header."""


def max_update_bytes(manifest: Manifest) -> int:
    """No canonical update of this job is larger: a value takes a byte at most, of fp32 four."""
    width = 4 if manifest.codec.kind == "fp32" else 1
    return width * trained_count(manifest) + HEADER_BYTES


def states_needed(manifest: Manifest) -> int:
    """States that a replay needs: the opening one, and in a tolerant job the closing one."""
    return 1 if manifest.numerics.tolerance is None else 2
