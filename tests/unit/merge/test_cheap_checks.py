"""Full replays: each check finds its own kind of odd update and leaves honest ones alone."""

import numpy as np
import pytest

from atoll.merge.checks import Suspicion, alignments, find_suspects, full_replays
from atoll.merge.passes import gram

Rows = dict[int, np.ndarray]


def suspects(rows: Rows, f: int = 9) -> dict[int, set[Suspicion]]:
    found = find_suspects(list(rows), gram(list(rows.values())), kappa="3", f=f)
    result: dict[int, set[Suspicion]] = {}
    for suspect in found:
        assert suspect.reason
        assert suspect.suspicion not in result.setdefault(suspect.seat, set())
        result[suspect.seat].add(suspect.suspicion)
    return result


def honest(seats: range, seed: int = 4) -> Rows:
    rng = np.random.default_rng(seed)
    common = rng.integers(-20, 21, 4000, dtype=np.int8)
    return {seat: common + rng.integers(-9, 10, 4000, dtype=np.int8) for seat in seats}


def slowed(rows: Rows, share: float) -> np.ndarray:
    """An update that has the honest noise but less of what the honest have in common."""
    common = np.mean(list(rows.values()), axis=0)
    return np.rint(honest(range(1), seed=4)[0] - share * common).astype(np.int8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 16])
def test_honest_updates_are_not_suspected(n: int):
    assert suspects(honest(range(n))) == {}


def test_each_check_finds_what_it_is_for():
    rows = honest(range(2, 8))
    copy = rows[2].copy()
    copy[0] += 1
    loud = np.clip(rows[3].astype(int) * 4, -127, 127).astype(np.int8)
    odd = {8: np.zeros(4000, dtype=np.int8), 9: loud, 10: copy, 11: slowed(rows, 0.3)}
    found = suspects(rows | odd)
    assert found == {
        2: {Suspicion.COPY},
        3: {Suspicion.COPY},
        8: {Suspicion.SILENT, Suspicion.MISALIGNED},
        9: {Suspicion.DISTANT, Suspicion.LOUD, Suspicion.COPY},
        10: {Suspicion.COPY},
        11: {Suspicion.MISALIGNED},
    }


def test_the_opposite_of_an_update_is_not_its_copy():
    rows = honest(range(5))
    assert suspects(rows | {5: -rows[0]}) == {5: {Suspicion.DISTANT, Suspicion.MISALIGNED}}


def test_every_check_names_at_most_f_and_the_worst_first():
    rows = honest(range(8))
    odd = {8: slowed(rows, 0.3), 9: slowed(rows, 0.9), 10: np.zeros(4000, dtype=np.int8)}
    gram_nn = gram(list((rows | odd).values()))
    assert full_replays(range(11), gram_nn, kappa="3", f=9) == (10, 9, 8)
    # the silent one is also the one least aligned
    assert full_replays(range(11), gram_nn, kappa="3", f=1) == (10,)
    assert full_replays(range(11), gram_nn, kappa="3", f=0) == ()


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_colluders_alike_do_not_vouch_for_each_other(n: int):
    f = max(1, n // 4)
    rows = honest(range(f, n))
    bad = slowed(rows, 0.4)
    named = suspects(dict.fromkeys(range(f), bad) | rows)
    assert {seat for seat, kinds in named.items() if Suspicion.MISALIGNED in kinds} == set(range(f))


def test_alignment_is_the_upper_median_product_with_the_others():
    rows = [np.array(row, dtype=np.int8) for row in ([3, 0], [2, 1], [1, 1], [0, 4])]
    # products: 01 6, 02 3, 03 0, 12 3, 13 4, 23 4
    assert alignments(gram(rows)) == [3, 4, 3, 4]
    assert alignments(gram(rows[:1])) == [0]


def test_limits_are_strict():
    axes = {i: np.array([10 * (i == j) for j in range(5)], dtype=np.int8) for i in range(4)}
    assert suspects(axes | {4: np.array([0, 0, 0, 0, 30], dtype=np.int8)}) == {}
    loud = suspects(axes | {4: np.array([0, 0, 0, 0, 31], dtype=np.int8)})
    assert loud == {4: {Suspicion.LOUD}}


def test_without_a_common_direction_nobody_is_misaligned():
    axes = {i: np.array([10 * (i == j) for j in range(4)], dtype=np.int8) for i in range(4)}
    assert suspects(axes) == {}
