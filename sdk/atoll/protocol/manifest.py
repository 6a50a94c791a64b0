"""The manifest: everything that a job's result depends on, in at most 16 KiB.

Rule of this file: no floats, no defaults, no unknown fields, and one encoding; the SHA-256 of the
bytes is the job's spec digest on chain. Fractions are decimal strings, rounded once where they are
used (`float(text)` rounds correctly).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Final, Literal, Self

from dag_cbor.ipld import IPLDKind
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)

from atoll.errors import ManifestError
from atoll.protocol.canonical import dag_cbor_cid, decode, encode, is_cid
from atoll.protocol.choices import OneOf
from atoll.protocol.codecs import CODECS, CodecKind
from atoll.protocol.families import (
    LAYER_KINDS,
    LINEARS,
    MLP_KINDS,
    ROPE_SCALINGS,
    LayerKind,
    LinearName,
    RopeScaling,
)
from atoll.protocol.hashing import sha256, terms_hash
from atoll.protocol.optimisers import (
    INNER_OPTIMISERS,
    OUTER_FIELDS,
    OUTER_OPTIMISERS,
    InnerOptimiser,
    OuterOptimiser,
)
from atoll.protocol.rules import RULES, Rule
from atoll.protocol.terms import (
    MAX_SHOWN,
    check_terms,
    most_borne,
    shown_bytes,
    terms_from_json_value,
    terms_to_json_value,
)
from atoll.protocol.types import Digest, Terms

MANIFEST_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 16 * 1024
MAX_SEGMENTS: Final = 64
"""Of a round: as many leaves a reveal has at most."""
INNER_LIMIT: Final = (2**31 - 1) // 127**2
"""133,144: the most products of two int8 integers, each at most 127² in magnitude, that int32 holds
the sum of. It bounds whatever an exact product contracts over in one piece: features, tokens of a
micro-batch, and the outputs of the weights that one product stacks. The head's product over the
vocabulary is summed in parts of at most as many terms, added in int64."""
ELEMENTS_LIMIT: Final = 2**31 - 1
"""The most elements of a tensor: their squares, each at most 2³², are summed in int64."""
MAX_STEPS: Final = 1 << 20
"""Global steps of a job: everybody works out a table of their rates."""
MAX_ROTARY: Final = 1 << 24
"""Positions times head size; of as many numbers is the table of a model's rotary positions."""
MAX_CONTEXT: Final = 1 << 24
"""Positions that a model of any origin was made for."""
_NEXT_STEP = "correct the manifest, or build it with atoll.job.spec"


def _decimal(low: str, high: str, *, open_low: bool = False) -> Callable[[str], str]:
    """A validator of canonical decimal strings in [low, high], or (low, high] if `open_low`."""

    def check(text: str) -> str:
        value = Decimal(text)
        if not Decimal(low) <= value <= Decimal(high) or (open_low and value == Decimal(low)):
            raise ValueError(f"{text} is not in {'(' if open_low else '['}{low}, {high}]")
        return text

    return check


DecimalText = Annotated[
    str, StringConstraints(pattern=r"\A(0|[1-9][0-9]{0,9})(\.[0-9]{0,17}[1-9])?\z")
]
"""A number ≥ 0 without exponent or trailing zeros, so that each value has one spelling."""
UnitFraction = Annotated[DecimalText, AfterValidator(_decimal("0", "1"))]
Beta = Annotated[DecimalText, AfterValidator(_decimal("0", "0.999999"))]
Rate = Annotated[DecimalText, AfterValidator(_decimal("0", "10000", open_low=True))]
Scale = Annotated[DecimalText, AfterValidator(_decimal("0", "1000"))]
PositiveScale = Annotated[DecimalText, AfterValidator(_decimal("0", "1000", open_low=True))]
Epsilon = Annotated[DecimalText, AfterValidator(_decimal("0", "0.1", open_low=True))]
Stretch = Annotated[DecimalText, AfterValidator(_decimal("1", "1000"))]


def _check_cid(cid: bytes) -> bytes:
    if not is_cid(cid):
        raise ValueError("not a binary CIDv1 of SHA-256")
    return cid


