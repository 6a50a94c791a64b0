"""Which network is meant where neither an option nor a variable says: as `atoll network use` kept.

A folder of the user's has a copy of each network's deployment file, and one file that says which
is chosen and where each chain's endpoints are.
Rule of this file: what is kept is read where it is asked for, and loads no library.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atoll.errors import ConfigError
from atoll.files import durable_rename, write_beside
from atoll.nested import loads

FOLDER_VARIABLE: Final = "ATOLL_NETWORKS"
_FOLDER: Final = "~/.atoll/networks"
_RECORD: Final = "chosen"
"""No name of a network's file, which ends in .json."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNetwork:
    """A network that was used.

    Attributes:
        deployment: the copy of its file.
        rpc: its chain's endpoints, with commas; empty leaves them to the usual default.
        source: the file or URL that it is from.
    """

    name: str
    deployment: Path
    rpc: str
    source: str


def networks_folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER).expanduser()


def known_networks() -> dict[str, KnownNetwork]:
    """Every network that was used, by name. Raises ConfigError where the record is damaged."""
    folder, known = networks_folder(), {}
    for name, entry in sorted(_record()["networks"].items()):
        known[name] = KnownNetwork(
            name=name,
            deployment=folder / f"{name}.json",
            rpc=str(entry["rpc"]),
            source=str(entry["source"]),
        )
    return known


def chosen_network() -> KnownNetwork | None:
    """The one that commands take; None where none was chosen. Raises ConfigError."""
    name = _record()["chosen"]
    return None if name is None else known_networks().get(name)


def keep_network(name: str, deployment: str, *, rpc: str, source: str) -> None:
    """Copies a network's deployment file and chooses it. Raises ConfigError, OSError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a network",
            next_step="pass --name NAME: letters, digits, points, lines",
        )
    record, folder = _record(), networks_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = folder / f"{name}.json"
    durable_rename(write_beside(place, deployment.encode()), place)
    networks = record["networks"] | {name: {"rpc": rpc, "source": source}}
    _write({"chosen": name, "networks": networks})


def choose_network(name: str | None) -> None:
    """Chooses one that is known, or none. Raises ConfigError, OSError."""
    record = _record()
    if name is not None or record["chosen"] is not None:
        _write(record | {"chosen": name})


def _write(record: dict[str, Any]) -> None:
    place = networks_folder() / _RECORD
    durable_rename(write_beside(place, json.dumps(record, indent=2).encode()), place)


def _record() -> dict[str, Any]:
    place = networks_folder() / _RECORD
    try:
        record: dict[str, Any] = loads(place.read_text(encoding="utf-8"))
        _require_whole(record)
    except (FileNotFoundError, NotADirectoryError):
        return {"chosen": None, "networks": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{place}, which says the network that is used, cannot be read: {error}",
            next_step=f"remove {place}, then `atoll network use FILE`",
        ) from error
    return record


def _require_whole(record: dict[str, Any]) -> None:
    """Raises one of the errors that `_record` knows."""
    for name, entry in record["networks"].items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name")
        _ = entry["rpc"], entry["source"]
    if record["chosen"] is not None and record["chosen"] not in record["networks"]:
        raise ValueError(f"{record['chosen']} is not among its networks")
