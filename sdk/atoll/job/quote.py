"""What a job will cost and ask of each role: amounts, hours, bytes, memory, disk.

Rule of this file: pure arithmetic over a draft; "at most" is a bound, "about" an expectation, and
the words say which.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass
from math import ceil
from statistics import fmean
from typing import Any

from atoll.job.draft import Draft
from atoll.job.event_text import rounds_text, tokens
from atoll.job.groups import duration_text, tokens_text
from atoll.job.incentives import DRIFT, Incentives
from atoll.job.plan import drawn_seats, sum_of_windows
from atoll.numerics.state_layout import max_state_bytes, param_count, seat_layout
from atoll.protocol.clocks import AuditClock, last_audits
from atoll.protocol.manifest import Manifest
from atoll.protocol.pay import budget
from atoll.protocol.terms import MOVES
from atoll.protocol.types import Role, Terms
from atoll.service.config import PolicySection
from atoll.service.memory_needs import provider_bytes, submitter_bytes, verifier_bytes
from atoll.service.needs import data_bytes
from atoll.service.pace import Pace, loads_of, merge_seconds, train_seconds
from atoll.service.policy import MOVE_SECONDS, clock_refusal, lock_refusal, terms_refusal
from atoll.train.corpus.options import PUBLIC_NOTICE

SUBMIT_GAS = {"approve": 60_000, "announceGateway": 60_000, "create": 700_000}
"""Gas at most of what a submission sends; `tests/integration/chain/test_client.py` measures it."""
BLOCK_SECONDS = 12
ROUND_TRANSACTIONS = 4
"""One after another: commit, reveal, vote, and the settlement, which opens the next round."""
KEPT_ENOUGH = 0.8
"""Of an update's squared length: a codec of one or two bits is not far above it."""
TRUSTED_BELOW = 6
"""Members of a committee below which one or two who do not sign keep it from a certificate."""


@dataclass(frozen=True, slots=True)
class RoleNeeds:
    """What one member of a role needs, for the whole job; bytes."""

    name: str
    down: int
    up: int
    memory: int
    disk: int


@dataclass(frozen=True, slots=True)
class Quote:
    """What is to be known before paying.

    Attributes:
        budget_wei: escrowed, and the most that can be spent; `training_wei` and `fees_wei` of it.
        gas, gas_wei: of the submission at most, at the fee cap.
        seconds_expected: members like this machine, nobody missing.
        seconds_at_most: until the job may be closed unfinished.
        pay_final_seconds: from a round's settlement until its pay is sure; result_final_seconds:
            from the last one's until the result is.
        found_share: the chance that a false round is found, while a third of the auditors look
            away; `deterred_wei` what it may be worth to who sends it before it pays.
        kept_share: of a first update's squared length, what its grid and codec keep.
        cheat_cost_wei: what as many permanent cheats as the merge bears lose a round, on average.
    """

    parameters: int
    train_tokens: int
    rounds: int
    budget_wei: int
    training_wei: int
    fees_wei: int
    gas: int
    gas_wei: int
    seconds_expected: int
    seconds_at_most: int
    pay_final_seconds: int
    result_final_seconds: int
    found_share: float
    deterred_wei: int
    cheat_cost_wei: int
    kept_share: float | None
    warnings: tuple[str, ...]
    roles: tuple[RoleNeeds, ...]

    def to_json_value(self) -> dict[str, Any]:
        """For JSON: amounts in wei as text."""
        plain = asdict(self)
        return {k: str(v) if k.endswith("_wei") else v for k, v in plain.items()}


def quote(draft: Draft, pace: Pace, fee_cap: int) -> Quote:
    """The quote of a draft; `fee_cap` is wei a gas that the queue never exceeds."""
    manifest, terms = draft.manifest, draft.manifest.terms
    trained = terms.rounds * terms.seats * terms.segments * terms.segment_pay
    gas = sum(SUBMIT_GAS.values())
    deters = Incentives.of(terms, draft.floors.winner_share_bps)
    return Quote(
        parameters=param_count(manifest.model),
        train_tokens=manifest.data.train_tokens,
        rounds=terms.rounds,
        budget_wei=budget(terms),
        training_wei=trained,
        fees_wei=budget(terms) - trained,
        gas=gas,
        gas_wei=gas * fee_cap,
        seconds_expected=ceil(_expected(draft, pace)),
        seconds_at_most=terms.expiry - manifest.created,
        pay_final_seconds=AuditClock.of(terms, 0).window_end,
        result_final_seconds=_last_clock(terms).window_end,
        found_share=float(deters.chance),
        deterred_wei=deters.bears,
        cheat_cost_wei=deters.cheat_cost,
        kept_share=pace.kept,
        warnings=(
            *_refused(manifest),
            *_too_short(manifest, pace),
            *_too_few(draft, pace),
            *_warnings(terms, deters),
            *draft.notes,
            *_lost(manifest, pace),
        ),
        roles=(
            _submitter(draft, pace),
            member_needs("provider", manifest, pace),
            member_needs("verifier", manifest, pace),
        ),
    )


