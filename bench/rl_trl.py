"""Learning by rewards beside TRL's GRPOTrainer (`loss_type="dr_grpo"`): `python bench/rl_trl.py`.

Both begin with the same weights, of each of three seeds, and learn the same toy by the same
settings: which of eight letters has to stand in two tokens behind a prompt. What they sample
differs, so curves are compared by their spread: a window of steps is `within` where the mean of our
seeds lies between TRL's lowest and highest seed, or no further beside them than these lie apart.
Then both sample as many tokens of a larger model. The last line is JSON.

TRL is measured where it can be imported, else with .venv-trl, which is made if it is not there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VOCAB, SEQ, END = 40, 16, 2
LETTERS = [bytes([65 + token % 8]) for token in range(VOCAB)]
PROMPTS = [((5 + i, 7, 9)[: 1 + i % 3], 65 + i % 8) for i in range(6)]
BATCH, GROUP, NEW, RATE = 32, 4, 2, 0.03
SHARE = 0.001
"""Of an advantage where TRL's is 1: rewards count in millions, and a right answer has 1000."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--window", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=512, help="of the model that is sampled from")
    parser.add_argument("--trl", default="", help="a Python that has TRL")
    parser.add_argument("--probe", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        print(json.dumps(trl_curve(Path(arguments.probe), arguments.seeds, arguments.steps)))
        return
    report = compared(arguments)
    if arguments.json:
        print(json.dumps(report))
        return
    for name in ("atoll", "trl"):
        print(f"{name:>6}: mean reward by windows {report[name]['mean']}")
    print(f"within TRL's spread: {report['within']}; tokens a second {report['tokens_per_second']}")


def compared(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both curves, whether ours is within the spread of TRL's, and tokens a second."""
    curves: dict[str, list[list[float]]] = {"atoll": [], "trl": []}
    python = arguments.trl or trl_python()
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            curves["atoll"].append(atoll_curve(Path(folder), seed, arguments.steps))
            curves["trl"].append(asked(python, Path(folder), seed, arguments.steps))
    report: dict[str, Any] = {
        name: {"seeds": [windows_of(curve, arguments.window) for curve in seeds]}
        for name, seeds in curves.items()
    }
    for each in report.values():
        each["mean"] = [round(fmean(window), 4) for window in zip(*each["seeds"], strict=True)]
    report["within"] = [
        is_within(ours, theirs)
        for ours, theirs in zip(
            report["atoll"]["mean"], zip(*report["trl"]["seeds"], strict=True), strict=True
        )
    ]
    return report | {"tokens_per_second": speeds(arguments.width)}


def windows_of(curve: list[float], size: int) -> list[float]:
    return [round(fmean(curve[at : at + size]), 4) for at in range(0, len(curve), size)]


def is_within(ours: float, theirs: tuple[float, ...]) -> bool:
    spread = max(theirs) - min(theirs)
    return min(theirs) - spread <= ours <= max(theirs) + spread


# --- ours ---


def atoll_curve(folder: Path, seed: int, steps: int) -> list[float]:
    """Each step's mean reward; leaves the first weights in the folder, as transformers has them."""
    from safetensors.torch import save_file

    from atoll.numerics.segment import Course, run_segment
    from atoll.numerics.state import SeatState
    from atoll.numerics.state_layout import seat_layout
    from atoll.protocol.types import Digest, SeatIndex
    from atoll.storage.local import LocalStore
    from atoll.train.course import open_course
    from atoll.train.families import config_of
    from atoll.train.initial_model import open_initial_state

    store = LocalStore(folder / "store", sync=False)
    job = job_of(store, seed, steps)
    model = open_initial_state(job, store)
    config = config_of(job.model, "float32")
    (folder / "config.json").write_text(json.dumps(config))
    first = {name: p.clone().contiguous() for name, p in model.params.items()}
    save_file(first, folder / "model.safetensors", metadata={"format": "pt"})
    rewards: list[float] = []

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Seen(Course):
        def input_of(self, step: int, begun: SeatState) -> Any:
            given = Course.input_of(self, step, begun)
            assert given.rollouts is not None
            rewards.append(fmean(given.rollouts.rewards) / 1000)
            return given

    draws = Digest(bytes([seed + 1]) * 32)
    plain = open_course(job, store=store, data_seed=draws, seat=SeatIndex(0), round=0)
    course = Seen(**{name: getattr(plain, name) for name in Course.__dataclass_fields__})
    run_segment(SeatState.initial(model, seat_layout(job)), 0, course)
    return rewards


def job_of(store: Any, seed: int, steps: int) -> Any:
    from atoll.job.plan import filled
    from atoll.job.presets import preset
    from atoll.numerics.problems import Problem, written
    from atoll.protocol.manifest import DataSpec, NumericsSpec
    from atoll.protocol.task_spec import TaskSpec
    from atoll.protocol.types import ZERO_DIGEST
    from atoll.train.data import write_tokens

    reward = {"kind": "answer", "weight": 1000, "opening": "", "closing": "", "least": 0, "most": 0}
    task = TaskSpec.model_validate(
        {
            "prompts": len(PROMPTS), "prompt_tokens": 4, "answer_bytes": 2, "group": GROUP,
            "new_tokens": NEW, "ends": [END], "rewards": [reward],
        }
    )  # fmt: skip
    rows = [Problem(prompt, bytes([letter])) for prompt, letter in PROMPTS]
    words = written(rows, LETTERS, task, "uint16")
    data = write_tokens(words, store)
    spec = DataSpec(
        cid=data.cid, root=data.root, nodes_cid=data.nodes_cid, dtype="uint16", masked=False,
        aligned=False, train_tokens=len(words), eval_cid=None, eval_tokens=0, eval_batches=0,
        tokenizer_cid=store.add_bytes(b"{}").to_bytes(),
    )  # fmt: skip
    nano = preset("nano")
    assert nano.model is not None
    shape = {"vocab": VOCAB, "width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8}
    inner = {
        "optimizer": "adamw", "lr": str(RATE), "weight_decay": "0", "warmup_steps": 0,
        "schedule": "constant", "steps": steps, "segment": steps, "batch": BATCH,
        "micro_batch": BATCH,
    }  # fmt: skip
    chosen = nano.but(
        {
            "model": nano.model.model_copy(update=shape | {"ffn": 24, "seq": SEQ}),
            "task": {"prompts": ["rows"], "group": GROUP, "new_tokens": NEW},
            "evaluate.batches": 0,
            "rounds": 1,
            "init.seed": seed,
        }
        | {f"inner.{name}": value for name, value in inner.items()}
    )
    numerics = NumericsSpec(code_digest=ZERO_DIGEST, probe_digest=ZERO_DIGEST)
    return filled(chosen).resolve(spec, None, numerics, now=0, task=task)


# --- TRL's ---


def trl_python() -> str:
    """An interpreter that has TRL."""
    if importlib.util.find_spec("trl"):
        return sys.executable
    own = ROOT / ".venv-trl" / "bin" / "python"
    if not own.exists():
        subprocess.run(["make", "-C", ROOT, ".venv-trl"], check=True, stdout=sys.stderr)
    return str(own)


def asked(python: str, folder: Path, seed: int, steps: int) -> list[float]:
    """What TRL comes to, in a process that has it."""
    command = [python, "-W", "ignore", __file__, "--probe", str(folder)]
    command += ["--seeds", str(seed), "--steps", str(steps)]
    paths = os.environ | {"PYTHONPATH": str(ROOT / "sdk"), "HF_HUB_OFFLINE": "1"}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=paths)
    return list(json.loads(answer.stdout.splitlines()[-1]))


def trl_curve(folder: Path, seed: int, steps: int) -> list[float]:
    """Each step's mean reward, from the weights in a folder."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"t{END}", pad_token="t0", unk_token="t0"
    )
    rows = [{"prompt": " ".join(f"t{i}" for i in ids), "letter": at} for ids, at in PROMPTS]
    seen: list[float] = []

    def reward(completion_ids: list[list[int]], letter: list[int], **_: object) -> list[float]:
        hits = [
            any(LETTERS[token][0] == wanted for token in ids)
            for ids, wanted in zip(completion_ids, letter, strict=True)
        ]
        seen.append(fmean(hits))
        return [SHARE * hit for hit in hits]

    settings = GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, report_to="none", seed=seed,
        per_device_train_batch_size=BATCH, num_generations=GROUP, max_completion_length=NEW,
        max_steps=steps, learning_rate=RATE, lr_scheduler_type="constant", warmup_steps=0,
        adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        loss_type="dr_grpo", scale_rewards="none", beta=0.0, temperature=1.0, top_p=1.0, top_k=0,
        gradient_checkpointing=False, logging_strategy="no", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(rows * (BATCH // GROUP)),
        processing_class=tokenizer,
    )
    trainer.train()
    return seen[:steps]


# --- tokens a second ---


def speeds(width: int) -> dict[str, float]:
    """Of sampling, ours and transformers', which TRL samples with."""
    command = [sys.executable, str(ROOT / "bench" / "generation.py"), "--json"]
    command += ["--width", str(width)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(answer.stdout.splitlines()[-1])["tokens_per_second"])


if __name__ == "__main__":
    main()
