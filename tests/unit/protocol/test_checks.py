"""Each check finds its own kind of odd update and leaves honest ones alone."""

import numpy as np
import pytest

from atoll.protocol.checks import (
    Check,
    Gram,
    Named,
    alignments,
    distance_scores,
    lower_median,
    name_odd,
    other_directions,
)
from atoll.protocol.types import SeatIndex

Rows = dict[int, np.ndarray]


def gram_of(rows: Rows) -> Gram:
    wide = np.array(list(rows.values()), dtype=np.int64)
    return (wide @ wide.T).tolist()


def named_of(
    gram: Gram, seats: list[int] | None = None, *, kappa: str = "3", f: int = 9
) -> tuple[Named, ...]:
    rows = [SeatIndex(s) for s in (range(len(gram)) if seats is None else seats)]
    return name_odd(rows, [gram], [1] * len(gram), kappa=kappa, f=f)


def suspects(rows: Rows, f: int = 9) -> dict[int, set[Check]]:
    found = named_of(gram_of(rows), list(rows), f=f)
    result: dict[int, set[Check]] = {}
    for named in found:
        assert named.reason
        assert named.check not in result.setdefault(named.seat, set())
        result[named.seat].add(named.check)
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
        2: {Check.COPY},
        3: {Check.COPY},
        8: {Check.SILENT, Check.MISALIGNED},
        9: {Check.DISTANT, Check.LOUD, Check.COPY},
        10: {Check.COPY},
        11: {Check.MISALIGNED},
    }


def test_where_all_are_alike_a_copy_is_still_nearer():
    """As in a round of few steps: every cosine is above 0.99, and none of it is a copy."""
    rows = {seat: row.astype(np.int16) for seat, row in honest(range(6)).items()}
    common = np.mean(list(rows.values()), axis=0)
    near = {seat: np.rint(4 * common + (row - common) / 3) for seat, row in rows.items()}
    rows = {seat: row.astype(np.int8) for seat, row in near.items()}
    gram_nn = gram_of(rows)
    product, squares = gram_nn[0][1], (gram_nn[0][0], gram_nn[1][1])
    assert product > 0.99 * (squares[0] * squares[1]) ** 0.5
    assert suspects(rows) == {}
    copy = rows[2].copy()
    copy[0] += 1
    assert suspects(rows | {6: copy}) == {2: {Check.COPY}, 6: {Check.COPY}}


def test_the_opposite_of_an_update_is_not_its_copy():
    rows = honest(range(5))
    assert suspects(rows | {5: -rows[0]}) == {5: {Check.DISTANT, Check.MISALIGNED}}


