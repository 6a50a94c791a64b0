"""Distances to the merge, measured by whoever looks: of a job that was really trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.job.trained import Change, Gateways, InProcess, TrainedJob

from atoll.errors import ProtocolError
from atoll.job.figures import Figures, measured_distances
from atoll.job.own_distances import measure_here
from atoll.numerics.codec.header import header_length
from atoll.numerics.sections import UpdateLayout
from atoll.numerics.state_layout import param_shapes
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Bitmap
from atoll.train.round import TrainedRound

SEATS = range(4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedJob:
    """Two rounds."""
    made = TrainedJob.begin(tmp_path_factory.mktemp("trained"), rounds=2)
    for _ in range(2):
        made.round()
    return made


@pytest.fixture
def job(trained: TrainedJob) -> TrainedJob:
    return replace(trained, gateways=Gateways())


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    made = Figures(tmp_path / "figures.sqlite")
    yield made
    made.close()


async def measured(
    job: TrainedJob, figures: Figures, gone: set[int] | None = None
) -> dict[tuple[int, int], float]:
    handle = job.handle()
    handle.client.figures = figures  # type: ignore[misc]
    await measure_here(handle, job.manifest, InProcess(), gone)  # type: ignore[arg-type]
    return measured_distances(figures, job.script.net.view)


async def test_every_seat_of_every_merged_round_is_measured_and_kept(
    job: TrainedJob, figures: Figures
) -> None:
    found = await measured(job, figures)
    assert sorted(found) == [(round, seat) for round in (0, 1) for seat in SEATS]
    assert all(0.01 < distance < 1 for distance in found.values())
    job.gateways.gone = set(job.updates.values())  # what is kept is not asked for again
    assert await measured(job, figures) == found


async def test_a_round_whose_updates_nobody_serves_stays_without(
    job: TrainedJob, figures: Figures
) -> None:
    job.gateways.gone, gone = {job.updates[0, 2]}, set[int]()
    found = await measured(job, figures, gone)
    assert (sorted(found), gone) == ([(1, seat) for seat in SEATS], {0})
    job.gateways.gone = set()
    assert await measured(job, figures, gone) == found  # it is not asked for again


async def test_a_merge_that_no_committee_signed_is_not_shown(
    tmp_path: Path, figures: Figures
) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.verdicts = lambda verdict: replace(verdict, excluded=Bitmap(1), merged=verdict.merged - 1)
    job.round()
    with pytest.raises(ProtocolError, match="round 0 is not the settled one"):
        await measured(job, figures)
    assert measured_distances(figures, job.script.net.view) == {}


async def test_an_update_that_stays_away_from_the_others_is_seen(
    tmp_path: Path, figures: Figures
) -> None:
    job = TrainedJob.begin(tmp_path, rounds=1)
    job.changes = {2: turned(job.manifest)}
    job.round()
    found = await measured(job, figures)
    others = [distance for (_, seat), distance in found.items() if seat != 2]
    assert found[0, 2] > 2 * max(others)


def turned(manifest: Manifest) -> Change:
    """It sends the opposite of what moves the model."""
    layout = UpdateLayout.of(manifest, param_shapes(manifest.model), 0)
    begin, end = header_length(layout.delta), layout.lengths[0]

    def change(done: TrainedRound) -> TrainedRound:
        values = np.frombuffer(done.update[begin:end], dtype=np.int8)
        return replace(done, update=done.update[:begin] + (-values).tobytes() + done.update[end:])

    return change
