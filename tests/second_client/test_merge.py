"""The second client's merge against atoll's, on random rounds: not one digest may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import merge as second
from tests.second_client import sparse
from tests.second_client.codec import STEPS, header, packed
from tests.second_client.state import global_bytes, global_digest
from tests.unit.merge.test_merge_round import make_manifest

from atoll.bits.layout import OUTER_SLOTS
from atoll.bits.state import GlobalState
from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import Bitmap, Digest, SeatIndex
from atoll.merge.round import MergeResult, merge

CHUNKS, CASES = 20, 500
"""Together 10,000 merges."""
DENSE = ("grid8", "grid4", "two_bit", "sign", "fp32")
SPARSE = ("sparse", "dct")
BASES = (
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
RULES = (*BASES, *(f"nnm_{rule}" for rule in BASES))
KAPPAS = ("1", "1.25", "1.5", "2.000000000000000001", "3", "1000")
OUTERS = tuple(OUTER_SLOTS)
SEEDS = tuple(bytes([i]) * 32 for i in range(3))
NAMES = (
    "lm_head.weight",
    "model.layers.0.mlp.down_proj.weight",
    "model.layers.1.input_layernorm.weight",
    "model.layers.2.self_attn.q_proj.weight",
)
Rng = np.random.Generator


@dataclass(frozen=True)
class Round:
    """One random round, as both clients are told it."""

    manifest: Manifest
    plain: dict[str, Any]
    model: dict[str, Any]
    facts: dict[str, Any]
    updates: dict[int, bytes]
    data_seed: bytes

    def by_atoll(self) -> MergeResult:
        model, facts = self.model, self.facts
        state = GlobalState(
            model["round"],
            {name: torch.from_numpy(p.copy()) for name, p in model["params"].items()},
            {
                slot: {name: torch.from_numpy(t.copy()) for name, t in kept.items()}
                for slot, kept in model["outer"].items()
            },
            model["exponents"],
        )
        told = MergeFacts(
            Bitmap(facts["revealed"]),
            Bitmap(facts["rejected"]),
            Bitmap(facts["unresolved"]),
            facts["caught"],
            {SeatIndex(seat): steps for seat, steps in facts["steps"].items()},
        )
        seed = Digest(self.data_seed)
        return merge(state, self.updates, facts=told, data_seed=seed, manifest=self.manifest)

    def by_the_second_client(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return second.merge(self.plain, self.model, self.facts, self.updates, self.data_seed)


def pick(rng: Rng, options: Any) -> Any:
    return options[rng.integers(len(options))]


def rounds(seed: int, count: int) -> Iterator[Round]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield random_round(rng)


def random_round(rng: Rng) -> Round:
    kind = pick(rng, (*DENSE, pick(rng, SPARSE)))
    rule = "mean" if kind == "fp32" else pick(rng, RULES)
    manifest, plain = manifests(
        kind,
        "contributor_mean" if kind in SPARSE else rule,
        int(rng.integers(4)),
        pick(rng, KAPPAS),
        pick(rng, OUTERS),
        int(rng.integers(1, 4)),
    )
    model = random_model(rng, plain)
    n = int(rng.integers(1, 13))
    facts = random_facts(rng, n, plain["inner"]["steps"])
    codec, number = plain["codec"], model["round"]
    shapes = {
        name: p.shape for name, p in model["params"].items() if second.is_sent(name, codec, number)
    }
    exponents = {name: model["exponents"][name] for name in shapes}
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    start = header(kind, shapes, exponents)
    bodies = random_bodies(rng, kind, n, count)
    updates = {seat: start + body for seat, body in enumerate(bodies)}
    if rng.random() < 0.2:
        seat = int(rng.integers(n))
        updates[seat] = spoiled(rng, kind, updates[seat], count)
    order = rng.permutation(n).tolist()
    return Round(
        manifest, plain, model, facts, {seat: updates[seat] for seat in order}, pick(rng, SEEDS)
    )


@cache
def manifests(
    kind: str, rule: str, f: int, kappa: str, outer: str, min_providers: int
) -> tuple[Manifest, dict[str, Any]]:
    """A manifest and the fields of it that a merge reads."""
    low, high = (-40, -40) if kind == "fp32" else (-20, -3)
    numbers = {"lr": "0.7", "momentum": "0.9", "beta2": "0.95", "eps": "0.001", "period": 3}
    chosen = {
        "codec": {
            "kind": kind,
            "min_exponent": low,
            "max_exponent": high,
            "fragments": 1 if outer == "delayed_nesterov" else 1 + f % 2,
        },
        "outer": {"kind": outer, **numbers},
        "robust": {"rule": rule, "f": f, "kappa": kappa},
    }
    base = base_manifest(min_providers)
    made = base.model_copy(
        update={name: getattr(base, name).model_copy(update=part) for name, part in chosen.items()}
    )
    terms = {"min_providers": min_providers}
    return made, {**chosen, "inner": {"steps": base.inner.steps}, "terms": terms}


@cache
def base_manifest(min_providers: int) -> Manifest:
    return make_manifest(min_providers=min_providers)


def random_model(rng: Rng, plain: dict[str, Any]) -> dict[str, Any]:
    shapes = {name: tuple(rng.integers(1, 7, rng.integers(1, 3)).tolist()) for name in NAMES}
    scale = 2.0 ** rng.integers(-12, 3)
    params = {name: rng.normal(0, scale, s).astype(np.float32) for name, s in shapes.items()}
    params[NAMES[0]].flat[0] = pick(rng, (0.0, -0.0, 1e30))
    kind = plain["outer"]["kind"]
    outer = {
        slot: {name: random_slot(rng, kind, slot, shape) for name, shape in shapes.items()}
        for slot in OUTER_SLOTS[kind]
    }
    codec = plain["codec"]
    exponents = {
        name: int(rng.integers(codec["min_exponent"], codec["max_exponent"] + 1)) for name in NAMES
    }
    number = int(rng.integers(9))
    return {"round": number, "params": params, "outer": outer, "exponents": exponents}


def random_slot(rng: Rng, kind: str, slot: str, shape: tuple[int, ...]) -> Any:
    """Whatever a slot can hold: second moments are positive, adam's first stay below 2^47."""
    bits = 63 if slot == "second" else 48 if kind == "adam" else 53
    limit = 1 << int(rng.integers(bits))
    return rng.integers(0 if slot == "second" else -limit, limit, shape, endpoint=True)


