"""A result, judged by the real `lm_eval` on a task of this machine.

The programs of `.venv-notebook` run it: what `lm_eval` brings is no part of what `make test` needs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from tests.unit.train.factories import small_model
from tests.unit.train.folders import belongings
from tests.unit.train.test_model import random_params

from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.train.export import export_model

ROOT = Path(__file__).resolve().parents[3]
LM_EVAL = ROOT / ".venv-notebook" / "bin" / "lm_eval"
NAME = "endings"
QUESTIONS = (
    {"start": "to be or", "ends": ["not to be", "a bee"], "right": 0},
    {"start": "the quick", "ends": ["lazy dog", "brown fox"], "right": 1},
    {"start": "once upon", "ends": ["a time", "a mattress", "it"], "right": 0},
)
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{start}}}}"
doc_to_choice: "{{{{ends}}}}"
doc_to_target: "{{{{right}}}}"
metric_list:
  - metric: acc
"""


def log_likelihood(logits: torch.Tensor, ids: torch.Tensor, known: int) -> float:
    """Of the tokens from `known` on, each behind those before it."""
    log_probabilities = logits[0, :-1].log_softmax(-1)
    return float(log_probabilities.gather(1, ids[0, 1:, None])[known - 1 :].sum())


def test_it_judges_the_model_that_was_exported(tmp_path: Path) -> None:
    spec = small_model(seq=64)
    params = random_params(spec)
    export_model(params, spec, belongings(), tmp_path / "model")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / f"{NAME}.yaml").write_text(TASK.format(name=NAME, rows=rows))
    command = [
        LM_EVAL, "run", "--model", "hf", "--device", "cpu", "--batch_size", "1",
        "--model_args", f"pretrained={tmp_path / 'model'},dtype=float32,prefix_token_id=0",
        "--tasks", NAME, "--include_path", tmp_path / "tasks",
        "--output_path", tmp_path / "judged", "--log_samples",
    ]  # fmt: skip
    offline = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        command, env=os.environ | offline, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "judged").rglob(f"samples_{NAME}_*.jsonl")
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(samples) == len(QUESTIONS)
    for sample in samples:
        question = sample["doc"]
        for end, ((theirs, _),) in zip(question["ends"], sample["resps"], strict=True):
            whole = f"{question['start']} {end}".encode()
            ids = torch.tensor([list(whole)])
            with torch.no_grad():
                ours = log_likelihood(
                    forward(params, ids, spec, NativeOps()), ids, len(question["start"])
                )
            assert float(theirs) == pytest.approx(ours, abs=1e-3)
