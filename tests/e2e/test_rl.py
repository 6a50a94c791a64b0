"""Answers learned by their rewards, on adapters: generated and trained by strangers, and checked.

A base that was taught the format by a job of text learns which sum is right, on a network of three
providers, one of whom keeps the luckier of two rollouts, and three verifiers.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import torch
from tests.unit.train.folders import make_folder

from atoll_devnet.processes.cluster import Cluster, ClusterConfig
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

from .test_command_line import atoll
from .test_finetune import BUDGET, CHEAT, SMALL, ended, unsigned
from .test_jobs import atoll_json, options_of

TERMS = [(a, b) for a in range(10, 14) for b in range(10, 14)]
HELD_OUT = TERMS[::4]
FORMAT = SMALL | {"inner.lr": "0.003", "inner.steps": "32", "inner.segment": "8"}
CHOSEN = SMALL | {
    "lora.rank": "4", "inner.lr": "0.01", "inner.steps": "48", "inner.segment": "8",
    "inner.batch": "32", "inner.micro_batch": "32", "task.group": "8", "task.new_tokens": "3",
}  # fmt: skip
GAIN = 1.3
"""So much better than the base a held-out sum is, at least, by the likelihood of what is right."""


def write_format(path: Path) -> None:
    """Sums with an answer each, of which every third is right."""
    draw = random.Random(0)
    with path.open("w") as corpus:
        for _ in range(4000):
            a, b = draw.choice(TERMS)
            said = a + b if draw.random() < 0.34 else draw.randrange(20, 27)
            corpus.write(json.dumps({"text": f"{a}+{b}={said}."}) + "\n")


def write_problems(path: Path) -> None:
    rows = ({"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in set(TERMS) - set(HELD_OUT))
    path.write_text("".join(json.dumps(row) + "\n" for row in sorted(rows, key=str)))


def job_file(folder: Path, name: str, words: list[str], chosen: dict[str, str]) -> Path:
    printed = atoll("job", "new", *words, *(f"--set={k}={v}" for k, v in chosen.items()))
    assert printed.returncode == 0, printed.stderr
    file = folder / f"{name}.toml"
    file.write_text(printed.stdout)
    return file


async def run_job(network: Cluster, file: Path, result: Path) -> tuple[str, dict[str, object]]:
    pay = ["job", "submit", str(file), "--max-spend", BUDGET, "--yes", "--detach", "--json"]
    paid = await asyncio.to_thread(atoll, *pay, *options_of(network))
    assert paid.returncode == 0, paid.stderr
    job = str(json.loads(paid.stdout)["job"])
    status = await ended(network, job)
    fetch = ["job", "result", job, str(result), *unsigned(network)]
    fetched = await asyncio.to_thread(atoll, *fetch)
    assert fetched.returncode == 0, fetched.stderr
    return job, status


def held_out_reward(model: torch.nn.Module, tokenizer: object) -> float:
    """The chance that a held-out sum is answered right, on average."""
    chances = []
    for a, b in HELD_OUT:
        ids = tokenizer(f"{a}+{b}={a + b}", return_tensors="pt")["input_ids"]  # type: ignore[operator]
        with torch.no_grad():
            logs = model(ids).logits.float().log_softmax(-1)[0]
        chances.append(float(sum(logs[t - 1, ids[0, t]] for t in (-2, -1)).exp()))
    return sum(chances) / len(chances)


async def test_sums_are_learned_by_rewards_while_one_picks_its_rollouts(
    tmp_path: Path, beginning: Path
) -> None:
    start, base = tmp_path / "start", tmp_path / "base"
    corpus, problems = tmp_path / "corpus.jsonl", tmp_path / "problems.jsonl"
    make_folder(start, "Qwen3", torch.float32)
    write_format(corpus)
    write_problems(problems)
    config = ClusterConfig(
        tmp_path / "net", providers=3, verifiers=3, provider_cheats={CHEAT: "pick-rollouts"},
        beginning=beginning,
    )  # fmt: skip
    async with hostile_network(config) as network, skipping(network, print):
        text = job_file(tmp_path, "text", ["--init", str(start), "--data", str(corpus)], FORMAT)
        await run_job(network, text, base)
        words = ["--preset", "rl-lora", "--init", str(base), "--data", str(problems)]
        file = job_file(tmp_path, "rl", words, CHOSEN)
        job, status = await run_job(network, file, tmp_path / "adapters")
        logs = await asyncio.to_thread(atoll_json, network, "logs", job)

    check_cheat(network, status, logs)
    check_result(base, tmp_path / "adapters")


def check_cheat(network: Cluster, status: dict[str, object], logs: list[dict[str, object]]) -> None:
    """It alone was not paid, and lost its bond by what the round's verifiers said."""
    kinds = [line["kind"] for line in logs]
    assert status["status"] == "done"
    assert kinds.count("HolderSlashed") == 1
    assert kinds.count("Testified") >= 2
    assert "StepsOpened" not in kinds
    seats = [seat for row in status["seats"] for seat in row]  # type: ignore[attr-defined]
    cheat = network.providers[CHEAT].account
    assert all((seat["paid_wei"] == "0") == (seat["account"] == cheat) for seat in seats)


def check_result(base: Path, adapters: Path) -> None:
    """PEFT opens it, and it answers better what it has never been asked."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(base)
    before = held_out_reward(model, tokenizer)
    tuned = PeftModel.from_pretrained(model, str(adapters)).eval()
    after = held_out_reward(tuned, tokenizer)
    assert after > GAIN * before, (before, after)
