"""Somebody with a Hugging Face folder, a corpus and a budget gets that model back, better.

The four lines of the README, typed, on a network of three providers, one of whom cheats, and three
verifiers.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tests.unit.train.folders import make_folder

from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.run.options import UNHURRIED
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

from .test_command_line import atoll
from .test_jobs import atoll_json, options_of

SMALL = {
    "init.seq": "32", "rounds": "2", "inner.lr": "0.00001", "inner.steps": "16",
    "inner.segment": "2", "inner.batch": "4", "inner.micro_batch": "4",
    "members.seats": "3", "members.min_verifiers": "3", "members.slots": "3",
    "members.min_providers": "2",
    "lifetime": "1d",
    **{name: f"{seconds}s" for name, seconds in UNHURRIED.items() if name.startswith("windows.")},
}  # fmt: skip
"""What makes a job of minutes of it, on two busy cores; the rate is one for 1B to 8B."""
CHEAT = 1
"""Which provider leaves steps out."""
BUDGET = "1000"


def write_corpus(path: Path) -> None:
    """Text of which a model over bytes learns much in a minute, a document a line."""
    with path.open("w") as corpus:
        for n in range(2000):
            text = f"the {n % 10} quick brown foxes jump over the {n % 7} lazy dogs\n" * 4
            corpus.write(json.dumps({"text": text}) + "\n")


async def ended(network: Cluster, job: str) -> dict[str, Any]:
    """The job's status with every held-out loss, and its history, once `atoll watch` says that
    it has ended.
    """
    watch = [sys.executable, "-m", "atoll.cli.main", "watch", job, *unsigned(network)]
    process = await asyncio.create_subprocess_exec(*watch, stdout=asyncio.subprocess.DEVNULL)
    try:
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    evaluated = partial(atoll_json, network, "status", job, "--evaluate")
    status: dict[str, Any] = await asyncio.to_thread(evaluated)
    history = await asyncio.to_thread(partial(atoll_json, network, "history", job))
    return status | {"seats": history["grid"]["rows"]}


def check_course(network: Cluster, status: dict[str, Any], share: float) -> None:
    """The cheat alone was not paid, and the held-out loss fell below this share of the first."""
    assert (status["status"], status["settled_rounds"]) == ("done", 2)
    first, *later = status["curve"]
    seats = [seat for row in status["seats"] for seat in row]
    cheat = network.providers[CHEAT].account
    assert {seat["account"] for seat in seats} == {each.account for each in network.providers}
    assert all((seat["paid_wei"] == "0") == (seat["account"] == cheat) for seat in seats)
    # What a committee signed is what is computed here; of the last model no later round tells.
    said = [figures["certified_bits"] for figures in status["curve"]]
    assert said == [*(figures["bits"] for figures in status["curve"][:-1]), None]
    assert later[-1]["held_out_loss"] < share * first["held_out_loss"]


def check_clean(network: Cluster, status: dict[str, Any], told: str, begun: Path) -> None:
    """The cheat was merged from the first round on: what is clean is what the job began with."""
    cheat = network.providers[CHEAT].account
    (seat,) = {row.index(s) for row in status["seats"] for s in row if s["account"] == cheat}
    assert status["signs"]["tainted"][0] == {"round": 0, "seats": [seat]}
    assert status["signs"]["clean"] == {"before": 0, "digest": None}
    assert "tainted: what seat" in told and "--clean" in told
    clean = begun.with_name("clean")
    first, found = (load_file(folder / "model.safetensors") for folder in (begun, clean))
    assert found.keys() == first.keys()
    assert all(found[name].equal(first[name].to(found[name].dtype)) for name in found)


async def test_a_folder_is_fine_tuned_by_four_lines_while_one_cheats(
    tmp_path: Path, beginning: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start, corpus = tmp_path / "start", tmp_path / "corpus.jsonl"
    before = make_folder(start, "Qwen3", torch.bfloat16)
    write_corpus(corpus)
    file, result = tmp_path / "job.toml", tmp_path / "model"
    chosen = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    new = atoll("job", "new", "--init", str(start), "--data", str(corpus), *chosen)
    assert new.returncode == 0, new.stderr
    file.write_text(new.stdout)

    config = ClusterConfig(
        tmp_path / "net", providers=3, verifiers=3, provider_cheats={CHEAT: "lazy"},
        beginning=beginning,
    )  # fmt: skip
    async with hostile_network(config) as network, skipping(network, print):
        pay = ["job", "submit", str(file), "--max-spend", BUDGET, "--yes", "--detach"]
        paid = await asyncio.to_thread(atoll, *pay, *options_of(network))
        assert paid.returncode == 0, paid.stderr
        assert "becomes public" in paid.stdout + paid.stderr
        status = await ended(network, "1")
        logs = await asyncio.to_thread(atoll_json, network, "logs", "1")
        fetch = ["job", "result", "1", str(result), *unsigned(network)]
        fetched = await asyncio.to_thread(atoll, *fetch)
        assert fetched.returncode == 0, fetched.stderr
        clean = ["job", "result", "1", str(tmp_path / "clean"), "--clean", *unsigned(network)]
        cleaned = await asyncio.to_thread(atoll, *clean)
        assert cleaned.returncode == 0, cleaned.stderr

    check_course(network, status, 1.0)
    check_clean(network, status, fetched.stderr, start)
    assert [line for line in logs if line["kind"] == "HolderSlashed"]
    after = AutoModelForCausalLM.from_pretrained(result)
    assert type(after) is type(before)
    tokenizer = AutoTokenizer.from_pretrained(result)
    held = tokenizer("the 3 quick brown foxes jump over the 4 lazy dogs", return_tensors="pt")
    ids = held["input_ids"]
    with torch.no_grad():
        losses = [float(model.float()(ids, labels=ids).loss) for model in (before, after)]
    assert losses[1] < losses[0]
    assert tokenizer.decode(after.generate(ids[:, :16], max_new_tokens=8)[0])


def unsigned(network: Cluster) -> list[str]:
    """Options of a command that only reads."""
    options = options_of(network)
    return [*options[:4], *options[8:]]
