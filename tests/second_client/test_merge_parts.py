"""Each function of the second client's merge against atoll's: 10,000 cases of each at least."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import merge as second
from tests.second_client import outer, sparse
from tests.second_client.codec import CODECS as KINDS
from tests.second_client.codec import encode, header
from tests.second_client.test_merge import (
    BODIES,
    DENSE,
    KAPPAS,
    OUTERS,
    RULES,
    SEEDS,
    SPARSE,
    Rng,
    as_atoll,
    as_plain,
    pick,
    random_record,
    random_slot,
)

from atoll.aggregation.exponents import middle_vote, vote
from atoll.aggregation.rules import aggregate
from atoll.errors import MalformedUpdate
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.update_codec import UpdateCodec
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.outer import outer_step
from atoll.numerics.state import GlobalState
from atoll.protocol.merge_inputs import MergeTerms, merge_inputs
from atoll.protocol.method_spec import OuterSpec, RobustSpec
from atoll.protocol.optimisers import OUTER_OPTIMISERS
from atoll.protocol.rules import RULES as REGISTERED
from atoll.protocol.types import Digest, SeatIndex

CASES = 10_000
SEGMENTS = 8


def codec_under(kind: str, seed: bytes, seat: int) -> UpdateCodec:
    return CODECS[kind].under(DitherKey(Digest(seed), seat))


def random_layout(rng: Rng, kind: str) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    shapes = {name: (int(rng.integers(1, 60)),) for name in ("a", "b")[: rng.integers(1, 3)]}
    low, high = (-40, -39) if kind == "fp32" else (-60, 1)
    return shapes, {name: int(rng.integers(low, high)) for name in shapes}


def test_updates_are_read_alike_or_refused_by_both() -> None:
    rng, refused = np.random.default_rng(1), 0
    for _ in range(CASES):
        kind = pick(rng, (*DENSE, *SPARSE))
        seed, seat = pick(rng, SEEDS), int(rng.integers(12))
        shapes, exponents = random_layout(rng, kind)
        count = sum(shape[0] for shape in shapes.values())
        data = header(kind, shapes, exponents) + BODIES[kind](rng, rng.normal(0, 1, count))
        if rng.random() < 0.5:
            at = int(rng.integers(len(data)))
            data = data[:at] + bytes([int(rng.integers(256))]) + data[at + 1 :]
        data = data[: len(data) - int(rng.random() < 0.05)] + bytes(int(rng.random() < 0.05))
        try:
            expected = codec_under(kind, seed, seat).decode_flat(data, Layout.of(shapes), exponents)
        except MalformedUpdate:
            refused += 1
            with pytest.raises(ValueError, match=r"."):
                second.read_row(kind, data, shapes, exponents, (seed, seat))
        else:
            row = second.read_row(kind, data, shapes, exponents, (seed, seat))
            assert row.tolist() == expected.tolist()
    assert CASES / 5 < refused < CASES * 4 / 5


@pytest.mark.parametrize("kind", DENSE)
def test_updates_are_written_alike(kind: str) -> None:
    rng = np.random.default_rng(KINDS[kind].number)
    for _ in range(CASES // len(DENSE)):
        seed, seat = pick(rng, SEEDS), int(rng.integers(12))
        shapes, exponents = random_layout(rng, kind)
        scale = 2.0 ** (max(exponents.values()) + int(rng.integers(-2, 9)))
        delta = {
            name: (rng.standard_t(3, shape) * scale).astype(np.float32)
            for name, shape in shapes.items()
        }
        if rng.random() < 0.3:  # where roundings tie: multiples of half a step
            delta = {
                name: np.rint(values * 2.0 ** (1 - exponents[name])).astype(np.float32)
                * np.float32(2.0 ** (exponents[name] - 1))
                for name, values in delta.items()
            }
        tensors = {name: torch.from_numpy(values) for name, values in delta.items()}
        expected = codec_under(kind, seed, seat).encode(tensors, exponents)
        assert encode(kind, delta, exponents, (seed, seat)) == expected


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_updates_are_written_and_read_alike(kind: str) -> None:
    """Vectors of more than a chunk, and of a part of one; with ties, zeros and what is clamped."""
    rng = np.random.default_rng(KINDS[kind].number)
    for size in [*rng.integers(1, 300, 1000).tolist(), 4096, 4097, 9000, 13000]:
        x = (rng.standard_t(2, size) * 2.0 ** rng.integers(-3, 8)).astype(np.float32)
        x = np.rint(x) if rng.random() < 0.5 else x
        shapes, exponents = {"w": (size,)}, {"w": -8}
        codec = codec_under(kind, SEEDS[0], 0)
        expected = codec.encode({"w": torch.from_numpy(x) * 2.0**-8}, exponents)
        body = sparse.write(x if kind == "sparse" else sparse.coefficients(x))
        assert header(kind, shapes, exponents) + body == expected
        row = second.read_row(kind, expected, shapes, exponents, (SEEDS[0], 0))
        assert row.tolist() == codec.decode_flat(expected, Layout.of(shapes), exponents).tolist()


def small_gram(rng: Rng, n: int) -> list[list[int]]:
    """Of points with few different coordinates, so that ties and equalities are common."""
    width, reach = int(rng.integers(1, 4)), int(rng.integers(1, 12))
    rows = rng.integers(-reach, reach + 1, (n, width)) + int(rng.integers(0, 12))
    if n and rng.random() < 0.3:
        rows[rng.integers(n)] = rows[rng.integers(n)] * int(rng.integers(0, 4))
    return (rows @ rows.T).tolist()


def test_who_is_named_excluded_and_merged() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        n = int(rng.integers(0, 13))
        gram = small_gram(rng, n) if rng.random() < 0.95 else None
        of_moments = small_gram(rng, n) if gram is not None and rng.random() < 0.7 else None
        record = random_record(rng, n, SEGMENTS)
        rule, f = pick(rng, (*RULES, "contributor_mean")), int(rng.integers(5))
        kappa, grams = pick(rng, KAPPAS), [each for each in (gram, of_moments) if each is not None]
        decoded = [seat for seat in range(n) if seat or rng.random() < 0.9]
        grams = [
            [[row[j] for j in decoded] for row in (each[i] for i in decoded)] for each in grams
        ]
        terms = MergeTerms(SEGMENTS, RobustSpec(rule=rule, f=f, kappa=kappa))
        found = merge_inputs(as_atoll(record), [SeatIndex(s) for s in decoded], grams, terms)
        mine = second.merge_inputs(
            record,
            decoded,
            grams[0] if grams else None,
            {"rule": rule, "f": f, "kappa": kappa, "segments": SEGMENTS},
            grams[1] if len(grams) > 1 else None,
        )
        assert mine == as_plain(found)


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_makes_of_rows(rule: str) -> None:
    rng = np.random.default_rng(RULES.index(rule))
    for _ in range(CASES // len(RULES) + 1):
        n, width = int(rng.integers(3, 13)), int(rng.integers(1, 9))
        most = (n - REGISTERED[rule].more) // 2
        f, reach = int(rng.integers(0, most + 1)), int(rng.integers(1, 128))
        rows = rng.integers(-reach, reach + 1, (n, width))
        if rng.random() < 0.3:
            rows[rng.integers(n)] = rows[rng.integers(n)]
        expected = aggregate(rule, list(rows.astype(np.int8)), f)
        numerators, denominator = second.combined("grid8", rule, list(rows), f)
        assert numerators == expected.numerators.tolist()
        assert denominator == expected.denominator


def test_votes() -> None:
    rng, seen = np.random.default_rng(3), set()
    for _ in range(2 * CASES):
        kind = pick(rng, [kind for kind in KINDS if kind != "fp32"])
        target = CODECS[kind].target
        assert target is not None
        edge = pick(rng, (target.fine, target.coarse, target.clipped, target.low, 1))
        edge >>= int(rng.integers(5))
        values = rng.integers(-edge - 2, edge + 3, int(rng.integers(1, 300))).clip(-127, 127)
        values = np.where(rng.random(len(values)) < rng.random(), values, 0)
        values[: int(rng.integers(len(values) + 1))] = rng.integers(-1, 2)
        said = vote(values.astype(np.int8), target)
        assert outer.vote(kind, values) == said
        seen.add(said)
        votes = rng.integers(-4, 5, int(rng.integers(1, 8))).tolist()
        assert outer.middle(votes) == middle_vote(votes)
    assert seen == {-4, -3, -2, -1, 0, 1, 2, 4}


def outer_spec(rng: Rng, kind: str) -> OuterSpec:
    used = {"nesterov": 1, "adam": 3, "delayed_nesterov": 1}.get(kind, 0)
    decays = ("0", "0.5", "0.9", "0.999999", "0.123456789")
    values = [pick(rng, decays), pick(rng, decays), pick(rng, ("0.000001", "0.001", "0.1"))]
    momentum, beta2, eps = (*values[:used], *["0"] * (3 - used))
    period = int(rng.integers(2, 9)) if kind == "delayed_nesterov" else 0
    rate = pick(rng, ("1", "0.7", "0.0000001", "1000", "0.333333333"))
    return OuterSpec(kind=kind, lr=rate, momentum=momentum, beta2=beta2, eps=eps, period=period)


@pytest.mark.parametrize("kind", OUTERS)
def test_outer_steps(kind: str) -> None:
    """A thousand coordinates at a time, from the smallest changes and slots to the largest."""
    rng, size = np.random.default_rng(OUTERS.index(kind)), 1000
    for _ in range(12):
        spec, number = outer_spec(rng, kind), int(rng.integers(20))
        plain = spec.model_dump()
        denominator, exponent = int(rng.integers(1, 1 << 16)), int(rng.integers(-60, 1))
        numerators = rng.integers(-127 * denominator, 127 * denominator + 1, size)
        numerators[rng.random(size) < 0.1] = 0
        p = (rng.normal(0, 1, size) * 10.0 ** rng.integers(-9, 9, size)).astype(np.float32)
        slots = {
            slot: random_slot(rng, kind, slot, (size,)) for slot in OUTER_OPTIMISERS[kind].slots
        }
        if kind == "adam":
            slots["second"][: size // 4] = rng.integers(0, 1000, size // 4)
        state = GlobalState(
            number,
            {"w": torch.from_numpy(p.copy())},
            {slot: {"w": torch.from_numpy(values.copy())} for slot, values in slots.items()},
            {"w": exponent},
        )
        change = {"w": torch.from_numpy(numerators)}
        after = outer_step(
            state, change, denominator=denominator, exponents={"w": exponent}, outer=spec
        )
        changes = [outer.change_of(x, denominator, exponent) for x in numerators.tolist()]
        params, kept = outer.stepped(plain, p, changes, slots, number)
        assert after.params["w"].numpy().tobytes() == params.tobytes()
        for slot, values in kept.items():
            assert after.outer[slot]["w"].tolist() == values.tolist()


def test_exponents_stay_within_the_manifests_bounds() -> None:
    codec: dict[str, Any] = {"kind": "grid8", "min_exponent": -12, "max_exponent": -10}
    loud, silent = np.full(4, 127), np.zeros(4, np.int64)
    shapes = {"w": (4,)}
    for start, rows, end in (
        (-10, [loud], -10),
        (-11, [loud], -10),
        (-12, [silent], -12),
        (-11, [silent, loud], -11),
        (-11, [silent, loud, silent], -12),
        (-11, [silent, loud, loud], -10),
    ):
        assert outer.next_exponents(codec, {"w": start}, shapes, rows) == {"w": end}
