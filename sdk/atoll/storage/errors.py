"""Storage errors that only content can cause; the rest are in `atoll.errors`."""

from __future__ import annotations

from atoll.errors import StorageError


class MalformedDag(StorageError):
    """Blocks that match their CIDs but do not add up to what was asked for.

    The fault is with whoever made the CID: no other source can help.
    """
