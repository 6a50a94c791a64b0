"""What whoever pays for a job is warned of: members refuse it, fall behind, or are too few."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from math import ceil
from statistics import fmean

from atoll.job.draft import Draft
from atoll.job.event_text import tokens
from atoll.job.groups import duration_text
from atoll.job.incentives import Incentives
from atoll.job.plan import BRINGING_PART
from atoll.job.role_needs import round_seconds
from atoll.job.verification import expected_fees
from atoll.protocol.audit_rates import ALWAYS, RATES, rate_in
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Role, Terms
from atoll.service.config import PolicySection
from atoll.service.pace import Pace, loads_of, train_seconds
from atoll.service.policy import MOVE_SECONDS, clock_refusal, lock_refusal, terms_refusal

KEPT_ENOUGH = 0.8
"""Of an update's squared length: a codec of one or two bits is not far above it."""
TRUSTED_BELOW = 6
"""Members of a committee below which one or two who do not sign keep it from a certificate."""


def warnings_of(draft: Draft, pace: Pace, deters: Incentives) -> tuple[str, ...]:
    """Every warning of a draft, with the notes that it came with."""
    manifest = draft.manifest
    return (
        *_refused(manifest),
        *_below_floors(draft),
        *_too_short(manifest, pace),
        *_too_narrow(draft, pace),
        *_too_few(draft, pace),
        *_of_terms(manifest.terms, deters),
        *_over_budget(draft),
        *draft.notes,
        *_lost(manifest, pace),
    )


def _refused(manifest: Manifest) -> list[str]:
    """What members refuse by themselves, whatever their machines are."""
    terms, policy = manifest.terms, PolicySection()
    slow = clock_refusal(terms, MOVE_SECONDS)
    found = [
        *(terms_refusal(policy, terms, role, move=0) for role in Role),
        f"{slow}; a development chain's do not" if slow else "",
        lock_refusal(policy, terms, manifest.created),
    ]
    reasons = list(filter(None, dict.fromkeys(found)))
    return [f"members refuse such a job by themselves: {'; '.join(reasons)}"] if reasons else []


def _below_floors(draft: Draft) -> list[str]:
    """Clocks that the network's contracts refuse."""
    terms, d = draft.manifest.terms, duration_text
    below = {
        name.removesuffix("_seconds"): (getattr(terms, name), least)
        for name, least in draft.floors.clocks.items()
        if getattr(terms, name) < least
    }
    each = ", ".join(
        f"windows.{name} no less than {d(least)} (it is {d(given)})"
        for name, (given, least) in below.items()
    )
    return [f"such a network takes {each}: raise it, or leave it out"] if each else []


def _too_short(manifest: Manifest, pace: Pace) -> list[str]:
    """What the windows of the work and the lifetime leave no time for, with members like this
    machine.

    What is excluded from a job is never too short.
    """
    terms, d, too_short = manifest.terms, duration_text, []
    for work in dict.fromkeys(work for role in Role for work in loads_of(role, manifest, pace)):
        if work.window < ceil(work.needed):
            too_short.append(
                f"windows.{work.name} is {d(work.window)}, and it takes a machine like this one "
                f"{d(ceil(work.needed))} {work.text}: members like it would refuse the job; raise "
                "it or leave it out"
            )
    lifetime = terms.expiry - manifest.created
    rounds = ceil(terms.rounds * round_seconds(manifest, pace))
    if lifetime < rounds:
        too_short.append(
            f"lifetime is {d(lifetime)}, and the rounds take members like this machine "
            f"{d(rounds)}: the job would be closed unfinished; raise it or leave it out"
        )
    return too_short


def _too_narrow(draft: Draft, pace: Pace) -> list[str]:
    """Whether a provider's line can bring its update to the committee before votes end."""
    terms, d, megabits = draft.manifest.terms, duration_text, draft.spec.windows.megabits
    needed = ceil(pace.update_bytes / (megabits * 125_000))
    room = terms.reveal_seconds + int(terms.merge_seconds * BRINGING_PART)
    if needed <= room:
        return []
    return [
        f"windows.reveal and three quarters of windows.merge are {d(room)}, and an update of "
        f"{pace.update_bytes:,} bytes takes a line of {megabits} Mbit/s {d(needed)}: such a "
        "member's would not be available; raise windows.merge or leave it out"
    ]


