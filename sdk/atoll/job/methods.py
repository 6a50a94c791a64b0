"""Published ways to train one model on many machines, as values of the manifest's fields.

Rule of this file: a method is data. All of them run in the one loop (`train.round`, the codec, the
merge, the outer step); what a method does not name stays the job's own choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from atoll.errors import ManifestError
from atoll.protocol.codecs import CODECS
from atoll.protocol.method_spec import CodecSpec, OuterSpec, TensorExponents
from atoll.protocol.rules import RULES

DENSE_RULE: Final = "median"
SPARSE_RULE: Final = "contributor_mean"


@dataclass(frozen=True, slots=True)
class Method:
    """What a method sets in a manifest.

    Attributes:
        source: where it was published.
        published_steps: the H of its authors, in words; the job's own H is used.
        inner: fields of InnerSpec that take the place of the job's.
        overlaps: what a round merged comes back a segment into the next round, where there are two.
        one_step: a round is a single step.
        reset_period: rounds that open from public data once, where seats keep a state of their own.
        one_round: the job is a single round.
    """

    source: str
    published_steps: str
    outer: OuterSpec
    codec: CodecSpec
    rule: str = DENSE_RULE
    inner: Mapping[str, str] = field(default_factory=dict)
    overlaps: bool = False
    one_step: bool = False
    one_round: bool = False
    reset_period: int = 8


def _outer(kind: str, lr: str, **fields: str | int) -> OuterSpec:
    unused = {"momentum": "0", "beta2": "0", "eps": "0", "period": 0}
    return OuterSpec.model_validate({"kind": kind, "lr": lr} | unused | fields)


def _codec(kind: str, **fields: str | int) -> CodecSpec:
    """A codec on the grid of eight steps of AdamW at 2e-5; a job's is that of its own (`reach`)."""
    plain: dict[str, str | int] = {"feedback": "0", "fragments": 1, "overlap": 0, "mixing": "0"}
    is_exact, exponent = CODECS[kind].is_exact, CODECS[kind].start
    start = TensorExponents(embedding=exponent, matrix=exponent, vector=exponent)
    return CodecSpec.model_validate(
        {
            "kind": kind,
            "exponents": start,
            "moment_exponents": start,
            "min_exponent": exponent if is_exact else -30,
            "max_exponent": exponent if is_exact else -4,
        }
        | plain
        | fields
    )


_FEDAVG: Final = _outer("sgd", "1")
_NESTEROV: Final = _outer("nesterov", "0.7", momentum="0.9")
_GRID8: Final = _codec("grid8")
_SGD_INNER: Final = {
    "optimizer": "sgd",
    "beta1": "0",
    "beta2": "0",
    "eps": "0",
    "weight_decay": "0",
}

_MEASURED_BITS: Final = 17

METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "fedavg": Method(
            "McMahan et al. 2017, arXiv:1602.05629; with AdamW inside", "50 to 500", _FEDAVG, _GRID8
        ),
        "diloco": Method("Douillard et al. 2023, arXiv:2311.08105", "500", _NESTEROV, _GRID8),
        "fedadam": Method(
            "Reddi et al. 2021, arXiv:2003.00295; with AdamW inside",
            "1 reset period",
            _outer("adam", "0.004", momentum="0.2", beta2="0.99", eps="0.002"),
            _GRID8,
        ),
        "delayed_nesterov": Method(
            "Liu et al. 2024, arXiv:2401.09135",
            "50",
            _outer("delayed_nesterov", "2", momentum="0.5", period=4),
            _GRID8,
        ),
        "streaming": Method(
            "Douillard et al. 2025, arXiv:2501.18512",
            "100",
            _outer("nesterov", "0.4", momentum="0.9"),
            _codec("grid4", fragments=2, mixing="0.5"),
            overlaps=True,
        ),
        "muloco": Method(
            "Thérien et al. 2025, arXiv:2505.23725",
            "30",
            _outer("nesterov", "0.8", momentum="0.9"),
            # With feedback two bits end no lower (docs/methods.md), and seats would keep a state.
            _codec("two_bit"),
            inner={"optimizer": "muon", "momentum": "0.95"},
        ),
        "sparseloco": Method(
            "Sarfi et al. 2025, arXiv:2508.15706",
            "15 to 30",
            # A mean over contributors moves the model three times as far as one over all seats.
            _outer("sgd", "0.5"),
            _codec("sparse", feedback="0.95"),
            rule=SPARSE_RULE,
        ),
        "demo": Method(
            "Peng et al. 2024, arXiv:2411.19870",
            "1",
            _outer("sign", "0.002"),
            _codec("dct", feedback="0.999"),
            rule=SPARSE_RULE,
            inner=_SGD_INNER,
            one_step=True,
            # Its feedback is its momentum: dropped every 8 steps, it costs 8 % (docs/methods.md).
            reset_period=64,
        ),
        "lo_fi": Method(
            "Wortsman et al. 2022, arXiv:2210.11948", "all", _FEDAVG, _GRID8, one_round=True
        ),
    }
)


