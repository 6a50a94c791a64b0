"""What a manifest is refused for, one thing at a time, and what lies just within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libipld import decode_dag_cbor
from tests.support.identities import cid
from tests.support.manifests import make_manifest

from atoll.protocol.canonical import encode
from atoll.protocol.model_spec import INNER_LIMIT

Plain = dict[str, Any]


def broken(change: Callable[[Plain], object]) -> bytes:
    """The bytes of a valid manifest after one change to its plain form."""
    plain: Any = decode_dag_cbor(make_manifest().to_bytes())
    change(plain)
    return encode(plain)


def put(*path: str, value: object) -> Callable[[Plain], object]:
    """Sets one field, named by its path."""

    def change(plain: Plain) -> None:
        for key in path[:-1]:
            plain = plain[key]
        plain[path[-1]] = value

    return change


LINEAR = {"kind": "linear", "factor": "4", "low": "0", "high": "0", "positions": 0}
LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 8192}
ADAM = {"kind": "adam", "momentum": "0.9", "beta2": "0.99"}
MANY_HEADS = {"kind": "olmo2", "qk_norm": True, "heads": 256, "kv_heads": 1}
LARGE = make_manifest().model.model_dump() | {"width": 1 << 15, "mlp": "relu2"}


def long_batch(plain: Plain, sequences: int, length: int) -> None:
    """One micro-batch of so many sequences of that length."""
    plain["model"].update(seq=length)
    plain["inner"].update(batch=sequences, micro_batch=sequences)
    plain["terms"].update(tokens_per_step=sequences * length)


def bear_nobody(plain: Plain, rule: str) -> None:
    plain["robust"].update(rule=rule, f=0)
    plain["terms"].update(f=0)


def adapted(plain: Plain, **changes: Any) -> None:
    """Adapters on content, with these fields of theirs."""
    plain["lora"] = {"rank": 64, "alpha": "5", "targets": ["q", "up"]} | changes
    plain["init"].update(seed=0, cid=cid("weights"), root=bytes(32))


AT_THE_BOUND: dict[str, Callable[[Plain], object]] = {
    "vocabulary": lambda plain: (
        plain["data"].update(dtype="uint32"),
        plain["model"].update(vocab=1 << 20),
    ),
    "gated ffn": put("model", "ffn", value=INNER_LIMIT // 2),
    "plain ffn": lambda plain: plain["model"].update(mlp="relu2", ffn=1 << 17),
    "all that may be said about it": put("about", value="ö" * 1000),
    "initial weights by content": lambda plain: plain["init"].update(
        seed=None, cid=cid("weights"), root=bytes(32)
    ),
    "stacked attention": put("model", "head_dim", value=11094),
    "queries normalised at once": lambda plain: plain["model"].update(
        MANY_HEADS | {"head_dim": 512}
    ),
    "linear scaling": lambda plain: plain["model"].update(rope_scaling=LINEAR),
    "scaling as Llama 3.1 has it": lambda plain: plain["model"].update(rope_scaling=LLAMA3),
    "elements": put("model", value=LARGE | {"ffn": (1 << 16) - 1}),
    "micro-batch": lambda plain: long_batch(plain, 8, 16643),
    "adapters of the largest rank": adapted,
    "a reset period of the whole job": lambda plain: (
        plain["codec"].update(feedback="1"),
        plain.update(reset_period=plain["terms"]["rounds"]),
    ),
    "a fragment a layer": put("codec", "fragments", value=4),
    "an overlap of all steps but one": put("codec", "overlap", value=39),
    "adam's least eps": lambda plain: plain["outer"].update(ADAM, eps="0.000001"),
}
BROKEN: dict[str, Callable[[Plain], object]] = {
    "an unknown field": put("inner", "noise", value="0.1"),
    "a missing field": lambda plain: plain["inner"].pop("clip"),
    "an unknown field at the top": put("comment", value="hello"),
    "a float": put("inner", "lr", value=0.003),
    "a boolean for a number": put("model", "layers", value=True),
    "a number for a string": put("name", value=5),
    "a trailing zero": put("inner", "lr", value="0.0030"),
    "an exponent": put("inner", "lr", value="3e-3"),
    "a sign": put("inner", "lr", value="-0.003"),
    "a leading zero": put("inner", "lr", value="00.3"),
    "a newline after a decimal": put("inner", "lr", value="0.003\n"),
    "digits of another script": put("inner", "lr", value="0.٣"),
    "a rate of zero": put("inner", "lr", value="0"),
    "a beta of one": put("inner", "beta1", value="1"),
    "a dropout of everything": put("inner", "dropout", value="1"),
    "momentum with AdamW": put("inner", "momentum", value="0.9"),
    "an eps of zero with AdamW": put("inner", "eps", value="0"),
    "betas with SGD": put("inner", "optimizer", value="sgd"),
    "segments that do not divide the steps": put("inner", "segment", value=7),
    "micro-batches that do not divide the batch": put("inner", "micro_batch", value=3),
    "lanes that do not divide the micro-batches": lambda plain: plain["inner"].update(
        micro_batch=plain["inner"]["batch"] // 2, lanes=4
    ),
    "more segments than a round has": lambda plain: (
        plain["inner"].update(steps=65, segment=1),
        plain["terms"].update(steps=65, segment_steps=1),
    ),
    "a segment that nobody can open in a game": lambda plain: (
        plain["inner"].update(batch=1 << 14, micro_batch=2),
        plain["terms"].update(tokens_per_step=plain["model"]["seq"] << 14),
    ),
    "other segments in the terms": put("terms", "segment_steps", value=10),
    "another f in the terms": put("terms", "f", value=0),
    "a rule that bears nobody": put("robust", "rule", value="mean"),
    "other steps in the terms": put("terms", "steps", value=41),
    "other tokens in the terms": put("terms", "tokens_per_step", value=1),
    "an amount as a number": put("terms", "segment_pay", value=5),
    "an amount with a leading zero": put("terms", "segment_pay", value="05"),
    "an amount in other digits": put("terms", "segment_pay", value="٣"),
    "an amount above 128 bits": put("terms", "segment_pay", value=str(1 << 128)),
    "a window of zero": put("terms", "train_seconds", value=0),
    "more seats than a word has bits": put("terms", "seats", value=257),
    "unknown terms": put("terms", "bonus", value=1),
    "a CID of another hash": put("data", "cid", value=b"\x01\x71\x11\x14" + bytes(32)),
    "a CID that is too short": put("data", "cid", value=cid("x")[:-1]),
    "a digest that is too long": put("numerics", "code_digest", value=bytes(33)),
    "a vocabulary that its dtype cannot hold": put("model", "vocab", value=257),
    "a data root that is too short": put("data", "root", value=bytes(31)),
    "tables that are none": put("tables", value=None),
    "more steps than tables have rates": put("terms", "rounds", value=(1 << 20) // 40 + 1),
    "more positions than tables hold": lambda plain: (
        plain["model"].update(seq=1 << 17, width=512, heads=1, kv_heads=1, head_dim=512),
        plain["terms"].update(tokens_per_step=8 << 17),
    ),
    "less data than one sequence": put("data", "train_tokens", value=64),
    "less held-out data than one sequence": put("data", "eval_tokens", value=64),
    "a vocabulary beyond the law's": lambda plain: (
        plain["data"].update(dtype="uint32"),
        plain["model"].update(vocab=(1 << 20) + 1),
    ),
    "more queries than a norm takes at once": lambda plain: plain["model"].update(
        MANY_HEADS | {"head_dim": 514}
    ),
    "stacked attention beyond int32's sums": put("model", "head_dim", value=11096),
    "initial weights from nowhere": put("init", "seed", value=None),
    "initial weights from two places": lambda plain: plain["init"].update(
        cid=cid("weights"), root=bytes(32)
    ),
    "initial weights without their root": lambda plain: plain["init"].update(
        seed=None, cid=cid("weights")
    ),
    "initial weights without their content": lambda plain: plain["init"].update(
        seed=None, root=bytes(32)
    ),
    "an odd head size": put("model", "head_dim", value=15),
    "a scaling of another kind": put("model", "rope_scaling", "kind", value="yarn"),
    "a factor without scaling": put("model", "rope_scaling", "factor", value="2"),
    "a factor that shortens": put("model", "rope_scaling", value=LINEAR | {"factor": "0.5"}),
    "figures of llama3 with linear scaling": put(
        "model", "rope_scaling", value=LINEAR | {"positions": 64}
    ),
    "llama3 without positions": put("model", "rope_scaling", value=LLAMA3 | {"positions": 0}),
    "llama3 from low to low": put("model", "rope_scaling", value=LLAMA3 | {"high": "1"}),
    "llama3 from zero": put("model", "rope_scaling", value=LLAMA3 | {"low": "0"}),
    "a gated ffn beyond int32's sums": put("model", "ffn", value=INNER_LIMIT // 2 + 1),
    "a tensor beyond int64's sums of squares": put("model", value=LARGE | {"ffn": 1 << 16}),
    "a micro-batch beyond int32's sums": lambda plain: long_batch(plain, 5, 26629),
    "key heads that do not divide the heads": put("model", "kv_heads", value=3),
    "an exponent outside its bounds": put("codec", "exponents", "matrix", value=-40),
    "momentum without Nesterov": put("outer", "momentum", value="0.9"),
    "a period without delay": put("outer", "period", value=2),
    "a delay without a period": put("outer", "kind", value="delayed_nesterov"),
    "adam without an eps": put("outer", "kind", value="adam"),
    "an unknown outer optimiser": put("outer", "kind", value="lion"),
    "an unknown codec": put("codec", "kind", value="grid2"),
    "feedback above one": put("codec", "feedback", value="1.1"),
    "sparse updates without their rule": put("codec", "kind", value="sparse"),
    "a contributor mean of dense updates": lambda plain: bear_nobody(plain, "contributor_mean"),
    "fp32 updates under a robust rule": lambda plain: plain["codec"].update(
        kind="fp32",
        min_exponent=-40,
        max_exponent=-40,
        exponents={"embedding": -40, "matrix": -40, "vector": -40},
    ),
    "fp32 updates on a grid": lambda plain: (
        plain["codec"].update(kind="fp32"),
        bear_nobody(plain, "mean"),
    ),
    "an unknown rule": put("robust", "rule", value="nnm_nnm_mean"),
    "a mixed contributor mean": put("robust", "rule", value="nnm_contributor_mean"),
    "Krum among too few": put("robust", "rule", value="nnm_krum"),
    "a kappa below one": put("robust", "kappa", value="0.5"),
    "an f of half of the seats": lambda plain: (
        plain["robust"].update(f=2),
        plain["terms"].update(f=2),
    ),
    "a reset period where no state is carried": put("reset_period", value=2),
    "a reset period longer than the job": lambda plain: (
        plain["codec"].update(feedback="1"),
        plain.update(reset_period=plain["terms"]["rounds"] + 1),
    ),
    "feedback beside fragments": lambda plain: plain["codec"].update(feedback="1", fragments=2),
    "feedback beside an overlap": lambda plain: plain["codec"].update(feedback="1", overlap=1),
    "more fragments than layers": put("codec", "fragments", value=5),
    "an overlap of all steps": put("codec", "overlap", value=40),
    "fragments of a delayed momentum": lambda plain: (
        plain["codec"].update(fragments=2),
        plain["outer"].update(kind="delayed_nesterov", period=2),
    ),
    "adam below its least eps": lambda plain: plain["outer"].update(ADAM, eps="0.0000009"),
    "a held-out set without its tokens": put("data", "eval_cid", value=cid("held out")),
    "held-out text of one sequence": lambda plain: plain["data"].update(
        eval_cid=cid("held out"), eval_tokens=64, eval_batches=1
    ),
    "adapters without a seed": lambda plain: (adapted(plain), plain["init"].update(seed=None)),
    "a rank above a dimension": lambda plain: adapted(plain, rank=65),
    "adapters of nothing": lambda plain: adapted(plain, targets=[]),
    "targets in another order": lambda plain: adapted(plain, targets=["up", "q"]),
    "a target twice": lambda plain: adapted(plain, targets=["q", "q"]),
    "a gate of a plain MLP": lambda plain: (
        adapted(plain, targets=["gate"]),
        plain["model"].update(mlp="relu2"),
    ),
    "adapters of alpha zero": lambda plain: adapted(plain, alpha="0"),
    "an unknown version": put("version", value=2),
    "an empty name": put("name", value=""),
    "nothing said about it": put("about", value=""),
    "null said about it": put("about", value=None),
    "a number said about it": put("about", value=7),
    "too much said about it": put("about", value="ö" * 1001),
    "numerics without a probe": put("numerics", "probe_digest", value=None),
    "numerics of a mode": put("numerics", "mode", value="exact"),
}
NO_MANIFEST: dict[str, bytes] = {
    "nothing": b"",
    "deep nesting": b"\x81" * 16_000,
    "a half float": b"\xf9\x7e\x00",
    "an empty map": b"\xa0",
    "a list": b"\x80",
    "an update proof": b"\xd8\x2a\x58\x25\x00" + cid("x"),
}
"""Bytes that are no document of a manifest's kind."""
