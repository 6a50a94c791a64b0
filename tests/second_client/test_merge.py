"""The second client's merge against atoll's, on random rounds: not one digest may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import merge as second
from tests.second_client import sparse
from tests.second_client.codec import CODECS as WRITTEN
from tests.second_client.codec import STEPS, header, packed
from tests.second_client.documents import Shapes, is_public, moments_of
from tests.second_client.moments import factored_header, lines, named_sums, read_factored
from tests.second_client.sections import joined, spoken_of
from tests.second_client.state import global_bytes, global_digest, read_global
from tests.unit.aggregation.test_merge_round import merge_manifest

from atoll.aggregation.merge_round import MergeResult, merge
from atoll.numerics.moments import Moments
from atoll.numerics.state import GlobalState
from atoll.numerics.state_layout import trained_shapes
from atoll.protocol.codecs import CODECS
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeInputs, MergeRecord
from atoll.protocol.model_spec import LoraSpec
from atoll.protocol.optimisers import OUTER_OPTIMISERS
from atoll.protocol.rules import RULES as REGISTERED
from atoll.protocol.types import Bitmap, Digest, SeatIndex, to_bitmap

DRAWN, CASES = 25, 400
"""Together 10,000 merges."""
DENSE = tuple(name for name, kind in CODECS.items() if not kind.is_sparse)
SPARSE = tuple(name for name, kind in CODECS.items() if kind.is_sparse)
RULES = tuple(name for name, rule in REGISTERED.items() if not rule.is_sparse)
"""Of every dense codec, by our registry: the second client has its own."""
KAPPAS = ("1", "1.25", "1.5", "2.000000000000000001", "3", "1000")
OUTERS = tuple(OUTER_OPTIMISERS)
SEEDS = tuple(bytes([i]) * 32 for i in range(3))
MODEL = {
    "vocab": 2, "width": 8, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 2, "ffn": 8,
    "mlp": "relu2", "tied": True,
}  # fmt: skip
ADAPTERS = (("q", "k"), ("v",), ("o", "up", "down"))
INNERS = (
    {"optimizer": "adamw", "momentum": "0"},
    {"optimizer": "muon", "momentum": "0.95"},
    {"optimizer": "sgd", "momentum": "0.9"},
    {"optimizer": "sgd", "momentum": "0"},
)
Rng = np.random.Generator


@dataclass(frozen=True)
class Round:
    """One random round, as both clients are told it."""

    manifest: Manifest
    plain: dict[str, Any]
    model: dict[str, Any]
    record: dict[str, Any]
    updates: dict[int, bytes]
    data_seed: bytes

    def by_atoll(self) -> MergeResult:
        model, record = self.model, self.record
        state = GlobalState(
            model["round"],
            {name: torch.from_numpy(p.copy()) for name, p in model["params"].items()},
            {
                slot: {name: torch.from_numpy(t.copy()) for name, t in kept.items()}
                for slot, kept in model["outer"].items()
            },
            model["exponents"],
            model["moment_exponents"],
            self.moments(),
        )
        seed, told = Digest(self.data_seed), as_atoll(record)
        return merge(state, self.updates, record=told, data_seed=seed, manifest=self.manifest)

    def moments(self) -> Moments:
        groups = {
            group: {name: torch.from_numpy(t.copy()) for name, t in kept.items()}
            for group, kept in self.model["moments"].items()
        }
        return Moments(self.model["count"], m_exponents=self.model["m_exponents"], **groups)

    def by_the_second_client(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return second.merge(self.plain, self.model, self.record, self.updates, self.data_seed)


def as_atoll(record: dict[str, Any]) -> MergeRecord:
    """The chain's record as atoll has them."""
    done = {SeatIndex(seat): m for seat, m in record["segments"].items()}
    votes = [Bitmap(vote) for vote in record["votes"]]
    maps = {name: Bitmap(record[name]) for name in ("slashed", "accused")}
    return MergeRecord(to_bitmap(done), record["committee"], votes, done, **maps)


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
        int(rng.integers(4)) if rng.random() < 0.97 else 4 + int(rng.integers(2)),
    )
    model = random_model(rng, manifest, plain)
    n = int(rng.integers(1, 13))
    record = random_record(rng, n, plain["inner"]["steps"] // plain["inner"]["segment"])
    spoken = spoken_of(plain, model)
    shapes, size = (spoken.delta, spoken.first), second.length_of
    exponents = ({name: model["exponents"][name] for name in shapes[0]}, model["moment_exponents"])
    parts = [
        [header(kind, *layout) + body for body in random_bodies(rng, kind, n, size(layout[0]))]
        for layout in zip(shapes, exponents, strict=True)
        if layout[0]
    ]
    if spoken.second:
        parts.append([random_sums(rng, spoken.second) for _ in range(n)])
    updates = {seat: joined([part[seat] for part in parts]) for seat in range(n)}
    if rng.random() < 0.2:
        seat = int(rng.integers(n))
        updates[seat] = spoiled(rng, kind, [part[seat] for part in parts])
    order = rng.permutation(n).tolist()
    return Round(
        manifest, plain, model, record, {seat: updates[seat] for seat in order}, pick(rng, SEEDS)
    )


@cache
def manifests(
    kind: str, rule: str, f: int, kappa: str, outer: str, trained: int
) -> tuple[Manifest, dict[str, Any]]:
    """A manifest and the fields of it that a merge reads.

    `trained`: one of four inner optimisers of few adapters; or a whole model, by AdamW or Muon.
    Every other f is of a job whose seats carry something of their own.
    """
    low, high = (-40, -40) if kind == "fp32" else (-20, -3)
    numbers = {"lr": "0.7", "momentum": "0.9", "beta2": "0.95", "eps": "0.001", "period": 3}
    fragmented = f % 2 == 1 and outer != "delayed_nesterov"
    chosen: dict[str, dict[str, Any]] = {
        "codec": {
            "kind": kind,
            "min_exponent": low,
            "max_exponent": high,
            "fragments": 2 if fragmented else 1,
            "feedback": "0.9" if f == 3 and kind != "fp32" else "0",
            "overlap": 0,
            "mixing": "0",
        },
        "outer": {"kind": outer, **numbers},
        "robust": {"rule": rule, "f": f, "kappa": kappa},
        "inner": INNERS[trained % 4],
        "model": MODEL | {"layers": 2 if fragmented else 1},
    }
    base = base_manifest()
    made = base.model_copy(
        update={name: getattr(base, name).model_copy(update=part) for name, part in chosen.items()}
    )
    if trained < 4:
        targets = ADAPTERS[(f + trained) % len(ADAPTERS)]
        lora = LoraSpec(rank=1, alpha="1", targets=targets)
        made = made.model_copy(update={"lora": lora})
    sizes = {"steps": base.inner.steps, "segment": base.inner.segment}
    return made, chosen | {"inner": INNERS[trained % 4] | sizes}


@cache
def base_manifest() -> Manifest:
    return merge_manifest()


def random_model(rng: Rng, manifest: Manifest, plain: dict[str, Any]) -> dict[str, Any]:
    shapes = trained_shapes(manifest)
    scale, names = 2.0 ** rng.integers(-12, 3), sorted(shapes)
    params = {name: rng.normal(0, scale, s).astype(np.float32) for name, s in shapes.items()}
    params[names[0]].flat[0] = pick(rng, (0.0, -0.0, 1e30))
    kind = plain["outer"]["kind"]
    outer = {
        slot: {name: random_slot(rng, kind, slot, shape) for name, shape in shapes.items()}
        for slot in OUTER_OPTIMISERS[kind].slots
    }
    first, second_ = moments_of(shapes, plain["inner"]) if is_public(plain["codec"]) else ({}, {})
    state = {
        "round": int(rng.integers(9)),
        "params": params,
        "outer": outer,
        "exponents": random_exponents(rng, plain["codec"], names),
        "moment_exponents": random_exponents(rng, plain["codec"], first),
        "moments": {"m": {}, "rows": {}, "columns": {}, "whole": {}},
        "m_exponents": {},
        "count": 0,
    }
    if not first or rng.random() < 0.5:
        return state
    m = {name: rng.integers(-127, 128, shape).astype(np.int8) for name, shape in first.items()}
    if plain["codec"]["kind"] == "fp32":
        m = {name: (n * 2.0**-9).astype(np.float32) for name, n in m.items()}
    sums = named_sums(read_factored(random_sums(rng, second_), second_), second_)
    return state | {
        "moments": {"m": m, **sums},
        "m_exponents": random_exponents(rng, plain["codec"], first),
        "count": plain["inner"]["steps"],
    }


def random_exponents(rng: Rng, codec: dict[str, Any], names: Iterable[str]) -> dict[str, int]:
    low, high = codec["min_exponent"], codec["max_exponent"]
    return {name: int(rng.integers(low, high + 1)) for name in names}


def random_sums(rng: Rng, shapes: Shapes) -> bytes:
    """Section 2 of numbers that are often alike."""
    count = sum(length for _, _, length in lines(shapes))
    values = np.exp2(rng.integers(-30, 4, count)) * rng.integers(0, 3, count)
    return factored_header(shapes) + values.astype("<f4").tobytes()


def random_slot(rng: Rng, kind: str, slot: str, shape: tuple[int, ...]) -> Any:
    """Whatever a slot can hold: second moments are positive, adam's first stay below 2^47."""
    bits = 63 if slot == "second" else 48 if kind == "adam" else 53
    limit = 1 << int(rng.integers(bits))
    return rng.integers(0 if slot == "second" else -limit, limit, shape, endpoint=True)


def random_record(rng: Rng, n: int, S: int) -> dict[str, Any]:
    """Of so many seats that revealed; `S` segments are a whole round."""

    def some(often: float) -> int:
        few = int(rng.integers(1 << n)) & int(rng.integers(1 << n))
        return few if rng.random() < often else 0

    committee = int(rng.integers(1, 6))
    spoke = committee - int(rng.random() < 0.2 and committee > 2)
    done = {s: S - int(rng.integers(S)) if rng.random() < 0.1 else S for s in range(n)}
    return {
        "segments": done,
        "committee": committee,
        "votes": [((1 << n + 1) - 1) & ~some(0.2) for _ in range(spoke)],
        "slashed": some(0.15),
        "accused": some(0.15),
    }


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
    "fp32": body_of_fp32,
    **{name: body_of_blocks(kind.bits) for name, kind in WRITTEN.items() if kind.reach},
    **{name: body_of_sparse(name) for name in SPARSE},
}
WRONG_BYTE = dict.fromkeys(BODIES, 0xFF) | {"grid8": 0x80}


