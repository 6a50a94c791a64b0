"""What the first rank does where an order ends in an error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from atoll.errors import DiskFull
from atoll.numerics.optimisers import OtherBits
from atoll.train import sharded
from atoll.train.rank_steps import Rank
from atoll.train.sharded import Leader, RankEnded


class Group:
    """A leader whose orders reach nobody, and why its group ended."""

    def __init__(self) -> None:
        self.causes = list[str]()
        silence = timedelta(hours=1)
        self.leader = Leader(torch.device("cpu"), silence, self.causes.append)

    def order(self, error: BaseException | None) -> str:
        def work(_: Rank) -> str:
            if error is not None:
                raise error
            return "made"

        return self.leader.order("make", work)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    monkeypatch.setattr(sharded, "send_document", lambda _: None)
    made = Group()
    yield made
    made.leader.end()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("gone"), RankEnded),
        (ConnectionResetError("gone"), RankEnded),
        (EOFError("gone"), RankEnded),
        (KeyError("gone"), KeyError),
        (MemoryError("gone"), MemoryError),
        (DiskFull("gone"), DiskFull),
        (KeyboardInterrupt("gone"), KeyboardInterrupt),
    ],
    ids=repr,
)
def test_the_others_wait_for_nobody_after_an_error_that_not_all_ranks_had(
    group: Group, error: BaseException, raised: type[BaseException]
) -> None:
    with pytest.raises(raised):
        group.order(error)
    assert len(group.causes) == 1 and "gone" in group.causes[0]
    with pytest.raises(RankEnded, match="no group any more"):
        group.order(None)


def test_bits_that_differ_are_an_answer_of_all_ranks(group: Group) -> None:
    with pytest.raises(OtherBits):
        group.order(OtherBits("a parameter"))
    assert group.order(None) == "made"
    assert group.causes == []
