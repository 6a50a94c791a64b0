"""How a job's certificates are signed and checked: by which keys, and whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.protocol import bls
from atoll.protocol.bls_library import in_use
from atoll.protocol.certificates import (
    MOST_SIGNATURE_BYTES,
    Bls,
    CertificateKind,
    Ecdsa,
    Scheme,
    signer_of,
)
from atoll.protocol.checkpoint_commitments import key_of
from atoll.protocol.hashing import keccak256
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.typed_data import TypedMessage, enrolment
from atoll.protocol.types import Address, Digest
from atoll.protocol.views import JobView

if TYPE_CHECKING:
    from atoll.chain.contracts import AtollChain
    from atoll.service.context import Context
    from atoll.service.effects import Effects

REGISTRY = "BlsPolicy"
REINSTALL: Final = (
    "pip install --force-reinstall py-arkworks-bls12381: this one takes half a second"
)
SUM_PAYS_ROUNDS: Final = 4
"""Keeping the sum of a committee's keys costs no more than so many settlements save by it."""
log = structlog.get_logger("atoll.certification")


def kind_of(view: JobView, deployment: Deployment) -> CertificateKind:
    """Which certificates the job wants. Raises ConfigError of a policy that we do not know."""
    for kind in CertificateKind:
        if view.policy == deployment.addresses.get(kind.policy):
            return kind
    raise ConfigError(
        f"job {view.job_id} wants certificates that {view.policy} checks, which is not known here",
        next_step="ask whoever runs the network for its deployment file and version of atoll",
    )


def signature_bytes(kind: CertificateKind) -> int:
    """Of a signature as gateways serve it, at most."""
    return bls.SIGNATURE_BYTES if kind is CertificateKind.BLS else MOST_SIGNATURE_BYTES


def signature_of(context: Context, view: JobView, message: TypedMessage) -> bytes:
    """Our own signature of a certificate, as gateways serve it."""
    if kind_of(view, context.chain.deployment) is CertificateKind.ECDSA:
        return context.sign(message)
    return bls.sign(own_secret(context), message.digest)


def enrolment_of(context: Context, view: JobView, slot: int, bond: int) -> bytes:
    """What shows that we can sign the job's certificates; nothing where a registered key does."""
    deployment = context.chain.deployment
    if kind_of(view, deployment) is not CertificateKind.ECDSA:
        return b""
    where = (deployment.chain_id, deployment.addresses["Members"], view.job_id, slot)
    return context.sign(enrolment(*where, bond=bond, account=context.me))


def own_secret(context: Context) -> int:
    """Of our BLS12-381 key: it follows from the account's, so that a lost disk loses nothing."""
    deployment = context.chain.deployment
    registry = deployment.addresses[REGISTRY]
    message = bls.secret_message(deployment.chain_id, registry, context.me)
    return bls.secret_of(key_of(context.sign(message)))


async def scheme_of(
    effects: Effects, view: JobView, digest: Digest, signed: Mapping[Address, bytes]
) -> Scheme:
    """What checks these members' signatures: with the keys that they have, and what those that are
    contracts answer, now.
    """
    chain = effects.context.chain
    if kind_of(view, chain.deployment) is CertificateKind.ECDSA:
        others = {who: each for who, each in signed.items() if signer_of(digest, each) != who}
        asked = (_answered(chain, who, digest, each) for who, each in others.items())
        answers = zip(others, await asyncio.gather(*asked), strict=True)
        return Ecdsa({who: answer for who, answer in answers if answer is not None})
    await asyncio.to_thread(in_use)  # tried once a process, for seconds
    keys = await asyncio.gather(*(chain.bls_key(member) for member in signed))
    return Bls(dict(zip(signed, keys, strict=True)))


async def _answered(
    chain: AtollChain, member: Address, digest: Digest, signature: bytes
) -> frozenset[tuple[Digest, bytes]] | None:
    """The signature, if the member takes it for its own; None where it is no contract."""
    if not await chain.code_at(member):
        return None
    is_its = await chain.is_signer(member, digest, signature)
    return frozenset([(digest, signature)] if is_its else [])


async def sound(
    effects: Effects, view: JobView, digest: Digest, signed: Mapping[Address, bytes]
) -> tuple[Scheme, dict[Address, bytes]]:
    """The signatures that stand under the members' keys of now; whose does not is left out."""
    scheme = await scheme_of(effects, view, digest, signed)
    kept = {
        who: signature for who, signature in signed.items() if scheme.is_of(who, digest, signature)
    }
    for who in signed.keys() - kept.keys():
        log.warning("signature_excluded", job=view.job_id, account=who)
    return scheme, kept


async def ensure_key(effects: Effects, view: JobView) -> None:
    """Registers our key, where the job's certificates want one and the registry has not ours.

    Raises:
        ConfigError: the job's policy is not known here, or the account has another key, for ever.
        TransactionFailed: the registry refused it.
    """
    context = effects.context
    chain, me = context.chain, context.me
    if kind_of(view, chain.deployment) is CertificateKind.ECDSA:
        return
    used = await asyncio.to_thread(in_use)
    if used.reason is not None:
        log.warning("bls_by_the_reference", cause=used.reason, next_step=REINSTALL)
    secret = own_secret(context)
    key, known = bls.key_of(secret), await chain.bls_key(me)
    if known == key:
        return
    if known:
        raise ConfigError(
            f"{me} has another key for certificates in BLS12-381, which it keeps for ever",
            next_step="verify jobs of this kind with another account",
        )
    registry = chain.deployment.addresses[REGISTRY]
    message = bls.proof_message(chain.deployment.chain_id, registry, me, key)
    proof = bls.added([bls.sign(secret, message, bls.PROVE)])
    name = f"bls-key:{key[:8].hex()}"
    await context.queue.submit(name, effects.calls.register(key, proof), retry_failed=True)
    await context.queue.wait(name)


async def ensure_sum(effects: Effects, view: JobView, running: OpenRound) -> None:
    """Asks for the sum of a committee's keys to be kept, where settlements to come are the cheaper.

    Nothing waits for it: a certificate is taken without.
    """
    context = effects.context
    chain = context.chain
    if kind_of(view, chain.deployment) is CertificateKind.ECDSA or not _is_steady(view, running):
        return
    committee = committee_accounts(view, running)
    if await chain.bls_sum(committee):
        return
    if not all(await asyncio.gather(*(chain.bls_key(member) for member in committee))):
        return  # it is refused while one has no key
    name = f"bls-sum:{keccak256(''.join(committee).encode())[:8].hex()}"
    await context.queue.submit(name, effects.calls.keep(committee))


def _is_steady(view: JobView, running: OpenRound) -> bool:
    """Whether the round's committee is the whole pool, was the same before, and may be for long."""
    left = view.require_terms().rounds - running.round - 1
    if running.round == 0 or running.committee != running.ready or left < SUM_PAYS_ROUNDS:
        return False
    settled_round = view.settled[running.round - 1]
    return committee_accounts(view, settled_round) == committee_accounts(view, running)


def accounts_in(committee: Sequence[Address], signers: int) -> set[Address]:
    """Those whose bit is set."""
    return {member for i, member in enumerate(committee) if signers >> i & 1}