def spoiled(rng: Rng, kind: str, parts: list[bytes]) -> bytes:
    """An update that is not one: of another size or header, or off the grid, in some section."""
    data, which = joined(parts), int(rng.integers(len(parts)))
    at, part = len(joined([*parts[:which], b""])), parts[which]
    if rng.random() < 0.2 and which < len(parts) - 1 and len(part) % 1024:
        at += len(part)  # the filling
        return data[:at] + b"\1" + data[at + 1 :]
    match int(rng.integers(4)):
        case 0:
            return data[:-1]
        case 1:
            return data + b"\0"
        case 2:
            at += int(rng.integers(40))
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    sums = part[:4] == b"ATSM"
    wide = sums or kind == "fp32"
    at += len(part) - 4 if wide else 42 + 2 * (int.from_bytes(part[6:8], "big") - 1)
    wrong = b"\0\0\0\x80" if sums else bytes([WRONG_BYTE[kind]]) * (4 if wide else 1)
    return data[:at] + wrong + data[at + len(wrong) :]


def same(round_: Round) -> bool:
    """Whether both clients say the same of a round, to the bit."""
    ours, (state, inputs) = round_.by_atoll(), round_.by_the_second_client()
    found = ours.inputs
    same_inputs = as_plain(found) == inputs
    return same_inputs and ours.global_state.digest() == global_digest(state)


