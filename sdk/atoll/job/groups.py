"""The groups of a `JobSpec`: what a submitter decides about a job, each field with its words.

Rule of this file: only choices. What None leaves open is computed from measurements before a
manifest is made (`atoll.job.plan`), and shown.

A number is decimal text in Python and bare in TOML. An amount is wei in Python; as text it is
tokens. A duration is seconds in Python; as text it has units ("2m30s"). In TOML both are text.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from atoll.errors import ConfigError
from atoll.job.methods import DENSE_CODECS, METHODS
from atoll.protocol.audit_rates import Incentive
from atoll.protocol.choices import OneOf
from atoll.protocol.manifest_fields import (
    Beta,
    DecimalText,
    PositiveScale,
    Rate,
    Scale,
    UnitFraction,
)
from atoll.protocol.method_spec import InnerName, OuterName, Schedule
from atoll.protocol.optimisers import INNER_OPTIMISERS, OUTER_OPTIMISERS
from atoll.protocol.rules import RULES
from atoll.protocol.terms import MAX_SEATS, MAX_SLOTS
from atoll.protocol.token_units import MOST_DECIMALS, decimals_used

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
INCENTIVE: Final = Incentive()
"""As usual."""
_MOST_PLACES: Final = 100
"""Of a number on either side of its point; more than any field takes."""


class Bare(str):
    """Text that TOML writes without quotes."""

    __slots__ = ()


class Whole(int):
    """A whole number of a TOML document, which says no unit; in Python, an integer has one."""

    __slots__ = ()


def canonical_number(value: object) -> object:
    """A number as canonical decimal text: no exponent, no trailing zeros. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("not a number")
    try:
        exact = Decimal(str(value))
    except InvalidOperation:
        raise ValueError("not a number") from None
    if not exact.is_finite():
        raise ValueError("not a finite number")
    if abs(exact.adjusted()) > _MOST_PLACES:
        return str(value)  # which no field takes, and which would be as long as its exponent says
    text = format(exact, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def parse_tokens(text: str, places: int = MOST_DECIMALS) -> int:
    """An amount in tokens, "25" or "0.000001", in units of a token of so many decimals; exact.

    A job file has as many as any token, whichever network it is for. Raises ValueError.
    """
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is no amount of tokens") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{text!r} is no amount of tokens: it is not a finite number from 0 up")
    _sign, digits, exponent = amount.as_tuple()
    if not isinstance(exponent, int) or len(digits) + abs(exponent) > 60:
        raise ValueError(f"{text!r} is no amount of tokens: it is out of bounds")
    wei = int("".join(map(str, digits))) * 10 ** max(0, exponent + places)
    divisor = 10 ** max(0, -exponent - places)
    if wei % divisor:
        raise ValueError(f"{text!r} is not a whole number of units: tokens have {places} places")
    return int(wei // divisor)


def wei_of(amount: int | str, places: int | None = None) -> int:
    """Units of the network's token, or of one of so many decimals: an integer is these, text is
    tokens. Raises ConfigError, of a float too.
    """
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise ConfigError(
            f"{amount!r} is no amount: an integer is wei, text is tokens",
            next_step=f'write tokens as text: "{amount}"',
        )
    try:
        wei = parse_tokens(amount, places or decimals_used()) if isinstance(amount, str) else amount
    except ValueError as error:
        raise ConfigError(str(error), next_step="write tokens as text: 25 or 0.5") from error
    if wei < 0:
        raise ConfigError(f"{wei} wei is less than nothing")
    return wei


def tokens_text(wei: int) -> str:
    """An amount of a job file as exact decimal text of tokens, which `parse_tokens` reads back."""
    return _exact(wei, MOST_DECIMALS)


def units_text(units: int) -> str:
    """An amount of the network's token as exact decimal text of tokens."""
    return _exact(units, decimals_used())


def _exact(amount: int, places: int) -> str:
    whole, part = divmod(amount, 10**places)
    return f"{whole}.{part:0{places}d}".rstrip("0") if part else str(whole)


def parse_duration(text: str) -> int:
    """Seconds of "90s", "2m30s", "1d12h". Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not text.strip():
        raise ValueError(f"{text!r} is no duration: write days, hours, minutes, seconds: 1h30m")
    return sum(int(n) * unit for n, unit in zip(match.groups("0"), _UNITS.values(), strict=True))


def duration_text(seconds: int) -> str:
    """Seconds as `parse_duration` reads them: 5400 is "1h30m"."""
    parts, rest = "", seconds
    for name, unit in _UNITS.items():
        count, rest = divmod(rest, unit)
        parts += f"{count}{name}" if count else ""
    return parts or "0s"


def size_text(count: int) -> str:
    """Bytes, to three digits."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _wei(value: object) -> object:
    # In Python an integer is 10^-18 of a token; text, of a file or a caller, is tokens.
    if isinstance(value, Whole):
        raise ValueError(f"""write "{value}" for tokens, in a shell '"{value}"'""")
    return parse_tokens(value) if isinstance(value, str) else value


def _seconds(value: object) -> object:
    if isinstance(value, Whole):
        raise ValueError(f'write "{value}s" for seconds')
    return parse_duration(value) if isinstance(value, str) else value


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_NUMBER: Final = BeforeValidator(canonical_number), PlainSerializer(Bare, return_type=Any)
Number = Annotated[DecimalText, *_NUMBER]
Share = Annotated[UnitFraction, *_NUMBER]
RateNumber = Annotated[Rate, *_NUMBER]
BetaNumber = Annotated[Beta, *_NUMBER]
ScaleNumber = Annotated[Scale, *_NUMBER]
PositiveNumber = Annotated[PositiveScale, *_NUMBER]
Amount = Annotated[
    int, BeforeValidator(_wei), Field(ge=0, lt=1 << 128), PlainSerializer(tokens_text)
]
Duration = Annotated[
    int, BeforeValidator(_seconds), Field(ge=1, lt=1 << 32), PlainSerializer(duration_text)
]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_tuple)]
Count = Annotated[int, Field(ge=1, lt=1 << 32)]


