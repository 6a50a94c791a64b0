"""A job as its submitter describes it, and the only way from there to a manifest.

Rule of this file: what is chosen and what is found out stand apart, and together they make a valid
manifest or raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from atoll.errors import ConfigError, ManifestError
from atoll.job.groups import (
    Audit,
    Count,
    Data,
    Duration,
    Evaluate,
    Group,
    Init,
    Inner,
    Members,
    MethodChoice,
    Money,
    Outer,
    Windows,
)
from atoll.job.methods import (
    Method,
    method_of,
    moment_exponents,
    with_codec,
    with_feedback,
    with_rule,
)
from atoll.job.reach import Training, with_bounds
from atoll.job.task_group import Task
from atoll.job.toml_files import read_toml, set_path
from atoll.numerics.state_layout import adapter_shapes, param_shapes
from atoll.protocol.audit_rates import rate_of_chance
from atoll.protocol.manifest import (
    MANIFEST_VERSION,
    MAX_ABOUT,
    MAX_STEPS,
    DataSpec,
    InitSpec,
    Manifest,
    NumericsSpec,
)
from atoll.protocol.method_spec import (
    CodecSpec,
    InnerSpec,
    OuterSpec,
    RobustSpec,
    reset_period_of,
)
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.optimisers import INNER_FIELDS, INNER_OPTIMISERS
from atoll.protocol.rules import RULES
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.token_units import MOST_DECIMALS, parts_of
from atoll.protocol.types import ZERO_DIGEST, Digest, Terms
from atoll.service.messages import explain, sentences

KAPPA: Final = "2.5"
"""Of the distance check: one honest int8 update in a thousand is beyond it (docs/attacks.md)."""
MILLION: Final = 10**6
ONLY_COMPUTED_FROM: Final = frozenset({"budget", "flop_price", "gas_price"})
"""Of [money]: what other amounts follow from, and no manifest has."""
_OPTIMIZER, _WEIGHT_DECAY = "adamw", "0.1"
"""Where neither a job nor its method says another."""


class JobSpec(Group):
    """What a submitter decides about a job; the same for commands, SDK, devnet, benches and tests.

    `model` None takes the model of the first weights. With `lora` these are frozen and adapters
    are trained. The groups say what each field means.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)] = "job"
    about: Annotated[str, Field(max_length=MAX_ABOUT)] = Field(
        default="", description="what the job is for, in your words: its page shows them"
    )
    rounds: Count = 4
    lifetime: Duration | None = Field(default=None, description="until it may be closed unfinished")
    certificate: Literal["ecdsa", "bls"] = Field(
        default="ecdsa",
        description="how members sign merges: bls where the network has it, or ecdsa",
    )
    model: ModelSpec | None = None
    lora: LoraSpec | None = None
    init: Init = Init()
    data: Data = Data()
    inner: Inner = Inner()
    outer: Outer = Outer()
    method: MethodChoice = MethodChoice()
    audit: Audit = Audit()
    money: Money = Money()
    members: Members = Members()
    windows: Windows = Windows()
    evaluate: Evaluate = Evaluate()
    task: Task | None = None

    @model_validator(mode="after")
    def _enough_for_the_rule(self) -> Self:
        """Fewer providers merge nothing: the contract waits for 2f + 1, whatever the job says."""
        seats, here = self.members.seats, self.members.min_providers
        rule = method_chosen(self.method).rule
        needed = least_providers(seats, rule)
        if seats < needed:
            raise ValueError(
                f"members.seats is {seats}: {rule} bears {robust_f(seats, rule)} that lie among "
                f"{needed} or more"
            )
        if here is not None and here < needed:
            raise ValueError(
                f"members.min_providers is {here}: with {seats} seats the merge bears "
                f"{robust_f(seats, rule)} that lie, and no round begins with fewer than {needed}"
            )
        if RULES[rule].tries_too_many(seats, robust_f(seats, rule)):
            raise ValueError(
                f"members.seats is {seats}: {rule} would try too many subsets of so many updates; "
                "have fewer seats, or choose another method.rule"
            )
        return self

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str = "the job") -> Self:
        """The spec of nested plain values, as TOML has them.

        Raises:
            ConfigError: an unknown key, a wrong type or a value out of range; the key is named.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise explain(error, cls, source) from error

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The spec in a TOML file; its relative paths are taken from the file's folder.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or is no spec.
        """
        file = Path(path)
        spec = cls.of(read_toml(file), str(file))
        return spec.beside(file.absolute().parent)

    def beside(self, folder: Path) -> Self:
        """The same with relative paths taken from `folder`."""
        moved = {"data": self.data.beside(folder), "init": self.init.beside(folder)}
        task = None if self.task is None else self.task.beside(folder)
        return self.model_copy(update={**moved, "task": task})

    def but(self, changes: Mapping[str, Any]) -> Self:
        """The spec with other values, by key path: `{"rounds": 2, "inner.lr": "0.01"}`.

        Raises:
            ConfigError: as `of`.
        """
        document: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        for path, value in changes.items():
            set_path(document, path, value)
        return self.of(document)

    def resolve(
        self,
        data: DataSpec,
        init: InitSpec | None,
        numerics: NumericsSpec,
        now: int,
        *,
        decimals: int = MOST_DECIMALS,
        task: TaskSpec | None = None,
    ) -> Manifest:
        """The job's manifest.

        Args:
            data: of the prepared text.
            init: of prepared first weights; None draws them from `init.seed`.
            numerics: what the submitter's machine reproduces.
            now: unix seconds; the job is created then, and expires `lifetime` later.
            decimals: of the token that the job is paid in.
            task: of prepared prompts, which `data` are then.

        Raises:
            ConfigError: something is left out that has to be computed first (`atoll.job.plan`), or
                an amount is finer than the token.
            ManifestError: the choices do not fit together.
        """
        spec = self.as_method()
        if spec.model is None:
            raise ConfigError(
                "the job has no model",
                next_step="name a Hugging Face folder as init.folder, or add a [model] group",
            )
        open_fields = spec.left_out()
        if open_fields:
            raise ConfigError(
                f"left out and not computed yet: {', '.join(open_fields)}",
                next_step="complete the job with atoll.job.plan.complete, or write them down",
            )
        amounts = _amounts(spec, spec.model.seq, decimals)
        try:
            prepared = _Prepared(data, init, numerics, task)
            manifest = _build(spec, prepared, amounts=amounts, now=now)
        except ValidationError as error:
            message = f"the job: {sentences(error, Manifest)}"
            raise ManifestError(message, next_step="change the job's options") from error
        return manifest

    def left_out(self) -> list[str]:
        """Key paths of what has to be computed before there can be a manifest."""
        paths = [] if self.lifetime else ["lifetime"]
        for name, skipped in (
            ("money", ONLY_COMPUTED_FROM),
            ("windows", {"step_seconds"}),
            ("audit", {"budget"} | ({"lowest"} if self.audit.rate else set())),
        ):
            group = getattr(self, name)
            fields = [field for field in type(group).model_fields if field not in skipped]
            paths += [f"{name}.{field}" for field in fields if getattr(group, field) is None]
        return paths

    def as_method(self) -> Self:
        """The same with what the method forces: rounds of one step, or a single round."""
        method, spec = method_of(self.method.name), self
        if method.one_step:
            inner = spec.inner.model_copy(update={"steps": 1, "segment": 1})
            spec = spec.model_copy(update={"inner": inner})
        return spec.model_copy(update={"rounds": 1}) if method.one_round else spec

    @property
    def segments(self) -> int:
        """Of a round."""
        inner = self.as_method().inner
        return inner.steps // inner.segment