def as_plain(found: MergeInputs) -> dict[str, Any]:
    """Atoll's merge inputs as the second client has them."""
    return {
        "mergeable": list(found.mergeable),
        "named": [{"check": str(x.check), "seat": x.seat} for x in found.named],
        "excluded": list(found.excluded),
        "merged": list(found.merged),
        "momentumExcluded": list(found.momentum_excluded),
        "fPrime": found.f_prime,
    }


@pytest.mark.parametrize("seed", range(DRAWN))
def test_a_whole_merge(seed: int) -> None:
    different = [i for i, round_ in enumerate(rounds(seed, CASES)) if not same(round_)]
    assert different == []


def test_the_rounds_have_all_that_a_merge_decides() -> None:
    """The fuzz would say nothing about what never happens in it."""
    seen: set[str] = set()
    for round_ in rounds(1000, 400):
        _, inputs = round_.by_the_second_client()
        seen |= {named["check"] for named in inputs["named"]}
        seen |= {"excluded"} if inputs["excluded"] else set()
        seen |= {"momentum excluded"} if inputs["momentumExcluded"] else set()
        seen |= {"nothing merged"} if not inputs["merged"] else set()
        seen |= {f"f' = {inputs['fPrime']}"}
        seen |= {"dropped"} if len(inputs["mergeable"]) < len(round_.updates) else set()
    checks = {"distant", "loud", "silent", "copy", "misaligned"}
    does = {"excluded", "momentum excluded", "nothing merged", "dropped"}
    assert seen >= checks | does | {"f' = 0", "f' = 3"}


def test_the_states_bytes_are_the_same_too() -> None:
    for round_ in rounds(2000, 50):
        ours, (state, _) = round_.by_atoll(), round_.by_the_second_client()
        assert ours.global_state.to_bytes() == global_bytes(state)
        assert global_bytes(read_global(global_bytes(state))) == global_bytes(state)


def test_a_difference_would_be_seen() -> None:
    """One seat more that has been slashed is another digest, in atoll and in the comparison."""
    for round_ in rounds(3000, 200):
        ours = round_.by_atoll()
        if len(ours.inputs.merged) >= 3 and ours.inputs.f_prime == 0:
            gone = round_.record | {
                "slashed": round_.record["slashed"] | 1 << ours.inputs.merged[0]
            }
            told = replace(round_, record=gone)
            digest = global_digest(told.by_the_second_client()[0])
            if digest != ours.global_state.digest():
                return
    raise AssertionError("no round's digest depended on who has been slashed")
