"""Content-addressed storage: blocks on disk, a gateway serving them, retrieval that trusts nobody.

Everything that moves between parties moves by CID, and whoever receives it trusts the CID alone.

Names are loaded when first used: a block on this disk needs no HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.storage.cid import DAG_CBOR, DAG_PB, RAW, Cid
    from atoll.storage.errors import MalformedDag
    from atoll.storage.fetch import Fetcher, FetchProgress
    from atoll.storage.fetch_config import FetchConfig
    from atoll.storage.gateway import Gateway, GatewayConfig
    from atoll.storage.local import LocalStore
    from atoll.storage.storage import Storage, StoreConfig, open_storage
    from atoll.storage.unixfs import LEGACY, V1, Added, Profile

__all__ = [
    "DAG_CBOR",
    "DAG_PB",
    "LEGACY",
    "RAW",
    "V1",
    "Added",
    "Cid",
    "FetchConfig",
    "FetchProgress",
    "Fetcher",
    "Gateway",
    "GatewayConfig",
    "LocalStore",
    "MalformedDag",
    "Profile",
    "Storage",
    "StoreConfig",
    "open_storage",
]

_HOMES = {
    "DAG_CBOR": "atoll.storage.cid",
    "DAG_PB": "atoll.storage.cid",
    "LEGACY": "atoll.storage.unixfs",
    "RAW": "atoll.storage.cid",
    "V1": "atoll.storage.unixfs",
    "Added": "atoll.storage.unixfs",
    "Cid": "atoll.storage.cid",
    "FetchConfig": "atoll.storage.fetch_config",
    "Fetcher": "atoll.storage.fetch",
    "Gateway": "atoll.storage.gateway",
    "GatewayConfig": "atoll.storage.gateway",
    "LocalStore": "atoll.storage.local",
    "MalformedDag": "atoll.storage.errors",
    "Profile": "atoll.storage.unixfs",
    "FetchProgress": "atoll.storage.fetch",
    "Storage": "atoll.storage.storage",
    "StoreConfig": "atoll.storage.storage",
    "open_storage": "atoll.storage.storage",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll.storage' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
