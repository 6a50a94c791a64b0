"""From text and a few choices to a manifest; the one way there.

Rule of this file: what is chosen and what is found out stand apart, and together they make a valid
manifest or raise.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.util import find_spec
from math import ceil
from pathlib import Path

from pydantic import ValidationError

from atoll.bits.tables import tables_root
from atoll.content.local import LocalStore
from atoll.errors import ConfigError, ManifestError
from atoll.job.methods import Method, method_of, with_codec
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
from atoll.law.words import TOKEN, Digest, NumericsMode, Terms


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
    verifier_fee: int = TOKEN // 10
    provider_bond: int = 100 * TOKEN
    verifier_bond: int = 100 * TOKEN
    report_bond: int = TOKEN


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
class Choices:
    """What a submitter decides about a job; by default a byte-level GPT of minutes on two cores.

    Attributes:
        coverage: share of a seat's segments that are replayed in all but the last round.
        method: a name of `methods.METHODS`; it may make a round one step, or the job one round.
        codec: a name of `methods.DENSE_CODECS` in the place of the method's; empty keeps that.
        dropout: share of activations that are dropped, a decimal.
        model: None takes `demo_model`.
    """

    name: str = "demo"
    seed: int = 0
    rounds: int = 4
    beacon_delay: int = 2
    coverage: float = 0.5
    method: str = "fedavg"
    codec: str = ""
    dropout: str = "0"
    lr: str = "0.003"
    steps: int = 40
    segment: int = 5
    batch: int = 8
    micro_batch: int = 8
    model: ModelSpec | None = None
    members: Members = field(default_factory=Members)
    windows: Windows = field(default_factory=Windows)
    money: Money = field(default_factory=Money)


@dataclass(frozen=True, slots=True)
class Found:
    """What a manifest says that nobody chooses.

    Attributes:
        data: of the prepared text.
        numerics: what the submitter's machine reproduces.
        created: unix seconds.
        expiry: unix seconds after which the job may be closed.
    """

    data: DataSpec
    numerics: NumericsSpec
    expiry: int
    created: int = 0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job in a few words: text files, and choices.

    Attributes:
        data: text files and folders.
        lifetime_s: seconds until the job may be closed whatever happens.
        suffixes: of the files taken from folders; None takes all.
        max_tokens: reads no further once it has that many.
        numerics: how replays compare; a mode's name asks this machine, which needs torch.
    """

    data: tuple[Path, ...]
    lifetime_s: int = 24 * 60 * 60
    choices: Choices = field(default_factory=Choices)
    suffixes: frozenset[str] | None = None
    max_tokens: int | None = None
    eval_batches: int = 8
    numerics: NumericsSpec | NumericsMode = "exact"


def prepare_data(request: JobRequest, store: LocalStore) -> DataSpec:
    """Tokenises the request's text into the store, pinned.

    Raises:
        DataUnusable: a file cannot be read, or there is too little text.
        StorageError: the store cannot be written.
    """
    from atoll.train.corpus.options import DataOptions  # noqa: PLC0415 (tokenizers)
    from atoll.train.corpus.prepare import prepare  # noqa: PLC0415

    options = DataOptions(request.data, suffixes=request.suffixes, max_tokens=request.max_tokens)
    return prepare(options, store).spec(request.eval_batches)


async def machine_numerics(mode: NumericsMode) -> NumericsSpec:
    """What workers reproduce on this machine, asked of a process of its own.

    Raises:
        ConfigError: the train extra is missing, or this machine cannot be probed.
    """
    if find_spec("torch") is None:
        raise missing_extra("writing a manifest")
    program = (sys.executable, "-m", "atoll.train.describe", mode)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe)
    printed, complaint = await process.communicate()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(
            f"this machine's numerics could not be probed: {last}",
            next_step=f"run {' '.join(program)} to see why",
        )
    document = json.loads(printed)
    for name in ("code_digest", "probe_digest"):
        document[name] = None if document[name] is None else bytes.fromhex(document[name])
    return NumericsSpec(**document)


