"""Content-addressed storage: blocks on disk, a gateway serving them, retrieval that trusts nobody.

Everything that moves between parties moves by CID, and whoever receives it trusts the CID alone.

Names are loaded when first used: a block on this disk needs no HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.content.cid import DAG_CBOR, DAG_PB, RAW, Cid
    from atoll.content.download import FetchConfig
    from atoll.content.errors import MalformedDag
    from atoll.content.fetch import Fetcher, Progress
    from atoll.content.gateway import Gateway, GatewayConfig
    from atoll.content.local import LocalStore
    from atoll.content.storage import Storage, StoreConfig, open_storage
    from atoll.content.unixfs import LEGACY, V1, Added, Profile

__all__ = [
    "DAG_CBOR",
    "DAG_PB",
    "LEGACY",
    "RAW",
    "V1",
    "Added",
    "Cid",
    "FetchConfig",
    "Fetcher",
    "Gateway",
    "GatewayConfig",
    "LocalStore",
    "MalformedDag",
    "Profile",
    "Progress",
    "Storage",
    "StoreConfig",
    "open_storage",
]

_HOMES = {
    "DAG_CBOR": "atoll.content.cid",
    "DAG_PB": "atoll.content.cid",
    "LEGACY": "atoll.content.unixfs",
    "RAW": "atoll.content.cid",
    "V1": "atoll.content.unixfs",
    "Added": "atoll.content.unixfs",
    "Cid": "atoll.content.cid",
    "FetchConfig": "atoll.content.download",
    "Fetcher": "atoll.content.fetch",
    "Gateway": "atoll.content.gateway",
    "GatewayConfig": "atoll.content.gateway",
    "LocalStore": "atoll.content.local",
    "MalformedDag": "atoll.content.errors",
    "Profile": "atoll.content.unixfs",
    "Progress": "atoll.content.fetch",
    "Storage": "atoll.content.storage",
    "StoreConfig": "atoll.content.storage",
    "open_storage": "atoll.content.storage",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll.content' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
