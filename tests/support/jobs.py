"""The job that tests change: everything written down, nothing left to be measured."""

from __future__ import annotations

from tests.support.manifests import (
    BASES,
    DEMO,
    LIFETIME,
    UNKNOWN_NUMERICS,
    model_spec,
    unstored_data,
)

from atoll.job.presets import PRESETS
from atoll.job.spec import JobSpec
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.model_spec import ModelSpec

PLAIN = JobSpec.of(
    {
        "name": "demo",
        "rounds": 4,
        "lifetime": LIFETIME,
        "model": DEMO["model"],
        "inner": {"lr": "0.003", "steps": 40, "segment": 5, "batch": 8},
        "audit": {"rate": "0.5", "last": "all"},
        "money": {
            "price_per_million": "1",
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


def tiny_model() -> ModelSpec:
    """Thirty thousand parameters: a round of it takes about a second."""
    return model_spec(**BASES["small"]["model"])


def manifest_of_preset(name: str) -> Manifest:
    """A manifest with a preset's model and steps, over data of a billion tokens."""
    spec = PRESETS[name]
    names = ("lr", "steps", "batch", "segment", "micro_batch", "lanes")
    given = {f"inner.{field}": getattr(spec.inner, field) for field in names}
    changes = {field: value for field, value in given.items() if value is not None}
    job = PLAIN.but({"rounds": spec.rounds, "model": spec.model, **changes})
    data = unstored_data(dtype="uint16", train_tokens=10**9)
    return job.resolve(data, None, NumericsSpec(**UNKNOWN_NUMERICS), now=0)