CidBytes = Annotated[bytes, AfterValidator(_check_cid)]
DigestBytes = Annotated[Digest, Field(min_length=32, max_length=32)]
Exponent = Annotated[int, Field(ge=-60, le=0)]
InnerName = Annotated[str, AfterValidator(OneOf("optimizer", INNER_OPTIMISERS))]
OuterName = Annotated[str, AfterValidator(OneOf("outer optimizer", OUTER_OPTIMISERS))]
Schedule = Literal["constant", "cosine"]
TokenType = Literal["uint8", "uint16", "uint32"]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class RopeScalingSpec(_Spec):
    """How rotary angles are stretched, for more positions than a model was first trained with.

    `linear` divides every angle by `factor` (Chen et al. 2023, arXiv:2306.15595). `llama3` leaves
    angles that turn at least `high` times in `positions` positions, divides those that turn at
    most `low` times, and goes from one to the other between them (Llama 3.1's). What a kind does
    not use is 0, and without scaling the factor is 1.
    """

    kind: Annotated[str, AfterValidator(OneOf("scaling", ROPE_SCALINGS))]
    factor: Stretch
    low: Annotated[DecimalText, AfterValidator(_decimal("0", "1000"))]
    high: Annotated[DecimalText, AfterValidator(_decimal("0", "1000"))]
    positions: Annotated[int, Field(ge=0, le=MAX_CONTEXT)]

    @property
    def properties(self) -> RopeScaling:
        """How angles are stretched."""
        return ROPE_SCALINGS[self.kind]

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if not self.properties.divides and self.factor != "1":
            raise ValueError("rotary angles without scaling have factor 1")
        if not self.properties.spares_fast:
            if (self.low, self.high, self.positions) != ("0", "0", 0):
                raise ValueError(f"{self.kind} does not use low, high and positions: write zero")
        elif not 0 < Decimal(self.low) < Decimal(self.high) or self.positions < 1:
            raise ValueError(f"{self.kind} needs 0 < low < high and positions of at least 1")
        return self


UNSCALED: Final = RopeScalingSpec(kind="none", factor="1", low="0", high="0", positions=0)


class ModelSpec(_Spec):
    """A Llama-family decoder: RMSNorm, rotary positions, and one of two MLPs.

    `swiglu` is down(silu(gate) · up) (Shazeer 2020), `relu2` is down(relu(up)²) (So et al. 2021).
    `qkv_bias` adds a bias to queries, keys and values (Qwen2); `qk_norm` normalises queries and
    keys by RMSNorm before they are rotated (Henry et al. 2020), each head's or all heads' at once
    as `kind` has it, which also says where the layers' norms are.
    """

    kind: Annotated[str, AfterValidator(OneOf("kind of model", LAYER_KINDS))]
    vocab: Annotated[int, Field(ge=2, le=1 << 20)]
    width: Annotated[int, Field(ge=8, le=1 << 15)]
    layers: Annotated[int, Field(ge=1, le=256)]
    heads: Annotated[int, Field(ge=1, le=256)]
    kv_heads: Annotated[int, Field(ge=1, le=256)]
    head_dim: Annotated[int, Field(ge=2, le=1 << 15)]
    qkv_bias: bool
    qk_norm: bool
    mlp: Annotated[str, AfterValidator(OneOf("MLP", MLP_KINDS))]
    ffn: Annotated[int, Field(ge=8, le=1 << 17)]
    seq: Annotated[int, Field(ge=2, le=1 << 17)]
    tied: bool
    norm_eps: Epsilon
    rope_base: Annotated[int, Field(ge=2, le=10**9)]
    rope_scaling: RopeScalingSpec

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError("kv_heads must divide heads")
        if self.head_dim % 2:
            raise ValueError("rotary positions need an even head size")
        if self.head_dim * self.seq > MAX_ROTARY:
            raise ValueError(f"more than {MAX_ROTARY} rotary cosines and sines")
        return self

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        # The head's sums over the vocabulary are of parts; those over a width are of at most 2^15.
        gated = self.ffn * len(self.mlp_inputs)
        projected = (self.heads + 2 * self.kv_heads) * self.head_dim
        for name, inner in (("stacked ffn", gated), ("stacked attention", projected)):
            if inner > INNER_LIMIT:
                raise ValueError(f"{name} of {inner}, of which int32 sums hold {INNER_LIMIT}")
        largest = max(self.vocab, self.ffn, self.heads * self.head_dim) * self.width
        if largest > ELEMENTS_LIMIT:
            raise ValueError(f"a tensor of {largest} elements, more than {ELEMENTS_LIMIT}")
        return self

    @property
    def linears(self) -> dict[LinearName, tuple[int, int]]:
        """Outputs and inputs of each linear of a layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[LinearName, tuple[int, int]] = {
            "q": (queries, self.width),
            "k": (keys, self.width),
            "v": (keys, self.width),
            "o": (self.width, queries),
            "gate": (self.ffn, self.width),
            "up": (self.ffn, self.width),
            "down": (self.width, self.ffn),
        }
        read = ("q", "k", "v", "o", *self.mlp_inputs, "down")
        return {name: shape for name, shape in shapes.items() if name in read}

    @property
    def layer_kind(self) -> LayerKind:
        """How its layers are put together."""
        return LAYER_KINDS[self.kind]

    @property
    def mlp_inputs(self) -> tuple[LinearName, ...]:
        """The linears that its MLPs begin with."""
        return MLP_KINDS[self.mlp].inputs


class NumericsSpec(_Spec):
    """What a machine must show before it may take part: that it computes everybody's bits."""

    code_digest: DigestBytes
    probe_digest: DigestBytes