def is_hub(text: str) -> bool:
    """Whether it names something of the Hugging Face Hub, and no path of this machine."""
    return text.startswith("hf://")


def beside(folder: Path, text: str) -> str:
    """A path taken from `folder`; what is no path stays."""
    return text if not text or is_hub(text) else str(folder / text)


class Group(BaseModel):
    """Frozen, strict, without unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Init(Group):
    """Where the first weights come from."""

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        default=0, description="of the first weights, where they are drawn"
    )
    folder: str = Field(
        default="",
        description="a Hugging Face folder to start from, or hf://user/model[@revision]; if empty, "
        "weights are drawn",
    )
    seq: Count | None = Field(
        default=None,
        description="tokens of a training sequence; if left out the folder's, 1024 at most",
    )

    def beside(self, folder: Path) -> Self:
        """The same with a relative path taken from `folder`."""
        return self.model_copy(update={"folder": beside(folder, self.folder)})


class Data(Group):
    """The text to train on. It becomes public."""

    paths: Texts = Field(
        default=(),
        description="files and folders, from this file's folder if relative, or "
        "hf://datasets/user/name[/path][@revision]",
    )
    format: Literal["auto", "text", "jsonl", "csv", "parquet", "datasets"] = Field(
        default="auto", description="of all files; auto goes by their names"
    )
    field: str = Field(
        default="", description="of a row: where its text is; if empty text, or messages of a chat"
    )
    chat: bool = Field(
        default=False, description="whether rows are conversations, of which answers are learned"
    )
    packed: bool = Field(
        default=False,
        description="whether a training sequence begins with a document, and cuts none that fits",
    )
    bad_rows: Literal["refuse", "skip"] = Field(
        default="refuse", description="of rows that cannot be taken: refuse, or skip and count them"
    )
    suffixes: Texts = Field(default=(), description="of the files taken from folders; all if empty")
    hidden: bool = Field(default=False, description="whether hidden files of folders are taken too")
    tokenizer: str = Field(
        default="",
        description="a tokenizer.json, its folder, or hf://user/model[@revision]; if empty, a "
        "token is a byte",
    )
    end_token: str = Field(
        default="", description="what ends a document; if empty what the tokenizer's folder says"
    )
    max_tokens: Count | None = Field(
        default=None, description="read no further once it has that many"
    )
    held_out: Share = Field(default="0.05", description="share of the text kept for evaluation")
    held_out_paths: Texts = Field(
        default=(), description="as paths: a text of your own to evaluate on, in place of a share"
    )

    def beside(self, folder: Path) -> Self:
        """The same with relative paths taken from `folder`."""
        tokenizer = beside(folder, self.tokenizer)
        paths = tuple(beside(folder, path) for path in self.paths)
        held_out_paths = tuple(beside(folder, path) for path in self.held_out_paths)
        changes = {"paths": paths, "held_out_paths": held_out_paths, "tokenizer": tokenizer}
        return self.model_copy(update=changes)


class Inner(Group):
    """How each provider trains. What is left out is the method's, or as usual."""

    lr: RateNumber = Field(default="0.003", description="learning rate")
    steps: Count = Field(default=40, description="of a round")
    segment: Count = Field(
        default=5, description="steps of a segment, the unit of audits; divides steps"
    )
    batch: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=8, description="sequences of a step"
    )
    micro_batch: Annotated[int, Field(ge=1, le=1 << 20)] | None = Field(
        default=None,
        description="sequences at a time, which bounds memory; the whole batch if left out",
    )
    lanes: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=1, description="runs of micro-batches whose sums are added, for several processes"
    )
    dropout: Share = Field(default="0", description="share of activations that are dropped")
    clip: PositiveNumber = Field(default="1", description="largest norm of a gradient")
    schedule: Schedule = "constant"
    warmup_steps: Annotated[int, Field(ge=0, lt=1 << 32)] = 10
    optimizer: InnerName | None = Field(default=None, description=", ".join(INNER_OPTIMISERS))
    momentum: BetaNumber | None = None
    beta1: BetaNumber | None = None
    beta2: BetaNumber | None = None
    eps: Number | None = None
    weight_decay: ScaleNumber | None = None


