"""The job that the probe runs: small, and with one of everything that decides a bit in a job.

Two fragments, a mixture that comes in at a step, dropout, micro-batches, fewer key heads than
heads, heads of a size of their own, attention biases, normalised heads, stretched positions, an
output head of its own, Muon beside AdamW, clipping, a dithered two-bit codec, a robust rule with
neighbours, and momentum outside. Then the same in one fragment with feedback, and with seats that
keep nothing, so that moments are merged; and a step of adapters on a frozen model of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import numpy as np

from atoll.aggregation.merge_round import merge
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.frozen_base import freeze
from atoll.numerics.init import initial_global_state, initial_params
from atoll.numerics.initial_state import open_round
from atoll.numerics.ops import operations
from atoll.numerics.pieces import root_of_update
from atoll.numerics.schedule import Recipe
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import param_shapes
from atoll.numerics.tensors import tree_root
from atoll.numerics.tokens import Tokens
from atoll.numerics.update_proof import close_round
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import Digest, SeatIndex, to_bitmap

SEATS: Final = tuple(SeatIndex(seat) for seat in range(3))
TRAINED: Final = SEATS[0]
"""Who trains; the others send of its last state what their dither makes of it."""
TOKENS: Final = 1 << 12
_ZERO = bytes(32)
_CID = bytes((0x01, 0x55, 0x12, 0x20)) + _ZERO
"""Of a block that nobody has: the tokens are made here."""

_MODEL: Final = {
    "kind": "llama", "vocab": 256, "width": 32, "layers": 1, "heads": 4, "kv_heads": 2,
    "head_dim": 12, "qkv_bias": True, "qk_norm": True, "mlp": "swiglu", "ffn": 88, "seq": 64,
    "tied": False, "norm_eps": "0.00001", "rope_base": 10000,
    "rope_scaling": {
        "kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 32,
    },
}  # fmt: skip
_LORA: Final[dict[str, Any]] = {
    "rank": 3, "alpha": "5", "targets": ("q", "v", "o", "gate", "up", "down"),
}  # fmt: skip
_DATA: Final = {
    "cid": _CID, "root": _ZERO, "nodes_cid": _CID, "dtype": "uint8", "masked": False,
    "aligned": False, "train_tokens": TOKENS, "eval_cid": None, "eval_tokens": 0, "eval_batches": 0,
    "tokenizer_cid": _CID,
}  # fmt: skip
_INNER: Final = {
    "optimizer": "muon", "lr": "0.01", "momentum": "0.95", "beta1": "0.9", "beta2": "0.99",
    "eps": "0.00000001", "weight_decay": "0.1", "dropout": "0.1", "clip": "1",
    "schedule": "cosine", "warmup_steps": 1, "steps": 2, "batch": 4, "segment": 1, "micro_batch": 2,
    "lanes": 1,
}  # fmt: skip
_OUTER: Final = {
    "kind": "nesterov", "lr": "0.7", "momentum": "0.9", "beta2": "0", "eps": "0", "period": 0,
}  # fmt: skip
_CODEC: Final = {
    "kind": "two_bit", "exponents": {"embedding": -10, "matrix": -10, "vector": -10},
    "moment_exponents": {"embedding": -10, "matrix": -10, "vector": -10},
    "min_exponent": -30, "max_exponent": -4, "feedback": "0", "fragments": 2, "overlap": 1,
    "mixing": "0.5",
}  # fmt: skip
_NOTHING_KEPT: Final = {"feedback": "0", "fragments": 1, "overlap": 0, "mixing": "0"}
_FED_BACK: Final = _NOTHING_KEPT | {"feedback": "0.9"}
_TERMS: Final = {
    "rounds": 2, "seats": 4, "min_providers": 3, "slots": 1, "min_verifiers": 1, "f": 1,
    "audit_rate": 2, "last_rate": 0, "rate_steps": 0,
    "train_seconds": 1, "reveal_seconds": 1, "merge_seconds": 1,
    "audit_seconds": 1, "open_seconds": 1, "key_seconds": 1, "window_seconds": 2,
    "ready_seconds": 1, "game_seconds": 1, "move_seconds": 1, "claim_seconds": 1, "expiry": 1,
    "steps": 2, "segment_steps": 1, "tokens_per_step": 256, "segment_pay": "0",
    "sign_fee": "0", "duty_fee": "0", "provider_bond": "80", "verifier_bond": "80",
    "program": _ZERO,
}  # fmt: skip


@lru_cache(maxsize=1)
def probe_digest() -> Digest:
    """SHA-256 over state digest and work tag of every segment, update roots and merged digests."""
    parts = sha256()
    for codec in (_CODEC, _CODEC | _FED_BACK, _CODEC | _NOTHING_KEPT):
        for said in _rounds(probe_manifest(codec=codec)):
            parts.update(said)
    parts.update(_adapters())
    return Digest(parts.digest())


def _rounds(manifest: Manifest) -> Iterator[bytes]:
    """State digest and work tag of every segment, update roots and merged digests of a job."""
    model = initial_global_state(manifest)
    carried_state: SeatState | None = None
    for round in range(manifest.terms.rounds):
        seed = Digest(sha256(bytes([round])).digest())
        course = _course(manifest, model, seed)
        state = open_round(
            manifest, model, None if manifest.opens_publicly(round) else carried_state
        )
        for segment in range(manifest.segments):
            done = run_segment(state, segment, course)
            yield done.roots.digest() + done.work_tag
            state = done.state
        update_proofs = [
            close_round(manifest, model, state, DitherKey(seed, seat)) for seat in SEATS
        ]
        carried_state = update_proofs[TRAINED][1]
        updates: dict[int, bytes] = {
            seat: update_proof[0] for seat, update_proof in zip(SEATS, update_proofs, strict=True)
        }
        yield from map(root_of_update, updates.values())
        there = to_bitmap(SEATS)
        record = MergeRecord(there, 1, [there], dict.fromkeys(SEATS, manifest.segments))
        merged = merge(model, updates, record=record, data_seed=seed, manifest=manifest)
        model = merged.global_state
        yield model.digest()


def _adapters() -> bytes:
    """State digests and work tags of segments that train adapters."""
    spec, lora = ModelSpec.model_validate(_MODEL), LoraSpec.model_validate(_LORA)
    weights = initial_params(param_shapes(spec), seed=1)
    root = tree_root(weights)
    base = freeze(weights.items(), root, spec, lora, operations())
    init = {"seed": 0, "cid": _CID, "root": root}
    manifest = probe_manifest(_LORA, init, _CODEC | _NOTHING_KEPT)
    model, recipe = initial_global_state(manifest), Recipe.of(manifest, base)
    course = Course(
        manifest=manifest,
        recipe=recipe,
        tokens=_tokens(),
        data_seed=Digest(_ZERO),
        seat=TRAINED,
        round=0,
        model=model,
    )
    state = open_round(manifest, model, None)
    adapters = b""
    for segment in range(manifest.segments):  # in the first B is zero, so A has no gradient
        done = run_segment(state, segment, course)
        adapters, state = adapters + done.roots.digest() + done.work_tag, done.state
    return adapters


def probe_manifest(
    lora: dict[str, Any] | None = None,
    init: dict[str, object] | None = None,
    codec: Mapping[str, Any] = _CODEC,
) -> Manifest:
    """The probe's job: valid but for its digests, which nothing here compares.

    A layer for each fragment: what a step costs at this size is its operations, not their sizes.
    """
    return Manifest.model_validate(
        {
            "version": 1,
            "name": "probe",
            "created": 0,
            "reset_period": 1 if codec["fragments"] == 1 else _TERMS["rounds"],
            "model": _MODEL | {"layers": codec["fragments"]},
            "lora": lora,
            "numerics": {"code_digest": _ZERO, "probe_digest": _ZERO},
            "init": init or {"seed": 0, "cid": None, "root": None},
            "data": _DATA,
            "inner": _INNER,
            "outer": _OUTER,
            "codec": codec,
            "robust": {"rule": "nnm_trimmed_mean", "f": 1, "kappa": "1.5"},
            "tables": _ZERO,
            "terms": _TERMS,
        }
    )


def _course(manifest: Manifest, model: GlobalState, seed: Digest) -> Course:
    return Course(
        manifest=manifest,
        recipe=Recipe.of(manifest),
        tokens=_tokens(),
        data_seed=seed,
        seat=TRAINED,
        round=model.round,
        model=model,
    )


def _tokens() -> Tokens:
    """Bytes that repeat nowhere near: the top eight bits of multiples of Knuth's constant."""
    return (np.arange(TOKENS, dtype=np.uint64) * 2654435761 % (1 << 32) >> 24).astype("u1")
