"""One prepared job a test session, and native settings for every test."""

from __future__ import annotations

import pytest
from tests.unit.train.factories import Job, make_job

from atoll.train.probe import pin_torch
from atoll.train.round import TrainedRound, train_round

pin_torch()


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="session")
def trained(job: Job) -> TrainedRound:
    return train_round(job.task, job.store)