def method_chosen(choice: MethodChoice) -> Method:
    """The method, with the codec and the rule that take the place of its own, and what is fed back.

    Raises:
        ManifestError: the method's updates feed nothing back, or what they do; the rule does not
            merge what the codec writes.
    """
    method = method_of(choice.name)
    method = with_codec(method, choice.codec) if choice.codec else method
    method = with_rule(method, choice.rule) if choice.rule else method
    return with_feedback(method, choice.feedback) if choice.feedback != "0" else method


def reset_period_chosen(choice: MethodChoice) -> int:
    """Rounds of a reset period, where seats keep a state of their own: as chosen, else the
    method's.
    """
    return choice.reset_period or method_of(choice.name).reset_period


def least_providers(seats: int, rule: str) -> int:
    """So many have to be there for the merge to bear f that lie."""
    return RULES[rule].minimum(robust_f(seats, rule))


def robust_f(seats: int, rule: str) -> int:
    """⌊seats / 4⌋ from four seats on; 0 of rules that bear nobody."""
    return seats // 4 if seats >= 4 and RULES[rule].bears_faults else 0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a manifest says that nobody chooses."""

    data: DataSpec
    init: InitSpec | None
    numerics: NumericsSpec
    task: TaskSpec | None


def _build(
    spec: JobSpec,
    prepared: _Prepared,
    *,
    amounts: Mapping[str, int],
    now: int,
) -> Manifest:
    assert spec.model is not None  # `resolve` asked
    model, method = spec.model, method_chosen(spec.method)
    inner = _inner(spec.inner, method)
    codec = _codec(spec, method, _training(spec, model, inner, method.codec.fragments))
    members = spec.members
    f = robust_f(members.seats, method.rule)
    return Manifest(
        version=MANIFEST_VERSION,
        name=spec.name,
        created=now,
        model=model,
        reset_period=reset_period_of(codec, min(reset_period_chosen(spec.method), spec.rounds)),
        numerics=prepared.numerics,
        lora=spec.lora,
        init=_init(spec, prepared.init),
        data=prepared.data,
        inner=inner,
        outer=_outer(spec.outer, method),
        codec=codec,
        robust=RobustSpec(rule=method.rule, f=f, kappa=KAPPA),
        tables=_tables(model, inner, spec.rounds),
        terms=_terms(spec, f, amounts, tokens_per_step=inner.batch * model.seq, now=now),
        about=spec.about or None,
        task=prepared.task,
    )


