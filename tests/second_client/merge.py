"""From what the chain says and the updates' bytes to the next global state: SPEC-MERGE.md.

Everything is integers: an update is a row of them, the merged update a row over one denominator.
Python's integers do not overflow; NumPy's int64 are used where the text bounds a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, isqrt, prod
from typing import Any

import numpy as np
from tests.second_client import sparse
from tests.second_client.arithmetic import narrow, wide
from tests.second_client.codec import BLOCK, CODECS, Seat, header, merged_integers
from tests.second_client.documents import Manifest, Shapes
from tests.second_client.moments import factored_header, lines, named_sums, read_factored
from tests.second_client.outer import (
    Row,
    change_of,
    clamped,
    half_to_even,
    next_exponents,
    stepped,
)
from tests.second_client.rules import (
    TRIMS,
    UNIT,
    WEIGHTS,
    Gram,
    clipped,
    distance,
    least,
    lower_median,
)
from tests.second_client.sections import Spoken, cut, spoken_of
from tests.second_client.state import State

Merged = tuple[list[int], int]
"""Numerators of every coordinate, and their denominator."""

# -------------------------------------------------------------------------- reading (chapters 1, 2)


def body_size(kind: str, count: int) -> int:
    """Bytes after the header of any update of so many coordinates."""
    codec = CODECS[kind]
    if codec.is_sparse:
        return sum(sparse.section_sizes(sparse.positions(kind, count)))
    steps = -(-count // BLOCK) if codec.reach else 0
    return -(-steps // 2) + -(-count * codec.bits // 8)


def read_row(
    kind: str,
    data: bytes,
    shapes: Mapping[str, tuple[int, ...]],
    exponents: Mapping[str, int],
    seat: Seat,
    section: int = 0,
) -> Row:
    """The integers of a canonical section 0 or 1. Raises ValueError for any other bytes."""
    count = sum(prod(shape) for shape in shapes.values())
    start = header(kind, shapes, exponents)
    body = data[len(start) :]
    if data[: len(start)] != start or len(body) != body_size(kind, count):
        raise ValueError("another header or size than this round's")
    if CODECS[kind].is_sparse:
        return sparse.read(body, sparse.positions(kind, count))
    if kind == "fp32":
        values = np.frombuffer(body, "<f4")
        if not np.isfinite(values).all() or np.signbit(values[values == 0]).any():
            raise ValueError("a value is minus zero or not finite")
    try:
        row = merged_integers(kind, body, count, seat, section)
    except IndexError as error:
        raise ValueError("a step is none of the nine") from error
    if kind == "grid8" and (row == -128).any():
        raise ValueError("-128 is not on the grid")
    if kind == "grid4" and (row > 7).any():
        raise ValueError("a code above 14 is not on the grid")
    return row


@dataclass(frozen=True)
class Update:
    """What a canonical update says: rows of Δ and of first moments, the bits of its sums."""

    delta: Row
    first: Row
    sums: Any


def read_update(kind: str, data: bytes, model: State, spoken: Spoken, seat: Seat) -> Update:
    """An update's sections. Raises ValueError unless each of them is canonical."""
    exponents = {name: model["exponents"][name] for name in spoken.delta}
    vectors = [(spoken.delta, exponents), (spoken.first, model["moment_exponents"])]
    vectors = [vector for vector in vectors if vector[0]]
    sizes = [len(header(kind, *v)) + body_size(kind, length_of(v[0])) for v in vectors]
    counted = sum(length for _, _, length in lines(spoken.second))
    sizes += [len(factored_header(spoken.second)) + 4 * counted] if spoken.second else []
    sizes += [spoken.ids] if spoken.ids else []
    parts = cut(data, sizes)
    rows = [
        read_row(kind, part, *v, seat, i)
        for i, (part, v) in enumerate(zip(parts, vectors, strict=False))
    ]
    nothing = np.zeros(0, np.int64)
    sums = read_factored(parts[len(vectors)], spoken.second) if spoken.second else nothing
    return Update(rows[0], rows[1] if len(rows) > 1 else nothing, sums)