DENSE_CODECS: Final[Mapping[str, CodecSpec]] = MappingProxyType(
    {name: _codec(name) for name, kind in CODECS.items() if not kind.is_sparse}
)
"""Codecs whose updates have every coordinate, as a job may choose them in its method's place."""


def with_codec(method: Method, name: str) -> Method:
    """The method with another dense codec, and its own fragments and what comes in late.

    Its rule is that of dense codecs; of one that is merged by one rule alone, that.

    Raises:
        ManifestError: there is no such codec.
    """
    if name not in DENSE_CODECS:
        raise ManifestError(
            f"no dense codec is called {name!r}",
            next_step=f"choose one of {', '.join(DENSE_CODECS)}",
        )
    kept = method.codec.model_dump(include={"fragments", "overlap", "mixing"})
    codec = DENSE_CODECS[name].model_copy(update=kept)
    taken = rules_for(name)
    return replace(method, codec=codec, rule=DENSE_RULE if DENSE_RULE in taken else taken[0])


def with_feedback(method: Method, decay: str) -> Method:
    """The method with seats that send what their codec left out a round later.

    Raises:
        ManifestError: the codec is sparse or leaves nothing out, or the updates are of fragments.
    """
    codec = method.codec
    fed_back = [name for name in DENSE_CODECS if CODECS[name].may_feed_back]
    if codec.kind not in fed_back or codec.is_stateful or method.overlaps:
        raise ManifestError(
            f"what {codec.kind} updates of this method leave out cannot be sent later by choice",
            next_step="leave method.feedback at 0, or choose a method that sends all of the model "
            "each round, with one of the codecs " + ", ".join(fed_back),
        )
    return replace(method, codec=codec.model_copy(update={"feedback": decay}))


def with_rule(method: Method, name: str) -> Method:
    """The method with another merge rule.

    Raises:
        ManifestError: there is no such rule, or it does not merge what the codec writes.
    """
    codec = method.codec.kind
    if name not in RULES:
        raise ManifestError(
            f"no merge rule is called {name!r}", next_step=f"choose one of {', '.join(RULES)}"
        )
    fitting = rules_for(codec)
    if name not in fitting:
        raise ManifestError(
            f"{codec} updates are not merged by {name}",
            next_step="leave method.rule empty, or choose another method or codec: updates of "
            f"{codec} are merged by {', '.join(fitting)}",
        )
    return replace(method, rule=name)


def rules_for(codec: str) -> tuple[str, ...]:
    """The merge rules that take updates of a codec."""
    return tuple(name for name, rule in RULES.items() if CODECS[codec].is_merged_by(rule))


def moment_exponents(codec: CodecSpec, trained: int) -> TensorExponents:
    """Where the first moments of a job begin that trains so many numbers.

    Gradients are clipped to a norm, so moments are smaller by the root of the numbers that share
    it; a start that is far off costs rounds. Measured of a model of 2^17 parameters, on the grid of
    int8 updates.
    """
    if codec.properties.is_exact:
        return codec.exponents
    coarser = codec.exponents.matrix - _GRID8.exponents.matrix
    smaller = max(0, trained.bit_length() - _MEASURED_BITS) // 2

    def start(measured: int) -> int:
        exponent = measured + coarser - smaller
        return min(max(exponent, codec.min_exponent), codec.max_exponent)

    return TensorExponents(embedding=start(-11), matrix=start(-15), vector=start(-12))


def method_of(name: str) -> Method:
    """The method of that name.

    Raises:
        ManifestError: there is none.
    """
    if name not in METHODS:
        raise ManifestError(
            f"no method is called {name!r}", next_step=f"choose one of {', '.join(METHODS)}"
        )
    return METHODS[name]
