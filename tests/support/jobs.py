"""The job that tests change: everything written down, nothing left to be measured."""

from __future__ import annotations

from atoll.job.spec import JobSpec
from atoll.protocol.manifest import UNSCALED, ModelSpec

LIFETIME = 4_000_000_000
PLAIN = JobSpec.of(
    {
        "name": "demo",
        "rounds": 4,
        "lifetime": LIFETIME,
        "model": {
            "kind": "llama",
            "vocab": 256,
            "width": 64,
            "layers": 4,
            "heads": 4,
            "kv_heads": 4,
            "head_dim": 16,
            "qkv_bias": False,
            "qk_norm": False,
            "mlp": "swiglu",
            "ffn": 176,
            "seq": 64,
            "tied": True,
            "norm_eps": "0.00001",
            "rope_base": 10000,
            "rope_scaling": UNSCALED,
        },
        "inner": {"lr": "0.003", "steps": 40, "segment": 5, "batch": 8},
        "money": {
            "price_per_token": "0.000001",
            "sign_fee": "0.1",
            "duty_fee": "0.2",
            "provider_bond": "100",
            "verifier_bond": "100",
        },
        "windows": {
            "train": 60,
            "reveal": 30,
            "merge": 40,
            "audit": 100,
            "open": 30,
            "key": 30,
            "window": 400,
            "ready": 50,
            "game": 150,
            "move": 5,
            "claim": 1000,
        },
    }
)


def demo_model() -> ModelSpec:
    """Two hundred thousand parameters over single bytes."""
    assert PLAIN.model is not None
    return PLAIN.model


def tiny_model() -> ModelSpec:
    """Thirty thousand parameters: a round of it takes about a second."""
    return demo_model().model_copy(
        update={"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 64, "seq": 32}
    )
