"""Content-addressed storage: blocks on disk, a gateway serving them, retrieval that trusts nobody.

Everything that moves between parties moves by CID, and whoever receives it trusts the CID alone.
"""

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
