"""Outlier scores against numbers worked out by hand."""

from fractions import Fraction

import numpy as np
import pytest

from atoll.merge.gram import squared_distances
from atoll.merge.outliers import OutlierReport, find_outliers, lower_median
from atoll.merge.passes import gram


def outliers_of(points: dict[int, list[int]], kappa: str, f: int) -> OutlierReport:
    rows = [np.array(point, dtype=np.int8) for point in points.values()]
    return find_outliers(list(points), squared_distances(gram(rows)), kappa, f)


def test_the_median_of_an_even_count_is_the_lower_one():
    assert lower_median([4, 1, 3, 2]) == 2
    assert lower_median([5, 1, 3]) == 3
    assert lower_median([]) == 0


def test_scores_are_medians_of_squared_distances_to_the_others():
    report = outliers_of({0: [0], 1: [1], 4: [3], 9: [100]}, "2", 2)
    # sorted distances²: 0: 1, 9, 10000; 1: 1, 4, 9801; 4: 4, 9, 9409; 9: 9409, 9801, 10000
    assert report.scores == {0: 9, 1: 4, 4: 9, 9: 9801}
    assert report.threshold == 36
    assert report.flagged == (9,)
    assert "above" in report.reason(9)
    assert "within" in report.reason(0)


def test_the_threshold_is_exact_and_strict():
    points = {0: [0, 0], 1: [0, 0], 2: [10, 0], 3: [10, 0], 4: [10, 0]}
    # scores: 100, 100, 0, 0, 0 have median 0: anything positive is above
    assert outliers_of(points, "1000", 5).flagged == (0, 1)
    line = {0: [0], 1: [10], 2: [20], 3: [33]}
    # scores 400, 100, 169, 529; lower median 169
    report = outliers_of(line, "1.5384615384615384615384615384615", 4)
    assert report.scores == {0: 400, 1: 100, 2: 169, 3: 529}
    assert report.flagged == (3, 0)
    assert outliers_of({0: [0], 1: [3], 2: [5]}, "1", 3).threshold == Fraction(4)
    assert outliers_of({0: [0], 1: [3], 2: [5]}, "1", 3).flagged == (0,)
    assert outliers_of({0: [0], 1: [3], 2: [5]}, "1.5", 3).flagged == ()  # 9 = 1.5²·4, not above


def test_ranked_by_score_then_seat_and_cut_at_f():
    points = {7: [0], 3: [0], 5: [0], 2: [0], 9: [100], 8: [-100], 1: [50]}
    assert outliers_of(points, "2", 7).flagged == (8, 9, 1)
    assert outliers_of(points, "2", 1).flagged == (8,)
    assert outliers_of(points, "2", 0).flagged == ()


@pytest.mark.parametrize("points", [{}, {3: [5]}, {3: [5], 4: [-5]}])
def test_fewer_than_three_flag_nobody(points: dict[int, list[int]]):
    assert outliers_of(points, "1", 3).flagged == ()
