"""The merged update and the merge statement of a round: SPEC-MERGE.md, 9."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tests.second_client import merge as merging
from tests.second_client.codec import CODECS, update_root
from tests.second_client.documents import Manifest, Shapes
from tests.second_client.outer import Row, votes_of
from tests.second_client.rules import TRIMS, distance
from tests.second_client.sections import joined, spoken_of
from tests.second_client.state import State, exponents_digest, grouped, initial_root, tree_root

CHUNK = 1 << 20
RULES = {"mean", *TRIMS}
Stated = tuple[bytes, bytes]
"""Merged update and merge statement."""


def is_stated(manifest: Manifest) -> bool:
    rule = manifest["robust"]["rule"].removeprefix("nnm_")
    return CODECS[manifest["codec"]["kind"]].finer is not None and rule in RULES


def stated(
    manifest: Manifest,
    model: State,
    record: Mapping[str, Any],
    updates: Mapping[int, bytes],
    data_seed: bytes,
    name_of: Callable[[bytes], bytes],
) -> Stated | None:
    """What a merge states; None where it does not. `name_of` gives the CID of a file's bytes."""
    after, inputs = merging.merge(manifest, model, record, updates, data_seed)
    if not is_stated(manifest) or not inputs["merged"]:
        return None
    spoken, kind = spoken_of(manifest, model), manifest["codec"]["kind"]
    read = {
        seat: merging.read_update(kind, updates[seat], model, spoken, (data_seed, seat))
        for seat in inputs["mergeable"]
    }
    heard = [seat for seat in inputs["merged"] if seat not in inputs["momentumExcluded"]]
    parts = [(spoken.delta, {s: u.delta for s, u in read.items()}, inputs["merged"])]
    if spoken.first:
        parts.append((spoken.first, {s: u.first for s, u in read.items()}, heard))
    sections = [
        _merged(manifest, number, part, inputs["fPrime"]) for number, part in enumerate(parts)
    ]
    if spoken.second:
        sums = [read[seat].sums for seat in inputs["merged"]]
        words = merging.merged_factored(sums, inputs["fPrime"], spoken.second)
        sections.append(words.astype("<u4").tobytes())
    update = joined([*sections, b"".join(map(_products, parts))])
    maps = (inputs["mergeable"], inputs["excluded"], inputs["merged"], inputs["momentumExcluded"])
    exponents = (after["exponents"], after["moment_exponents"])
    statement = b"".join(
        [
            b"atoll.merge-statement.v1",
            struct.pack(">IH", model["round"], inputs["fPrime"]),
            *map(_bitmap, maps),
            *(
                _section(manifest, part, moved, inputs["fPrime"])
                for part, moved in zip(parts, exponents, strict=False)
            ),
            tree_root(after["params"]),
            tree_root(grouped(after["outer"])),
            exponents_digest(after),
            tree_root(grouped(after["moments"])),
            initial_root(after),
            update_root(update),
            name_of(update),
        ]
    )
    return update, statement


Part = tuple[Shapes, Mapping[int, Row], Sequence[int]]
"""A section's shapes, the rows of all mergeable seats, and whose are merged."""


def _merged(manifest: Manifest, number: int, part: Part, f: int) -> bytes:
    """A section's merged coordinates, a byte each."""
    kind, (_, rows, seats) = manifest["codec"]["kind"], part
    merged = merging.combined(kind, manifest["robust"]["rule"], [rows[s] for s in seats], f)
    finer = 0 if number else CODECS[kind].finer or 0
    return np.array(merging.published(merged, finer), np.int8).tobytes()


def _products(part: Part) -> bytes:
    """Inner products of all rows, chunk by chunk."""
    rows = list(part[1].values())
    starts = range(0, len(rows[0]), CHUNK)
    return b"".join(_triangle([row[at : at + CHUNK] for row in rows]) for at in starts)


def _triangle(rows: Sequence[Row]) -> bytes:
    G = merging.inner_products(rows)
    return b"".join(struct.pack(">q", G[i][j]) for i in range(len(G)) for j in range(i + 1))


def _bitmap(seats: Sequence[int]) -> bytes:
    return sum(1 << seat for seat in seats).to_bytes(32, "big")


def _section(manifest: Manifest, part: Part, exponents: Mapping[str, int], f: int) -> bytes:
    """Products, groups, votes and next exponents."""
    (shapes, rows, seats), rule = part, manifest["robust"]["rule"]
    merged = [rows[seat] for seat in seats]
    n, G = len(merged), merging.inner_products(merged)
    groups = [[i] for i in range(n)]
    if rule.startswith("nnm_") and n > 2:
        groups = [sorted(range(n), key=lambda j: (distance(G, i, j), j))[: n - f] for i in range(n)]
    votes = [votes_of(manifest["codec"]["kind"], row, shapes) for row in merged]
    return b"".join(
        [
            _triangle(list(rows.values())),
            *(_bitmap([seats[j] for j in group]) for group in groups),
            *(struct.pack(f">{len(row)}b", *row) for row in votes),
            *(struct.pack(">h", exponents[name]) for name in sorted(shapes)),
        ]
    )
