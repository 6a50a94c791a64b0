"""The pages of a network, of its jobs and its members as files that any web server serves.

Rule of this file: a file is there whole or as it was before. Links between them are relative, so
that the folder may lie below any address, or be opened from a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atoll.dashboard.page import Links, as_json, page, write_file
from atoll.dashboard.reader import Reader
from atoll.protocol.types import Address, JobId

DOCUMENT = "document.json"


async def export(reader: Reader, folder: Path, *, follows: bool = False) -> list[Path]:
    """Writes everything, as of the last confirmed block.

    Args:
        follows: it will be written again; pages that are open look for what is new.

    Returns:
        The pages, the network's first.

    Raises:
        ChainError: no endpoint answers.
        StorageError: the folder cannot be written.
    """
    network = await reader.network()
    pages = [_write(network, folder, Links(DOCUMENT if follows else "", "./"))]
    links = Links(DOCUMENT if follows else "", "../../")
    for job in network["jobs"]:
        number = JobId(job["job"])
        pages.append(_write(await reader.job(number), folder / "job" / str(number), links))
    for member in network["members"]:
        account = Address(member["account"])
        pages.append(_write(await reader.member(account), folder / "member" / account, links))
    return pages


def _write(document: Mapping[str, Any], folder: Path, links: Links) -> Path:
    """The document first: an open page that sees the new one has what it needs."""
    write_file(as_json(document), folder / DOCUMENT)
    write_file(page(document, links), folder / "index.html")
    return folder / "index.html"
