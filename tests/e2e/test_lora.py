"""Adapters on a folder's frozen model: trained by strangers, checked, opened by PEFT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file
from tests.unit.train.folders import make_folder
from transformers import AutoModelForCausalLM

from atoll_devnet.run.options import RunOptions

from .conftest import Runner, faults, provider

LORA = {"rank": 4, "alpha": "16", "targets": ["q", "k", "v", "o", "gate", "up", "down"]}
CHEAT = 3


async def test_adapters_are_trained_checked_and_opened_by_peft(
    tmp_path: Path, options: Callable[..., RunOptions], play: Runner
) -> None:
    folder = tmp_path / "base"
    make_folder(folder, "Qwen3", torch.bfloat16)
    job: dict[str, Any] = {"model": None, "init.folder": str(folder), "init.seq": 32}
    job |= {"rounds": 2, "inner.lr": "0.02", "inner.steps": 16, "inner.segment": 2, "lora": LORA}
    report = await play(
        options(job=job, providers=4, verifiers=2, cheats={CHEAT: "lazy"}, skip_windows=True)
    )
    assert report["job"]["status"] == "done"
    assert faults(report, CHEAT) == {"wrong-replay"}
    assert int(provider(report, CHEAT)["slashed_wei"]) > 0
    assert all(provider(report, seat)["accepted_rounds"] == 2 for seat in range(CHEAT))
    assert report["eval"]["loss_end"] < 0.95 * report["eval"]["loss_start"]

    result = Path(report["result_dir"])
    assert json.loads((result / "adapter_config.json").read_text())["r"] == LORA["rank"]
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([list(b"def __init__(self) -> None:")])
    with torch.no_grad():
        before = base(ids).logits
        after = PeftModel.from_pretrained(base, str(result))(ids).logits
    assert (after - before).abs().max() > 0.1
    assert all("lora_" in name for name in load_file(result / "adapter_model.safetensors"))
