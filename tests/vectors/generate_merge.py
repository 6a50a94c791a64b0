"""Writes the vectors of the merge: `python tests/vectors/generate_merge.py`.

Rule of this file: inputs are written down or follow from small integers, so that a run writes the
same bytes everywhere. What each file holds is in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import shake_128
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import torch
from tests.support.identities import cid, digest
from tests.support.manifests import KINDS, whole_manifest
from torch import Tensor

from atoll.aggregation.merge_round import MergedUpdate, merge_updates
from atoll.aggregation.stated_merge import MergedLayout, merged_pieces, statement_of
from atoll.numerics.codec.dither import MOMENT_SECTION, DitherKey
from atoll.numerics.codec.factored import encode_factored
from atoll.numerics.codec.registry import seat_codec
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import joined
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import Shapes, moment_layout, trained_shapes
from atoll.protocol.codecs import CODECS
from atoll.protocol.hashing import sha256
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.rules import RULES
from atoll.protocol.types import Bitmap, SeatIndex
from atoll.storage.cid import Cid

HERE = Path(__file__).parent
Json: TypeAlias = Any
Gram: TypeAlias = list[list[int]]
SEATS, COMMITTEE = 7, 3


# --- merge.json ---

SMALL = {
    "vocab": 3, "width": 8, "layers": 2, "heads": 1, "kv_heads": 1, "head_dim": 2, "ffn": 8,
    "mlp": "relu2", "tied": True,
}  # fmt: skip
ADAPTERS = {"rank": 1, "alpha": "1", "targets": ("q", "o")}
"""Their 40 parameters are what most cases train."""
FROZEN = {"seed": 1, "cid": cid("weights"), "root": digest("weights' root")}
INNERS: Mapping[str, Mapping[str, Json]] = {
    "adamw": {"optimizer": "adamw", "momentum": "0"},
    "muon": {"optimizer": "muon", "momentum": "0.95"},
    "lion": {"optimizer": "lion", "momentum": "0", "eps": "0"},
    "momentum": {"optimizer": "sgd", "momentum": "0.9", "beta1": "0", "beta2": "0", "eps": "0"},
    "sgd": {"optimizer": "sgd", "momentum": "0", "beta1": "0", "beta2": "0", "eps": "0"},
}
CONSTANT = {"schedule": "constant", "beta2": "0.99"}
TABLES = whole_manifest({"inner": CONSTANT}).tables
"""Of the demo's model, whatever is merged: a merge reads none."""
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
    f = given.get("f", 1) if RULES[rule].bears_faults else 0
    changes = {
        "codec": {
            "kind": kind,
            "exponents": dict.fromkeys(KINDS, start),
            "moment_exponents": dict.fromkeys(KINDS, start),
            "min_exponent": low,
            "max_exponent": high,
            "fragments": given.get("fragments", 1),
        },
        "outer": {"kind": outer, "lr": "0.7"} | OUTERS[outer],
        "robust": {"rule": rule, "f": f, "kappa": "1.5"},
        "inner": CONSTANT | INNERS[given.get("inner", "sgd")],
        "model": SMALL,
        "terms": {"seats": SEATS, "slots": 8, "min_verifiers": 2, "program": bytes(32)},
    }
    if not given.get("whole"):
        changes |= {"lora": ADAPTERS, "init": FROZEN}
    return whole_manifest(changes).model_copy(update={"tables": TABLES})


def model_of(manifest: Manifest, number: int) -> GlobalState:
    """A model in the middle of its job, into which no moments were merged so far."""
    params, outer = {}, {slot: {} for slot in manifest.outer.properties.slots}
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
    for seat in range(SEATS):
        times, key = odd.get(seat, 1), DitherKey(DATA_SEED, seat)
        delta = tensors_of(f"delta {model.round}", sent, step, seat, times)
        updates[seat] = [seat_codec(manifest.codec, key).encode(delta, part.exponents)]
        if shared.m:
            m = tensors_of(f"m {model.round}", shared.m, step, seat, 5 if seat == loud else 1)
            codec = seat_codec(manifest.codec, replace(key, section=MOMENT_SECTION))
            updates[seat].append(codec.encode(m, model.moment_exponents))
        if shared.v:
            v = tensors_of(f"v {model.round}", shared.v, step, seat, 1)
            updates[seat].append(encode_factored({name: x * x for name, x in v.items()}))
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
                "segment": manifest.inner.segment,
                "steps": manifest.inner.steps,
            },
            "outer": manifest.outer.model_dump(),
            "robust": manifest.robust.model_dump(),
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
    everyone = Bitmap((1 << SEATS) - 1)
    votes = [Bitmap(everyone & ~lacks) for lacks in given.get("lack", (0, 0))]
    done = {SeatIndex(seat): given.get("done", {}).get(seat, manifest.segments) for seat in updates}
    record = MergeRecord(
        everyone,
        COMMITTEE,
        votes,
        done,
        slashed=Bitmap(given.get("slashed", 0)),
        accused=Bitmap(given.get("accused", 0)),
    )
    whole = {seat: joined(sections) for seat, sections in updates.items()}
    merged = merge_updates(model, whole, record=record, data_seed=DATA_SEED, manifest=manifest)
    after, inputs = merged.moves(model.copied(), manifest), merged.inputs
    told = {
        "digest": hexed(after.digest()),
        "stated": stated_of(manifest, model, merged, after),
        "record": {
            "accused": hex(record.accused),
            "committee": record.committee,
            "slashed": hex(record.slashed),
            "segments": [done[seat] for seat in sorted(done)],
            "votes": [hex(vote) for vote in votes],
        },
        "fPrime": inputs.f_prime,
        "excluded": list(inputs.excluded),
        "merged": list(inputs.merged),
        "named": [f"{found.check} {found.seat}" for found in inputs.named],
        "initialRoot": hexed(after.moments.initial_root),
        "momentumExcluded": list(inputs.momentum_excluded),
        "updates": [[hexed(part) for part in updates[seat]] for seat in sorted(updates)],
    }
    return told, after


