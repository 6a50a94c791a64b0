"""What an operator lets a service take part in. Rule of this file: pure.

A refusal is words with numbers; nothing is staked on a job that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from atoll.chain.deployment import DEVELOPMENT_CHAINS
from atoll.chain.urls import is_of_this_machine
from atoll.errors import AtollError
from atoll.numerics.state_layout import param_count
from atoll.protocol.clocks import absolute_end, longest_leave
from atoll.protocol.manifest import Manifest
from atoll.protocol.terms import MIN_MOVES, MOVES, WINDOWS
from atoll.protocol.token_units import whole_token
from atoll.protocol.types import Role, Terms
from atoll.service.config import PolicySection
from atoll.service.needs import Machine, least_disk, memory_of
from atoll.service.pace import Load, Pace, earned_per_hour, loads_of, million_pay

MOVE_SECONDS: Final = 60
"""That a transaction may take until everybody has seen it: five blocks of 12 s."""
DAY: Final = 86_400


class NotOurPolicy(AtollError):
    """The operator's policy forbids to stake on a job, as things are now."""


def least_move(policy: PolicySection, chain_id: int, rpc_urls: Iterable[str]) -> int:
    """Seconds that every window of a job has to leave for a transaction.

    None are asked for on a development chain, which is one by its number and because every endpoint
    in the operator's own config is of this machine: no job's terms decide either.
    """
    if policy.least_move_s is not None:
        return policy.least_move_s
    is_here = all(map(is_of_this_machine, rpc_urls))
    return 0 if chain_id in DEVELOPMENT_CHAINS and is_here else MOVE_SECONDS


def terms_refusal(policy: PolicySection, terms: Terms, role: Role, move: int) -> str:
    """Why terms are not taken, from what the chain has of a job alone; empty where they are.

    Args:
        move: see `least_move`.
    """
    bond = terms.provider_bond if role is Role.PROVIDER else terms.verifier_bond
    most = policy.largest_bond
    if most is not None and bond > most * whole_token():
        return f"its bond is {bond / whole_token():g} tokens, and policy.largest_bond is {most:g}"
    return _pay_refusal(policy, terms, role) or clock_refusal(terms, move)


def _pay_refusal(policy: PolicySection, terms: Terms, role: Role) -> str:
    """Of a job that pays too little; and of one that pays somebody nothing, whose work waits for
    members that do not come.
    """
    price, fee = policy.least_million_wei, policy.least_fee_wei
    least_price = price if role is Role.PROVIDER else min(price, 1)
    least_fee = fee if role is Role.VERIFIER else min(fee, 1)
    for paid, what, least, name in (
        (million_pay(terms), "a million tokens", least_price, "least_million_wei"),
        (terms.duty_fee, "a replay", least_fee, "least_fee_wei"),
        (terms.sign_fee, "a signature", min(fee, 1), "least_fee_wei"),
    ):
        if paid < least:
            return f"pays {paid} wei {what}, and policy.{name} is {getattr(policy, name)}"
    return ""


def clock_refusal(terms: Terms, move: int) -> str:
    """Why a job leaves no time for a transaction; empty where it does.

    Whoever is to act in such a window loses a bond, a seat or a pay by what a block takes alone.
    """
    windows = dict.fromkeys((*WINDOWS, "ready_seconds", "move_seconds", "claim_seconds"), move)
    for name, least in (windows | {"game_seconds": MIN_MOVES * move}).items():
        given = getattr(terms, name)
        if given < least:
            what = name.removesuffix("_seconds")
            return f"{what} window {given} s < {least} s, which transactions take"
    return ""


def lock_refusal(policy: PolicySection, terms: Terms, now: int) -> str:
    """Why a job may lock the bond of who asks to leave for too long; empty where it may not.

    Games count as long as the terms allow. As the contracts count, by the longest of the network,
    an absolute end is later by what no job's author decides.

    Args:
        now: unix seconds.
    """
    game = 2 * terms.game_seconds + MOVES * terms.move_seconds
    days = min(absolute_end(terms, game) - now, longest_leave(terms, game)) / DAY
    if days <= policy.longest_lock:
        return ""
    most = f"{policy.longest_lock:g}"
    return f"may lock bonds for {days:.1f} days, and policy.longest_lock is {most}"


