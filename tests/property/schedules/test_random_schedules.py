"""Hundreds of schedules: who cheats, who is away and when, and for how long no block comes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import make_terms
from tests.support.schedules import Away, Cast, World, is_settled_up

from atoll.protocol.types import JobStatus, Role

SCHEDULES = 60
SEATS, PLACES = 4, 5
LASTS = 900
"""Seconds, about, in which a job of these terms has its rounds and audits."""
FALSE = ("sign-flip", "wrong-work-tags", "hollow")
"""What a replay finds."""
SILENT = ("no-key", "no-reveal", "partial")
NAPS = st.lists(  # two of them and a stop are shorter than the keys' time with half of a window
    st.builds(
        lambda start, lasts, restarts: Away(start, start + lasts, restarts),
        st.integers(0, LASTS),
        st.integers(1, 70),
        st.booleans(),
    ),
    max_size=2,
).map(tuple)
CASTS = st.builds(
    Cast,
    st.dictionaries(st.integers(0, SEATS - 1), st.sampled_from((*FALSE, *SILENT)), max_size=1),
    st.dictionaries(
        st.integers(0, PLACES - 1),
        st.sampled_from(("copier", "no-open", "no-sign", "false-have", "null")),
        max_size=1,
    ),
    st.dictionaries(st.integers(0, SEATS - 1), NAPS, max_size=2),
    st.dictionaries(st.integers(0, PLACES - 1), NAPS, max_size=2),
)


def played(cast: Cast, seed: int, stops: list[tuple[int, int]]) -> World:
    """The job to its end.

    Args:
        stops: of the chain: when, and for how many seconds.
    """
    world = World(cast, make_terms(rounds=3, audit_rate=0), seed=seed)
    for moment, lasts in sorted(stops):
        world.until(lambda w, at=moment: w.elapsed >= at or is_settled_up(w))
        world.stop_chain(lasts)
    return world.until(is_settled_up)


@settings(max_examples=SCHEDULES)
@given(cast=CASTS, seed=st.integers(0, 2**32))
def test_only_who_leaves_out_or_lies_pays_for_it(cast: Cast, seed: int) -> None:
    world = played(cast, seed, [])
    view = world.net.view
    assert view.status in {JobStatus.DONE, JobStatus.EXPIRED}
    at_fault = {
        *_accounts(world, Role.PROVIDER, {*cast.provider_cheats, *cast.providers_away}),
        *_accounts(world, Role.VERIFIER, {*cast.verifier_cheats, *cast.verifiers_away}),
    }
    lied = _accounts(world, Role.PROVIDER, set(cast.provider_cheats))
    for holder in (*view.providers.values(), *view.verifiers.values()):
        assert not holder.penalties or holder.account in at_fault, holder
        assert not holder.is_slashed or holder.account in lied, holder
        assert holder.account in at_fault or view.paid[holder.account] > 0


@settings(max_examples=SCHEDULES)
@given(
    cast=CASTS,
    seed=st.integers(0, 2**32),
    stops=st.lists(st.tuples(st.integers(0, LASTS), st.integers(1, 60)), max_size=1),
)
def test_no_money_is_lost_or_made(cast: Cast, seed: int, stops: list[tuple[int, int]]) -> None:
    """With a chain that stops, too: nobody honest falls, and what was claimed was funded."""
    world = played(cast, seed, stops)
    view, net = world.net.view, world.net
    lied = _accounts(world, Role.PROVIDER, set(cast.provider_cheats))
    assert all(h.account in lied for h in view.providers.values() if h.is_slashed)
    assert not any(h.is_slashed for h in view.verifiers.values())
    assert sum(view.paid.values()) == net.claimed
    assert net.claimed + net.burnt + sum(net.credits.values()) <= net.funded


@settings(max_examples=SCHEDULES)
@given(seed=st.integers(0, 2**32), seat=st.integers(0, SEATS - 1), lie=st.sampled_from(FALSE))
def test_a_lie_that_an_auditor_ran_is_slashed(seed: int, seat: int, lie: str) -> None:
    world = played(Cast({seat: lie}), seed, [])
    (liar,) = _accounts(world, Role.PROVIDER, {seat})
    assert {h.account for h in world.net.view.providers.values() if h.is_slashed} == {liar}
    assert world.net.view.paid.get(liar, 0) == 0


def _accounts(world: World, role: Role, indices: set[int]) -> set[str]:
    members = [member for member in world.members if member.role is role]
    return {members[index].account for index in indices}
