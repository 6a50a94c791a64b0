"""Valid things of the law to break one at a time: terms, and a manifest without the job room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.unit.protocol.identities import address, cid, digest

from atoll.protocol.manifest import UNSCALED, Manifest
from atoll.protocol.terms import terms_to_plain
from atoll.protocol.words import (
    TOKEN,
    Address,
    Digest,
    Domain,
    JobId,
    RoundIndex,
    SeatIndex,
    Slot,
    Terms,
)

__all__ = ["DOMAIN", "JOB", "SEAT", "SLOT", "address", "cid", "digest", "make_manifest"]

DOMAIN = Domain(31337, address("rounds"))
JOB = JobId(7)
SLOT = Slot(DOMAIN, JOB, RoundIndex(3))
SEAT = SeatIndex(2)
LIFETIME = 4_000_000_000


def make_terms(**changes: Any) -> Terms:
    """Four seats of which one may be bad, five places; short windows."""
    plain: dict[str, Any] = {
        "rounds": 4,
        "seats": 4,
        "min_providers": 3,
        "places": 5,
        "min_verifiers": 3,
        "f": 1,
        "share_bps": 5_000,
        "train_seconds": 60,
        "reveal_seconds": 30,
        "merge_seconds": 40,
        "audit_seconds": 100,
        "open_seconds": 30,
        "key_seconds": 30,
        "window_seconds": 400,
        "ready_seconds": 50,
        "game_seconds": 150,
        "move_seconds": 5,
        "claim_seconds": 1_000,
        "expiry": LIFETIME,
        "steps": 40,
        "segment_steps": 5,
        "tokens_per_step": 512,
        "price_per_token": 10**12,
        "sign_fee": TOKEN // 10,
        "duty_fee": TOKEN // 5,
        "provider_bond": 100 * TOKEN,
        "verifier_bond": 100 * TOKEN,
        "program": Digest(b"\x07" * 32),
    }
    return Terms(**{**plain, **changes})


def plain_model() -> dict[str, Any]:
    """The demo's model."""
    return {
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
        "rope_scaling": UNSCALED.model_dump(),
    }


def plain_inner() -> dict[str, Any]:
    """How a seat of the demo trains."""
    return {
        "optimizer": "adamw",
        "lr": "0.003",
        "momentum": "0",
        "beta1": "0.9",
        "beta2": "0.95",
        "eps": "0.00000001",
        "weight_decay": "0.1",
        "dropout": "0",
        "clip": "1",
        "schedule": "cosine",
        "warmup_steps": 10,
        "steps": 40,
        "batch": 8,
        "segment": 5,
        "micro_batch": 8,
    }


def plain_manifest() -> dict[str, Any]:
    """A manifest's fields, the demo's but for what its data are."""
    return {
        "version": 1,
        "name": "demo",
        "created": 0,
        "reset_period": 1,
        "model": plain_model(),
        "lora": None,
        "numerics": {"code_digest": digest("code"), "probe_digest": digest("probe")},
        "init": {"seed": 0, "cid": None, "root": None},
        "data": {
            "cid": cid("data"),
            "root": digest("tokens"),
            "nodes_cid": cid("nodes"),
            "dtype": "uint8",
            "masked": False,
            "train_tokens": 1_000_000,
            "eval_cid": None,
            "eval_tokens": 0,
            "eval_batches": 0,
            "tokenizer_cid": cid("tokenizer"),
        },
        "inner": plain_inner(),
        "outer": {
            "kind": "sgd",
            "lr": "1",
            "momentum": "0",
            "beta2": "0",
            "eps": "0",
            "period": 0,
        },
        "codec": {
            "kind": "grid8",
            "exponents": {"embedding": -16, "matrix": -16, "vector": -16},
            "moment_exponents": {"embedding": -20, "matrix": -20, "vector": -20},
            "min_exponent": -30,
            "max_exponent": 0,
            "feedback": "0",
            "fragments": 1,
            "overlap": 0,
            "mixing": "0",
        },
        "robust": {"rule": "nnm_trimmed_mean", "f": 1, "kappa": "3"},
        "tables": digest("tables"),
        "terms": terms_to_plain(make_terms()),
    }


def make_manifest(changes: Mapping[str, object] | None = None) -> Manifest:
    """A valid manifest, with these fields changed by path: `inner.steps`, `terms.rounds`.

    Raises ValidationError where the changes make it another thing than valid.
    """
    plain = plain_manifest()
    for path, value in (changes or {}).items():
        *groups, name = path.split(".")
        place = plain
        for group in groups:
            place = place[group]
        if name not in place:
            raise KeyError(path)
        place[name] = value
    return Manifest.model_validate(plain)


def as_plain(terms: Terms) -> dict[str, Any]:
    """Terms as numbers, for a model that knows no law."""
    return asdict(terms)


def accounts(name: str, count: int) -> list[Address]:
    return [address(f"{name} {i}") for i in range(count)]