def manifest_refusal(policy: PolicySection, manifest: Manifest) -> str:
    """Why a job is too large for this machine; empty where it is not."""
    parameters = param_count(manifest.model)
    if policy.most_parameters is not None and parameters > policy.most_parameters:
        return (
            f"has {parameters} parameters, and policy.most_parameters is {policy.most_parameters}"
        )
    data = manifest.data
    size = (data.train_tokens + data.eval_tokens) * data.token_bytes
    if policy.most_data_bytes is not None and size > policy.most_data_bytes:
        return f"has {size} bytes of data, and policy.most_data_bytes is {policy.most_data_bytes}"
    return ""


def room_refusal(policy: PolicySection, role: Role, manifest: Manifest, machine: Machine) -> str:
    """Why a job takes more memory or disk than it may, or than there is; empty where it does not.

    Args:
        machine: the memory that it has, and the disk that is free.
    """
    memory, disk = memory_of(role, manifest), least_disk(manifest)
    for what, needed, most, here in (
        ("memory", memory, policy.most_memory_bytes, machine.memory),
        ("disk", disk, policy.most_disk_bytes, machine.disk),
    ):
        if most is not None and needed > most:
            return f"takes {needed} bytes of {what}, and policy.most_{what}_bytes is {most}"
        if needed > here:
            return f"takes {needed} bytes of {what}, and this machine has {here}"
    return ""


def pace_refusal(policy: PolicySection, role: Role, manifest: Manifest, pace: Pace) -> str:
    """Why a job is too fast for this machine, or earns it too little, by the pace measured here;
    empty where it does neither.
    """
    most, least = policy.most_of_window, policy.least_per_hour
    for load in loads_of(role, manifest, pace):
        if most is not None and load.needed > most * load.window:
            return (
                f"{load.name} window {load.window} s < {ceil(load.needed / most)} s, of which it "
                f"would take this machine {load.needed:.3g} s {load.text}, and "
                f"policy.most_of_window is {most:g}"
            )
    earned = earned_per_hour(role, manifest, pace)
    if least is not None and earned < least * whole_token():
        return (
            f"earns {earned / whole_token():.3g} tokens an hour of this machine, and "
            f"policy.least_per_hour is {least:g}"
        )
    return ""


def games_refusal(policy: PolicySection, game: Load, others: Sequence[Load]) -> str:
    """Why this machine could not make its runs of a game in each of its jobs, all begun at once, in
    the shortest time that a side has in one of them; empty where it could.

    Whoever disputes an account's word in every one of its jobs could else take its bonds.
    """
    most, window = policy.most_of_window, min(load.window for load in (game, *others))
    needed = game.needed + sum(load.needed for load in others)
    if most is None or not others or needed <= most * window:
        return ""
    return (
        f"game window {window} s < {ceil(needed / most)} s, of which runs in this job and "
        f"{len(others)} more would take this machine {needed:.3g} s, and policy.most_of_window is "
        f"{most:g}"
    )


def check_stake(policy: PolicySection, lacking: int, staked: int, wallet: int) -> None:
    """Raises NotOurPolicy where the bond would stake more of the account than it may.

    Args:
        lacking, staked, wallet: wei that are added, that are staked already, and that are free.
    """
    share = Fraction(str(policy.largest_share))
    owned = staked + wallet
    if staked + lacking > share * owned:
        token = whole_token()
        raise NotOurPolicy(
            f"would stake {(staked + lacking) / token:g} of {owned / token:g} tokens, and "
            f"policy.largest_share is {policy.largest_share:g}",
            next_step="send the account more tokens, or raise largest_share in [policy]",
        )


def check_jobs(policy: PolicySection, others: int) -> None:
    """Raises NotOurPolicy where the account serves as many other jobs as it may.

    Args:
        others: without those that open no round.
    """
    if others >= policy.jobs_at_once:
        raise NotOurPolicy(
            f"serves {others} other jobs, and policy.jobs_at_once is {policy.jobs_at_once}",
            next_step="wait for one to end, or raise jobs_at_once in [policy]",
        )