def random_facts(rng: Rng, n: int, steps: int) -> dict[str, Any]:
    def some() -> int:
        return int(rng.integers(1 << n)) & int(rng.integers(1 << n)) if rng.random() < 0.3 else 0

    done = {seat: steps - int(rng.random() < 0.05) for seat in range(n)}
    bitmaps = {"revealed": (1 << n) - 1, "rejected": some(), "unresolved": some()}
    return bitmaps | {"caught": int(rng.integers(3)), "steps": done}


def random_bodies(rng: Rng, kind: str, n: int, count: int) -> list[bytes]:
    """Updates with something in common, of which some are odd in the ways that the checks know."""
    common = rng.normal(0, 1, count)
    bodies: list[bytes] = []
    for _ in range(n):
        odd = rng.random()
        share = pick(rng, (-3.0, 0.0, 0.5, 0.7, 5.0)) if odd < 0.3 else 1.0
        values = share * common + (0 if odd < 0.05 else rng.normal(0, 0.7, count))
        if odd > 0.9 and bodies:
            bodies.append(pick(rng, bodies))
        else:
            bodies.append(BODIES[kind](rng, values))
    return bodies


def body_of_grid8(rng: Rng, values: Any) -> bytes:
    scale = pick(rng, (3, 20, 20, 20, 90))
    return np.clip(np.rint(values * scale), -127, 127).astype(np.int8).tobytes()


def body_of_grid4(_rng: Rng, values: Any) -> bytes:
    return packed(np.clip(np.rint(values * 3), -7, 7).astype(np.int64) + 7, 4)


