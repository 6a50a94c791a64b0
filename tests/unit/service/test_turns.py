"""Who is next: what is at hand, then the lowest rank, then who came first."""

from __future__ import annotations

import asyncio

import pytest

from atoll.service.priority_lock import PriorityLock


async def order(turns: PriorityLock, at_hand: str, *comers: tuple[str, int]) -> list[str]:
    """In which order those have their turns who come, one by one, while another has its own."""
    done = list[str]()

    async def comes(about: str, rank: int) -> None:
        async with turns.taken(rank, about=about):
            done.append(f"{about}{rank}")
            await asyncio.sleep(0)  # whoever else thought that it is theirs would be in between
            done.append("ends")

    async with asyncio.TaskGroup() as group, turns.taken(9, about=at_hand):
        for comer in comers:
            group.create_task(comes(*comer))
            await asyncio.sleep(0)
        assert done == []
    assert done[1::2] == ["ends"] * len(comers)
    return done[::2]


async def test_the_lowest_rank_is_next_and_of_equal_ones_who_came_first() -> None:
    comers = [("a", 7), ("b", 3), ("c", 5), ("d", 3)]
    assert await order(PriorityLock(), "z", *comers) == ["b3", "d3", "c5", "a7"]


async def test_what_is_at_hand_is_done_before_another_is() -> None:
    comers = [("a", 7), ("b", 3), ("a", 5), ("b", 8)]
    assert await order(PriorityLock(), "a", *comers) == ["a5", "a7", "b3", "b8"]
    assert await order(PriorityLock(), "z", *comers) == ["b3", "b8", "a5", "a7"]


async def test_who_no_longer_waits_holds_up_nobody() -> None:
    turns = PriorityLock()

    async def comes() -> None:
        async with turns.taken(1):
            pass

    async with turns.taken(0):
        gone, told = asyncio.create_task(comes()), asyncio.create_task(comes())
        await asyncio.sleep(0)
        gone.cancel()  # before the turn ends
        with pytest.raises(TimeoutError):
            async with turns.taken(1, patience_s=0.0):
                pass
    told.cancel()  # when it is its turn already
    assert await order(turns, "z", ("a", 1)) == ["a1"]
    assert gone.cancelled() and told.cancelled()


async def test_what_fails_in_its_turn_passes_it_on() -> None:
    turns = PriorityLock()
    with pytest.raises(ValueError, match="a defect"):
        async with turns.taken(0):
            raise ValueError("a defect")
    assert await order(turns, "z", ("a", 1)) == ["a1"]
