"""Places that parties get in turn."""

from __future__ import annotations

import asyncio

from atoll.storage.rate_limits import FairSlots


async def taking(places: FairSlots, parties: str) -> tuple[list[asyncio.Task[None]], list[str]]:
    """A task for each party's letter, which waits for a place; and whose came, in order."""
    came: list[str] = []

    async def take(party: str) -> None:
        await places.acquire(party)
        came.append(party)

    tasks = [asyncio.create_task(take(party)) for party in parties]
    await asyncio.sleep(0)
    return tasks, came


async def test_each_party_has_its_turn_before_another_has_its_second() -> None:
    places = FairSlots(2)
    tasks, came = await taking(places, "aaaaabbc")
    for _ in tasks[2:]:
        places.release()
    await asyncio.gather(*tasks)
    assert "".join(came) == "aa" + "abcab" + "a"


async def test_a_place_of_one_who_is_gone_goes_to_the_next() -> None:
    places = FairSlots(1)
    tasks, came = await taking(places, "abbc")
    tasks[1].cancel()  # while it waits
    await asyncio.sleep(0)
    places.release()
    tasks[2].cancel()  # when it was just given the place
    await asyncio.gather(*tasks, return_exceptions=True)
    assert came == ["a", "c"]
    places.release()
    await places.acquire("a")
