"""Writes the vectors of the merge: `python tests/vectors/generate_merge.py`.

Rule of this file: inputs are written down or follow from small integers, so that a run writes the
same bytes everywhere. What each file holds is in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import shake_128
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import torch
from tests.jobs import PLAIN
from torch import Tensor

from atoll.bits.codec.dither import MOMENT_SECTION, DitherKey
from atoll.bits.codec.registry import seat_codec
from atoll.bits.codec.sums import encode_sums
from atoll.bits.layout import OUTER_SLOTS, Shapes, moment_layout, trained_shapes
from atoll.bits.sections import joined
from atoll.bits.state import GlobalState
from atoll.law.canonical import dag_cbor_cid
from atoll.law.hashing import sha256
from atoll.law.manifest import (
    CodecSpec,
    DataSpec,
    LoraSpec,
    Manifest,
    NumericsSpec,
    OuterSpec,
    RobustSpec,
    TensorExponents,
    epoch_of,
)
from atoll.law.merge_inputs import MergeFacts, MergeTerms, merge_inputs
from atoll.law.words import Bitmap, SeatIndex
from atoll.merge.round import merge

HERE = Path(__file__).parent
Json: TypeAlias = Any
Gram: TypeAlias = list[list[int]]
STEPS = 40


# --- merge_inputs.json ---


def alike(n: int, square: int = 200, product: int = 100) -> Gram:
    """Updates of one length that have the same product with each other."""
    return [[square if i == j else product for j in range(n)] for i in range(n)]


def changed(gram: Gram, *changes: tuple[int, int, int]) -> Gram:
    """The matrix with (i, j, value) written at [i][j] and [j][i]."""
    result = [list(row) for row in gram]
    for i, j, value in changes:
        result[i][j] = result[j][i] = value
    return result


def against_all(gram: Gram, seat: int, product: int) -> Gram:
    """One update whose product with every other is `product`."""
    return changed(gram, *((seat, j, product) for j in range(len(gram)) if j != seat))


def silent(gram: Gram, *seats: int) -> Gram:
    """These updates are all zero."""
    for seat in seats:
        gram = changed(against_all(gram, seat, 0), (seat, seat, 0))
    return gram


def products(*points: Sequence[int]) -> Gram:
    """The Gram matrix of points written out."""
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for y in points] for x in points]


def axes(*lengths: int) -> Gram:
    """Updates at right angles."""
    return [[x * x if i == j else 0 for j in range(len(lengths))] for i, x in enumerate(lengths)]


def case(name: str, gram: Gram | None, **given: Json) -> Json:
    """One case; what is not given is the plainest there is."""
    n = given.get("seats", 0 if gram is None else len(gram))
    decoded = given.get("decoded", list(range(n)))
    bitmaps = [given.get(key, 0) for key in ("revealed", "rejected", "unresolved")]
    bitmaps[0] = bitmaps[0] or (1 << n) - 1
    done: list[int | None] = given.get("steps", [STEPS] * n)
    robust = RobustSpec(
        rule=given.get("rule", "nnm_trimmed_mean"),
        f=given.get("f", 2),
        kappa=given.get("kappa", "1.5"),
    )
    terms = MergeTerms(STEPS, given.get("min_providers", 1), robust)
    steps = {SeatIndex(s): count for s, count in enumerate(done) if count is not None}
    facts = MergeFacts(*map(Bitmap, bitmaps), given.get("caught", 0), steps)
    of_moments: Gram | None = given.get("of_moments")
    found = merge_inputs(facts, [SeatIndex(s) for s in decoded], gram, terms, of_moments)
    return {
        "decoded": decoded,
        "facts": {
            "caught": facts.caught,
            "rejected": hex(facts.rejected),
            "revealed": hex(facts.revealed),
            "steps": done,
            "unresolved": hex(facts.unresolved),
        },
        "gram": None if gram is None else [[str(value) for value in row] for row in gram],
        "gramOfMoments": of_moments and [[str(value) for value in row] for row in of_moments],
        "inputs": {
            "available": list(found.available),
            "fPrime": found.f_prime,
            "inFull": list(found.in_full),
            "leftOut": list(found.left_out),
            "merged": list(found.merged),
            "named": [{"check": x.check, "grave": x.grave, "seat": x.seat} for x in found.named],
        },
        "name": name,
        "terms": {
            "f": robust.f,
            "kappa": robust.kappa,
            "minProviders": terms.min_providers,
            "rule": robust.rule,
            "steps": terms.steps,
        },
    }


def threshold_cases() -> list[Json]:
    """Each check just at and just beyond its limit."""
    near, far = products([0], [3], [5]), products([0], [10], [20], [33])
    copies = alike(6, 10_000, 5_000)
    return [
        case("distant: at the limit, 9 = 1.5² · 4", near),
        case("distant: κ² exact, not rounded", near, kappa="1.499999999999999999"),
        case("distant: lower median of four scores", far, kappa="1", f=3),
        case("distant: a median of 0", products([0, 0], [0, 0], [9, 0], [9, 0], [9, 0]), f=1),
        case("loud: at the limit, 30² = 9 · 10²", axes(10, 10, 10, 10, 30), kappa="9"),
        case("loud: beyond it", axes(10, 10, 10, 10, 31), kappa="9"),
        case("copy: a cosine of 0.99 is none", changed(copies, (1, 4, 9_900))),
        case("copy: beyond it both are", changed(copies, (1, 4, 9_901))),
        case("copy: the opposite is none", changed(copies, (1, 4, -9_999)), kappa="9"),
        case("copy: of three alike the middle one has most twins",
             changed(alike(7, 10_000, 5_000), (1, 4, 9_950), (4, 6, 9_950))),
        case("misaligned: at 9/10", against_all(alike(8), 5, 90)),
        case("misaligned: below it, at 3/4", against_all(alike(8), 5, 75)),
        case("misaligned: below 3/4", against_all(alike(8), 5, 74)),
        case("misaligned: sparse, at 3/5", against_all(alike(8), 5, 60), rule="contributor_mean"),
        case("misaligned: sparse, below it", against_all(alike(8), 5, 59), rule="contributor_mean"),
        case("misaligned: nobody where the median is 0", axes(10, 10, 10, 10)),
        case("misaligned: nobody where it is negative", products([1, 0], [-1, 1], [-1, -1])),
        case("misaligned: the upper median of an even count of others",
             changed(alike(5), (2, 0, 80), (2, 1, 80))),
        case("misaligned: below it", changed(alike(5), (2, 0, 80), (2, 1, 80), (2, 3, 80))),
    ]  # fmt: skip


def order_cases() -> list[Json]:
    """Ties, the cap of f a check, the order of checks, and what the rule can spare."""
    return [
        *(case(f"{n} alike", alike(n), f=1) for n in range(6)),
        *(case(f"{n}, one silent, f = 1", silent(alike(n), n - 1), f=1) for n in range(2, 6)),
        *(case(f"{n}, two silent, f = 2", silent(alike(n), 1, 3)) for n in range(4, 9)),
        case("three silent: f of a check, the lowest seats", silent(alike(9), 2, 5, 7)),
        case("distant goes before silent", products(*([[9, 1]] * 4), [-90, 0], [0, 0]), f=1),
        case("ties of distance by seat", products([0], [0], [0], [0], [0], [50], [-50]), f=1),
        case("krum: 7", silent(alike(7), 1, 3), rule="krum"),
        case("krum: 8", silent(alike(8), 1, 3), rule="krum"),
        case("multi_krum: 9", silent(alike(9), 1, 3), rule="nnm_multi_krum"),
        case("krum: 5 bear one", alike(5), rule="krum"),
        case("f = 0: nobody is named, one is borne", silent(alike(7), 1), f=0),
        case("numbers beyond 2⁵³", changed(alike(5, 2**61 + 3, 2**60 + 1), (1, 2, 2**61 + 1)), f=1),
    ]


def fact_cases() -> list[Json]:
    """What the chain says, and which updates are there."""
    gram, full = silent(alike(7), 1, 3), 0b1111111
    return [
        case("caught 1 of 2", gram, caught=1),
        case("caught more than f", gram, caught=5),
        case("rejected: neither scored nor merged", gram, rejected=0b10),
        case("unresolved at the cut: the same", gram, unresolved=0b1000),
        case("diverged: no update", gram, steps=[STEPS, STEPS - 1, *[STEPS] * 5]),
        case("not revealed", gram, revealed=full & ~0b10, steps=[STEPS, None, *[STEPS] * 5]),
        case("an update that does not decode", alike(6), seats=7, decoded=[0, 1, 2, 4, 5, 6]),
        case("of four revealed two decode", alike(2), seats=4, decoded=[0, 3], f=1),
        case("fewer than the minimum", silent(alike(5), 2), min_providers=6, f=1),
        case("as many as the minimum", silent(alike(5), 2), min_providers=5, f=1),
        case("fp32: no Gram matrix", None, seats=5, rule="mean", f=1),
        case("fp32: two", None, seats=2, rule="mean", f=1),
        case("nobody revealed", []),
    ]


def moment_cases() -> list[Json]:
    """What the first moments name beside what the updates do."""
    loud, far = axes(10, 10, 10, 10, 31), products([0], [0], [1], [1], [50], [-60])
    return [
        case("moments: loud in them only", axes(10, 10, 10, 10, 10), kappa="9", of_moments=loud),
        case("moments: loud in both is named once", loud, kappa="9", of_moments=loud),
        case("moments: Δ's come first, and fill f", axes(10, 10, 31, 10, 10), f=1, kappa="9",
             of_moments=loud),
        case("moments: Δ's come first, then theirs", axes(10, 10, 31, 10, 10), f=2, kappa="9",
             of_moments=axes(10, 40, 99, 10, 10)),
        case("moments: distant by them", alike(6), f=2, of_moments=far),
        case("moments: no other check reads them", alike(6), f=2, of_moments=silent(alike(6), 2)),
        case("moments: who is no candidate is in neither", alike(6), f=2, rejected=0b10000,
             of_moments=far),
    ]  # fmt: skip


def merge_input_cases() -> Json:
    cases = [*threshold_cases(), *order_cases(), *fact_cases(), *moment_cases()]
    return {"cases": cases}


# --- merge.json ---

SMALL: Mapping[str, Json] = {
    "vocab": 3, "width": 8, "layers": 2, "heads": 1, "kv_heads": 1, "head_dim": 2, "ffn": 8,
    "mlp": "relu2", "tied": True,
}  # fmt: skip
ADAPTERS = LoraSpec(rank=1, alpha="1", targets=("q", "o"))
"""Their 40 parameters are what most cases train."""
INNERS: Mapping[str, Mapping[str, Json]] = {
    "adamw": {"optimizer": "adamw", "momentum": "0"},
    "muon": {"optimizer": "muon", "momentum": "0.95"},
    "momentum": {"optimizer": "sgd", "momentum": "0.9", "beta1": "0", "beta2": "0", "eps": "0"},
    "sgd": {"optimizer": "sgd", "momentum": "0", "beta1": "0", "beta2": "0", "eps": "0"},
}
RULES = (
    "mean",
    "median",
    "trimmed_mean",
    "geometric_median",
    "krum",
    "multi_krum",
    "centred_clip",
    "minimum_diameter",
    "norm_clip",
)
DECAYS = {"momentum": "0", "beta2": "0", "eps": "0", "period": 0}
OUTERS: Mapping[str, Mapping[str, Json]] = {
    "sgd": {},
    "nesterov": {"momentum": "0.9"},
    "adam": {"momentum": "0.9", "beta2": "0.99", "eps": "0.001"},
    "sign": {},
    "delayed_nesterov": {"momentum": "0.9", "period": 3},
}
DATA_SEED = sha256(b"data seed")


def numbers(name: str, count: int, limit: int) -> list[int]:
    """Integers of at most `limit` in magnitude that nobody chose."""
    raw = shake_128(name.encode()).digest(8 * count)
    words = (int.from_bytes(raw[8 * i : 8 * i + 8], "big") for i in range(count))
    return [word % (2 * limit + 1) - limit for word in words]


def manifest_of(kind: str, rule: str, outer: str, **given: Json) -> Manifest:
    """The demo's manifest with another codec, rule, outer and inner optimiser, and few parameters.

    `whole` trains a model of few parameters instead of adapters of it.
    """
    low, high, start = (-40, -40, -40) if kind == "fp32" else (-16, -4, -10)
    base = PLAIN.resolve(
        DataSpec(
            cid=dag_cbor_cid(sha256(b"data")),
            root=sha256(b"tokens"),
            nodes_cid=dag_cbor_cid(sha256(b"nodes")),
            dtype="uint8",
            masked=False,
            train_tokens=1_000_000,
            eval_cid=None,
            eval_tokens=0,
            eval_batches=0,
            tokenizer_cid=dag_cbor_cid(sha256(b"tokenizer")),
        ),
        None,
        NumericsSpec(
            mode="exact",
            software_class=None,
            code_digest=sha256(b"code"),
            probe_digest=sha256(b"probe"),
            tolerance=None,
        ),
        now=0,
    )
    grid = {"min_exponent": low, "max_exponent": high, "feedback": "0", "overlap": 0}
    same = TensorExponents(embedding=start, matrix=start, vector=start)
    grid |= {"exponents": same, "moment_exponents": same}
    grid |= {"fragments": given.get("fragments", 1), "mixing": "0", "kind": kind}
    parts = {
        "codec": CodecSpec(**grid),
        "outer": OuterSpec(**DECAYS | {"kind": outer, "lr": "0.7"} | OUTERS[outer]),
        "robust": RobustSpec(rule=rule, f=given.get("f", 1), kappa="1.5"),
        "inner": base.inner.model_copy(update=INNERS[given.get("inner", "sgd")]),
        "model": base.model.model_copy(update=dict(SMALL)),
        "lora": None if given.get("whole") else ADAPTERS,
    }
    epoch = epoch_of(parts["codec"], base.terms.rounds)
    return base.model_copy(update=parts | {"epoch": epoch})


def model_of(manifest: Manifest, number: int) -> GlobalState:
    """A model in the middle of its job, into which no moments were merged so far."""
    params, outer = {}, {slot: {} for slot in OUTER_SLOTS[manifest.outer.kind]}
    for name, shape in trained_shapes(manifest).items():
        count = prod(shape)
        values = torch.tensor(numbers(name, count, 1 << 20), dtype=torch.float64)
        params[name] = (values * 2.0**-20).to(torch.float32).reshape(shape)
        for slot, tensors in outer.items():
            kept = numbers(f"{slot}/{name}", count, 1 << 35)
            kept = [abs(value) for value in kept] if slot == "second" else kept
            tensors[name] = torch.tensor(kept).reshape(shape)
    codec, shared = manifest.codec, moment_layout(manifest)
    exponents = {name: codec.exponents.of(name) for name in params}
    of_moments = {name: codec.moment_exponents.of(name) for name in shared.m}
    return GlobalState(number, params, outer, exponents, of_moments)


def tensors_of(name: str, shapes: Shapes, step: float, seat: int, odd: int) -> dict[str, Tensor]:
    """A seat's, with something in common, of which `odd` times as much is there."""
    found = {}
    for key, shape in shapes.items():
        common = numbers(f"common {name} {key}", prod(shape), 60)
        own = numbers(f"own {seat} {name} {key}", prod(shape), 30)
        values = [odd * a + b for a, b in zip(common, own, strict=True)]
        found[key] = (torch.tensor(values, dtype=torch.float32) * step).reshape(shape)
    return found


