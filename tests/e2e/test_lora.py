"""Adapters on a folder's frozen model: trained by strangers, checked, opened by PEFT.

The four lines of the README, typed, on a network of three providers, one of whom cheats, and three
verifiers; the model that adapters are merged into comes to somebody who has never seen it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.unit.train.folders import make_folder

from atoll_devnet.processes.cluster import ClusterConfig
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

from .test_command_line import atoll
from .test_finetune import BUDGET, CHEAT, SMALL, check_course, ended, unsigned, write_corpus
from .test_jobs import atoll_json, options_of

CHOSEN = SMALL | {"inner.lr": "0.0002", "lora.rank": "4"}


async def test_adapters_are_trained_by_four_lines_and_opened_alone_and_merged(
    tmp_path: Path, beginning: Path
) -> None:
    start, corpus = tmp_path / "start", tmp_path / "corpus.jsonl"
    make_folder(start, "Qwen3", torch.bfloat16)
    write_corpus(corpus)
    file = tmp_path / "job.toml"
    new = ["job", "new", "--preset", "lora", "--init", str(start), "--data", str(corpus)]
    printed = atoll(*new, *(f"--set={key}={value}" for key, value in CHOSEN.items()))
    assert printed.returncode == 0, printed.stderr
    file.write_text(printed.stdout)

    config = ClusterConfig(
        tmp_path / "net", providers=3, verifiers=3, provider_cheats={CHEAT: "lazy"},
        beginning=beginning,
    )  # fmt: skip
    async with hostile_network(config) as network, skipping(network, print):
        pay = ["job", "submit", str(file), "--max-spend", BUDGET, "--yes", "--detach"]
        paid = await asyncio.to_thread(atoll, *pay, *options_of(network))
        assert paid.returncode == 0, paid.stderr
        assert "preparing the text: " in paid.stderr
        status = await ended(network, "1")
        logs = await asyncio.to_thread(atoll_json, network, "logs", "1", "--seat", str(CHEAT))
        elsewhere = ["--merged", "--home", str(tmp_path / "elsewhere")]
        for name, more in (("adapters", []), ("merged", elsewhere)):
            fetch = ["job", "result", "1", str(tmp_path / name), *unsigned(network), *more]
            fetched = await asyncio.to_thread(atoll, *fetch)
            assert fetched.returncode == 0, fetched.stderr

    check_course(network, status, 1.0)
    assert {"Revealed", "HolderSlashed"} <= {line["kind"] for line in logs}
    check_results(start, tmp_path / "adapters", tmp_path / "merged")


def check_results(start: Path, adapters: Path, merged: Path) -> None:
    """PEFT opens the one and `transformers` the other: the same model, better than the first."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert json.loads((adapters / "adapter_config.json").read_text())["r"] == 4
    trained = load_file(adapters / "adapter_model.safetensors")
    assert all("lora_" in name for name in trained)
    assert all(bool(p.any()) for name, p in trained.items() if "lora_B" in name)
    base = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(merged)
    held = tokenizer("the 3 quick brown foxes jump over the 4 lazy dogs", return_tensors="pt")
    ids = held["input_ids"]
    with torch.no_grad():
        before = base(ids, labels=ids)
        alone = PeftModel.from_pretrained(base, str(adapters)).eval()(ids, labels=ids)
        whole = AutoModelForCausalLM.from_pretrained(merged).eval()(ids, labels=ids)
    assert not torch.equal(alone.logits, before.logits)
    assert float(alone.loss) < float(before.loss)
    assert torch.allclose(alone.logits, whole.logits, atol=1e-3)