def _expected(draft: Draft, pace: Pace) -> float:
    """Seconds of all rounds, and of the last one's audit."""
    terms = draft.manifest.terms
    return terms.rounds * round_seconds(draft.manifest, pace) + _last_clock(terms).window_end


def round_seconds(manifest: Manifest, pace: Pace) -> float:
    """Training, the merge, blocks: of members like this machine."""
    work = train_seconds(manifest, pace) + merge_seconds(manifest, pace)
    return work + ROUND_TRANSACTIONS * BLOCK_SECONDS


def _last_clock(terms: Terms) -> AuditClock:
    """Behind the last round, where all seats are audited twice by as few as may be."""
    return AuditClock.of(terms, 0, audits=last_audits(terms.seats, terms.min_verifiers))


def _submitter(draft: Draft, pace: Pace) -> RoleNeeds:
    """Serves the data to whoever joins, and fetches the result."""
    manifest, terms = draft.manifest, draft.manifest.terms
    data = data_bytes(manifest)
    model = max_state_bytes(manifest)
    members = terms.seats + terms.slots
    memory, disk = submitter_bytes(manifest, pace.update_bytes), data + 2 * model
    return RoleNeeds("submitter", down=model, up=data * members, memory=memory, disk=disk)


def round_traffic(name: str, manifest: Manifest, pace: Pace) -> tuple[int, int]:
    """Bytes that a member fetches and serves in a round.

    Everybody fetches every update; a provider serves its own to all, a verifier serves on what it
    says to have.
    """
    terms = manifest.terms
    served = terms.slots + terms.seats if name == "provider" else terms.seats
    return terms.seats * pace.update_bytes, served * pace.update_bytes


def member_needs(name: str, manifest: Manifest, pace: Pace) -> RoleNeeds:
    """What a `provider` or `verifier` needs: it fetches the data, and keeps models and updates of
    the rounds that are not FINAL, and of those of a reset period that began before them; in a reset
    period also its seat's last state, or that of each seat, from its last replay.
    """
    terms = manifest.terms
    model, data = max_state_bytes(manifest), data_bytes(manifest)
    fetched, served = round_traffic(name, manifest, pace)
    behind = ceil(AuditClock.of(terms, 0).window_end / round_seconds(manifest, pace))
    kept = min(terms.rounds, manifest.reset_period + behind) + 1
    needed = provider_bytes if name == "provider" else verifier_bytes
    states = (1 if name == "provider" else terms.seats) * manifest.codec.is_stateful
    return RoleNeeds(
        name,
        down=data + model + terms.rounds * fetched,
        up=model + terms.rounds * served,
        memory=needed(manifest, pace.update_bytes),
        disk=data + kept * (fetched + model) + states * 4 * seat_layout(manifest).elements,
    )


def size_text(count: int) -> str:
    """Bytes, to three digits."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _windows(terms: Terms, look: Quote) -> list[str]:
    """What a round's windows add up to, and when its pay and the result are sure."""
    d = duration_text
    challenge = 2 * terms.game_seconds + MOVES * terms.move_seconds
    return [
        f"round      {d(terms.train_seconds)} to train, {d(terms.reveal_seconds)} to reveal, "
        f"{d(terms.merge_seconds)} to merge at most; the next one begins at once",
        f"audit      behind it: {d(terms.audit_seconds)} to replay, {d(terms.open_seconds)} to "
        f"open audit reports, {d(terms.key_seconds)} to show keys, {d(terms.window_seconds)} to "
        "challenge",
        f"final      {d(look.pay_final_seconds)} after a round is settled its pay, "
        f"{d(look.result_final_seconds)} after the last one the result, but for open disputes",
        f"disputes   {d(terms.game_seconds)} of each side and {d(terms.move_seconds)} a move: "
        f"{d(challenge)} at most for one",
    ]


def _safety(terms: Terms, rule: str) -> str:
    seats, price = terms.f + 1, (terms.f + 1) * terms.provider_bond
    who = "1 seat" if seats == 1 else f"{seats} seats"
    share = "all" if terms.f == 0 else f"{terms.share_bps / 100:g}% of the"
    return (
        f"safety     a merge by {rule} bears {terms.f} bad of {terms.seats} updates; {who}, "
        f"which can move the model, cost {tokens(price)} tokens in bonds; {share} seats are "
        "audited in a round, in the last one all, twice"
    )


def _deterred(look: Quote, deters: Incentives) -> list[str]:
    """What the bonds are worth: to one false round, and to cheats for ever."""
    lines = []
    if deters.bears >= 0:
        lines.append(
            f"deters     a false round is found with {look.found_share:.0%}, if a third of the "
            f"auditors look away, and costs its pay and {tokens(deters.burnt)} tokens that are "
            f"burnt: it pays from a gain of {tokens(deters.bears)} tokens on, and less work never"
        )
    if deters.f:
        lines.append(
            f"cheating   {deters.f} permanent {'cheat' if deters.f == 1 else 'cheats'}, as many as "
            f"a merge bears, lose {tokens(deters.cheat_cost)} tokens a round on average; for it "
            f'they take back {DRIFT} of what a round moves the model (docs/attacks.md, "Drift, a '
            'round", small models)'
        )
    return lines