def _init(spec: JobSpec, given: InitSpec | None) -> InitSpec:
    if given is None:
        return InitSpec.drawn(spec.init.seed)
    # Adapters are drawn, whatever they are added to.
    return given if spec.lora is None else given.model_copy(update={"seed": spec.init.seed})


def _tables(model: ModelSpec, inner: InnerSpec, rounds: int) -> Digest:
    # Only here, since numpy takes as long to load as the rest: a job file is written without it.
    from atoll.numerics.schedule_tables import tables_root  # noqa: PLC0415

    # A job too long to have tables is refused by its manifest, in words.
    return tables_root(model, inner, min(rounds * inner.steps, MAX_STEPS))


def _codec(spec: JobSpec, method: Method, training: Training) -> CodecSpec:
    # A provider trains whole segments while the merged model is on its way to it.
    overlaps = method.overlaps and spec.inner.steps > spec.inner.segment
    changes = {
        "overlap": spec.inner.segment if overlaps else 0,
        "exponents": training.exponents(method.codec),
        "moment_exponents": moment_exponents(method.codec, training.trained),
    }
    return with_bounds(method.codec.model_copy(update=changes))


def _training(spec: JobSpec, model: ModelSpec, inner: InnerSpec, fragments: int) -> Training:
    # Only here, as `_tables`; of a job too long to have tables the first rounds are all the same.
    from atoll.numerics.schedule_tables import schedule_of  # noqa: PLC0415

    total = min(spec.rounds * inner.steps, MAX_STEPS)
    rates = schedule_of(inner, total).rates[: fragments * inner.steps].tolist()
    return Training(inner, rates, spec.lora, _trained(model, spec.lora))


