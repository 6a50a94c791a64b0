"""What so many endpoints say alike is never what fewer liars say, whoever is asked first."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.chain.agreement import Agreement
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable

TRUTH, LAGS, FAILS = "truth", None, "fails"
HONEST = st.sampled_from([TRUTH, TRUTH, LAGS, FAILS])
LIARS = st.sampled_from(["a lie", "another lie", TRUTH, LAGS, FAILS])


class Endpoints:
    """Each answers as it is written; the first one is preferred."""

    def __init__(self, answers: list[str | None]) -> None:
        self.answers = {f"http://{at}": answer for at, answer in enumerate(answers)}
        self.urls = list(self.answers)
        self.asked: list[str] = []
        self.distrusted: set[str] = set()

    def preferred(self) -> list[str]:
        return list(self.urls)

    def distrust(self, url: str, _: str) -> None:
        self.distrusted.add(url)

    async def answer(self, url: str) -> str | None:
        self.asked.append(url)
        if self.answers[url] == FAILS:
            raise RpcUnavailable("it fails")
        return self.answers[url]


@st.composite
def _endpoints(draw: st.DrawFn) -> tuple[int, Endpoints]:
    """How many have to agree, and endpoints of which fewer lie."""
    least = draw(st.integers(2, 4))
    liars = draw(st.lists(LIARS, max_size=least - 1))
    honest = draw(st.lists(HONEST, min_size=1, max_size=5))
    return least, Endpoints(draw(st.permutations([*honest, *liars])))


@given(_endpoints(), st.data())
async def test_the_truth_is_believed_if_so_many_tell_it_and_nothing_else_ever(
    given: tuple[int, Endpoints], data: st.DataObject
) -> None:
    least, endpoints = given
    told = {
        url: answer
        for url, answer in endpoints.answers.items()
        if answer not in {LAGS, FAILS} and data.draw(st.booleans())
    }
    agreement = Agreement(cast(FailoverProvider, endpoints), least)
    tell_it = Counter(endpoints.answers.values())[TRUTH]
    if tell_it < least:
        with pytest.raises(RpcUnavailable, match=f"rpc_agreement is {least}"):
            await agreement.alike(endpoints.answer, "block 1", told)
        assert endpoints.distrusted == set()
    else:
        assert await agreement.alike(endpoints.answer, "block 1", told) == TRUTH
        lies = {url for url, answer in endpoints.answers.items() if answer not in {TRUTH, LAGS}}
        assert endpoints.distrusted <= lies
    assert len(set(endpoints.asked)) == len(endpoints.asked)
    assert not told.keys() & set(endpoints.asked)


@given(_endpoints())
async def test_no_more_are_asked_than_it_takes_and_the_preferred_ones_first(
    given: tuple[int, Endpoints],
) -> None:
    least, endpoints = given
    agreement = Agreement(cast(FailoverProvider, endpoints), least)
    said = list(endpoints.answers.values())
    enough = next((n for n in range(len(said) + 1) if said[:n].count(TRUTH) == least), None)
    if enough is None:
        with pytest.raises(RpcUnavailable):
            await agreement.alike(endpoints.answer, "block 1")
    else:
        await agreement.alike(endpoints.answer, "block 1")
    assert endpoints.asked == endpoints.urls[:enough]