class LoraSpec(_Spec):
    """Low-rank adapters on a frozen model, the only parameters that are trained.

    Each target W of every layer becomes W + (alpha / rank) · B·A with A [rank, in] and B
    [out, rank] (Hu et al. 2022, arXiv:2106.09685). Targets stand in the order of `LINEARS`.
    """

    rank: Annotated[int, Field(ge=1, le=1 << 15)]
    alpha: PositiveScale
    targets: Annotated[
        tuple[LinearName, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(min_length=1, max_length=len(LINEARS)),
        PlainSerializer(list),
    ]

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if self.targets != tuple(name for name in LINEARS if name in self.targets):
            raise ValueError(f"targets are not in the order {', '.join(LINEARS)}, each once")
        return self

    @property
    def scale(self) -> float:
        """What adapters are multiplied by."""
        return float(self.alpha) / self.rank

    def check_model(self, model: ModelSpec) -> None:
        """Raises ValueError where a target is not of the model, or smaller than the rank."""
        for name in self.targets:
            if name not in model.linears:
                raise ValueError(f"lora.targets: a model with {model.mlp} has no {name}")
            smaller = min(model.linears[name])
            if self.rank > smaller:
                raise ValueError(f"lora.rank {self.rank} is above {smaller}, a dimension of {name}")


class InitSpec(_Spec):
    """Initial weights: integers drawn by Philox4x32-10 from a seed, or content.

    `cid` is that of a parameter set (SPEC-BYTES.md, 3), and `root` the params root of what is in
    it. What is not used is None. Where adapters are trained, their weights are drawn, and the
    content is the model that they are added to.
    """

    seed: Annotated[int | None, Field(ge=0, lt=1 << 64)]
    cid: CidBytes | None
    root: DigestBytes | None

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        given = (self.seed is not None, self.cid is not None, self.root is not None)
        if given not in {(True, False, False), (False, True, True), (True, True, True)}:
            raise ValueError("initial weights have a seed, or a cid and a root")
        return self

    @classmethod
    def drawn(cls, seed: int) -> InitSpec:
        """From a seed."""
        return cls(seed=seed, cid=None, root=None)


class DataSpec(_Spec):
    """The tokens; every CID is binary and of a file. `eval_batches` counts batches.

    `root` is the piece root of the training tokens' words: what a contract is shown one by.
    `nodes_cid` is the file of that tree's nodes over each MiB, by which whoever has read one MiB
    knows that it is the root's. Words of `masked` data have a bit for tokens that are no targets.
    """

    cid: CidBytes
    root: DigestBytes
    nodes_cid: CidBytes
    dtype: TokenType
    masked: bool
    train_tokens: Annotated[int, Field(ge=2, lt=1 << 60)]
    eval_cid: CidBytes | None
    eval_tokens: Annotated[int, Field(ge=0, lt=1 << 60)]
    eval_batches: Annotated[int, Field(ge=0, le=1 << 16)]
    tokenizer_cid: CidBytes

    @model_validator(mode="after")
    def _check_held_out(self) -> Self:
        if (self.eval_cid is None) != (self.eval_tokens == 0):
            raise ValueError("eval_tokens are those of eval_cid: both or neither")
        return self

    @property
    def cids(self) -> tuple[bytes, ...]:
        """Every file that a member needs."""
        held_out = () if self.eval_cid is None else (self.eval_cid,)
        return (self.cid, self.nodes_cid, self.tokenizer_cid, *held_out)

    @property
    def token_bytes(self) -> int:
        """Bytes of a word."""
        return _BYTES[self.dtype]

    @property
    def mask_bit(self) -> int:
        """The bit of a word that is set where its token has weight 0; 0 where none is read so."""
        return self.masked << 8 * self.token_bytes - 1

    @property
    def most_tokens(self) -> int:
        """How many different tokens a word can hold."""
        return 1 << 8 * self.token_bytes - self.masked

    @property
    def is_evaluated(self) -> bool:
        """Whether models have a held-out loss."""
        return self.eval_cid is not None and self.eval_batches > 0


class InnerSpec(_Spec):
    """The inner optimiser: H `steps` a round on `batch` sequences, a checkpoint commitment every
    `segment` steps.

    The schedule counts global steps (round · H + step). `cosine` falls to zero at the
    job's end.
    `micro_batch` sequences are summed at a time, which fixes the order of additions.

    `muon` is of the matrices between embedding and head, with Nesterov `momentum`; AdamW takes the
    other parameters at the same rate. `sgd` has heavy-ball `momentum`, or none. What an optimiser
    does not use is zero.

    `dropout` is the share dropped of the embeddings and of what each attention and MLP adds.
    """

    optimizer: InnerName
    lr: Rate
    momentum: Beta
    beta1: Beta
    beta2: Beta
    eps: Annotated[DecimalText, AfterValidator(_decimal("0", "0.1"))]
    weight_decay: Scale
    dropout: Annotated[DecimalText, AfterValidator(_decimal("0", "0.9"))]
    clip: PositiveScale
    schedule: Schedule
    warmup_steps: Annotated[int, Field(ge=0, lt=1 << 32)]
    steps: Annotated[int, Field(ge=1, lt=1 << 32)]
    batch: Annotated[int, Field(ge=1, le=1 << 20)]
    segment: Annotated[int, Field(ge=1, lt=1 << 32)]
    micro_batch: Annotated[int, Field(ge=1, le=1 << 20)]

    @property
    def properties(self) -> InnerOptimiser:
        """Which fields and slots the optimiser has."""
        return INNER_OPTIMISERS[self.optimizer]

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        for name in self.properties.unused:
            if getattr(self, name) != "0":
                raise ValueError(f"{self.optimizer} does not use {name}: write zero")
        if "eps" not in self.properties.unused and self.eps == "0":
            raise ValueError(f"{self.optimizer} divides by eps, which is 0")
        return self

    @model_validator(mode="after")
    def _check_divisions(self) -> Self:
        if self.steps % self.segment:
            raise ValueError(f"segment {self.segment} does not divide steps {self.steps}")
        if self.steps // self.segment > MAX_SEGMENTS:
            raise ValueError(f"more than {MAX_SEGMENTS} segments a round")
        if self.batch % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}")
        losses = self.batch // self.micro_batch
        shown = shown_bytes(self.segment, losses)
        if shown > MAX_SHOWN:
            said = f"{self.segment} steps of {losses} micro-batches are {shown} bytes"
            raise ValueError(
                f"a segment of {said} in a game's first move, above {MAX_SHOWN}: nobody could"
                " defend its work; make segment or batch smaller, or micro_batch larger"
            )
        return self


