"""The second client, given what a finished network made public, says what the network said.

It runs as a program of its own. What it is given is the manifest, the training tokens, the weights
where the manifest names them, and from the chain's log the data seeds and what each seat revealed
of its steps; what it prints is compared with the roots and digests in the same log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.train.folders import make_folder

from atoll.bits.layout import max_params_bytes
from atoll.content.cid import Cid
from atoll.law import events as ev
from atoll.law.manifest import Manifest
from atoll.law.trace import float_bytes
from atoll.train.course import open_held_out_tokens, open_training_tokens
from atoll_devnet.report.live import Display
from atoll_devnet.run.options import RunOptions
from atoll_devnet.run.runner import Running, finish, is_over, start

from .conftest import check_books

ROOT = Path(__file__).parents[2]
FOLDER = {"model": None, "init.folder": "model", "init.seq": 24}
ADAPTERS = FOLDER | {"lora": {"rank": 2, "alpha": "4", "targets": ["q", "v", "down"]}}
JOBS: dict[str, dict[str, Any]] = {
    "int8, of conversations the answers": {
        "method.codec": "grid8",
        "data.chat": True,
        "data.paths": ["rows.jsonl"],
    },
    "int4, dropout": {"method.codec": "grid4", "inner.dropout": "0.1"},
    "two bits with feedback, Muon, Nesterov": {"method.name": "muloco"},
    "signs with feedback, adapters": {"method.codec": "sign", **ADAPTERS},
    "fp32": {"method.codec": "fp32"},
    "from a folder": FOLDER,
}


@pytest.mark.parametrize("name", JOBS)
async def test_the_second_client_says_what_the_network_said(
    name: str, tmp_path: Path, options: Callable[..., RunOptions], display: Display
) -> None:
    job = {"audit.coverage": "0.1", **JOBS[name]}
    if "init.folder" in job:
        make_folder(tmp_path / "model", "Qwen3")
        job["init.folder"] = str(tmp_path / "model")
    if "data.chat" in job:
        write_conversations(tmp_path / "rows.jsonl")
        job["data.paths"] = [str(tmp_path / "rows.jsonl")]
    chosen = options(job=job, providers=3, verifiers=2, skip_windows=True)
    async with start(chosen, display) as running:
        await running.observer.run(is_over)
        said = _write_public(running, tmp_path)
        report = (await finish(running, chosen)).report
    check_books(report)
    assert [item["rejected"] for item in report["rounds"]] == [[], []]
    assert _work_out(tmp_path) == said


def write_conversations(path: Path) -> None:
    """Rows of which only the answers are learned."""
    with path.open("w") as rows:
        for n in range(1500):
            asked = {"role": "user", "content": f"What comes after {n}?"}
            answer = {"role": "assistant", "content": f"After {n} comes {n + 1}."}
            rows.write(json.dumps({"messages": [asked, answer]}) + "\n")


def _work_out(folder: Path) -> Any:
    """What the second client prints."""
    program = [sys.executable, "-m", "tests.second_client", str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _write_public(running: Running, folder: Path) -> list[dict[str, Any]]:
    """Writes what everybody has of the job; returns what the network said, round by round."""
    watched = running.observer.watched
    manifest = Manifest.from_bytes(watched.manifest)
    (folder / "manifest.cbor").write_bytes(watched.manifest)
    tokens = open_training_tokens(manifest, running.client.session.store)[:]
    (folder / "tokens").write_bytes(tokens.tobytes())
    held_out = open_held_out_tokens(manifest, running.client.session.store)
    (folder / "held_out").write_bytes(held_out[0 : len(held_out)].tobytes())
    if manifest.init.cid is not None:
        store, limit = running.client.session.store, max_params_bytes(manifest.model)
        weights = store.read_bytes(Cid.from_bytes(manifest.init.cid), limit)
        (folder / "weights").write_bytes(weights)
    given: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for event in (indexed.event for indexed in watched.session.follower.history()):
        if isinstance(event, ev.TrainStarted):
            del given[event.round :], said[event.round :]
            seed = event.data_seed.hex()
            given.append({"attempt": event.attempt, "data_seed": seed, "seats": {}})
            said.append({"seats": {}})
        elif isinstance(event, ev.Revealed):
            reveal, seat = event.reveal, str(event.seat)
            given[-1]["seats"][seat] = {"steps": reveal.steps, "reset": reveal.reset}
            said[-1]["seats"][seat] = {
                "trace_root": reveal.trace_root.hex(),
                "update_root": reveal.update_root.hex(),
                "optimiser_root": reveal.optimiser_root.hex(),
                "steps": reveal.steps,
            }
        elif isinstance(event, ev.RoundSettled):
            said[-1]["merged"] = event.verdict.merged_digest.hex()
            loss = running.observer.losses[event.round]
            said[-1]["held_out"] = float_bytes(">d", loss).hex()
    domain = running.cluster.deployment.domain
    document = {
        "chain": domain.chain_id,
        "contract": str(domain.rounds).removeprefix("0x"),
        "job": watched.job,
        "rounds": given,
    }
    (folder / "revealed.json").write_text(json.dumps(document))
    return said