def _refused(manifest: Manifest) -> list[str]:
    """What members refuse by themselves, whatever their machines are."""
    terms, policy = manifest.terms, PolicySection()
    slow = clock_refusal(terms, MOVE_SECONDS)
    refusals = [
        *(terms_refusal(policy, terms, role, move=0) for role in Role),
        f"{slow}; a development chain's do not" if slow else "",
        lock_refusal(policy, terms, manifest.created),
    ]
    reasons = filter(None, dict.fromkeys(refusals))
    return [f"members refuse such a job by themselves: {why}" for why in reasons]


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


def _too_few(draft: Draft, pace: Pace) -> list[str]:
    """Whether verifiers like this machine are too few to replay as fast as rounds come.

    They fall behind from round to round, until more is waiting than fits into an audit's window.
    """
    manifest, terms, d = draft.manifest, draft.manifest.terms, duration_text
    drawn, lasts = drawn_seats(draft.spec), round_seconds(manifest, pace)
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
    return fmean((1 - (1 - chance) ** run) / chance for run in range(1, reset_period + 1))


def _lost(manifest: Manifest, pace: Pace) -> list[str]:
    """Where most of what seats learn would not reach the model."""
    if manifest.codec.properties.is_sparse or pace.kept is None or pace.kept >= KEPT_ENOUGH:
        return []
    return [
        f"of a first update's squared length {pace.kept:.0%} is kept: {manifest.codec.kind} rounds "
        f"or clips the rest at inner.lr {manifest.inner.lr} until votes have moved the grid; "
        'method.codec = "grid8" keeps more, and a rate too small for a weight moves nothing at all'
    ]


def _survives(manifest: Manifest, share: float | None) -> list[str]:
    """What is left of a first update, where it was tried."""
    if share is None:
        return []
    return [
        f"updates    {share:.0%} of a first one's squared length survives its grid and codec, "
        f"{manifest.codec.kind}, as trained here from drawn weights"
    ]


def _warnings(terms: Terms, deters: Incentives) -> tuple[str, ...]:
    """What whoever relies on the result has to know of such bonds, and of so few members."""
    warnings = []
    if deters.bears < 0:
        warnings.append(
            f"the bonds deter nobody: leaving out a round's work saves up to "
            f"{tokens(deters.pay)} tokens and costs {tokens(deters.loss)} on average, for it is "
            f"found with {float(deters.chance):.0%}; raise money.provider_bond or audit.share, or "
            "leave them out"
        )
    if terms.f == 0:
        warnings.append(
            "one seat can move the model at will: with fewer than 4 seats, or by a mean of all or "
            "of contributors, a merge bears no bad update; who is caught loses its bond, training "
            "is not undone"
        )
    if terms.min_verifiers < TRUSTED_BELOW:
        warnings.append(
            f"it can begin with {terms.min_verifiers} of {terms.slots} verifiers; with fewer than "
            f"{TRUSTED_BELOW}, one or two can hold a job up: they are trusted to be there"
        )
    return tuple(warnings)


def report(draft: Draft, look: Quote) -> str:
    """A quote for a person, with the reason of everything that was computed."""
    manifest, terms = draft.manifest, draft.manifest.terms
    sums = sum_of_windows(draft.spec)
    lines = [
        f"job        {manifest.name}: {look.parameters:,} parameters, "
        f"{rounds_text(look.rounds)} of {manifest.inner.steps} steps, {terms.seats} seats",
        f"data       {look.train_tokens:,} tokens to train on",
        *(draft.read.lines() if draft.read else []),
        *_survives(manifest, look.kept_share),
        f"price      {tokens_text(look.budget_wei)} tokens at most: "
        f"{tokens(look.training_wei)} for training, {tokens(look.fees_wei)} for audits",
        f"gas        {look.gas:,} at most, {tokens(look.gas_wei)} of the chain's coin",
        f"time       about {duration_text(max(1, look.seconds_expected))} with members like this "
        f"machine; a round at its longest {duration_text(sums)}; closed after "
        f"{duration_text(look.seconds_at_most)}",
        f"bonds      {tokens(terms.provider_bond)} a provider, {tokens(terms.verifier_bond)} "
        "a verifier",
        *_windows(terms, look),
        _safety(terms, manifest.robust.rule),
        *_deterred(look, Incentives.of(terms, draft.floors.winner_share_bps)),
        *(f"warning: {text}" for text in look.warnings),
        PUBLIC_NOTICE,
        "",
        f"{'for each':<10} {'down':>9} {'up':>9} {'memory':>9} {'disk':>9}",
    ]
    for role in look.roles:
        sizes = (role.down, role.up, role.memory, role.disk)
        lines.append(f"{role.name:<10} " + " ".join(f"{size_text(size):>9}" for size in sizes))
    if draft.figures:
        width = max(len(figure.path) for figure in draft.figures)
        lines += ["", "computed, since the file leaves them out:"]
        lines += [f"{f.path:<{width}}  {f.text}: {f.reason}" for f in draft.figures]
    return "\n".join(lines)
