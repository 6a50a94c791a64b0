"""Manifests that are known to work together, built from a few choices.

Rule of this file: a preset takes one frozen config and returns a valid manifest, or raises.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from pydantic import ValidationError

from atoll.bits.tables import tables_root
from atoll.errors import ManifestError
from atoll.job.methods import Method, method_of
from atoll.law.manifest import (
    MANIFEST_VERSION,
    MAX_STEPS,
    AuditSpec,
    CodecSpec,
    DataSpec,
    InitSpec,
    InnerSpec,
    Manifest,
    ModelSpec,
    NumericsSpec,
    RobustSpec,
)
from atoll.law.words import Digest, Terms

_ETHER = 10**18


@dataclass(frozen=True, slots=True)
class Windows:
    """Phase windows in seconds."""

    train: int = 60
    reveal: int = 30
    report: int = 60
    confirm: int = 30
    attest: int = 30
    dispute: int = 10


@dataclass(frozen=True, slots=True)
class Money:
    """Amounts in wei."""

    price_per_token: int = 10**12
    verifier_fee: int = _ETHER // 10
    provider_bond: int = 100 * _ETHER
    verifier_bond: int = 100 * _ETHER
    report_bond: int = _ETHER


@dataclass(frozen=True, slots=True)
class Members:
    """Seats, verifiers, and how many of each a round needs; the quorum is a fraction of stake."""

    seats: int = 4
    min_providers: int = 2
    min_verifiers: int = 2
    max_verifiers: int = 8
    quorum_numerator: int = 2
    quorum_denominator: int = 3
    auditors: int = 2
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """A byte-level GPT that trains in minutes on two cores.

    Attributes:
        data: what the data set's preparation returned.
        numerics: what this software class reproduces.
        expiry: unix seconds after which the job may be closed.
        created: unix seconds.
        coverage: share of a seat's segments that are replayed in all but the last round.
        method: a name of `methods.METHODS`; it may make a round one step, or the job one round.
    """

    data: DataSpec
    numerics: NumericsSpec
    expiry: int
    created: int = 0
    name: str = "demo"
    seed: int = 0
    rounds: int = 4
    beacon_delay: int = 2
    coverage: float = 0.5
    method: str = "fedavg"
    lr: str = "0.003"
    steps: int = 40
    segment: int = 5
    batch: int = 8
    micro_batch: int = 8
    model: ModelSpec | None = None
    members: Members = field(default_factory=Members)
    windows: Windows = field(default_factory=Windows)
    money: Money = field(default_factory=Money)


def demo_model() -> ModelSpec:
    """Two hundred thousand parameters over single bytes."""
    return ModelSpec(
        kind="llama",
        vocab=256,
        width=64,
        layers=4,
        heads=4,
        kv_heads=4,
        mlp="swiglu",
        ffn=176,
        seq=64,
        tied=True,
        norm_eps="0.00001",
        rope_base=10000,
    )


def demo_manifest(config: DemoConfig) -> Manifest:
    """The demo's manifest. Raises ManifestError when the choices do not fit together."""
    method = method_of(config.method)
    if method.one_step:
        config = replace(config, steps=1, segment=1)
    if method.one_round:
        config = replace(config, rounds=1)
    try:
        return _build(config, method)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ManifestError(f"manifest: {message}", next_step="change the job's options") from error


def draws_for_coverage(coverage: float, segments: int, auditors: int) -> int:
    """The smallest m with m · auditors ≥ coverage · segments, and at least 1."""
    return max(1, ceil(Fraction(str(coverage)) * segments / auditors))


def _build(config: DemoConfig, method: Method) -> Manifest:
    model = config.model or demo_model()
    segments = config.steps // config.segment
    inner = _inner(config, method)
    return Manifest(
        version=MANIFEST_VERSION,
        name=config.name,
        created=config.created,
        model=model,
        numerics=config.numerics,
        init=InitSpec(seed=config.seed),
        data=config.data,
        inner=inner,
        outer=method.outer,
        codec=_codec(config, method),
        robust=RobustSpec(
            rule=method.rule,
            f=robust_f(config.members.seats),
            kappa=kappa_for(config.members.seats),
        ),
        audit=AuditSpec(
            draws=draws_for_coverage(config.coverage, segments, config.members.auditors),
            overlap="0.5",
            coverage_last_round="1",
        ),
        tables=_tables(model, inner, config),
        terms=_terms(config, config.batch * model.seq),
    )


def _tables(model: ModelSpec, inner: InnerSpec, config: DemoConfig) -> Digest:
    steps = config.rounds * config.steps
    # A job too long to have tables is refused by its manifest, in words.
    return tables_root(model, inner, min(steps, MAX_STEPS))


def robust_f(seats: int) -> int:
    """⌊seats / 4⌋, at least 1 from three seats on."""
    return max(seats // 4, 1) if seats >= 3 else 0


def kappa_for(seats: int) -> str:
    """The κ that one honest int8 update in a thousand exceeds, in steps of 1/4.

    From the quantiles that bench/outliers.py measures (docs/attacks.md); few seats have a noisier
    median to be compared with.
    """
    return "1.5" if seats <= 16 else "1.25"


def _codec(config: DemoConfig, method: Method) -> CodecSpec:
    # A provider trains whole segments while the merged model is on its way to it.
    overlaps = method.overlaps and config.steps > config.segment
    return method.codec.model_copy(update={"overlap": config.segment if overlaps else 0})


def _inner(config: DemoConfig, method: Method) -> InnerSpec:
    fields: dict[str, str | int] = {
        "optimizer": "adamw",
        "lr": config.lr,
        "momentum": "0",
        "beta1": "0.9",
        "beta2": "0.99",
        "eps": "0.00000001",
        "weight_decay": "0.1",
        "dropout": "0",
        "clip": "1",
        "schedule": "constant",
        "warmup_steps": 10,
        "steps": config.steps,
        "batch": config.batch,
        "segment": config.segment,
        "micro_batch": config.micro_batch,
    }
    return InnerSpec.model_validate(fields | dict(method.inner))


def _terms(config: DemoConfig, tokens_per_step: int) -> Terms:
    members, windows, money = config.members, config.windows, config.money
    return Terms(
        rounds=config.rounds,
        seats=members.seats,
        min_providers=members.min_providers,
        min_verifiers=members.min_verifiers,
        max_verifiers=members.max_verifiers,
        quorum_numerator=members.quorum_numerator,
        quorum_denominator=members.quorum_denominator,
        attempts=members.attempts,
        auditors=members.auditors,
        beacon_delay=config.beacon_delay,
        train_seconds=windows.train,
        reveal_seconds=windows.reveal,
        report_seconds=windows.report,
        confirm_seconds=windows.confirm,
        attest_seconds=windows.attest,
        dispute_seconds=windows.dispute,
        expiry=config.expiry,
        steps=config.steps,
        tokens_per_step=tokens_per_step,
        price_per_token=money.price_per_token,
        verifier_fee=money.verifier_fee,
        provider_bond=money.provider_bond,
        verifier_bond=money.verifier_bond,
        report_bond=money.report_bond,
    )
