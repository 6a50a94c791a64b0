"""A quote as text for a person."""

from __future__ import annotations

from atoll.job.draft import Draft
from atoll.job.event_text import coin, rounds_text, tokens
from atoll.job.groups import duration_text, size_text, units_text
from atoll.job.incentives import DRIFT, Incentives
from atoll.job.plan import sum_of_windows
from atoll.job.quote import Quote
from atoll.job.verification import chance_text
from atoll.protocol.audit_rates import ALWAYS, RATES, rate_in, rate_of_seat
from atoll.protocol.manifest import Manifest
from atoll.protocol.terms import MOVES
from atoll.protocol.types import Terms
from atoll.train.corpus.options import PUBLIC_NOTICE


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
        f"price      {units_text(look.budget_wei)} tokens at most: "
        f"{tokens(look.training_wei)} for training, {tokens(look.fees_wei)} for audits, of which "
        f"an honest job spends {tokens(look.verification_wei)}",
        f"gas        {look.gas:,} at most, {coin(look.gas_wei)} of the chain's coin",
        f"time       about {duration_text(max(1, look.seconds_expected))} with members like this "
        f"machine; a round at its longest {duration_text(sums)}; closed after "
        f"{duration_text(look.seconds_at_most)}",
        f"bonds      {tokens(terms.provider_bond)} a provider, {tokens(terms.verifier_bond)} "
        "a verifier",
        *_windows(terms, look),
        *_rollouts(manifest, look),
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
        f"{d(challenge)} at most for one; a side works for {look.game_hours:.3g} h at most, on a "
        "machine like this one",
    ]


def _rollouts(manifest: Manifest, look: Quote) -> list[str]:
    """What a job with a task generates and learns, and who decides what is disputed about it."""
    task, inner = manifest.task, manifest.inner
    if task is None:
        return []
    training = look.seat_hours - look.generation_hours
    return [
        f"rollouts   {task.prompts:,} prompts; a step answers {inner.batch // task.group} of them "
        f"{task.group} times, with {task.new_tokens} tokens at most",
        f"work       a seat generates for {look.generation_hours:.3g} h and trains for "
        f"{training:.3g} h on this machine; an auditor that has its ids does not generate",
        "judged     by a game, token by token: where one is disputed, its own forward pass is "
        f"searched (docs/rl.md), {look.token_hours:.3g} h of a side's work{_more(look)}",
    ]


def _more(look: Quote) -> str:
    """The moves of the search in a token's trace, where they were counted."""
    return f" and {look.token_moves} moves of both sides more at most" if look.token_moves else ""


def _safety(terms: Terms, rule: str) -> str:
    seats, price = terms.f + 1, (terms.f + 1) * terms.provider_bond
    who = "1 seat" if seats == 1 else f"{seats} seats"
    each = f"{RATES[rate_in(terms, is_last=False)] / ALWAYS:.2%}"
    last = (
        ", in the last one with certainty" if terms.f and terms.last_rate < terms.audit_rate else ""
    )
    if terms.rate_steps:
        fewer = chance_text(rate_of_seat(rate_in(terms, is_last=False), terms.rate_steps))
        last += f", down to {float(fewer):.2%} as half of its pay is retained, until it leaves"
    return (
        f"safety     a merge by {rule} bears {terms.f} bad of {terms.seats} updates; {who}, "
        f"which can move the model, cost {tokens(price)} tokens in bonds; each seat is audited "
        f"with a chance of {each} in a round{last}"
    )


def _deterred(look: Quote, deters: Incentives) -> list[str]:
    """What the bonds are worth: to one false round, and to cheats for ever."""
    lines = []
    if deters.bears >= 0:
        lines.append(
            f"deters     a false round is found with {look.found_share:.0%}, if a third of the "
            f"auditors look away, and costs its pay and {tokens(deters.burnt)} tokens that are "
            f"burnt: it pays from a gain of {tokens(deters.bears)} tokens on, and less work never "
            f"while {float(deters.least_speaking):.0%} of the auditors speak"
        )
    if deters.f:
        lines.append(
            f"cheating   a seat that lies in every round lasts {float(deters.lasts):.0f} rounds; "
            f"{deters.f} permanent {'cheat' if deters.f == 1 else 'cheats'}, as many as "
            f"a merge bears, lose {tokens(deters.cheat_cost)} tokens a round on average; for it "
            f'they take back {DRIFT} of what a round moves the model (docs/attacks.md, "Drift, a '
            'round", small models)'
        )
    return lines


def _survives(manifest: Manifest, share: float | None) -> list[str]:
    """What is left of a first update, where it was tried."""
    if share is None:
        return []
    return [
        f"updates    {share:.0%} of a first one's squared length survives its grid and codec, "
        f"{manifest.codec.kind}, as trained here from drawn weights"
    ]
