"""The method of a manifest: both optimisers, the codec and the merge rule.

Rules as in `manifest`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from atoll.protocol.choices import OneOf
from atoll.protocol.codecs import CODECS, CodecKind
from atoll.protocol.manifest_fields import (
    Beta,
    DecimalText,
    PositiveScale,
    Rate,
    Scale,
    Spec,
    UnitFraction,
    decimal_between,
)
from atoll.protocol.optimisers import (
    INNER_OPTIMISERS,
    OUTER_FIELDS,
    OUTER_OPTIMISERS,
    InnerOptimiser,
    OuterOptimiser,
)
from atoll.protocol.rules import RULES, Rule
from atoll.protocol.terms import MAX_SHOWN, most_borne, shown_bytes

MAX_SEGMENTS: Final = 64
"""Of a round: as many leaves a reveal has at most."""
Exponent = Annotated[int, Field(ge=-60, le=0)]
InnerName = Annotated[str, AfterValidator(OneOf("optimizer", INNER_OPTIMISERS))]
OuterName = Annotated[str, AfterValidator(OneOf("outer optimizer", OUTER_OPTIMISERS))]
Schedule = Literal["constant", "cosine"]


class InnerSpec(Spec):
    """The inner optimiser: H `steps` a round on `batch` sequences, a checkpoint commitment every
    `segment` steps.

    The schedule counts global steps (round · H + step). `cosine` falls to zero at the
    job's end.
    `micro_batch` sequences are summed at a time, and the micro-batches in `lanes` runs of the same
    length, which fixes the order of additions: a lane's gradients one after another, then the
    lanes' sums. How many processes share the work changes nothing of it.

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
    eps: Annotated[DecimalText, AfterValidator(decimal_between("0", "0.1"))]
    weight_decay: Scale
    dropout: Annotated[DecimalText, AfterValidator(decimal_between("0", "0.9"))]
    clip: PositiveScale
    schedule: Schedule
    warmup_steps: Annotated[int, Field(ge=0, lt=1 << 32)]
    steps: Annotated[int, Field(ge=1, lt=1 << 32)]
    batch: Annotated[int, Field(ge=1, le=1 << 20)]
    segment: Annotated[int, Field(ge=1, lt=1 << 32)]
    micro_batch: Annotated[int, Field(ge=1, le=1 << 20)]
    lanes: Annotated[int, Field(ge=1, le=1 << 20)]

    @property
    def micro_batches(self) -> int:
        """Of a step."""
        return self.batch // self.micro_batch

    @property
    def lane(self) -> int:
        """Micro-batches of one."""
        return lane_length(self.micro_batches, self.lanes)

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
        losses = self.micro_batches
        if losses % self.lanes:
            raise ValueError(f"lanes {self.lanes} do not divide {losses} micro-batches")
        shown = shown_bytes(self.segment, losses)
        if shown > MAX_SHOWN:
            size = f"{self.segment} steps of {losses} micro-batches are {shown} bytes"
            raise ValueError(
                f"a segment of {size} in a game's first move, above {MAX_SHOWN}: nobody could"
                " defend its work; make segment or batch smaller, or micro_batch larger"
            )
        return self


def lane_length(micro_batches: int, lanes: int) -> int:
    """Micro-batches whose gradients are added one after another before other lanes' are.

    Lanes of one micro-batch each are one lane of all: the same numbers in the same order.
    """
    length = micro_batches // lanes
    return length if length > 1 else micro_batches


class OuterSpec(Spec):
    """The outer optimiser, in int64 fixed point; SPEC-MERGE.md, 6, has the formulas.

    `momentum` is the first moment's decay, `beta2` the second's, `period` the rounds between two
    renewals of a delayed momentum. What a kind does not use is zero.
    """

    kind: OuterName
    lr: PositiveScale
    momentum: Beta
    beta2: Beta
    eps: Annotated[DecimalText, AfterValidator(decimal_between("0", "0.1"))]
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


class TensorExponents(Spec):
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


class CodecSpec(Spec):
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


class RobustSpec(Spec):
    """The merge rule, how many bad seats it must bear, and how far an outlier stands out.

    `rule` is one of `atoll.protocol.rules`, which says what each needs.
    """

    rule: RuleName
    f: Annotated[int, Field(ge=0, le=127)]
    kappa: Annotated[DecimalText, AfterValidator(decimal_between("1", "1000"))]

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
