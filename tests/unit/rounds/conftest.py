"""A small job and its honest round, once a session."""

from __future__ import annotations

import pytest
from tests.support.small_job import SmallJob, small_job

from atoll.train.round import TrainedRound, train_round


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    return small_job(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def trained(job: SmallJob) -> TrainedRound:
    return train_round(job.task, job.store)
