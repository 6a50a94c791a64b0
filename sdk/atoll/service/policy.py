"""What an operator lets a service take part in. Rule of this file: pure.

A refusal is words with numbers; nothing is staked on a job that is refused.
"""

from __future__ import annotations

from fractions import Fraction

from atoll.bits.layout import param_count
from atoll.errors import AtollError
from atoll.law.manifest import Manifest
from atoll.law.words import TOKEN, Role, Terms
from atoll.service.config import PolicySection
from atoll.service.needs import Machine, least_disk, memory_of
from atoll.service.pace import Pace, loads_of


class NotOurPolicy(AtollError):
    """The operator's policy forbids to stake on a job, as things are now."""


def terms_refusal(policy: PolicySection, terms: Terms, role: Role) -> str:
    """Why terms are not taken, from what the chain has of a job alone; empty where they are."""
    if role is Role.PROVIDER and terms.price_per_token < policy.least_price_wei:
        return (
            f"pays {terms.price_per_token} wei a token, and policy.least_price_wei "
            f"is {policy.least_price_wei}"
        )
    if role is Role.VERIFIER and terms.duty_fee < policy.least_fee_wei:
        return (
            f"pays {terms.duty_fee} wei a replay, and policy.least_fee_wei "
            f"is {policy.least_fee_wei}"
        )
    bond = terms.provider_bond if role is Role.PROVIDER else terms.verifier_bond
    most = policy.largest_bond
    if most is not None and bond > most * TOKEN:
        return f"its bond is {bond / TOKEN:g} tokens, and policy.largest_bond is {most:g}"
    return ""


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
    """Why a job is too fast for this machine, by the pace measured here; empty where it is not."""
    most = policy.most_of_window
    if most is None:
        return ""
    for load in loads_of(role, manifest, pace):
        if load.needed > most * load.window:
            return (
                f"would take this machine {load.needed:.3g} s {load.text}, of a window of "
                f"{load.window} s, and policy.most_of_window is {most:g}"
            )
    return ""


def check_stake(policy: PolicySection, lacking: int, staked: int, wallet: int) -> None:
    """Raises NotOurPolicy where the bond would stake more of the account than it may.

    Args:
        lacking, staked, wallet: wei that are added, that are staked already, and that are free.
    """
    share = Fraction(str(policy.largest_share))
    owned = staked + wallet
    if staked + lacking > share * owned:
        raise NotOurPolicy(
            f"would stake {(staked + lacking) / TOKEN:g} of {owned / TOKEN:g} tokens, and "
            f"policy.largest_share is {policy.largest_share:g}",
            next_step="send the account more tokens, or raise largest_share in [policy]",
        )


def check_jobs(policy: PolicySection, others: int) -> None:
    """Raises NotOurPolicy where the account serves as many other jobs as it may."""
    if others >= policy.jobs_at_once:
        raise NotOurPolicy(
            f"serves {others} other jobs, and policy.jobs_at_once is {policy.jobs_at_once}",
            next_step="wait for one to end, or raise jobs_at_once in [policy]",
        )
