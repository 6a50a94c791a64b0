"""A checkpoint of logs is held against the words of state at its block, before any of it counts.

Rule of this file: what is taken is what the state said at a block of the chain that we read; a
refusal says why, and costs no more than reading the ranges that it would have saved. Nobody's fold
is taken, but their logs, which we fold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from atoll.chain.log_heads import EMPTY, NO_JOB, HeadFold, created_job
from atoll.chain.log_snapshot import CheckpointRefused, LogSnapshot
from atoll.chain.logs import ChainTurned, LogReader
from atoll.errors import RpcUnavailable
from atoll.protocol.types import BlockRef

Checkpoints = Callable[[BlockRef], AsyncIterator[LogSnapshot]]
"""Gives those that members have, of blocks up to one; each may be false."""
WORTH_BLOCKS = 4_000
"""Of fewer, ranges are read sooner than anybody is asked."""
FINAL_BLOCKS = 128
"""So far below the last confirmed block a checkpoint is made: no reorg takes it back."""
PIECE = 256
"""Logs that are folded before others get their turn."""


async def check(reader: LogReader, snapshot: LogSnapshot, first: int, last: BlockRef) -> bool:
    """Whether these are proven to be all logs up to the snapshot's block, and no others.

    False where no endpoint has the state of its block any more: many nodes keep that of 128 blocks.
    Then the words at the newest block decide, once what is behind the snapshot's was read, too:
    each of them is a hash over the whole log.

    Args:
        first: the height at which logs begin; last: the newest block that is believed.

    Raises:
        CheckpointRefused: they are not.
    """
    number = snapshot.block.number
    if not first <= number <= last.number:
        raise CheckpointRefused(f"the checkpoint's block {number} is none that is confirmed")
    jobs = await _jobs(reader, snapshot, first)
    fold = HeadFold(reader.behind)
    for at in range(0, len(snapshot.logs), PIECE):
        fold.fold_all(snapshot.logs[at : at + PIECE])
        await asyncio.sleep(0)
    if any(key.job not in jobs for key in fold.heads):
        raise CheckpointRefused("the checkpoint has logs of a job that it has not created")
    try:
        standing = await reader.header(number)
        if standing is None or standing.ref != snapshot.block:
            raise CheckpointRefused(
                f"the checkpoint is stale: the chain has another block {number}"
            )
        heads = await reader.heads(snapshot.block, sorted(jobs))
    except ChainTurned as turned:
        raise CheckpointRefused(f"the checkpoint is stale: {turned}") from turned
    except RpcUnavailable:
        return False
    wrong = [key for key, head in heads.items() if fold.heads.get(key, EMPTY) != head]
    if wrong:
        raise CheckpointRefused(
            f"the checkpoint is false: it has other logs than the state of block {number} says, "
            f"in {len(wrong)} of {len(heads)} logs"
        )
    return True


async def _jobs(reader: LogReader, snapshot: LogSnapshot, first: int) -> set[int]:
    """Every job that it creates, and `NO_JOB`. Raises CheckpointRefused for what is not ours."""
    jobs = {NO_JOB}
    for count, raw in enumerate(snapshot.logs):
        if raw.block_number < first or not reader.is_ours(raw):
            raise CheckpointRefused("the checkpoint has logs that are not of the deployment")
        created = created_job(raw)
        if created is not None:
            jobs.add(created)
        if count % PIECE == 0:
            await asyncio.sleep(0)
    return jobs
