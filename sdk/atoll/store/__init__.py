"""Content-addressed storage: blocks on disk, a gateway serving them, retrieval that trusts nobody.

Everything that moves between parties moves by CID, and whoever receives it trusts the CID alone.
"""

from atoll.store.cid import DAG_CBOR, DAG_PB, RAW, Cid
from atoll.store.download import FetchConfig
from atoll.store.errors import MalformedDag
from atoll.store.fetch import Fetcher, Progress
from atoll.store.gateway import Gateway, GatewayConfig
from atoll.store.local import LocalStore
from atoll.store.storage import Storage, StoreConfig, open_storage
from atoll.store.unixfs import LEGACY, V1, Added, Profile

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