def _too_few(draft: Draft, pace: Pace) -> list[str]:
    """Whether verifiers like this machine are too few to replay as fast as rounds come.

    They fall behind from round to round, until more is waiting than fits into an audit's window.
    """
    manifest, terms, d = draft.manifest, draft.manifest.terms, duration_text
    drawn = terms.seats * RATES[rate_in(terms, is_last=False)] / ALWAYS
    lasts = round_seconds(manifest, pace)
    there = lasts + terms.audit_seconds / terms.rounds

    def work_of(verifiers: int) -> float:
        """Seconds, of each of so many, for a round."""
        rounds = _replayed(manifest.reset_period, drawn / terms.seats / verifiers)
        return drawn * rounds * train_seconds(manifest, pace) / verifiers

    most = ceil(drawn * (1 + manifest.reset_period) / 2 * train_seconds(manifest, pace) / there)
    counts = range(terms.min_verifiers, max(terms.min_verifiers, most) + 1)
    needed = counts[bisect_left(counts[:-1], -there, key=lambda count: -work_of(count))]
    if needed == terms.min_verifiers:
        return []
    return [
        f"members.min_verifiers is {terms.min_verifiers}, and so many machines like this one audit "
        f"{d(ceil(work_of(terms.min_verifiers)))} each in a round that lasts {d(ceil(lasts))}: "
        f"fewer than {needed} verifiers fall behind and are penalised for what they miss; "
        f"members.slots is {terms.slots}"
    ]


def _replayed(reset_period: int, chance: float) -> float:
    """Rounds that an auditor runs on average for a duty: it goes on from its last replay of the
    seat in the reset period, of which there was one in a round with `chance`.
    """
    return fmean((1 - (1 - chance) ** done) / chance for done in range(1, reset_period + 1))


def _over_budget(draft: Draft) -> list[str]:
    """Where verification costs more than the file has for it, by as few audits as there may be."""
    terms, wanted = draft.manifest.terms, draft.spec.audit.budget
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    spent = expected_fees(terms, draft.floors.winner_share_bps)
    if wanted is None or spent <= Fraction(wanted) * trained:
        return []
    return [
        f"audit.budget is {wanted} of the training's price, and verification costs "
        f"{spent / trained if trained else 1:.3f} of it: raise audit.guard, or have fewer slots"
    ]


def _lost(manifest: Manifest, pace: Pace) -> list[str]:
    """Where most of what seats learn would not reach the model."""
    if manifest.codec.properties.is_sparse or pace.kept is None or pace.kept >= KEPT_ENOUGH:
        return []
    return [
        f"of a first update's squared length {pace.kept:.0%} is kept: {manifest.codec.kind} rounds "
        f"or clips the rest at inner.lr {manifest.inner.lr} until votes have moved the grid; "
        'method.codec = "grid8" keeps more, and a rate too small for a weight moves nothing at all'
    ]


def _of_terms(terms: Terms, deters: Incentives) -> tuple[str, ...]:
    """What whoever relies on the result has to know of such bonds, and of so few members."""
    found = []
    if deters.bears < 0:
        found.append(
            f"the bonds deter nobody: leaving out a round's work saves up to "
            f"{tokens(deters.pay)} tokens and costs {tokens(deters.loss)} on average, for it is "
            f"found with {float(deters.chance):.0%}; raise money.provider_bond or audit.rate, or "
            "leave them out"
        )
    if terms.f == 0:
        found.append(
            "one seat can move the model at will: with fewer than 4 seats, or by a mean of all or "
            "of contributors, a merge bears no bad update; who is caught loses its bond, training "
            "is not undone"
        )
    if terms.min_verifiers < TRUSTED_BELOW:
        found.append(
            f"it can begin with {terms.min_verifiers} of {terms.slots} verifiers; with fewer than "
            f"{TRUSTED_BELOW}, one or two can hold a job up: they are trusted to be there"
        )
    return tuple(found)
