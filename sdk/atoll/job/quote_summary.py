"""The first lines of a quote: what, for how much, how long, and what is wrong with it."""

from __future__ import annotations

from fractions import Fraction

from atoll.job.compute_prices import GPUS, REFERENCE
from atoll.job.draft import Draft
from atoll.job.event_text import coin, rounds_text, tokens
from atoll.job.groups import duration_text, units_text
from atoll.job.quote import Quote
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Terms

MILLION = 10**6


def trained_tokens(terms: Terms) -> int:
    """What all seats train on in all rounds, a token each time that it is trained on."""
    steps = terms.rounds * terms.seats * terms.segments * terms.segment_steps
    return steps * terms.tokens_per_step


def million_wei(terms: Terms, look: Quote) -> int:
    """The whole price at most, for a million tokens trained on; rounded down."""
    return look.budget_wei * MILLION // trained_tokens(terms)


def rented_million_wei(terms: Terms, look: Quote) -> int:
    """What a million tokens cost on a rented GPU, wei of a token that is a dollar; rounded down."""
    return look.rented_wei * MILLION // trained_tokens(terms)


def training_share(look: Quote) -> Fraction:
    """Of what an honest job spends, what pays for training; the rest pays for merges and audits."""
    spent = look.training_wei + look.verification_wei
    return Fraction(look.training_wei, spent) if spent else Fraction(0)


def verification_share(look: Quote) -> Fraction:
    """What verification costs an honest job, as a part of the training's price."""
    if not look.training_wei:
        return Fraction(0)
    return Fraction(look.verification_wei, look.training_wei)


def _hours(manifest: Manifest, look: Quote) -> list[str]:
    """A seat's work and a dispute's, of a job whose steps sample what they learn."""
    if manifest.task is None:
        return []
    training = look.seat_hours - look.generation_hours
    return [
        f"hours      a seat generates for {look.generation_hours:.3g} and trains for "
        f"{training:.3g} on this machine; a dispute takes a side {look.game_hours:.3g} at most, "
        f"{look.token_hours:.3g} of them for the trace of one token"
    ]


def summary(draft: Draft, look: Quote) -> str:
    """Seven lines, one more of a job with a task, and one for each warning."""
    manifest, terms = draft.manifest, draft.manifest.terms
    pays = ""  # of bonds that deter nobody there is a warning
    if look.deterred_wei >= 0:
        pays = f"; one lie pays from a gain of {tokens(look.deterred_wei)} on"
    lines = [
        f"job        {manifest.name}: {look.parameters:,} parameters, "
        f"{rounds_text(look.rounds)} of {manifest.inner.steps} steps, {terms.seats} seats",
        f"data       {look.train_tokens:,} tokens, of which {trained_tokens(terms):,} are trained "
        "on, counted each time",
        f"price      {units_text(look.budget_wei)} tokens at most, of which the unspent "
        f"come back, and {coin(look.gas_wei)} of the chain's coin for gas",
        f"a million  {tokens(million_wei(terms, look))} tokens at most for a million tokens "
        f"trained on; rented, in bf16, about {tokens(rented_million_wei(terms, look))} dollars (an "
        f"H100 at {float(GPUS[REFERENCE].hourly):g} an hour)",
        f"training   {float(training_share(look)):.0%} of what an honest job spends; verification "
        f"is {float(verification_share(look)):.1%} of its price, and who lies in every round lasts "
        f"{look.lasts_rounds:.0f} rounds and loses {tokens(look.loses_wei)} tokens{pays}",
        f"time       about {duration_text(max(1, look.seconds_expected))} with members like this "
        f"machine; closed after {duration_text(look.seconds_at_most)}",
        *_hours(manifest, look),
        *(f"warning: {text}" for text in look.warnings),
        "--explain has every figure and its reason; what is submitted becomes public",
    ]
    return "\n".join(lines)
