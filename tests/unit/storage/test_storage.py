"""One interface over the backends that need no daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.storage import Gateway, LocalStore, StoreConfig, open_storage


async def test_embedded_keeps_and_fetches(tmp_path: Path) -> None:
    theirs = LocalStore(tmp_path / "theirs", sync=False)
    there = theirs.add_bytes(b"there")
    gateway = Gateway(theirs)
    await gateway.start()
    config = StoreConfig(tmp_path / "ours", sync=False)
    async with await open_storage(config, lambda: [gateway.url]) as storage:
        here = await storage.add_bytes(b"here")
        await storage.pin(here, "mine")
        assert await storage.get(here, 10) == b"here"
        assert await storage.get(there, 10) == b"there"
        assert await storage.unpin("mine") == 1
    await gateway.stop()


async def test_a_gateway_backend_only_reads(tmp_path: Path) -> None:
    theirs = LocalStore(tmp_path / "theirs", sync=False)
    there = theirs.add_bytes(b"there")
    gateway = Gateway(theirs)
    await gateway.start()
    config = StoreConfig(tmp_path / "ours", f"gateway:{gateway.url}", sync=False)
    async with await open_storage(config) as storage:
        assert await storage.get_file(there, tmp_path / "out", 10) == 5
        with pytest.raises(ConfigError, match="only reads"):
            await storage.add_bytes(b"here")
    await gateway.stop()


@pytest.mark.parametrize("quota", [100_000, None])
async def test_a_configured_quota_takes_the_place_of_a_damaged_one(
    tmp_path: Path, quota: int | None
) -> None:
    (tmp_path / "quota").touch()
    async with await open_storage(StoreConfig(tmp_path, quota_bytes=quota, sync=False)) as storage:
        assert storage.local.quota_bytes == quota
    assert LocalStore(tmp_path, sync=False).quota_bytes == quota


@pytest.mark.parametrize("backend", ["", "ipfs", "embedded:x", "kubo", "gateway:", "gateway:ftp:x"])
async def test_unknown_backends_are_refused(tmp_path: Path, backend: str) -> None:
    with pytest.raises(ConfigError):
        await open_storage(StoreConfig(tmp_path, backend))
