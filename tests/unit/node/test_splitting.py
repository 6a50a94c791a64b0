"""What helpers may cost a provider, by its own clock; and that none has another's part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from atoll.service.config import RolloutsSection
from atoll_node.rollouts.passes import digest_of, header_of, name_of, pass_for
from atoll_node.rollouts.shared_generation import last_of, parts_of
from atoll_node.rollouts.splitting import LOST_SHARE, Splitting
from atoll_node.rollouts.spool import Leases, Offer, Part, Spool

ALONE, TOKENS = 1.0, 100
IN_PARTS = 4.0
"""What a step takes where nobody sends anything: parts of 1, 2, 4 and 1 eighths."""
STEPS = 1000


def spent(of_step: Callable[[int], float], steps: int = STEPS) -> tuple[list[float], list[bool]]:
    """Seconds of each step, and whether helpers were asked, who say how long it lasts."""
    splitting, seconds, asked = Splitting("job"), list[float](), list[bool]()
    for step in range(steps):
        asked.append(splitting.may_be_lost)
        seconds.append(of_step(step) if asked[-1] else ALONE)
        after = splitting.in_parts if asked[-1] else splitting.at_once
        splitting = after(seconds[-1], TOKENS)
    return seconds, asked


def turns(*seconds: float) -> Callable[[int], float]:
    """One after the other, each time that helpers are asked."""
    times = iter(range(STEPS))
    return lambda _: seconds[next(times) % len(seconds)]


@pytest.mark.parametrize(
    "of_step",
    [turns(IN_PARTS), turns(ALONE, IN_PARTS), turns(0.5, IN_PARTS), turns(*[0.5] * 50, IN_PARTS)],
)
def test_who_asks_and_sends_nothing_costs_a_bounded_share(of_step: Callable[[int], float]) -> None:
    seconds, asked = spent(of_step)
    assert not asked[0] and asked[1]
    worst = IN_PARTS - ALONE
    for start in range(0, STEPS - 50):
        window = seconds[start : start + 50]
        assert sum(window) - 50 * ALONE <= LOST_SHARE * 50 * ALONE + 3 * worst
    assert sum(seconds) <= (1 + 1.5 * LOST_SHARE) * STEPS * ALONE + worst


def test_who_saves_time_is_asked_in_every_step_but_the_first() -> None:
    _, asked = spent(turns(0.5))
    assert asked == [False] + [True] * (STEPS - 1)


def test_a_step_without_a_token_says_nothing_of_the_pace() -> None:
    assert Splitting("job").at_once(5.0, 0) == Splitting("job")


def test_what_was_measured_is_of_one_job_and_outlives_the_worker(tmp_path: Path) -> None:
    Spool(tmp_path).keep(kept := Splitting("one", 0.5, 7.0, 1.0))
    assert Spool(tmp_path).splitting("one") == kept
    assert Spool(tmp_path).splitting("other") == Splitting("other")
    (tmp_path / "splitting.json").write_text("{")
    assert Spool(tmp_path).splitting("one") == Splitting("one")


def test_own_parts_are_the_last_ones_that_follow_one_another() -> None:
    parts = parts_of(8)
    assert last_of(parts, 1) == Part(7, 1)
    assert last_of(parts, 4) == Part(4, 4)
    assert last_of(parts, 100) == Part(0, 8)
    assert last_of([*parts[:3], parts[5], parts[6]], 4) == Part(5, 2)


def offer_of(step: str) -> Offer:
    return Offer(
        step=step,
        manifest="",
        params="",
        base=None,
        parts=parts_of(8),
        prompts=(),
        new_tokens=1,
        ends=(),
        key=(1, 2),
        global_step=0,
        seq=4,
    )


def test_a_helper_has_one_part_until_it_sends_it() -> None:
    leases, offer = Leases(30.0), offer_of("a")
    assert leases.take(offer, "slow", 0.0) == Part(0, 1)
    assert leases.take(offer, "slow", 1000.0) is None  # it still owes the first
    assert leases.take(offer, "quick", 1.0) == Part(1, 1)
    assert leases.give_back(offer, 1) == Part(1, 1)
    assert leases.take(offer, "quick", 2.0) == Part(2, 1)
    assert leases.give_back(offer, 2) == Part(2, 1)
    assert leases.take(offer, "quick", 31.0) == Part(0, 1)  # which the slow one had
    assert leases.take(offer_of("b"), "slow", 40.0) == Part(0, 1)


def test_a_pass_is_of_one_helper_for_one_provider(tmp_path: Path) -> None:
    mine = pass_for(tmp_path / "mine", "http://a")
    assert mine == pass_for(tmp_path / "mine", "http://a")
    others = [pass_for(tmp_path / "mine", "http://b"), pass_for(tmp_path / "other", "http://a")]
    assert len({mine, *others}) == 3
    assert (tmp_path / "mine" / "secret").stat().st_mode & 0o077 == 0
    assert digest_of(header_of(mine)) not in {mine, digest_of(header_of(others[0]))}


def test_a_pass_is_known_by_its_digest_whatever_else_is_sent() -> None:
    names = {digest_of(header_of(each)): f"of {each}" for each in ("a", "b")}
    assert [name_of(header_of(each), names) for each in ("a", "b")] == ["of a", "of b"]
    # As aiohttp gives what is no UTF-8.
    strange = b"Bearer \xff\xc3".decode(errors="surrogateescape")
    for sent in ("", "Bearer ", header_of("c"), strange, next(iter(names))):
        assert name_of(sent, names) is None


@pytest.mark.parametrize(
    "helpers",
    [
        {"": "0" * 64},
        {"n" * 41: "0" * 64},
        {"a\n": "0" * 64},
        {"a": "0" * 63},
        {"a": "A" * 64},
        {"a.b": "0" * 64},
    ],
)
def test_what_names_no_helper_is_refused(helpers: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        RolloutsSection(helpers=helpers)
    assert RolloutsSection(helpers={"a": "0" * 64}).helpers == {"a": "0" * 64}
