"""A job that starts from a Hugging Face folder: trained by strangers, opened by `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.unit.train.folders import make_folder

from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.train.pretrained import read_params, read_spec
from atoll_devnet.run.options import RunOptions

from .conftest import Runner

SEQ = 32


async def test_a_folder_is_trained_and_comes_back_as_what_it_was(
    tmp_path: Path, options: Callable[..., RunOptions], play: Runner
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "start"
    before = make_folder(folder, "Qwen3", torch.bfloat16)
    job: dict[str, Any] = {"model": None, "init.folder": str(folder), "init.seq": SEQ}
    job |= {"rounds": 2, "inner.lr": "0.01", "inner.steps": 16, "inner.segment": 2}
    report = await play(options(job=job, providers=2, verifiers=1))
    assert report["job"]["status"] == "done"
    assert [item["merged"] for item in report["rounds"]] == [2, 2]

    result = Path(report["result_dir"])
    after = AutoModelForCausalLM.from_pretrained(result)
    assert type(after) is type(before)
    spec = read_spec(result, SEQ)
    assert spec == read_spec(folder, SEQ)
    ids = torch.tensor([list(b"def __init__(self) -> None:")])
    with torch.no_grad():
        logits = forward(read_params(result, spec), ids, spec, NativeOps())
        torch.testing.assert_close(after(ids).logits, logits, atol=2e-5, rtol=2e-5)
    assert AutoTokenizer.from_pretrained(result)("a")["input_ids"] == [97]
    # A random model over bytes: what it says of the text is worse than nothing before it is taught.
    assert report["eval"]["loss_end"] < 0.9 * report["eval"]["loss_start"]