def stated_of(
    manifest: Manifest, model: GlobalState, merged: MergedUpdate, after: GlobalState
) -> Json:
    """The merged update and the statement; null where the merge has none."""
    if not merged.stated:
        return None
    rows = len(merged.inputs.mergeable)
    layout = MergedLayout.of(manifest, model.shapes, model.round, rows)
    update = b"".join(merged_pieces(merged, layout))
    name = Cid.of(update).to_bytes()
    statement = statement_of(merged, after, root_of_update(update), name)
    return {"update": hexed(update), "statement": hexed(statement.to_bytes())}


def hexed(data: bytes) -> str:
    return "0x" + data.hex()


def merge_cases() -> Json:
    """Every dense codec, every rule, every outer optimiser, and who may be missing."""
    of = manifest_of
    default = of("grid8", "nnm_trimmed_mean", "nesterov")
    rounded = [name for name, codec in CODECS.items() if codec.fineness is not None]
    sparse = [name for name, codec in CODECS.items() if codec.is_sparse]
    exact = [name for name, codec in CODECS.items() if codec.is_exact]
    adamw, muon = {"inner": "adamw"}, of("grid4", "median", "sgd", inner="muon", whole=True)
    rules = [name for name, rule in RULES.items() if not rule.is_sparse]
    return {
        "cases": [
            *(
                merge_case(k, of(k, "nnm_trimmed_mean", "nesterov", **adamw), rounds=2)
                for k in rounded
            ),
            *(merge_case(k, of(k, "contributor_mean", "sgd", **adamw), rounds=2) for k in sparse),
            *(merge_case(k, of(k, "mean", "sgd", **adamw), rounds=2) for k in exact),
            merge_case("a whole model by Muon and AdamW", muon, rounds=2),
            merge_case("lion", of("two_bit", "median", "sgd", inner="lion"), rounds=2),
            merge_case("momentum", of("sign", "mean", "sgd", inner="momentum"), rounds=2),
            *(merge_case(rule, of("grid8", rule, "sgd")) for rule in rules),
            *(merge_case(kind, of("grid4", "median", kind)) for kind in OUTERS),
            merge_case("delayed_nesterov renews", of("grid4", "median", "delayed_nesterov"), 5),
            merge_case("a fragment", of("grid8", "median", "nesterov", fragments=2), 5),
            merge_case("a flip is excluded", default, odd={3: -2}),
            merge_case("two that stand out", of("grid8", "median", "sgd", f=2), odd={3: -2, 5: 9}),
            merge_case("who was slashed is not scored", default, slashed=0b1000, odd={3: 9}),
            merge_case("one is accused", default, accused=0b10000),
            merge_case("accused go before named", default, accused=0b10000, odd={3: 9}),
            merge_case("two of three lack one", default, lack=(0b100, 0b100, 0)),
            merge_case("one of three lacks it", default, lack=(0b100, 0, 0)),
            merge_case("six of eight segments are merged", default, done={5: 6}),
            merge_case("five of eight are not", default, done={5: 5}),
            merge_case("one is not canonical", default, broken=2),
            merge_case("three are enough for f = 1", default, slashed=0b1111000),
            merge_case("two are too few", default, slashed=0b1111100),
            merge_case(
                "too few, and moments stay",
                of("grid8", "median", "sgd", **adamw),
                number=0,
                slashed=0b1111110,
            ),
            merge_case("moments that stand out", of("grid8", "median", "sgd", **adamw), loud=4),
            merge_case(
                "sums that are not canonical", of("grid8", "mean", "sgd", **adamw), broken=2
            ),
        ]
    }


FILES: Mapping[str, Callable[[], Json]] = {
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