class OuterSpec(_Spec):
    """The outer optimiser, in int64 fixed point; SPEC-MERGE.md, 6, has the formulas.

    `momentum` is the first moment's decay, `beta2` the second's, `period` the rounds between two
    renewals of a delayed momentum. What a kind does not use is zero.
    """

    kind: OuterName
    lr: PositiveScale
    momentum: Beta
    beta2: Beta
    eps: Annotated[DecimalText, AfterValidator(_decimal("0", "0.1"))]
    period: Annotated[int, Field(ge=0, le=256)]

    @property
    def properties(self) -> OuterOptimiser:
        """Which fields and slots the optimiser has."""
        return OUTER_OPTIMISERS[self.kind]

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        used = self.properties.fields
        for name in OUTER_FIELDS:
            if name not in used and str(getattr(self, name)) != "0":
                raise ValueError(f"{self.kind} does not use {name}: write zero")
        if "eps" in used and Decimal(self.eps) < Decimal(MIN_OUTER_EPS):
            raise ValueError(f"{self.kind} needs an eps of at least {MIN_OUTER_EPS}")
        if "period" in used and self.period < 2:
            raise ValueError(f"{self.kind} needs a period of at least 2 rounds")
        return self


MIN_OUTER_EPS: Final = "0.000001"
"""Sixteen of the units in which the outer step takes roots."""