class Outer(Group):
    """The outer optimiser. What is left out is the method's."""

    kind: OuterName | None = Field(default=None, description=", ".join(OUTER_OPTIMISERS))
    lr: PositiveNumber | None = None
    momentum: BetaNumber | None = None
    beta2: BetaNumber | None = None
    eps: Number | None = None
    period: Annotated[int, Field(ge=0, le=256)] | None = None


class MethodChoice(Group):
    """How they train together."""

    name: Annotated[str, AfterValidator(OneOf("method", METHODS))] = Field(
        default="fedavg", description=", ".join(METHODS)
    )
    codec: Annotated[str, AfterValidator(OneOf("dense codec", ("", *DENSE_CODECS)))] = Field(
        default="",
        description=f"of updates; the method's own if empty, or {', '.join(DENSE_CODECS)}",
    )
    rule: Annotated[str, AfterValidator(OneOf("merge rule", ("", *RULES)))] = Field(
        default="",
        description=f"that merges updates; the method's own if empty, or {', '.join(RULES)}",
    )
    feedback: Share = Field(
        default="0",
        description="share of what a dense codec leaves out sent a round later; in reset periods",
    )
    reset_period: Annotated[int, Field(ge=1, lt=1 << 32)] | None = Field(
        default=None,
        description="rounds that open from public data once, where seats keep state; the method's",
    )


