"""Jobs to start from, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from atoll.errors import ConfigError
from atoll.job.spec import JobSpec

_PLAIN: Final = {
    "kind": "llama",
    "qkv_bias": False,
    "qk_norm": False,
    "mlp": "swiglu",
    "norm_eps": "0.00001",
    "rope_base": 10_000,
    "rope_scaling": {"kind": "none", "factor": "1", "low": "0", "high": "0", "positions": 0},
}
_PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # A fifth of a million parameters over bytes: what `atoll devnet demo` runs.
    "demo": {
        "name": "devnet",
        "rounds": 4,
        "lifetime": "1h",
        "model": _PLAIN
        | {"vocab": 256, "width": 64, "layers": 4, "heads": 4, "kv_heads": 4, "ffn": 176}
        | {"head_dim": 16, "seq": 64, "tied": True},
        "data": {"max_tokens": 2_000_000},
        "inner": {"lr": "0.004", "steps": 40, "segment": 5, "batch": 8},
        # A job of four rounds that shows what audits are for: more than its bonds ask for.
        "audit": {"rate": "0.125", "last": "all"},
        "money": {
            "price_per_million": "1",
            "provider_bond": "100",
            "verifier_bond": "100",
        },
        "members": {"min_verifiers": 1, "slots": 4},
        "windows": {
            "train": "2m",
            "reveal": "1m",
            "merge": "1m",
            "audit": "90s",
            "open": "15s",
            "key": "20s",
            "window": "80s",
            "ready": "3m",
            "game": "40s",
            "move": "5s",
            "claim": "10m",
        },
        "evaluate": {"batches": 16},
    },
    # Ten million parameters over bytes.
    "nano": {
        "name": "nano",
        "rounds": 8,
        "model": _PLAIN
        | {"vocab": 256, "width": 320, "layers": 8, "heads": 5, "kv_heads": 5, "ffn": 864}
        | {"head_dim": 64, "seq": 256, "tied": True},
        "inner": {"lr": "0.001", "steps": 50, "segment": 5, "batch": 16, "micro_batch": 4},
    },
    # Over the model of an init folder, at a rate for trained weights.
    "finetune": {
        "name": "finetune",
        "rounds": 4,
        "inner": {"lr": "0.00005", "steps": 32, "segment": 4, "batch": 8, "micro_batch": 1},
    },
    # Adapters on the model of an init folder. Of a matrix of few rows the sums are half a byte a
    # number, which int8 would bring beyond three bytes: int4 loses nothing (docs/methods.md).
    "lora": {
        "name": "lora",
        "rounds": 4,
        "lora": {
            "rank": 8,
            "alpha": "16",
            "targets": ["q", "k", "v", "o", "gate", "up", "down"],
        },
        "method": {"codec": "grid4"},
        "inner": {"lr": "0.0002", "steps": 32, "segment": 4, "batch": 8, "micro_batch": 1},
    },
    # Adapters on the model of an init folder, by rewards of answers that are sampled.
    "rl-lora": {
        "name": "rl-lora",
        "rounds": 8,
        "lora": {
            "rank": 8,
            "alpha": "16",
            "targets": ["q", "k", "v", "o", "gate", "up", "down"],
        },
        "task": {"group": 8, "new_tokens": 128},
        "method": {"codec": "grid4"},
        "inner": {"lr": "0.00005", "steps": 8, "segment": 1, "batch": 64, "micro_batch": 8},
        "evaluate": {"batches": 0},
    },
    # GPT-2's size and vocabulary (Radford et al. 2019), as a Llama.
    "gpt2-small": {
        "name": "gpt2-small",
        "rounds": 50,
        "model": _PLAIN
        | {"vocab": 50_257, "width": 768, "layers": 12, "heads": 12, "kv_heads": 12}
        | {"head_dim": 64, "ffn": 2048, "seq": 1024, "tied": True},
        "inner": {"lr": "0.0006", "steps": 64, "segment": 4, "batch": 16, "micro_batch": 1},
        "method": {"name": "diloco"},
    },
    # The shape of Llama-3.2-1B, over a tokenizer of Llama 2's size.
    "llama-1b": {
        "name": "llama-1b",
        "rounds": 200,
        "model": _PLAIN
        | {"vocab": 32_000, "width": 2048, "layers": 16, "heads": 32, "kv_heads": 8}
        | {"head_dim": 64, "ffn": 8192, "seq": 2048, "tied": True},
        "inner": {"lr": "0.0003", "steps": 64, "segment": 2, "batch": 32, "micro_batch": 1},
        "method": {"name": "diloco"},
        "windows": {"megabits": 100},
    },
}

PRESETS: Final[Mapping[str, JobSpec]] = MappingProxyType(
    {name: JobSpec.of(values, f"the preset {name}") for name, values in _PRESETS.items()}
)


def preset(name: str) -> JobSpec:
    """The preset of that name. Raises ConfigError where there is none."""
    if name not in PRESETS:
        raise ConfigError(
            f"no preset is called {name!r}", next_step=f"choose one of {', '.join(PRESETS)}"
        )
    return PRESETS[name]