class TensorExponents(_Spec):
    """Grid exponents of round 0 by tensor class: a grid step is 2**exponent."""

    embedding: Exponent
    matrix: Exponent
    vector: Exponent

    def of(self, tensor: str) -> int:
        """That of a tensor named as in `bits.layout`."""
        if "embed_tokens" in tensor or "lm_head" in tensor:
            return self.embedding
        is_vector = "norm" in tensor or tensor.endswith(".bias")
        return self.vector if is_vector else self.matrix


class CodecSpec(_Spec):
    """How an update is written: on a shared power-of-two grid, whose steps follow the updates.

    `exponents` are round 0's of what the model moves by, `moment_exponents` of the first moments.
    `feedback` is the decay of what the codec left out and carries to the next round; "0" drops it.
    The update of round r has the tensors of fragment r mod `fragments`; the seats keep their own of
    the others until their turn. What is merged comes back before step `overlap` of the next round,
    as `mixing` parts of a seat's own value and 1 − `mixing` of the global one (Streaming DiLoCo's τ
    and α). `fp32` is the reference that codecs are compared with.
    """

    kind: Annotated[str, AfterValidator(OneOf("codec", CODECS))]
    exponents: TensorExponents
    moment_exponents: TensorExponents
    min_exponent: Exponent
    max_exponent: Exponent
    feedback: UnitFraction
    fragments: Annotated[int, Field(ge=1, le=64)]
    overlap: Annotated[int, Field(ge=0, lt=1 << 32)]
    mixing: Beta

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        for start in (self.exponents, self.moment_exponents):
            for name, value in start.model_dump().items():
                if not self.min_exponent <= value <= self.max_exponent:
                    raise ValueError(f"exponent of {name} is outside the bounds")
        kind = self.properties
        if self.carries_feedback and not kind.may_feed_back:
            raise ValueError(f"{self.kind} leaves nothing out: its feedback is 0")
        if kind.is_exact and {self.min_exponent, self.max_exponent} != {kind.start}:
            raise ValueError(f"every exponent of {self.kind} is {kind.start}")
        if self.carries_feedback and (self.fragments > 1 or self.overlap > 0):
            raise ValueError("feedback goes with one fragment and no overlap")
        return self

    @property
    def properties(self) -> CodecKind:
        """What its updates are like."""
        return CODECS[self.kind]

    @property
    def carries_feedback(self) -> bool:
        """Whether a seat's state has a residual."""
        return self.feedback != "0"

    @property
    def is_stateful(self) -> bool:
        """Whether a seat brings to a round what nobody else has, beside moments."""
        return self.carries_params

    @property
    def carries_params(self) -> bool:
        """Whether a seat keeps its parameters, and takes what a round merged in during the next."""
        return self.carries_feedback or self.fragments > 1 or self.overlap > 0 or self.mixing != "0"

    def fragment_of(self, tensor: str) -> int:
        """The fragment of a tensor named as in Hugging Face's LlamaForCausalLM.

        Layers take turns; embedding, last norm and head are of fragment 0.
        """
        layer = re.match(r"model\.layers\.([0-9]+)\.", tensor)
        return int(layer[1]) % self.fragments if layer else 0

    def is_sent(self, tensor: str, round: int) -> bool:
        """Whether the update of that round has the tensor."""
        return self.fragment_of(tensor) == round % self.fragments