def updates_of(
    manifest: Manifest, model: GlobalState, odd: Mapping[int, int], loud: int | None
) -> dict[int, list[bytes]]:
    """The sections of seats 0 to 6; `odd` ones have so many times what the others share.

    `loud` has five times as much of it in its first moments.
    """
    part, shared = model.sent_part(manifest.codec), moment_layout(manifest)
    step = 2.0 ** (-20 if manifest.codec.kind == "fp32" else -10 - 2)
    sent = {name: tuple(p.shape) for name, p in part.params.items()}
    updates: dict[int, list[bytes]] = {}
    for seat in range(7):
        times, key = odd.get(seat, 1), DitherKey(DATA_SEED, seat)
        delta = tensors_of(f"delta {model.round}", sent, step, seat, times)
        updates[seat] = [seat_codec(manifest.codec, key).encode(delta, part.exponents)]
        if shared.m:
            m = tensors_of(f"m {model.round}", shared.m, step, seat, 5 if seat == loud else 1)
            codec = seat_codec(manifest.codec, replace(key, section=MOMENT_SECTION))
            updates[seat].append(codec.encode(m, model.moment_exponents))
        if shared.v:
            v = tensors_of(f"v {model.round}", shared.v, step, seat, 1)
            updates[seat].append(encode_sums({name: x * x for name, x in v.items()}))
    return updates


