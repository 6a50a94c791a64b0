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
HELD_OUT = [(10, 11), (11, 13), (12, 10), (13, 12)]
"""Every number is asked on both sides, in other sums."""
FORMAT = SMALL | {
    "inner.lr": "0.003", "inner.steps": "256", "inner.segment": "32", "inner.batch": "16",
    "inner.micro_batch": "16",
}  # fmt: skip
CHOSEN = SMALL | {
    "rounds": "3", "lora.rank": "4", "inner.lr": "0.001", "inner.steps": "48", "inner.segment": "8",
    "inner.batch": "32", "inner.micro_batch": "32", "task.group": "8", "task.new_tokens": "3",
}  # fmt: skip
LEFT = 0.7
"""Of the base's chance to answer a held-out sum wrongly so much is left at most.

What is drawn differs from run to run: five gave 0.17 to 0.4. The base has to know from the text
which answer is the likeliest: one that does not learns the rewarded sums by heart, and no others.
"""


def write_format(path: Path) -> None:
    """Sums with an answer each, of which more than three in four are right."""
    draw = random.Random(0)
    with path.open("w") as corpus:
        for _ in range(4000):
            a, b = draw.choice(TERMS)
            said = a + b if draw.random() < 0.75 else draw.randrange(20, 27)
            corpus.write(json.dumps({"text": f"{a}+{b}={said}."}) + "\n")


def write_problems(path: Path, terms: set[tuple[int, int]]) -> None:
    rows = ({"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in sorted(terms))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


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
    write_problems(problems, set(TERMS) - set(HELD_OUT))
    held_out = tmp_path / "held-out.jsonl"
    write_problems(held_out, set(HELD_OUT))
    config = ClusterConfig(
        tmp_path / "net", providers=3, verifiers=3, provider_cheats={CHEAT: "pick-rollouts"},
        beginning=beginning,
    )  # fmt: skip
    async with hostile_network(config) as network, skipping(network, print):
        text = job_file(tmp_path, "text", ["--init", str(start), "--data", str(corpus)], FORMAT)
        await run_job(network, text, base)
        words = ["--preset", "rl-lora", "--init", str(base), "--data", str(problems)]
        file = job_file(tmp_path, "rl", words, CHOSEN | {"task.held_out": f'["{held_out}"]'})
        job, status = await run_job(network, file, tmp_path / "adapters")
        logs = await asyncio.to_thread(atoll_json, network, "logs", job)

    check_cheat(network, status, logs)
    check_figures(status)
    check_result(base, tmp_path / "adapters")


def check_cheat(network: Cluster, status: dict[str, object], logs: list[dict[str, object]]) -> None:
    """It alone was not paid, and lost its bond in a game; no other game was lost by anybody.

    How many verifiers dispute it is a matter of who is first: the games of those who come before
    the first has ended are not played, and their bonds go home.
    """
    assert status["status"] == "done"
    cheat = network.providers[CHEAT].account
    (slashing,) = texts_of(logs, "HolderSlashed")
    assert slashing.startswith(f"{cheat} is slashed")
    ends = texts_of(logs, "Ended")
    assert len(ends) == len(texts_of(logs, "Challenged"))
    assert sum(text.endswith("is lost by whom it is about") for text in ends) == 1
    assert not any(text.endswith("is lost by who began it") for text in ends)
    seats = [seat for row in status["seats"] for seat in row]  # type: ignore[attr-defined]
    assert all((seat["paid_wei"] == "0") == (seat["account"] == cheat) for seat in seats)


def texts_of(logs: list[dict[str, object]], kind: str) -> list[str]:
    """What is said of every event of a kind."""
    return [str(line["text"]) for line in logs if line["kind"] == kind]


def check_figures(status: dict[str, object]) -> None:
    """What was sampled is counted from public data, and what was kept back by who has it."""
    first, *rounds = status["curve"]  # type: ignore[misc]
    assert first["reward"] is None
    rewards = [item["reward"] for item in rounds]
    assert all(0 < reward < 1 for reward in rewards)
    assert rewards[-1] > rewards[0]
    assert all(0 < item["length"] <= 3 and 0 < item["spread"] <= 1 for item in rounds)
    assert all(0 <= item["held_out_reward"] <= 1 for item in (first, *rounds))


def check_result(base: Path, adapters: Path) -> None:
    """PEFT opens it, and it answers better what it has never been asked."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(base)
    before = held_out_reward(model, tokenizer)
    tuned = PeftModel.from_pretrained(model, str(adapters)).eval()
    after = held_out_reward(tuned, tokenizer)
    assert 1 - after < LEFT * (1 - before), (before, after)