def reset_period_of(codec: CodecSpec, most: int) -> int:
    """The reset period of a job: rounds where seats carry what nobody else has, else one."""
    return most if codec.is_stateful else 1


RuleName = Annotated[str, AfterValidator(OneOf("merge rule", RULES))]


class RobustSpec(_Spec):
    """The merge rule, how many bad seats it must bear, and how far an outlier stands out.

    `rule` is one of `atoll.protocol.rules`, which says what each needs.
    """

    rule: RuleName
    f: Annotated[int, Field(ge=0, le=127)]
    kappa: Annotated[DecimalText, AfterValidator(_decimal("1", "1000"))]

    @property
    def properties(self) -> Rule:
        """What the rule needs and bears."""
        return RULES[self.rule]

    @property
    def minimum(self) -> int:
        """Updates that the rule needs to bear its f."""
        return self.properties.minimum(self.f)

    def check_seats(self, seats: int) -> None:
        """Raises ValueError where the rule cannot bear f faults among that many seats."""
        f = self.f
        if f > most_borne(seats):
            raise ValueError(f"f = {f} is above {most_borne(seats)} of {seats} seats")
        if f and not self.properties.bears_faults:
            raise ValueError(f"{self.rule} bears nobody: its f is 0")
        if seats < self.minimum:
            raise ValueError(f"{self.rule} with f = {f} needs at least {self.minimum} seats")
        if self.properties.tries_too_many(seats, f):
            raise ValueError(f"{self.rule} with f = {f} of {seats} would try too many subsets")


def _parse_terms(value: object) -> object:
    return terms_from_json_value(value) if isinstance(value, dict) else value


def _check_terms(terms: Terms) -> Terms:
    try:
        check_terms(terms)
    except ManifestError as error:
        raise ValueError(str(error)) from error
    return terms