def body_of_blocks(levels: int) -> Callable[[Rng, Any], bytes]:
    def body(rng: Rng, values: Any) -> bytes:
        steps = rng.integers(0, len(STEPS), -(-len(values) // 32))
        codes = np.clip(np.floor(values + levels), 0, 2 * levels - 1).astype(np.int64)
        return packed(steps, 4) + packed(codes, levels)

    return body


def body_of_fp32(rng: Rng, values: Any) -> bytes:
    scale = 10.0 ** rng.integers(-12, 3)
    return (values * scale + np.float32(0)).astype("<f4").tobytes()


def body_of_sparse(kind: str) -> Callable[[Rng, Any], bytes]:
    def body(_rng: Rng, values: Any) -> bytes:
        x = (values * 20).astype(np.float32)
        return sparse.write(x if kind == "sparse" else sparse.coefficients(x))

    return body


BODIES: dict[str, Callable[[Rng, Any], bytes]] = {
    "grid8": body_of_grid8,
    "grid4": body_of_grid4,
    "two_bit": body_of_blocks(2),
    "sign": body_of_blocks(1),
    "fp32": body_of_fp32,
    "sparse": body_of_sparse("sparse"),
    "dct": body_of_sparse("dct"),
}
WRONG_BYTE = {
    "grid8": 0x80,
    "grid4": 0xFF,
    "two_bit": 0xFF,
    "sign": 0xFF,
    "fp32": 0xFF,
    "sparse": 0xFF,
    "dct": 0xFF,
}


def spoiled(rng: Rng, kind: str, data: bytes, count: int) -> bytes:
    """An update that is not one: of another size, with another header, or off the grid."""
    start = len(data) - second.body_size(kind, count)
    match int(rng.integers(4)):
        case 0:
            return data[:-1]
        case 1:
            return data + b"\0"
        case 2:
            at = int(rng.integers(start))
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    wrong = bytes([WRONG_BYTE[kind]]) * (4 if kind == "fp32" else 1)
    return data[:start] + wrong + data[start + len(wrong) :]


def same(round_: Round) -> bool:
    """Whether both clients say the same of a round, to the bit."""
    ours, (state, inputs) = round_.by_atoll(), round_.by_the_second_client()
    found = ours.inputs
    named = [{"check": str(x.check), "seat": x.seat, "grave": x.grave} for x in found.named]
    told = {
        "available": list(found.available),
        "named": named,
        "inFull": list(found.in_full),
        "leftOut": list(found.left_out),
        "merged": list(found.merged),
        "fPrime": found.f_prime,
    }
    return told == inputs and ours.global_state.digest() == global_digest(state)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_whole_merge(chunk: int) -> None:
    different = [i for i, round_ in enumerate(rounds(chunk, CASES)) if not same(round_)]
    assert different == []


def test_the_rounds_have_all_that_a_merge_decides() -> None:
    """The fuzz would say nothing about what never happens in it."""
    seen: set[str] = set()
    for round_ in rounds(1000, 400):
        _, inputs = round_.by_the_second_client()
        seen |= {named["check"] for named in inputs["named"]}
        seen |= {"left out"} if inputs["leftOut"] else set()
        seen |= {"nothing merged"} if not inputs["merged"] else set()
        seen |= {f"f' = {inputs['fPrime']}"}
        seen |= {"dropped"} if len(inputs["available"]) < len(round_.updates) else set()
    checks = {"distant", "loud", "silent", "copy", "misaligned"}
    assert seen >= checks | {"left out", "nothing merged", "dropped", "f' = 0", "f' = 3"}


def test_the_states_bytes_are_the_same_too() -> None:
    for round_ in rounds(2000, 50):
        ours, (state, _) = round_.by_atoll(), round_.by_the_second_client()
        assert ours.global_state.to_bytes() == global_bytes(state)


def test_a_difference_would_be_seen() -> None:
    """One seat more that is rejected is another digest, in atoll and in the comparison."""
    for round_ in rounds(3000, 200):
        ours = round_.by_atoll()
        if len(ours.inputs.merged) >= 3 and ours.inputs.f_prime == 0:
            gone = round_.facts | {
                "rejected": round_.facts["rejected"] | 1 << ours.inputs.merged[0]
            }
            told = replace(round_, facts=gone)
            digest = global_digest(told.by_the_second_client()[0])
            if digest != ours.global_state.digest():
                return
    raise AssertionError("no round's digest depended on who is rejected")
