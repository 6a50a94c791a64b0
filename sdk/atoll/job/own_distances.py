"""How far each seat's update lay from its round's merge, measured here: no chain knows it, as it
follows from the updates' bytes.

Rule of this file: for people. A round whose updates nobody serves any more stays without.
"""

from __future__ import annotations

from atoll.errors import NotFound, ProtocolError
from atoll.job.followed import FollowedJob
from atoll.job.recomputation import Recomputation
from atoll.protocol.manifest import Manifest
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.views import JobView
from atoll.service.duties.merge import MEASURE_DISTANCES
from atoll.service.worker import Worker


async def measure_here(
    job: FollowedJob, manifest: Manifest, worker: Worker, gone: set[int] | None = None
) -> None:
    """Measures and keeps what is missing, the newest round first.

    Args:
        gone: rounds that are not asked for again; those whose updates, or whose model, nobody
            serves are added.

    Raises:
        ProtocolError: a model or a merge is not the one that a committee signed.
    """
    view, figures = await job.view(), job.client.figures
    gone = set() if gone is None else gone
    recomputation = Recomputation(job, view, manifest, worker)
    for settled in reversed(_merged_rounds(view)):
        is_known = figures.distances(view.spec_digest, settled.verdict.state)
        if is_known or settled.round in gone:
            continue
        try:
            by_seat = await _of_round(recomputation, settled)
        except NotFound:
            gone.add(settled.round)
            continue
        figures.note_distances(view.spec_digest, settled.verdict.state, by_seat)


def _merged_rounds(view: JobView) -> list[SettledRound]:
    """The rounds that somebody was merged in, the oldest first."""
    return [settled for settled in view.settled if settled.verdict.merged]


async def _of_round(recomputation: Recomputation, settled: SettledRound) -> dict[int, float]:
    with recomputation.job.client.store.holding():
        opened = await recomputation.model(settled.round)
        if not recomputation.is_certified(settled.round, opened):
            raise ProtocolError(f"the model before round {settled.round} is not the settled one")
        command = await recomputation.merge_of(settled, settled.merge_record, opened.cid)
        made = await recomputation.worker.run(MEASURE_DISTANCES(command, recomputation.store))
    if (made.excluded, made.merged) != (settled.verdict.excluded, settled.verdict.merged):
        raise ProtocolError(f"the merge of round {settled.round} is not the settled one")
    return made.distances