class Manifest(_Spec):
    """A job, whole. Build it from a preset or `from_bytes`; constructing it raises ValidationError.

    `created` is unix seconds and distinguishes two jobs that are otherwise the same. `tables` is
    the root over what its steps read of schedule and positions (`numerics.tables`). Round r opens
    from public data, whatever a seat did before, where r is a multiple of `reset_period`.
    """

    version: Literal[1]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    created: Annotated[int, Field(ge=0, lt=1 << 63)]
    reset_period: Annotated[int, Field(ge=1, lt=1 << 32)]
    model: ModelSpec
    lora: LoraSpec | None
    numerics: NumericsSpec
    init: InitSpec
    data: DataSpec
    inner: InnerSpec
    outer: OuterSpec
    codec: CodecSpec
    robust: RobustSpec
    tables: DigestBytes
    terms: Annotated[
        Terms,
        BeforeValidator(_parse_terms),
        AfterValidator(_check_terms),
        PlainSerializer(terms_to_json_value),
    ]

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        terms, inner = self.terms, self.inner
        if terms.steps != inner.steps:
            raise ValueError(f"terms name {terms.steps} steps, inner {inner.steps}")
        if terms.segment_steps != inner.segment:
            raise ValueError(f"terms name segments of {terms.segment_steps}, inner {inner.segment}")
        if terms.f != self.robust.f:
            raise ValueError(f"terms name f = {terms.f}, robust {self.robust.f}")
        if terms.tokens_per_step != self.tokens_per_step:
            raise ValueError(f"terms.tokens_per_step is not batch · seq = {self.tokens_per_step}")
        tokens = inner.micro_batch * self.model.seq
        if tokens > INNER_LIMIT:
            raise ValueError(
                f"{tokens} tokens a micro-batch, of which int32 sums hold {INNER_LIMIT}"
            )
        if self.codec.overlap >= inner.steps:
            raise ValueError(f"an overlap of {self.codec.overlap} in rounds of {inner.steps} steps")
        if terms.rounds * inner.steps > MAX_STEPS:
            raise ValueError(f"more than {MAX_STEPS} steps, each of which has its rate in a table")
        if self.reset_period > (terms.rounds if self.codec.is_stateful else 1):
            raise ValueError(
                f"a reset period of {self.reset_period} rounds does not go with this codec"
            )
        self.robust.check_seats(terms.seats)
        self._check_rule_of_codec()
        self._check_init()
        if self.data.train_tokens <= self.model.seq:
            raise ValueError("training data is shorter than one sequence and its target")
        if self.data.is_evaluated and self.data.eval_tokens <= self.model.seq:
            raise ValueError("held-out data is shorter than one sequence and its target")
        if self.model.vocab > self.data.most_tokens:
            masked = "masked " * self.data.masked
            raise ValueError(f"vocab {self.model.vocab} does not fit in {masked}{self.data.dtype}")
        if len(self.to_bytes()) > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES} bytes")
        return self

    def _check_init(self) -> None:
        has_both = self.init.seed is not None and self.init.cid is not None
        if has_both != (self.lora is not None):
            raise ValueError("a seed beside the weights' cid is for adapters, which need both")
        if self.lora is not None:
            self.lora.check_model(self.model)

    def _check_rule_of_codec(self) -> None:
        if not self.codec.properties.is_merged_by(self.robust.properties):
            raise ValueError(f"codec {self.codec.kind} does not go with rule {self.robust.rule}")
        if self.codec.fragments > self.model.layers:
            raise ValueError(f"{self.codec.fragments} fragments of {self.model.layers} layers")
        if self.codec.fragments > 1 and "period" in self.outer.properties.fields:
            raise ValueError(
                f"a fragment's rounds are too far apart for {self.outer.kind}'s periods"
            )

    def to_bytes(self) -> bytes:
        """Canonical DAG-CBOR."""
        plain: IPLDKind = self.model_dump()
        return encode(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Raises ManifestError on bytes that are not the canonical encoding of a valid manifest.

        The same bytes give the same object while they are among the last few dozen asked for.
        """
        return _read_manifest(data)

    def digest(self) -> Digest:
        """SHA-256 of the bytes: `specDigest` on chain."""
        return sha256(self.to_bytes())

    def cid(self) -> bytes:
        """The binary CIDv1 (dag-cbor): `specCid` on chain."""
        return dag_cbor_cid(self.digest())

    def check_terms(self, terms_hash_: Digest) -> None:
        """Raises ManifestError unless the terms are those whose hash the chain holds."""
        if terms_hash(self.terms) != terms_hash_:
            raise ManifestError(
                "manifest: its terms are not the ones on chain", next_step="do not join this job"
            )

    @property
    def content(self) -> tuple[bytes, ...]:
        """The CIDs of what a submitter serves beside the manifest: data, tokeniser, weights."""
        weights = () if self.init.cid is None else (self.init.cid,)
        return (*self.data.cids, *weights)

    def opens_publicly(self, round: int) -> bool:
        """Whether that round opens with nothing that a seat brings."""
        return round % self.reset_period == 0

    @property
    def shares_moments(self) -> bool:
        """Whether updates have the moments of the inner optimiser, and rounds open with them."""
        has_moments = self.inner.properties.slots_with(self.inner.momentum)
        return bool(has_moments) and not self.codec.is_stateful

    @property
    def segments(self) -> int:
        """n = H / k."""
        return self.inner.steps // self.inner.segment

    @property
    def tokens_per_step(self) -> int:
        """Batch · sequence length."""
        return self.inner.batch * self.model.seq


_BYTES: Final = {"uint8": 1, "uint16": 2, "uint32": 4}


@lru_cache(maxsize=32)
def _read_manifest(data: bytes) -> Manifest:
    # Services read their job's at every decision, and it is frozen.
    try:
        return Manifest.model_validate(decode(data, MAX_MANIFEST_BYTES))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"manifest: {place + ': ' if place else ''}{first['msg']}"
        raise ManifestError(message, next_step=_NEXT_STEP) from error
    except ValueError as error:
        raise ManifestError(f"manifest: {error}", next_step=_NEXT_STEP) from error
