"""Cheap checks: each finds its own kind of odd update and leaves honest ones alone."""

import numpy as np

from atoll.aggregate.checks import Suspicion, find_suspects
from atoll.aggregate.passes import gram


def suspects(rows: dict[int, np.ndarray]) -> dict[int, list[Suspicion]]:
    found = find_suspects(list(rows), gram(list(rows.values())), norm_cap="2", copy_cosine="0.999")
    result: dict[int, list[Suspicion]] = {}
    for suspect in found:
        assert suspect.reason
        result.setdefault(suspect.seat, []).append(suspect.suspicion)
    return result


def honest(seats: range) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(4)
    common = rng.integers(-20, 21, 400, dtype=np.int8)
    return {seat: common + rng.integers(-9, 10, 400, dtype=np.int8) for seat in seats}


def test_honest_updates_are_not_suspected():
    assert suspects(honest(range(6))) == {}


def test_silence_loudness_and_copies_are_named():
    rows = honest(range(6))
    copy = rows[1].copy()
    copy[0] += 1
    odd = {6: np.zeros(400, dtype=np.int8), 7: rows[0] * 3, 8: copy}
    assert suspects(rows | odd) == {
        0: [Suspicion.COPY],
        1: [Suspicion.COPY],
        6: [Suspicion.SILENT],
        7: [Suspicion.LOUD, Suspicion.COPY],
        8: [Suspicion.COPY],
    }


def test_the_opposite_of_an_update_is_not_its_copy():
    rows = honest(range(5))
    assert suspects(rows | {5: -rows[0]}) == {}


def test_limits_are_strict():
    rows = {i: np.array([10 if i == j else 0 for j in range(5)], dtype=np.int8) for i in range(4)}
    assert suspects(rows | {4: np.array([0, 0, 0, 0, 20], dtype=np.int8)}) == {}
    assert suspects(rows | {4: np.array([0, 0, 0, 0, 21], dtype=np.int8)}) == {4: [Suspicion.LOUD]}