def merge_case(name: str, manifest: Manifest, number: int = 4, **given: Json) -> Json:
    """Whole merges of one round or of two: what they are made from, the digests of what they make.

    The updates of a second round are of the state that the first one made.
    """
    first = model = model_of(manifest, number)
    rounds = []
    for _ in range(given.get("rounds", 1)):
        told, model = merged_round(manifest, model, given)
        rounds.append(told)
    codec = manifest.codec
    return {
        "dataSeed": hexed(DATA_SEED),
        "manifest": {
            "codec": {
                "feedback": codec.feedback,
                "fragments": codec.fragments,
                "kind": codec.kind,
                "max_exponent": codec.max_exponent,
                "min_exponent": codec.min_exponent,
                "mixing": codec.mixing,
                "overlap": codec.overlap,
            },
            "inner": {
                "momentum": manifest.inner.momentum,
                "optimizer": manifest.inner.optimizer,
                "steps": manifest.inner.steps,
            },
            "outer": manifest.outer.model_dump(),
            "robust": manifest.robust.model_dump(),
            "minProviders": manifest.terms.min_providers,
        },
        "model": hexed(first.to_bytes()),
        "name": name,
        "rounds": rounds,
    }


def merged_round(
    manifest: Manifest, model: GlobalState, given: Mapping[str, Json]
) -> tuple[Json, GlobalState]:
    """One round as the file has it, and the state after it."""
    updates = updates_of(manifest, model, given.get("odd", {}), given.get("loud"))
    if "broken" in given:
        last = updates[given["broken"]]
        last[-1] = last[-1][:-1]
    facts = MergeFacts(
        Bitmap(0b1111111),
        Bitmap(given.get("rejected", 0)),
        Bitmap(0),
        given.get("caught", 0),
        {SeatIndex(seat): manifest.inner.steps for seat in updates},
    )
    whole = {seat: joined(sections) for seat, sections in updates.items()}
    merged = merge(model, whole, facts=facts, data_seed=DATA_SEED, manifest=manifest)
    inputs = merged.inputs
    told = {
        "digest": hexed(merged.global_state.digest()),
        "facts": {
            "caught": facts.caught,
            "rejected": hex(facts.rejected),
            "revealed": hex(facts.revealed),
            "unresolved": hex(facts.unresolved),
        },
        "fPrime": inputs.f_prime,
        "leftOut": list(inputs.left_out),
        "merged": list(inputs.merged),
        "named": [f"{found.check} {found.seat}" for found in inputs.named],
        "openingRoot": hexed(merged.global_state.moments.opening_root),
        "updates": [[hexed(part) for part in updates[seat]] for seat in sorted(updates)],
    }
    return told, merged.global_state


