"""A tab of a headless Chromium, and documents that it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dashboard.browser import Tab, browsing
from tests.integration.dashboard.pages import ABOUT, EXPLORER, MEASURED
from tests.support.manifests import make_manifest
from tests.unit.dashboard.jobs import (
    LIAR,
    document_of,
    finished,
    items_of,
    names_of,
    with_strangers,
)
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.dashboard.member import member_document
from atoll.dashboard.network_document import network_document
from atoll.job.figures import RoundFigures
from atoll.job.ledger.overview import Beside, GasSpent, Sample
from atoll.protocol.losses import loss_bytes
from atoll.protocol.task_spec import TaskSpec
from atoll.service.duties.sampled import Sampled


@pytest.fixture(scope="module")
def ended() -> Script:
    return with_strangers(finished())


@pytest.fixture(scope="module")
def job(ended: Script) -> dict[str, Any]:
    beside = Beside(
        manifest=make_manifest().model_copy(update={"about": ABOUT}),
        sources=("hf://datasets/someone/stories@0123456789abcdef",),
        gas=GasSpent(transactions=31, counted=30, gas=4_123_456, wei=41_234_560_000_000_000),
        sample=Sample("Once upon a time", " there was 1 reef.", 2),
        explorer=EXPLORER,
        distances={(0, 0): 1.25, (0, 1): 1.375, (1, 0): 0.875, (1, 1): 1.5},
    )
    losses = [
        RoundFigures(0, certified=loss_bytes(5.5)),
        RoundFigures(1, computed=loss_bytes(4.75)),
    ]
    losses += [RoundFigures(2, certified=loss_bytes(4.25), computed=loss_bytes(4.5))]
    told = document_of(ended, names=names_of(ended), figures=losses, beside=beside)
    return told | {"measured": MEASURED}


@pytest.fixture(scope="module")
def rewarded(ended: Script) -> dict[str, Any]:
    """Of a job that learns by rewards."""
    reward = {
        "kind": "answer", "weight": 1000, "opening": "", "closing": "", "least": 0, "most": 0
    }  # fmt: skip
    task = TaskSpec.model_validate(
        {
            "prompts": 42_000,
            "prompt_tokens": 12,
            "answer_bytes": 4,
            "group": 8,
            "new_tokens": 16,
            "ends": [2],
            "rewards": [reward],
        }
    )
    beside = Beside(manifest=make_manifest().model_copy(update={"task": task}))
    figures = [
        RoundFigures(0, held_out_reward=0.064),
        RoundFigures(1, sampled=Sampled(0.128, 9.5, 0.624), held_out_reward=0.192),
        RoundFigures(2, sampled=Sampled(0.344, 7.5, 0.872), held_out_reward=0.408),
    ]
    return document_of(ended, names=names_of(ended), figures=figures, beside=beside)


@pytest.fixture(scope="module")
def network(ended: Script) -> dict[str, Any]:
    net = ended.net
    return network_document({net.job: net.view}, items_of(ended), net.now, names_of(ended))


@pytest.fixture(scope="module")
def member(ended: Script) -> dict[str, Any]:
    """Of the provider that lied, was slashed, and announced a hostile address."""
    net = ended.net
    return member_document(PROVIDERS[LIAR], {net.job: net.view}, items_of(ended), net.now)


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path) as found:
        await found.look_like()
        yield found