def missing_extra(what: str) -> ConfigError:
    """What to raise where torch would be needed."""
    return ConfigError(
        f"{what} needs torch, which is not installed", next_step="pip install 'atoll[train]'"
    )


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


def build_manifest(choices: Choices, found: Found) -> Manifest:
    """The manifest of a job. Raises ManifestError when the choices do not fit together."""
    method = method_of(choices.method)
    if choices.codec:
        method = with_codec(method, choices.codec)
    if method.one_step:
        choices = replace(choices, steps=1, segment=1)
    if method.one_round:
        choices = replace(choices, rounds=1)
    try:
        return _build(choices, found, method)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ManifestError(f"manifest: {message}", next_step="change the job's options") from error


def draws_for_coverage(coverage: float, segments: int, auditors: int) -> int:
    """The smallest m with m · auditors ≥ coverage · segments, and at least 1."""
    return max(1, ceil(Fraction(str(coverage)) * segments / auditors))


def _build(choices: Choices, found: Found, method: Method) -> Manifest:
    model = choices.model or demo_model()
    segments = choices.steps // choices.segment
    inner = _inner(choices, method)
    return Manifest(
        version=MANIFEST_VERSION,
        name=choices.name,
        created=found.created,
        model=model,
        numerics=found.numerics,
        init=InitSpec(seed=choices.seed),
        data=found.data,
        inner=inner,
        outer=method.outer,
        codec=_codec(choices, method),
        robust=RobustSpec(
            rule=method.rule,
            f=robust_f(choices.members.seats),
            kappa=kappa_for(choices.members.seats),
        ),
        audit=AuditSpec(
            draws=draws_for_coverage(choices.coverage, segments, choices.members.auditors),
            overlap="0.5",
            coverage_last_round="1",
        ),
        tables=_tables(model, inner, choices),
        terms=_terms(choices, choices.batch * model.seq, found.expiry),
    )


def _tables(model: ModelSpec, inner: InnerSpec, choices: Choices) -> Digest:
    steps = choices.rounds * choices.steps
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


def _codec(choices: Choices, method: Method) -> CodecSpec:
    # A provider trains whole segments while the merged model is on its way to it.
    overlaps = method.overlaps and choices.steps > choices.segment
    return method.codec.model_copy(update={"overlap": choices.segment if overlaps else 0})


def _inner(choices: Choices, method: Method) -> InnerSpec:
    fields: dict[str, str | int] = {
        "optimizer": "adamw",
        "lr": choices.lr,
        "momentum": "0",
        "beta1": "0.9",
        "beta2": "0.99",
        "eps": "0.00000001",
        "weight_decay": "0.1",
        "dropout": choices.dropout,
        "clip": "1",
        "schedule": "constant",
        "warmup_steps": 10,
        "steps": choices.steps,
        "batch": choices.batch,
        "segment": choices.segment,
        "micro_batch": choices.micro_batch,
    }
    return InnerSpec.model_validate(fields | dict(method.inner))


def _terms(choices: Choices, tokens_per_step: int, expiry: int) -> Terms:
    members, windows, money = choices.members, choices.windows, choices.money
    return Terms(
        rounds=choices.rounds,
        seats=members.seats,
        min_providers=members.min_providers,
        min_verifiers=members.min_verifiers,
        max_verifiers=members.max_verifiers,
        quorum_numerator=members.quorum_numerator,
        quorum_denominator=members.quorum_denominator,
        attempts=members.attempts,
        auditors=members.auditors,
        beacon_delay=choices.beacon_delay,
        train_seconds=windows.train,
        reveal_seconds=windows.reveal,
        report_seconds=windows.report,
        confirm_seconds=windows.confirm,
        attest_seconds=windows.attest,
        dispute_seconds=windows.dispute,
        expiry=expiry,
        steps=choices.steps,
        tokens_per_step=tokens_per_step,
        price_per_token=money.price_per_token,
        verifier_fee=money.verifier_fee,
        provider_bond=money.provider_bond,
        verifier_bond=money.verifier_bond,
        report_bond=money.report_bond,
    )