def hexed(data: bytes) -> str:
    return "0x" + data.hex()


def merge_cases() -> Json:
    """Every dense codec, every rule, every outer optimiser, and who may be missing."""
    of = manifest_of
    default = of("grid8", "nnm_trimmed_mean", "nesterov")
    kinds = ("grid8", "grid4", "two_bit", "sign")
    adamw, muon = {"inner": "adamw"}, of("grid4", "median", "sgd", inner="muon", whole=True)
    rules = [mixing + rule for mixing in ("", "nnm_") for rule in RULES]
    return {
        "cases": [
            *(
                merge_case(k, of(k, "nnm_trimmed_mean", "nesterov", **adamw), rounds=2)
                for k in kinds
            ),
            *(
                merge_case(k, of(k, "contributor_mean", "sgd", **adamw), rounds=2)
                for k in ("sparse", "dct")
            ),
            merge_case("fp32", of("fp32", "mean", "sgd", **adamw), rounds=2),
            merge_case("a whole model by Muon and AdamW", muon, rounds=2),
            merge_case("momentum", of("sign", "mean", "sgd", inner="momentum"), rounds=2),
            *(merge_case(rule, of("grid8", rule, "sgd")) for rule in rules),
            *(merge_case(kind, of("grid4", "median", kind)) for kind in OUTERS),
            merge_case("delayed_nesterov renews", of("grid4", "median", "delayed_nesterov"), 5),
            merge_case("a fragment", of("grid8", "median", "nesterov", fragments=2), 5),
            merge_case("a flip is left out", default, odd={3: -2}),
            merge_case("two that stand out", of("grid8", "median", "sgd", f=2), odd={3: -2, 5: 9}),
            merge_case(
                "one is rejected and caught", default, rejected=0b1000, caught=1, odd={3: 9}
            ),
            merge_case("one is not canonical", default, broken=2),
            merge_case("two are left", default, rejected=0b1111100),
            merge_case("too few", default, rejected=0b1111110),
            merge_case(
                "too few, and moments stay",
                of("grid8", "mean", "sgd", **adamw),
                number=0,
                rejected=0b1111110,
            ),
            merge_case("moments that stand out", of("grid8", "median", "sgd", **adamw), loud=4),
            merge_case(
                "sums that are not canonical", of("grid8", "mean", "sgd", **adamw), broken=2
            ),
        ]
    }


FILES: Mapping[str, Callable[[], Json]] = {
    "merge_inputs.json": merge_input_cases,
    "merge.json": merge_cases,
}


def render(build: Callable[[], Json]) -> str:
    """The file's text, keys in alphabetical order."""
    return json.dumps(build(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
