"""Of a file whose few bytes are looked at, the blocks alone that these lie in are fetched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.storage.test_retrieval import PATIENT, QUICK, serving

from atoll.errors import NotFound, TooLarge
from atoll.storage import Fetcher, LocalStore
from atoll.storage.slices import FileSlices

MIB = 1 << 20
SIZE = 1030 * MIB // 256 + 5
"""Bytes of a file; blocks are of a MiB, and nodes name 1024."""


@pytest.mark.parametrize(
    ("spans", "blocks"),
    [([slice(0, 1)], {0}), ([slice(MIB - 1, MIB + 1), slice(SIZE - 1, SIZE)], {0, 1, 4})],
)
async def test_other_blocks_stay_where_they_are(
    tmp_path: Path, spans: list[slice], blocks: set[int]
) -> None:
    theirs, ours = (LocalStore(tmp_path / name, sync=False) for name in ("theirs", "ours"))
    data = os.urandom(SIZE)
    cid = theirs.add_bytes(data)
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url], PATIENT) as fetcher:
        await fetcher.fetch_spans(cid, SIZE, spans)
    leaves = ours.leaves(cid, SIZE)
    assert {i for i, leaf in enumerate(leaves) if ours.has(leaf.cid)} == blocks
    slices = FileSlices(ours, cid, SIZE)
    assert all(slices[span] == data[span] for span in spans)


async def test_a_file_that_is_too_large_or_with_nobody_is_none(tmp_path: Path) -> None:
    theirs, ours = (LocalStore(tmp_path / name, sync=False) for name in ("theirs", "ours"))
    cid = theirs.add_bytes(bytes(3 * MIB))
    async with serving(theirs) as gateway, Fetcher(ours, lambda: [gateway.url], PATIENT) as fetcher:
        with pytest.raises(TooLarge):
            await fetcher.fetch_spans(cid, 2 * MIB, [slice(0, 1)])
    async with Fetcher(ours, lambda: [], QUICK) as fetcher:
        with pytest.raises(NotFound):
            await fetcher.fetch_spans(cid, 3 * MIB, [slice(0, 3 * MIB)])
