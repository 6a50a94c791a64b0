"""Every bound that the law gives a number of a manifest and of its terms."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel
from tests.support.manifests import make_terms

from atoll.protocol import manifest as m

INTEGERS: list[tuple[type[BaseModel], str, int, int]] = [
    (m.ModelSpec, "vocab", 2, 2**20),
    (m.ModelSpec, "width", 8, 2**15),
    (m.ModelSpec, "layers", 1, 256),
    (m.ModelSpec, "heads", 1, 256),
    (m.ModelSpec, "kv_heads", 1, 256),
    (m.ModelSpec, "head_dim", 2, 2**15),
    (m.ModelSpec, "ffn", 8, 2**17),
    (m.ModelSpec, "seq", 2, 2**17),
    (m.ModelSpec, "rope_base", 2, 1_000_000_000),
    (m.RopeScalingSpec, "positions", 0, 2**24),
    (m.InitSpec, "seed", 0, 2**64 - 1),
    (m.DataSpec, "train_tokens", 2, 2**60 - 1),
    (m.DataSpec, "eval_tokens", 0, 2**60 - 1),
    (m.DataSpec, "eval_batches", 0, 2**16),
    (m.InnerSpec, "warmup_steps", 0, 2**32 - 1),
    (m.InnerSpec, "steps", 1, 2**32 - 1),
    (m.InnerSpec, "batch", 1, 2**20),
    (m.InnerSpec, "segment", 1, 2**32 - 1),
    (m.InnerSpec, "micro_batch", 1, 2**20),
    (m.OuterSpec, "period", 0, 256),
    (m.TensorExponents, "embedding", -60, 0),
    (m.TensorExponents, "matrix", -60, 0),
    (m.TensorExponents, "vector", -60, 0),
    (m.CodecSpec, "min_exponent", -60, 0),
    (m.CodecSpec, "max_exponent", -60, 0),
    (m.CodecSpec, "fragments", 1, 64),
    (m.CodecSpec, "overlap", 0, 2**32 - 1),
    (m.RobustSpec, "f", 0, 127),
    (m.Manifest, "created", 0, 2**63 - 1),
    (m.Manifest, "reset_period", 1, 2**32 - 1),
]
DECIMALS: list[tuple[type[BaseModel], str, str, str]] = [
    (m.ModelSpec, "norm_eps", "0.00000000000000001", "0.1"),
    (m.RopeScalingSpec, "factor", "1", "1000"),
    (m.RopeScalingSpec, "low", "0", "1000"),
    (m.RopeScalingSpec, "high", "0", "1000"),
    (m.InnerSpec, "lr", "0.00000000000000001", "10000"),
    (m.InnerSpec, "momentum", "0", "0.999999"),
    (m.InnerSpec, "beta1", "0", "0.999999"),
    (m.InnerSpec, "beta2", "0", "0.999999"),
    (m.InnerSpec, "eps", "0", "0.1"),
    (m.InnerSpec, "weight_decay", "0", "1000"),
    (m.InnerSpec, "dropout", "0", "0.9"),
    (m.InnerSpec, "clip", "0.00000000000000001", "1000"),
    (m.OuterSpec, "lr", "0.00000000000000001", "1000"),
    (m.OuterSpec, "momentum", "0", "0.999999"),
    (m.OuterSpec, "beta2", "0", "0.999999"),
    (m.OuterSpec, "eps", "0", "0.1"),
    (m.CodecSpec, "feedback", "0", "1"),
    (m.CodecSpec, "mixing", "0", "0.999999"),
    (m.RobustSpec, "kappa", "1", "1000"),
]
LENGTHS: list[tuple[type[BaseModel], str, type, int, int]] = [
    (m.NumericsSpec, "code_digest", bytes, 32, 32),
    (m.NumericsSpec, "probe_digest", bytes, 32, 32),
    (m.Manifest, "name", str, 1, 64),
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
    ("share_bps", 1, 10_000),
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
    ("price_per_token", 0, 2**128 - 1),
    ("sign_fee", 0, 2**128 - 1),
    ("duty_fee", 0, 2**128 - 1),
    ("provider_bond", 80, 2**128 - 1),
    ("verifier_bond", 80, 2**128 - 1),
]  # fmt: skip
