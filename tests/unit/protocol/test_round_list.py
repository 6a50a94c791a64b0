"""A list of rounds says what a tuple of them says; of their order and number, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.protocol.round_list import RoundList
from atoll.protocol.types import Bitmap

COUNTS = (0, 1, 31, 32, 33, 200, 1023, 1024, 1025)
"""Around a leaf's 32, and around the 1,024 of a tree of two levels."""


class Numbered(int):
    """A number that stands for a round, of which the list looks at what its seed drew."""

    @property
    def record(self) -> Any:
        return SimpleNamespace(drawn=Bitmap((1 << self % 7) - 1), excluded=self % 3)


def listed(rounds: tuple[int, ...]) -> RoundList:
    return RoundList(cast(Any, map(Numbered, rounds)))


def duties(rounds: Iterable[int]) -> int:
    return sum(number % 7 - bool(number % 3) for number in rounds)


@pytest.mark.parametrize("count", COUNTS)
def test_it_is_as_a_tuple(count: int) -> None:
    plain = tuple(range(count))
    made = listed(plain)
    assert (len(made), tuple(made), tuple(reversed(made))) == (count, plain, plain[::-1])
    assert [made[at] for at in range(count)] == list(plain)
    assert [made[at - count] for at in range(count)] == list(plain)
    assert made == listed(plain) and made != listed((*plain, 7)) and made != plain
    assert listed((*plain, 7)).changed(count, cast(Any, Numbered(8))) != listed((*plain, 7))
    for outside in (count, -count - 1):
        with pytest.raises(IndexError):
            made[outside]
    for outside in (count, -1):
        with pytest.raises(IndexError):
            made.changed(outside, cast(Any, Numbered(7)))


@given(
    count=st.integers(0, 1100), first=st.integers(-40, 1140), end=st.integers(-40, 1140),
    step=st.integers(1, 40),
)  # fmt: skip
def test_parts_are_a_tuples(count: int, first: int, end: int, step: int) -> None:
    plain = tuple(range(count))
    made = listed(plain)
    assert made[first:end] == plain[first:end]
    assert tuple(made[first:end:step]) == plain[first:end:step]
    assert tuple(made.span(first, end)) == plain[max(0, first) : max(0, end)]
    assert tuple(made.span(first)) == plain[max(0, first) :]


@given(count=st.integers(1, 1100), at=st.integers(0, 1099), moment=st.integers(-1, 2300))
def test_a_change_leaves_the_list_before(count: int, at: int, moment: int) -> None:
    plain, at = tuple(range(count)), at % count
    made = listed(plain)
    changed = made.changed(at, cast(Any, Numbered(-1)))
    longer = made.plus(cast(Any, Numbered(-2)))
    assert tuple(changed) == (*plain[:at], -1, *plain[at + 1 :])
    assert (tuple(longer), len(longer), longer[count]) == ((*plain, -2), count + 1, -2)
    assert tuple(made) == plain
    assert [each.duties for each in (made, changed, longer)] == list(
        map(duties, (plain, tuple(changed), tuple(longer)))
    )
    # Ends 0, 2, 4, ...: those of the rounds that ended by then.
    ended = made.count_to(moment, lambda number: 2 * cast(Any, number))
    assert ended == sum(2 * number <= moment for number in plain)