def test_every_check_names_at_most_f_and_the_worst_first():
    rows = honest(range(8))
    odd = {8: slowed(rows, 0.3), 9: slowed(rows, 0.9), 10: np.zeros(4000, dtype=np.int8)}
    gram_nn = gram_of(rows | odd)

    def seats(f: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(found.seat for found in named_of(gram_nn, f=f)))

    assert seats(9) == (10, 9, 8)
    assert seats(1) == (10,)  # the silent one is also the one least aligned
    assert seats(0) == ()


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_colluders_alike_do_not_vouch_for_each_other(n: int):
    f = max(1, n // 4)
    rows = honest(range(f, n))
    bad = slowed(rows, 0.6)
    named = suspects(dict.fromkeys(range(f), bad) | rows)
    assert {seat for seat, kinds in named.items() if Check.MISALIGNED in kinds} == set(range(f))


def test_alignment_is_the_upper_median_product_with_the_others():
    rows = [np.array(row, dtype=np.int8) for row in ([3, 0], [2, 1], [1, 1], [0, 4])]
    # products: 01 6, 02 3, 03 0, 12 3, 13 4, 23 4
    assert alignments(gram_of(dict(enumerate(rows))), [1] * 4) == [3, 4, 3, 4]
    assert alignments(gram_of({0: rows[0]}), [1]) == [0]


def test_who_did_less_is_aligned_by_what_it_did():
    """Half of the segments give half of the product; times the square of what all did together."""
    gram_nn = [[1000 if i == j else 100 for j in range(4)] for i in range(4)]
    for other in range(1, 4):
        gram_nn[0][other] = gram_nn[other][0] = 75
    assert alignments(gram_nn, [6, 8, 8, 8]) == [75 * 12, 100 * 9, 100 * 9, 100 * 9]
    for other in range(1, 4):
        gram_nn[0][other] = gram_nn[other][0] = 74
    seats = [SeatIndex(s) for s in range(4)]
    for done, odd in ((8, [0]), (6, [])):
        found = name_odd(seats, [gram_nn], [done, 8, 8, 8], kappa="9", f=9)
        assert [one.seat for one in found] == odd


def test_limits_are_strict():
    axes = {i: np.array([10 * (i == j) for j in range(5)], dtype=np.int8) for i in range(4)}
    assert suspects(axes | {4: np.array([0, 0, 0, 0, 30], dtype=np.int8)}) == {}
    loud = suspects(axes | {4: np.array([0, 0, 0, 0, 31], dtype=np.int8)})
    assert loud == {4: {Check.LOUD}}


def test_without_a_common_direction_nobody_is_misaligned():
    axes = {i: np.array([10 * (i == j) for j in range(4)], dtype=np.int8) for i in range(4)}
    assert suspects(axes) == {}


def line(points: dict[int, list[int]]) -> Gram:
    return gram_of({seat: np.array(point) for seat, point in points.items()})


def distant(points: dict[int, list[int]], kappa: str, f: int) -> tuple[int, ...]:
    named = named_of(line(points), list(points), kappa=kappa, f=f)
    return tuple(found.seat for found in named if found.check is Check.DISTANT)


def test_the_median_of_an_even_count_is_the_lower_one():
    assert lower_median([4, 1, 3, 2]) == 2
    assert lower_median([5, 1, 3]) == 3
    assert lower_median([]) == 0


def test_scores_are_medians_of_squared_distances_to_the_others():
    points = {0: [0], 1: [1], 4: [3], 9: [100]}
    # sorted distances²: 0: 1, 9, 10000; 1: 1, 4, 9801; 4: 4, 9, 9409; 9: 9409, 9801, 10000
    assert distance_scores(line(points)) == [9, 4, 9, 9801]
    assert distant(points, "2", 2) == (9,)


def test_the_distance_threshold_is_exact_and_strict():
    points = {0: [0, 0], 1: [0, 0], 2: [10, 0], 3: [10, 0], 4: [10, 0]}
    # scores: 100, 100, 0, 0, 0 have median 0: anything positive is above
    assert distant(points, "1000", 5) == (0, 1)
    spread = {0: [0], 1: [10], 2: [20], 3: [33]}
    # scores 400, 100, 169, 529; lower median 169
    assert distance_scores(line(spread)) == [400, 100, 169, 529]
    assert distant(spread, "1.5384615384615384615384615384615", 4) == (3, 0)
    assert distant({0: [0], 1: [3], 2: [5]}, "1", 3) == (0,)
    assert distant({0: [0], 1: [3], 2: [5]}, "1.5", 3) == ()  # 9 = 1.5² · 4, not above


def test_the_distant_are_ranked_by_score_then_seat_and_cut_at_f():
    points = {1: [50], 2: [0], 3: [0], 5: [0], 7: [0], 8: [-100], 9: [100]}
    assert distant(points, "2", 7) == (8, 9, 1)
    assert distant(points, "2", 1) == (8,)
    assert distant(points, "2", 0) == ()


@pytest.mark.parametrize("points", [{3: [5]}, {3: [5], 4: [-5]}])
def test_of_fewer_than_three_nobody_is_distant(points: dict[int, list[int]]):
    assert distant(points, "1", 3) == ()


def test_of_no_updates_nobody_is_named():
    assert named_of([]) == ()
    assert name_odd([], [[], []], [], kappa="1", f=3) == ()


@pytest.mark.parametrize(("product", "named"), [(75, 0), (74, 1)])
def test_only_far_below_the_median_an_update_is_misaligned(product: int, named: int):
    gram_nn = [[1000 if i == j else 100 for j in range(5)] for i in range(5)]
    for other in range(1, 5):
        gram_nn[0][other] = gram_nn[other][0] = product
    assert [one.seat for one in named_of(gram_nn, kappa="9")] == [0] * named


def test_moments_name_the_distant_and_the_loud_after_the_updates():
    """And none that silence, copies or alignment of moments would name."""
    seats, done = [SeatIndex(s) for s in range(7)], [1] * 7
    alike = line({seat: [0, 0] for seat in range(6)} | {6: [40, 0]})
    moments = line({seat: [9, 1] for seat in range(5)} | {5: [400, 0], 6: [80, 0]})
    found = name_odd(seats, [alike, moments], done, kappa="2", f=9)
    odd = [(one.check, one.seat) for one in found if one.check in {Check.DISTANT, Check.LOUD}]
    assert odd == [(c, s) for c in (Check.DISTANT, Check.LOUD) for s in (6, 5)]
    assert {one.check for one in name_odd(seats, [alike], done, kappa="2", f=9)} == {
        one.check for one in found
    }
    cut = name_odd(seats, [alike, moments], done, kappa="2", f=1)
    assert {one.seat for one in cut if one.check is Check.DISTANT} == {6}


def test_where_nothing_is_in_common_nobody_is_told_apart() -> None:
    """Whoever has less than nothing, too: there is no direction that they left."""
    opposed = {0: np.array([5, 0]), 1: np.array([-5, 0]), 2: np.array([0, 5]), 3: np.array([0, -6])}
    assert other_directions(list(opposed), gram_of(opposed)) == []
    alike = {seat: np.array([4, seat]) for seat in range(4)} | {4: np.array([-4, 0])}
    assert other_directions(list(alike), gram_of(alike)) == [4]