def length_of(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """L, the length of a vector."""
    return sum(prod(shape) for shape in shapes.values())


def inner_products(rows: Sequence[Row]) -> list[list[int]]:
    """G, of rows of at most 128 in magnitude (chapter 3)."""
    return [[int(a @ b) for b in rows] for a in rows]


# --------------------------------------------------------------------- merge inputs (SPEC.md, 12.1)


def upper_median(values: Sequence[Any]) -> Any:
    return sorted(values)[len(values) // 2] if values else 0


def far_and_loud(G: Gram, kappa: str) -> dict[str, list[int]]:
    """The rows that are distant and those that are loud, the most conspicuous first."""
    rows = range(len(G))
    D = [lower_median([G[i][i] + G[j][j] - 2 * G[i][j] for j in rows if j != i]) for i in rows]
    # An integer is above a fraction where it is above its floor.
    far = floor(Fraction(kappa) ** 2 * lower_median(D))
    loud = 9 * lower_median([G[i][i] for i in rows])
    return {
        "distant": sorted((i for i in rows if D[i] > far), key=lambda i: (-D[i], i)),
        "loud": sorted((i for i in rows if G[i][i] > loud), key=lambda i: (-G[i][i], i)),
    }


def copies(G: Gram) -> list[int]:
    """How many others each row is a copy of."""
    rows = range(len(G))
    sines = {
        (i, j): (1 << 64) - ((1 << 64) * G[i][j] ** 2 + d - 1) // d if G[i][j] > 0 else 1 << 64
        for i in rows
        for j in rows
        if i != j and (d := G[i][i] * G[j][j])
    }
    middle = lower_median([sine for (i, j), sine in sines.items() if i < j])
    return [sum(64 * sines[i, j] < middle for j in rows if (i, j) in sines) for i in rows]


def named(
    G: Gram, of_moments: Gram | None, kappa: str, f: int, done: Sequence[int]
) -> list[tuple[str, int]]:
    """(check, row) of the five checks, in their order; `done` is m of each row."""
    rows = range(len(G))
    # G_ij / (m_i · m_j), times the square of the product of all m, so that it is an integer.
    share = [prod(done) // m for m in done]
    A = [upper_median([G[i][j] * share[i] * share[j] for j in rows if j != i]) for i in rows]
    twins = copies(G)
    M = lower_median(A)
    found = far_and_loud(G, kappa)
    for check, order in far_and_loud(of_moments or [], kappa).items():
        found[check] += [i for i in order if i not in found[check]]
    found |= {
        "silent": [i for i in rows if G[i][i] == 0],
        "copy": sorted((i for i in rows if twins[i]), key=lambda i: (-twins[i], i)),
        "misaligned": sorted((i for i in rows if M > 0 and 4 * A[i] < 3 * M), key=lambda i: A[i]),
    }
    return [(check, i) for check, order in found.items() for i in order[:f]]


def available_seats(record: Mapping[str, Any]) -> list[int]:
    """The revealed seats that more than half of the committee's votes have."""
    votes = {seat: sum(vote >> seat & 1 for vote in record["votes"]) for seat in record["segments"]}
    return sorted(seat for seat, count in votes.items() if 2 * count > record["committee"])


def merge_inputs(
    record: Mapping[str, Any],
    decoded: Sequence[int],
    gram: Gram | None,
    terms: Mapping[str, Any],
    of_moments: Gram | None = None,
) -> dict[str, Any]:
    """Who is mergeable, named, excluded and merged.

    `record` has `segments`, what every revealed seat did; `committee`, its size, and its `votes`;
    the bitmaps slashed and accused. `terms` are the manifest's rule, f, kappa and S as segments. A
    row of `gram` is a seat of `decoded`, whose updates are canonical; `of_moments` is that of their
    first moments.
    """
    done, S, f = record["segments"], terms["segments"], terms["f"]
    candidates = [
        s
        for s in available_seats(record)
        if not record["slashed"] >> s & 1 and 4 * done[s] >= 3 * S
    ]
    rows = [i for i, seat in enumerate(decoded) if seat in candidates]
    mergeable = [decoded[i] for i in rows]
    odd: list[tuple[str, int]] = []
    if gram is not None and f:
        G = [[gram[i][j] for j in rows] for i in rows]
        M = of_moments and [[of_moments[i][j] for j in rows] for i in rows]
        found = named(G, M, terms["kappa"], f, [done[seat] for seat in mergeable])
        odd = [(check, mergeable[i]) for check, i in found]
    needs = least(terms["rule"], f)
    inputs: dict[str, Any] = {
        "mergeable": mergeable,
        "named": [{"check": check, "seat": seat} for check, seat in odd],
        "excluded": [],
        "merged": [],
        "momentumExcluded": [],
        "fPrime": 0,
    }
    if len(mergeable) < needs:
        return inputs
    accused = [seat for seat in mergeable if record["accused"] >> seat & 1]
    order = list(dict.fromkeys([*accused, *(seat for _, seat in odd)]))
    excluded = order[: min(f, len(mergeable) - needs)]
    merged = [seat for seat in mergeable if seat not in excluded]
    momentum_excluded: list[int] = []
    if of_moments:
        kept = [i for i, seat in enumerate(decoded) if seat in merged]
        pointing_elsewhere = other_directions([[of_moments[i][j] for j in kept] for i in kept])
        momentum_excluded = [merged[i] for i in pointing_elsewhere][: min(f, len(merged) - needs)]
    return inputs | {
        "excluded": excluded,
        "merged": merged,
        "momentumExcluded": momentum_excluded,
        "fPrime": f,
    }


def other_directions(G: Gram) -> list[int]:
    """Rows of first moments below 7/8 of the median alignment, the smallest first."""
    rows = range(len(G))
    A = [upper_median([G[i][j] for j in rows if j != i]) for i in rows]
    M = lower_median(A)
    return sorted((i for i in rows if M > 0 and 8 * A[i] < 7 * M), key=lambda i: A[i])


# ------------------------------------------------------------------------------- rules (chapter 4)


def combined(kind: str, rule: str, rows: Sequence[Row], f: int) -> Merged:
    """The merged update of at least one row."""
    if rule == "contributor_mean":
        return contributor_mean(rows)
    if kind == "fp32" or len(rows) <= 2:
        return _weighted(rows, [1] * len(rows), len(rows))
    n, G, base = len(rows), inner_products(rows), rule.removeprefix("nnm_")
    count = n - f if rule != base else 1
    near = [sorted(range(n), key=lambda j: (distance(G, i, j), j)) for i in range(n)]
    groups = [near[i][:count] for i in range(n)] if rule != base else [[i] for i in range(n)]
    if base in TRIMS:
        trim = TRIMS[base](n, f)
        values = np.sort([np.sum([rows[j] for j in group], axis=0) for group in groups], axis=0)
        return values[trim : n - trim].sum(axis=0).tolist(), count * (n - 2 * trim)
    members = np.array([[int(j in group) for j in range(n)] for group in groups])
    mixed = (members @ np.array(G) @ members.T).tolist()
    weights, total = WEIGHTS[base](mixed, f)
    shares = [sum(w for w, group in zip(weights, groups, strict=True) if j in group)
              for j in range(n)]  # fmt: skip
    if total * count > UNIT:
        return _weighted(rows, [share * UNIT // (total * count) for share in shares], UNIT)
    return _weighted(rows, shares, total * count)


def _weighted(rows: Sequence[Row], weights: Sequence[int], total: int) -> Merged:
    products = [row * weight for row, weight in zip(rows, weights, strict=True)]
    return np.sum(products, axis=0).tolist(), total


def contributor_mean(rows: Sequence[Row]) -> Merged:
    """Of sparse updates: clipped to the lower median norm, a mean over who sent the coordinate."""
    factors = clipped([isqrt(int(row @ row)) for row in rows], UNIT)
    sums = np.sum([row * factor for row, factor in zip(rows, factors, strict=True)], axis=0)
    senders = np.maximum(np.count_nonzero(rows, axis=0), 1) * 16
    return ((2 * sums + senders) // (2 * senders)).tolist(), 4096


def published(merged: Merged, finer: int = 0) -> list[int]:
    """The merged update as int8: in 2^−finer grid steps."""
    numerators, denominator = merged
    return [clamped(half_to_even(a << finer, denominator), 127) for a in numerators]


def merged_row(kind: str, rule: str, rows: Sequence[Row], f: int, count: int) -> Merged:
    """What the rule makes of rows, in coordinates of a vector of so many."""
    numerators, denominator = combined(kind, rule, rows, f)
    if kind == "dct":
        numerators = sparse.coordinates(numerators, denominator, count)
    return numerators, denominator


def merged_delta(kind: str, rule: str, rows: Sequence[Row], f: int, count: int) -> Merged:
    """The merged update as the outer step takes it."""
    merged = merged_row(kind, rule, rows, f, count)
    finer = CODECS[kind].finer
    if finer is None:
        return merged
    return published(merged, finer), 1 << finer


def merged_first(kind: str, rule: str, rows: Sequence[Row], f: int, count: int) -> Any:
    """Merged first moments: int8 in steps of the moment exponents, or numbers of fp32."""
    merged = merged_row(kind, rule, rows, f, count)
    if kind != "fp32":
        return np.array(published(merged), np.int8)
    numerators, denominator = np.array(merged[0], np.int64), merged[1]
    return narrow(wide(numerators) * 2.0**-40 / float(denominator))


def merged_factored(rows: Sequence[Any], f: int, shapes: Shapes) -> Any:
    """Section 2's words, merged: none is negative, so their bits are ordered as they are."""
    passed, at = (f if len(rows) < 3 else max(f, 1)), 0
    merged = np.sort(np.stack(rows), axis=0)[len(rows) - 1 - passed].copy()
    most = np.float32(2.0**64)
    for _, _, length in lines(shapes):
        peaks = sorted(float(row[at : at + length].view(np.float32).max()) for row in rows)
        limit = min(16 * peaks[(len(rows) - 1) // 2], float(most))  # exact in binary64
        line = merged[at : at + length]
        np.minimum(line, np.float32(limit).view(np.uint32), out=line)
        at += length
    return merged


# ------------------------------------------------------------------------- the merge (chapter 7)


def merge(
    manifest: Manifest,
    model: State,
    record: Mapping[str, Any],
    updates: Mapping[int, bytes],
    data_seed: bytes,
) -> tuple[State, dict[str, Any]]:
    """The global state that the next round opens with, and the merge inputs."""
    codec, spoken = manifest["codec"], spoken_of(manifest, model)
    kind, read = codec["kind"], dict[int, Update]()
    for seat in sorted(updates):
        try:
            read[seat] = read_update(kind, updates[seat], model, spoken, (data_seed, seat))
        except ValueError:
            continue
    gram = gram_of_moments = None
    if kind != "fp32":
        gram = inner_products([update.delta for update in read.values()])
        gram_of_moments = inner_products([update.first for update in read.values()])
    S = manifest["inner"]["steps"] // manifest["inner"]["segment"]
    terms = manifest["robust"] | {"segments": S}
    inputs = merge_inputs(record, list(read), gram, terms, gram_of_moments)
    after = model | {"round": model["round"] + 1}
    if not inputs["merged"]:
        return after, inputs
    chosen, f = [read[seat] for seat in inputs["merged"]], inputs["fPrime"]
    after |= _outer_stepped(manifest, model, spoken.delta, [u.delta for u in chosen], f)
    heard = [
        read[seat].first for seat in inputs["merged"] if seat not in inputs["momentumExcluded"]
    ]
    return after | _merged_moments(manifest, model, spoken, chosen, heard, f), inputs


def _outer_stepped(
    manifest: Manifest, model: State, shapes: Shapes, rows: Sequence[Row], f: int
) -> State:
    """Parameters, slots and exponents after the merge of Δ."""
    codec, rule = manifest["codec"], manifest["robust"]["rule"]
    old = {name: model["exponents"][name] for name in shapes}
    numerators, denominator = merged_delta(codec["kind"], rule, rows, f, length_of(shapes))
    params, at = dict(model["params"]), 0
    outer = {slot: dict(tensors) for slot, tensors in model["outer"].items()}
    for name in sorted(shapes):
        end = at + prod(shapes[name])
        changes = [change_of(x, denominator, old[name]) for x in numerators[at:end]]
        slots = {slot: tensors[name] for slot, tensors in outer.items()}
        kept = stepped(manifest["outer"], params[name], changes, slots, model["round"])
        params[name] = kept[0]
        for slot, tensor in kept[1].items():
            outer[slot][name] = tensor
        at = end
    exponents = model["exponents"] | next_exponents(codec, old, shapes, rows)
    return {"params": params, "outer": outer, "exponents": exponents}


def _merged_moments(
    manifest: Manifest,
    model: State,
    spoken: Spoken,
    chosen: Sequence[Update],
    rows: Sequence[Row],
    f: int,
) -> State:
    """The moments that the next round opens with, the first ones of `rows`; nothing where updates
    have none.
    """
    if not spoken.first:
        return {}
    codec, rule, old = manifest["codec"], manifest["robust"]["rule"], model["moment_exponents"]
    values = merged_first(codec["kind"], rule, rows, f, length_of(spoken.first))
    m, at = {}, 0
    for name in sorted(spoken.first):
        end = at + prod(spoken.first[name])
        m[name] = values[at:end].reshape(spoken.first[name])
        at = end
    bits = merged_factored([update.sums for update in chosen], f, spoken.second)
    return {
        "moments": {"m": m, **named_sums(bits, spoken.second)},
        "m_exponents": old,
        "moment_exponents": next_exponents(codec, old, spoken.first, rows),
        "count": model["count"] + manifest["inner"]["steps"],
    }
