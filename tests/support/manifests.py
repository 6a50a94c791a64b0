"""Valid terms and manifests, of which a test changes what it is about, by path.

Rule of this file: a manifest is literal fields, and no part of the job room is asked; so a test of
what a manifest means does not hang on what job files are filled in with.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, TypeAlias

from tests.support.identities import cid, digest

from atoll.numerics.pieces import piece_root
from atoll.numerics.schedule_tables import tables_root
from atoll.numerics.tokens import Tokens
from atoll.protocol.manifest import DataSpec, Manifest
from atoll.protocol.method_spec import CodecSpec, InnerSpec, reset_period_of
from atoll.protocol.model_spec import UNSCALED, ModelSpec
from atoll.protocol.rules import RULES
from atoll.protocol.terms import AMOUNTS, terms_to_json_value
from atoll.protocol.types import TOKEN, Digest, Terms

Plain: TypeAlias = dict[str, Any]
Changes: TypeAlias = Mapping[str, Any]
"""By path: `inner.steps`, or `inner` with some of its fields."""
Base: TypeAlias = Literal["demo", "small", "tiny"]
LIFETIME = 4_000_000_000
KINDS = ("embedding", "matrix", "vector")
DEMO: Plain = {
    "version": 1,
    "name": "demo",
    "created": 0,
    "reset_period": 1,
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
        "rope_scaling": UNSCALED.model_dump(),
    },
    "lora": None,
    "numerics": {"code_digest": digest("code"), "probe_digest": digest("probe")},
    "init": {"seed": 0, "cid": None, "root": None},
    "data": {
        "cid": cid("data"),
        "root": digest("tokens"),
        "nodes_cid": cid("nodes"),
        "dtype": "uint8",
        "masked": False,
        "aligned": False,
        "train_tokens": 1_000_000,
        "eval_cid": None,
        "eval_tokens": 0,
        "eval_batches": 0,
        "tokenizer_cid": cid("tokenizer"),
    },
    "inner": {
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
        "lanes": 1,
    },
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
        "exponents": dict.fromkeys(KINDS, -16),
        "moment_exponents": dict.fromkeys(KINDS, -20),
        "min_exponent": -30,
        "max_exponent": 0,
        "feedback": "0",
        "fragments": 1,
        "overlap": 0,
        "mixing": "0",
    },
    "robust": {"rule": "nnm_trimmed_mean", "f": 1, "kappa": "3"},
    "tables": digest("tables"),
}
"""The demo's, but for what its data are; `make_terms` has its terms."""
UNKNOWN_NUMERICS = {"code_digest": bytes(32), "probe_digest": bytes(32)}
BASES: Mapping[Base, Changes] = {
    "demo": {},
    # A round of it takes a second. Its grid is as fine as −5 times an update allows.
    "small": {
        "model": {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "ffn": 64, "seq": 32},
        "inner": {"batch": 4, "micro_batch": 4, "steps": 8, "segment": 2},
        "codec.exponents": dict.fromkeys(KINDS, -10),
        "codec.moment_exponents": dict.fromkeys(KINDS, -12),
        "terms": {"steps": 8, "segment_steps": 2, "tokens_per_step": 4 * 32},
    },
    # A step of it has so few elements that every one of them can be looked at.
    "tiny": {
        "model": {
            "vocab": 17, "width": 8, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 4,
            "ffn": 12, "seq": 6,
        },
        "inner": {
            "lr": "0.01", "warmup_steps": 3, "steps": 4, "segment": 2, "batch": 4, "micro_batch": 2,
        },
        "numerics": UNKNOWN_NUMERICS,
        "codec.exponents": {"embedding": -12, "matrix": -13, "vector": -12},
        "codec.moment_exponents": {"embedding": -11, "matrix": -15, "vector": -12},
        "codec.min_exponent": -27,
        "robust": {"rule": "median", "kappa": "2.5"},
        "terms": {
            "rounds": 3, "slots": 8, "min_verifiers": 2, "program": bytes(32),
            "steps": 4, "segment_steps": 2, "tokens_per_step": 4 * 6,
        },
    },
}  # fmt: skip
"""What each changes of the demo's."""


