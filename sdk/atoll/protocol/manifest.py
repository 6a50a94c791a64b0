"""The manifest: everything that a job's result depends on, in at most 16 KiB.

Rule of this file: no floats, no defaults, no unknown fields, and one encoding; the SHA-256 of the
bytes is the job's spec digest on chain. Fractions are decimal strings, rounded once where they are
used (`float(text)` rounds correctly).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from atoll.errors import ManifestError
from atoll.protocol.canonical import Ipld, dag_cbor_cid, decode, encode
from atoll.protocol.hashing import sha256, terms_hash
from atoll.protocol.manifest_fields import CidBytes, DigestBytes, Spec
from atoll.protocol.method_spec import CodecSpec, InnerSpec, OuterSpec, RobustSpec
from atoll.protocol.model_spec import INNER_LIMIT, LoraSpec, ModelSpec
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.terms import check_terms, terms_from_json_value, terms_to_json_value
from atoll.protocol.types import Digest, Terms

MANIFEST_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 16 * 1024
MAX_STEPS: Final = 1 << 20
"""Global steps of a job: everybody works out a table of their rates."""
MAX_SAMPLED_BYTES: Final = 1 << 26
"""Of what a seat samples in a round, four a token: who has them audits for less."""
TokenType = Literal["uint8", "uint16", "uint32"]
MAX_ABOUT: Final = 1000
_OPTIONAL: Final = ("about", "task")
"""Entries that a manifest without them has no null for."""
_BYTES: Final = {"uint8": 1, "uint16": 2, "uint32": 4}
_NEXT_STEP = "correct the manifest, or build it with atoll.job.spec"


class NumericsSpec(Spec):
    """What a machine must show before it may take part: that it computes everybody's bits."""

    code_digest: DigestBytes
    probe_digest: DigestBytes


class InitSpec(Spec):
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


class DataSpec(Spec):
    """The tokens; every CID is binary and of a file. `eval_batches` counts batches.

    `root` is the piece root of the training tokens' words: what a contract is shown one by.
    `nodes_cid` is the file of that tree's nodes over each MiB, by which whoever has read one MiB
    knows that it is the root's. Words of `masked` data have a bit for tokens that are no targets.
    Windows of `aligned` data begin at whole multiples of their length, others at any token.
    """

    cid: CidBytes
    root: DigestBytes
    nodes_cid: CidBytes
    dtype: TokenType
    masked: bool
    aligned: bool
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

    def stride(self, seq: int) -> int:
        """Windows of `seq` tokens begin at multiples of so many."""
        return seq if self.aligned else 1

    def windows(self, seq: int) -> int:
        """How many windows of `seq` training tokens and the one behind them a draw chooses from."""
        return (self.train_tokens - seq - 1) // self.stride(seq) + 1

    @property
    def is_evaluated(self) -> bool:
        """Whether models have a held-out loss."""
        return self.eval_cid is not None and self.eval_batches > 0


def _parse_terms(value: object) -> object:
    return terms_from_json_value(value) if isinstance(value, dict) else value


def _check_terms(terms: Terms) -> Terms:
    try:
        check_terms(terms)
    except ManifestError as error:
        raise ValueError(str(error)) from error
    return terms


class Manifest(Spec):
    """A job, whole. Build it from a preset or `from_bytes`; constructing it raises ValidationError.

    `created` is unix seconds and distinguishes two jobs that are otherwise the same. `tables` is
    the root over what its steps read of schedule and positions (`numerics.tables`). Round r opens
    from public data, whatever a seat did before, where r is a multiple of `reset_period`. `about`
    is what the submitter tells people. A job without it, or of text without `task`, has nothing in
    its bytes for them.
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
    about: Annotated[str, Field(min_length=1, max_length=MAX_ABOUT)] | None = None
    task: TaskSpec | None = None

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
        self._check_task()
        if self.task is None and self.data.train_tokens <= self.model.seq:
            raise ValueError("training data is shorter than one sequence and its target")
        if self.data.is_evaluated and self.data.eval_tokens <= self.model.seq:
            raise ValueError("held-out data is shorter than one sequence and its target")
        if self.model.vocab > self.data.most_tokens:
            masked = "masked " * self.data.masked
            raise ValueError(f"vocab {self.model.vocab} does not fit in {masked}{self.data.dtype}")
        if len(self.to_bytes()) > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES} bytes")
        return self

    @model_serializer(mode="wrap")
    def _without_null(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _of_what_there_is(write(self))

    def _check_init(self) -> None:
        has_both = self.init.seed is not None and self.init.cid is not None
        if has_both != (self.lora is not None):
            raise ValueError("a seed beside the weights' cid is for adapters, which need both")
        if self.lora is not None:
            self.lora.check_model(self.model)

    def _check_task(self) -> None:
        if self.task is None:
            return
        task, data = self.task, self.data
        task.check_model(self.model.seq, self.model.vocab, self.inner.batch)
        if self.sampled_bytes > MAX_SAMPLED_BYTES:
            raise ValueError(
                f"a round's ids have {self.sampled_bytes} bytes, at most {MAX_SAMPLED_BYTES}"
            )
        if self.inner.dropout != "0":
            raise ValueError("what is generated without dropout is not learned with it")
        if data.masked or data.aligned or data.is_evaluated or data.eval_cid is not None:
            raise ValueError("prompts are neither masked nor aligned, and none are held out")
        if data.train_tokens != task.words(self.model.vocab):
            raise ValueError(f"the data are not {task.words(self.model.vocab)} words of prompts")
        if data.most_tokens < task.least_values(self.model.vocab):
            raise ValueError(f"a word of {data.dtype} does not hold a row's numbers")

    @property
    def sampled_bytes(self) -> int:
        """Of the ids that a seat samples in a round, an int32 each; 0 where text is learned."""
        if self.task is None:
            return 0
        return 4 * self.inner.steps * self.inner.batch * (self.model.seq + 1)

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
        plain: Ipld = self.model_dump()
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


@lru_cache(maxsize=32)
def _read_manifest(data: bytes) -> Manifest:
    # Services read their job's at every decision, and it is frozen.
    try:
        plain = decode(data, MAX_MANIFEST_BYTES)
        for name in _OPTIONAL:
            if isinstance(plain, dict) and plain.get(name, plain) is None:
                raise ValueError(f"{name}: a job without has none, and no null")
        return Manifest.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"manifest: {place + ': ' if place else ''}{first['msg']}"
        raise ManifestError(message, next_step=_NEXT_STEP) from error
    except ValueError as error:
        raise ManifestError(f"manifest: {error}", next_step=_NEXT_STEP) from error


def _of_what_there_is(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in plain.items() if name not in _OPTIONAL or v is not None}