class Audit(Group):
    """How much is replayed. Of those that the merge excluded one is audited besides."""

    rate: Share | None = Field(
        default=None,
        description="each seat's chance to be replayed in a round, rounded up to the table of "
        "rates; the lowest that guard allows, or the highest that budget pays for, if left out",
    )
    lowest: Share | None = Field(
        default=None,
        description="what this chance falls to as pay is retained of a seat, rounded up to the "
        "table; if left out the same as a rate that is written, else as guard allows it",
    )
    last: Literal["any", "all"] = Field(
        default="any",
        description="how many are replayed in the last round: by the rate, as in any, or all",
    )
    budget: Share | None = Field(
        default=None,
        description="what verification may cost of the training's price, where all are honest",
    )
    guard: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=INCENTIVE.guard,
        description="rounds that a seat lasts which lies in every one, whatever it may lose",
    )
    margin: Annotated[int, Field(ge=1, le=100)] = Field(
        default=INCENTIVE.margin,
        description="times what leaving out a round saves that it costs on average, by the bond",
    )


class Money(Group):
    """Amounts, as text in tokens. What is left out follows from the work and what it must deter."""

    budget: Amount | None = Field(
        default=None,
        description="the whole job's price at most; sets price_per_million if that is left out",
    )
    price_per_million: Amount | None = Field(
        default=None, description="paid for a million trained tokens of text, segment by segment"
    )
    flop_price: Amount | None = Field(
        default=None,
        description="for 10^18 operations, where price_per_million and budget are left out; an "
        "H100's, with a token for a dollar, if left out",
    )
    gas_price: Amount = Field(
        default=0, description="for a million gas, which signatures are paid besides"
    )
    sign_fee: Amount | None = Field(default=None, description="of each signature of a merge")
    duty_fee: Amount | None = Field(default=None, description="of each replay of a seat's round")
    provider_bond: Amount | None = Field(
        default=None, description="what a provider loses for wrong work"
    )
    verifier_bond: Amount | None = Field(
        default=None, description="what a verifier loses for false accusations"
    )


class Members(Group):
    """Seats, slots of the verifiers' pool, and how many of each a round needs."""

    seats: Annotated[int, Field(ge=1, le=MAX_SEATS)] = Field(
        default=4, description="providers at most"
    )
    min_providers: Annotated[int, Field(ge=1, le=MAX_SEATS)] | None = Field(
        default=None,
        description="to begin a round; left out: three, or what the rule needs to bear f that lie",
    )
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = Field(
        default=8, description="verifiers at most"
    )
    min_verifiers: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = 2


class Windows(Group):
    """How long a phase may take. What is left out follows from measured seconds and bytes."""

    train: Duration | None = None
    reveal: Duration | None = None
    merge: Duration | None = Field(default=None, description="votes and the certificate")
    audit: Duration | None = Field(default=None, description="replays; behind the training")
    open: Duration | None = Field(default=None, description="of audit reports")
    key: Duration | None = Field(default=None, description="of work tags, shown by who is drawn")
    window: Duration | None = Field(default=None, description="of challenges, until pay is final")
    ready: Duration | None = Field(default=None, description="a verifier has to fetch the data")
    game: Duration | None = Field(default=None, description="of each side, in a whole dispute")
    move: Duration | None = Field(default=None, description="of each of its moves, besides")
    claim: Duration | None = Field(default=None, description="to take one's pay at the end")
    slower: PositiveNumber = Field(
        default="3", description="than this machine a member may be, so many times"
    )
    step_seconds: PositiveNumber | None = Field(
        default=None, description="of the slowest member; measured here, times slower, if left out"
    )
    megabits: Annotated[int, Field(ge=1, le=10**6)] = Field(
        default=20, description="a second of a member's line, up and down"
    )


class Evaluate(Group):
    """What is measured on the held-out text."""

    batches: Annotated[int, Field(ge=0, le=1 << 16)] = Field(
        default=8, description="of the held-out loss"
    )
    patience: Annotated[int, Field(ge=0, lt=1 << 32)] = Field(
        default=0,
        description="rounds without a new least loss until the job is cancelled; 0 never does",
    )
    least_gain: ScaleNumber = Field(
        default="0", description="nats a token by which a loss must be less to be a new least"
    )

    @model_validator(mode="after")
    def _check_early_stopping(self) -> Self:
        if self.patience and not self.batches:
            raise ValueError("patience needs a held-out loss: batches is 0")
        if self.least_gain != "0" and not self.patience:
            raise ValueError("least_gain is of patience, which is 0")
        return self
