"""What a step samples is the vector's, id by id, and so is where it leads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.second_client import documents, provide, rollouts, state
from tests.second_client.arithmetic import quiet
from tests.second_client.model import logits_of
from tests.vectors.generate_rollouts import FILES, render

VECTORS = Path(__file__).parents[1] / "vectors"
SAMPLED: dict[str, Any] = json.loads((VECTORS / "rollouts.json").read_text())
STEP = SAMPLED["step"]


@pytest.fixture(scope="module")
def job() -> provide.Job:
    manifest = documents.read_manifest(bytes.fromhex(SAMPLED["manifest"]))
    kind = provide.token_type(manifest)
    return provide.open_job(manifest, np.frombuffer(bytes.fromhex(SAMPLED["words"]), kind))


@pytest.fixture(scope="module")
def opened(job: provide.Job) -> state.State:
    model = state.read_global(bytes.fromhex(SAMPLED["globalState"]))
    return state.initial_state(job.manifest, model, None)


def seat() -> tuple[bytes, int]:
    return bytes.fromhex(SAMPLED["dataSeed"]), SAMPLED["seat"]


def test_atoll_writes_the_same_file_again() -> None:
    assert render(FILES["rollouts.json"]) == (VECTORS / "rollouts.json").read_text()


def test_every_id_and_weight(job: provide.Job, opened: state.State) -> None:
    logits = quiet(lambda ids: logits_of(opened["params"], ids, job.manifest["model"], job.tables))
    made = rollouts.sampled(job.manifest, job.tokens, logits, (seat(), 0, 0))
    assert made.signed.tolist() == STEP["ids"]
    assert made.weights.tobytes().hex() == STEP["weights"]
    assert [str(number) for number in made.drawn] == STEP["drawn"]
    assert made.is_finite and len(set(STEP["rewards"])) > 1


def test_the_step_and_its_segment(job: provide.Job, opened: state.State) -> None:
    begun = opened | {"batches": 0, "rollouts": bytes(32)}
    done = provide.sampled_step(begun, 0, 0, job, seat())
    assert np.array(done["norm"], ">f8").tobytes().hex() == STEP["norm"]
    assert np.array(done["losses"], ">f4").tobytes().hex() == STEP["losses"]
    assert [root.hex() for root in state.state_roots(done)] == STEP["stateRoots"]
    model = state.read_global(bytes.fromhex(SAMPLED["globalState"]))
    reached = provide.segment(opened, 0, job, model, seat())
    assert reached is not None
    assert (
        state.state_digest(state.state_roots(reached[0])).hex() == SAMPLED["segment"]["stateDigest"]
    )
    assert reached[1].hex() == SAMPLED["segment"]["workTag"]


def test_a_row_without_a_prompt_or_an_answer_is_refused(job: provide.Job) -> None:
    task, words = job.manifest["task"], np.array(job.tokens)
    for place in (0, 1 + task["prompt_tokens"]):
        for length in (0, 99):
            odd = words.copy()
            odd[place] = length
            with pytest.raises(ValueError, match="without a prompt"):
                rollouts.read_row(odd, task, 0)
