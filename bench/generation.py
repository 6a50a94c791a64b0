"""Tokens a second of exact generation beside `transformers.generate`: `python bench/generation.py`.

A Llama of random weights is generated from by both in one run, on as many threads, in fp32, the
same prompts and lengths: exactly with a cache, without one (the law as it is written), and by
transformers with its own cache. One whole forward pass of what came out is what checking it costs.
With --json, one object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from atoll.numerics.generate import Generator, Request, generate
from atoll.numerics.init import initial_params
from atoll.numerics.model import forward
from atoll.numerics.ops import operations
from atoll.numerics.sampling import Draw
from atoll.numerics.state_layout import param_shapes
from atoll.protocol.model_spec import UNSCALED, ModelSpec
from atoll.train.families import config_of

DEFAULTS = {
    "vocab": 32_000, "width": 512, "layers": 8, "seq": 256, "prompt": 64, "new": 64, "batch": 16,
}  # fmt: skip


def spec_of(arguments: argparse.Namespace) -> ModelSpec:
    return ModelSpec(
        kind="llama", vocab=arguments.vocab, width=arguments.width, layers=arguments.layers,
        heads=arguments.width // 64, kv_heads=arguments.width // 64, head_dim=64, qkv_bias=False,
        qk_norm=False, mlp="swiglu", ffn=arguments.width * 11 // 4, seq=arguments.seq, tied=True,
        norm_eps="0.00001", rope_base=10000, rope_scaling=UNSCALED,
    )  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """Of the second time: the first one compiles and warms."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def theirs(spec: ModelSpec, params: dict[str, Tensor], prompts: Tensor, new: int) -> float:
    config = config_of(spec, "float32")
    options = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **options))
    model.load_state_dict(params, strict=False)
    model = model.eval().to(prompts.device)
    how = {"do_sample": True, "top_k": 0, "temperature": 1.0, "eos_token_id": None}
    with torch.no_grad():
        return seconds(
            lambda: model.generate(
                prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0,
                max_new_tokens=new, min_new_tokens=new, **how,
            )
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--whole", action="store_true", help="also without a cache")
    arguments = parser.parse_args()
    spec, ops = spec_of(arguments), operations()
    params = {n: p.to(ops.device) for n, p in initial_params(param_shapes(spec), 0).items()}
    prompts = torch.randint(0, spec.vocab, (arguments.batch, arguments.prompt))
    request = Request(prompts=prompts.tolist(), new_tokens=arguments.new, draw=Draw((1, 2)))
    generator = Generator.of(params, spec, ops)
    made = generate(generator, request)
    tokens = sum(made.lengths) - prompts.numel()
    length = max(made.lengths) - 1
    ids = made.ids[:, :length].to(ops.device)
    with torch.no_grad():
        spent = {
            "exact": seconds(lambda: generate(Generator.of(params, spec, ops), request)),
            "transformers": theirs(spec, params, prompts.to(ops.device), arguments.new),
            "check": seconds(lambda: forward(params, ids, spec, ops)),
        }
        if arguments.whole:
            whole = replace(generator, is_cached=False)
            spent["whole"] = seconds(lambda: generate(whole, request))
    report = {
        "device": str(ops.device),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in params.values()),
        "batch": arguments.batch,
        "tokens": tokens,
        "seconds": {name: round(value, 4) for name, value in spent.items()},
        "tokens_per_second": {name: round(tokens / value, 1) for name, value in spent.items()},
    }
    if arguments.json:
        print(json.dumps(report))
        return
    for name, value in report["tokens_per_second"].items():
        print(f"{name:>14}: {value:,.0f} tokens a second")


if __name__ == "__main__":
    main()