def make_terms(**changes: Any) -> Terms:
    """Four seats of which one may be bad, five places; short windows."""
    plain: Plain = {
        "rounds": 4,
        "seats": 4,
        "min_providers": 3,
        "slots": 5,
        "min_verifiers": 3,
        "f": 1,
        "audit_rate": 2,
        "last_rate": 0,
        "rate_steps": 0,
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
        "segment_pay": 2_560 * 10**12,
        "sign_fee": TOKEN // 10,
        "duty_fee": TOKEN // 5,
        "provider_bond": 100 * TOKEN,
        "verifier_bond": 100 * TOKEN,
        "program": Digest(b"\x07" * 32),
    }
    return Terms(**{**plain, **changes})


def plain_manifest(changes: Changes | None = None, base: Base = "demo") -> Plain:
    """A manifest's fields as they are written, whether these changes leave it valid or not."""
    plain = deepcopy(DEMO) | {"terms": terms_to_json_value(make_terms())}
    _change(plain, BASES[base])
    _change(plain, changes or {})
    terms = plain["terms"]
    terms |= {name: str(terms[name]) for name in AMOUNTS}
    return plain


def make_manifest(changes: Changes | None = None, base: Base = "demo") -> Manifest:
    """The manifest with exactly these changes.

    Raises ValidationError where they make it another thing than valid.
    """
    return Manifest.model_validate(plain_manifest(changes, base))


def whole_manifest(changes: Changes | None = None, base: Base = "demo") -> Manifest:
    """The manifest with these changes and what follows from them.

    That is what terms repeat of the other parts, an f of 0 under a rule that bears nobody, the
    reset period and the tables.
    """
    plain = plain_manifest(changes, base)
    model = ModelSpec.model_validate(plain["model"])
    inner = InnerSpec.model_validate(plain["inner"])
    terms, robust = plain["terms"], plain["robust"]
    if not RULES[robust["rule"]].bears_faults:
        robust["f"] = 0
    terms |= {"f": robust["f"], "steps": inner.steps, "segment_steps": inner.segment}
    terms["tokens_per_step"] = inner.batch * model.seq
    codec = CodecSpec.model_validate(plain["codec"])
    plain["reset_period"] = reset_period_of(codec, terms["rounds"])
    plain["tables"] = tables_root(model, inner, terms["rounds"] * inner.steps)
    return Manifest.model_validate(plain)


def model_spec(**changes: Any) -> ModelSpec:
    """The demo's model: two hundred thousand parameters over single bytes."""
    return ModelSpec.model_validate(DEMO["model"] | changes)


def inner_spec(**changes: Any) -> InnerSpec:
    """How a seat of the demo trains."""
    return InnerSpec.model_validate(DEMO["inner"] | changes)


def codec_spec(**changes: Any) -> CodecSpec:
    """What the demo's updates are written in."""
    return CodecSpec.model_validate(deepcopy(DEMO["codec"]) | changes)


def unstored_data(**changes: Any) -> DataSpec:
    """Data whose blocks nobody has."""
    return DataSpec.model_validate(deepcopy(DEMO["data"]) | changes)


def data_over(tokens: Tokens, **changes: Any) -> DataSpec:
    """Data of these tokens, whose blocks nobody has; one CID is that of all that there is."""
    names = dict.fromkeys(("nodes_cid", "tokenizer_cid"), cid("data"))
    root, dtype = piece_root(tokens.tobytes()), tokens.dtype.name
    return unstored_data(
        **names | {"root": root, "dtype": dtype, "train_tokens": len(tokens)} | changes
    )


def _change(plain: Plain, changes: Changes) -> None:
    for path, value in changes.items():
        *groups, name = path.split(".")
        place = plain
        for group in groups:
            place = place[group]
        if name not in place and path != "task":  # which a job of text has not
            raise KeyError(path)
        if isinstance(value, Mapping) and isinstance(place.get(name), dict):
            _change(place[name], value)
        else:
            place[name] = value
