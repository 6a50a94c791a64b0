"""Every bound that the law gives a number of a manifest and of its terms."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel
from tests.support.manifests import make_terms

from atoll.protocol.manifest import DataSpec, InitSpec, Manifest, NumericsSpec
from atoll.protocol.method_spec import CodecSpec, InnerSpec, OuterSpec, RobustSpec, TensorExponents
from atoll.protocol.model_spec import ModelSpec, RopeScalingSpec
from atoll.protocol.task_spec import RewardSpec, TaskSpec

INTEGERS: list[tuple[type[BaseModel], str, int, int]] = [
    (ModelSpec, "vocab", 2, 2**20),
    (ModelSpec, "width", 8, 2**15),
    (ModelSpec, "layers", 1, 256),
    (ModelSpec, "heads", 1, 256),
    (ModelSpec, "kv_heads", 1, 256),
    (ModelSpec, "head_dim", 2, 2**15),
    (ModelSpec, "ffn", 8, 2**17),
    (ModelSpec, "seq", 2, 2**17),
    (ModelSpec, "rope_base", 2, 1_000_000_000),
    (RopeScalingSpec, "positions", 0, 2**24),
    (InitSpec, "seed", 0, 2**64 - 1),
    (DataSpec, "train_tokens", 2, 2**60 - 1),
    (DataSpec, "eval_tokens", 0, 2**60 - 1),
    (DataSpec, "eval_batches", 0, 2**16),
    (InnerSpec, "warmup_steps", 0, 2**32 - 1),
    (InnerSpec, "steps", 1, 2**32 - 1),
    (InnerSpec, "batch", 1, 2**20),
    (InnerSpec, "segment", 1, 2**32 - 1),
    (InnerSpec, "micro_batch", 1, 2**20),
    (OuterSpec, "period", 0, 256),
    (TensorExponents, "embedding", -60, 0),
    (TensorExponents, "matrix", -60, 0),
    (TensorExponents, "vector", -60, 0),
    (CodecSpec, "min_exponent", -60, 0),
    (CodecSpec, "max_exponent", -60, 0),
    (CodecSpec, "fragments", 1, 64),
    (CodecSpec, "overlap", 0, 2**32 - 1),
    (RobustSpec, "f", 0, 127),
    (Manifest, "created", 0, 2**63 - 1),
    (Manifest, "reset_period", 1, 2**32 - 1),
]
DECIMALS: list[tuple[type[BaseModel], str, str, str]] = [
    (ModelSpec, "norm_eps", "0.00000000000000001", "0.1"),
    (RopeScalingSpec, "factor", "1", "1000"),
    (RopeScalingSpec, "low", "0", "1000"),
    (RopeScalingSpec, "high", "0", "1000"),
    (InnerSpec, "lr", "0.00000000000000001", "10000"),
    (InnerSpec, "momentum", "0", "0.999999"),
    (InnerSpec, "beta1", "0", "0.999999"),
    (InnerSpec, "beta2", "0", "0.999999"),
    (InnerSpec, "eps", "0", "0.1"),
    (InnerSpec, "weight_decay", "0", "1000"),
    (InnerSpec, "dropout", "0", "0.9"),
    (InnerSpec, "clip", "0.00000000000000001", "1000"),
    (OuterSpec, "lr", "0.00000000000000001", "1000"),
    (OuterSpec, "momentum", "0", "0.999999"),
    (OuterSpec, "beta2", "0", "0.999999"),
    (OuterSpec, "eps", "0", "0.1"),
    (CodecSpec, "feedback", "0", "1"),
    (CodecSpec, "mixing", "0", "0.999999"),
    (RobustSpec, "kappa", "1", "1000"),
]
LENGTHS: list[tuple[type[BaseModel], str, type, int, int]] = [
    (NumericsSpec, "code_digest", bytes, 32, 32),
    (NumericsSpec, "probe_digest", bytes, 32, 32),
    (Manifest, "name", str, 1, 64),
]
TASK_INTEGERS: list[tuple[type[BaseModel], str, int, int]] = [
    (TaskSpec, "prompts", 1, 2**40 - 1),
    (TaskSpec, "prompt_tokens", 1, 2**16),
    (TaskSpec, "answer_bytes", 1, 64),
    (TaskSpec, "group", 2, 256),
    (TaskSpec, "new_tokens", 1, 2**16),
    (RewardSpec, "weight", 1, 1000),
    (RewardSpec, "least", 0, 2**17),
    (RewardSpec, "most", 0, 2**17),
]
"""Of a manifest that has a task."""
TASK_LENGTHS: list[tuple[type[BaseModel], str, type, int, int]] = [
    (RewardSpec, "opening", str, 0, 32),
    (RewardSpec, "closing", str, 0, 32),
]
OTHERS = 60 + 30 + 40 + 100 + 30 + 30 + 2_000
"""Seconds of all windows of a round."""
SMALLEST = Decimal("0.00000000000000001")
ROOMY = make_terms(
    seats=256,
    min_providers=100,
    slots=256,
    min_verifiers=3,
    f=0,
    steps=744,
    segment_steps=1,
    tokens_per_step=1,
    window_seconds=2_000,
    game_seconds=1_000,
)
"""Terms in which one number can be moved without meeting another's bound."""
TERMS = [
    ("rounds", 1, 2**24 - 2),
    ("seats", 100, 256),
    ("min_providers", 1, 256),
    ("slots", 3, 256),
    ("min_verifiers", 1, 256),
    ("f", 0, 85),
    ("audit_rate", 0, 15),
    ("last_rate", 0, 15),
    *((f"{name}_seconds", 1, 60 * 86_400 - OTHERS + own) for name, own in (
        ("train", 60), ("reveal", 30), ("merge", 40), ("audit", 100), ("open", 30), ("key", 30)
    )),
    ("window_seconds", 2_000, 60 * 86_400 - OTHERS + 2_000),
    ("ready_seconds", 1, 2**32 - 1),
    ("game_seconds", 1, 1_000),
    ("move_seconds", 1, 2**32 - 1),
    ("claim_seconds", 1, 2**32 - 1),
    ("expiry", 0, 2**64 - 1),
    ("steps", 1, 1024),
    ("segment_steps", 1, 744),
    ("tokens_per_step", 1, (2**64 - 1) // 744),
    ("segment_pay", 0, 2**128 - 1),
    ("sign_fee", 0, 2**128 - 1),
    ("duty_fee", 0, 2**128 - 1),
    ("provider_bond", 80, 2**128 - 1),
    ("verifier_bond", 80, 2**128 - 1),
]  # fmt: skip
