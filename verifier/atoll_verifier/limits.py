"""How large what a provider serves may be; more than that is malformed."""

from __future__ import annotations

from atoll.protocol.manifest import Manifest
from atoll.train.layout import param_count

HEADER_BYTES = 1 << 20
"""More than any update's header; the body is one byte a parameter."""


def max_update_bytes(manifest: Manifest) -> int:
    """No canonical update of this model is larger."""
    return param_count(manifest.model) + HEADER_BYTES