def _trained(model: ModelSpec, lora: LoraSpec | None) -> int:
    shapes = param_shapes(model) if lora is None else adapter_shapes(model, lora)
    return sum(prod(shape) for shape in shapes.values())


def _given(group: Group) -> dict[str, Any]:
    """What a group says, as a manifest writes it."""
    return {name: value for name, value in group if value is not None}


def _inner(inner: Inner, method: Method) -> InnerSpec:
    given, of_method = _given(inner), dict(method.inner)
    usual = of_method.get("optimizer", _OPTIMIZER)
    chosen = given.get("optimizer", usual)
    # A method's fields are of its optimiser: another one does not read them all.
    of_method = of_method if chosen == usual else {}
    known = INNER_OPTIMISERS.get(chosen)
    fields = dict.fromkeys(INNER_FIELDS, "0") | {"weight_decay": _WEIGHT_DECAY}
    fields |= (dict(known.usual) if known else {}) | of_method | given | {"optimizer": chosen}
    return InnerSpec.model_validate({"micro_batch": inner.batch} | fields)


def _outer(outer: Outer, method: Method) -> OuterSpec:
    return OuterSpec.model_validate(method.outer.model_dump() | _given(outer))


def audit_steps(audit: Audit, rate: int) -> int:
    """Entries of the table that a seat may come down by; none where everybody is replayed."""
    lowest = rate if audit.lowest is None else rate_of_chance(Fraction(audit.lowest))
    return max(0, lowest - rate) if rate else 0


def audit_rate(audit: Audit, f: int) -> int:
    """The rate of a job's audits. A merge that bears nobody has everybody replayed."""
    return rate_of_chance(Fraction(audit.rate or 1)) if f else 0


def segment_pay(price_per_million: int, tokens: int, decimals: int) -> int:
    """Units of a segment of so many tokens, rounded up: what has a price is not free."""
    return -(-price_per_million * tokens // (MILLION * parts_of(decimals)))


def _amounts(spec: JobSpec, seq: int, decimals: int) -> dict[str, int]:
    """The terms' amounts, in units of the token. Raises ConfigError of one that is no whole one."""
    tokens = spec.inner.segment * spec.inner.batch * seq
    amounts = {"segment_pay": segment_pay(spec.money.price_per_million or 0, tokens, decimals)}
    for name, value in spec.money:
        if name in ONLY_COMPUTED_FROM or name == "price_per_million":
            continue
        units, rest = divmod(value, parts_of(decimals))
        if rest:
            raise ConfigError(
                f"money.{name} is finer than the network's token, which has {decimals} decimals",
                next_step="round it, or leave it out",
            )
        amounts[name] = units
    return amounts


def _terms(
    spec: JobSpec, f: int, amounts: Mapping[str, int], *, tokens_per_step: int, now: int
) -> Terms:
    windows = {f"{name}_seconds": value for name, value in spec.windows if name not in _MEASURES}
    members = dict(spec.members)
    needed = RULES[method_chosen(spec.method).rule].minimum(f)
    rate = audit_rate(spec.audit, f)
    members["min_providers"] = members["min_providers"] or max(needed, min(3, members["seats"]))
    return Terms(
        rounds=spec.rounds,
        f=f,
        audit_rate=rate,
        last_rate=0 if spec.audit.last == "all" else rate,
        rate_steps=audit_steps(spec.audit, rate),
        expiry=now + (spec.lifetime or 0),
        steps=spec.inner.steps,
        segment_steps=spec.inner.segment,
        tokens_per_step=tokens_per_step,
        program=ZERO_DIGEST,
        **members,
        **windows,
        **amounts,
    )


_MEASURES = frozenset({"slower", "step_seconds", "megabits"})
