"""The optimisers that a manifest may name: which of its fields and slots each has.

Rule of this file: who reads an optimiser's name asks here for a property of it. What an inner one
does to a parameter is in `atoll.numerics.optimisers`, as a trace in
`atoll.numerics.trace.build.optimisers`, and what an outer one does in `atoll.numerics.outer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

INNER_FIELDS: Final = ("momentum", "beta1", "beta2", "eps")
"""Of `InnerSpec`: those that not every optimiser reads. They are 0 where it does not."""
OUTER_FIELDS: Final = ("momentum", "beta2", "eps", "period")


@dataclass(frozen=True, slots=True)
class InnerOptimiser:
    """An optimiser of a seat's steps.

    Attributes:
        usual: what a job file that says nothing of them gets for the fields that it reads; an eps
            among them divides, so that it is not 0.
        slots: `m` and `v`, what it keeps of a parameter: two tensors of its shape, of which `m` is
            shared as a first moment and `v` as a second.
        slots_need_momentum: whether it has them only with a momentum that is not 0.
        rest: who steps embeddings, the head and vectors, where it steps only the matrices between
            them; None where it steps all. Its fields are among `usual`.
        has_corrections: whether it, or its rest, reads bias corrections from the job's tables.
        moves_by_gradient: whether its steps are as long as gradients, and not as rates alone say.
        is_orthogonal: whether its steps are of few directions.
        steps_whole: whether each number moves by the whole rate in each step, either way.
    """

    usual: Mapping[str, str]
    slots: tuple[str, ...]
    slots_need_momentum: bool = False
    rest: str | None = None
    has_corrections: bool = False
    moves_by_gradient: bool = False
    is_orthogonal: bool = False
    steps_whole: bool = False

    @property
    def unused(self) -> tuple[str, ...]:
        """Fields that it does not read."""
        return tuple(name for name in INNER_FIELDS if name not in self.usual)

    def slots_with(self, momentum: str) -> tuple[str, ...]:
        """What it keeps of a parameter in a job with that momentum."""
        return () if self.slots_need_momentum and momentum == "0" else self.slots


@dataclass(frozen=True, slots=True)
class OuterOptimiser:
    """An optimiser of a round's merged update.

    Attributes:
        fields: of `OUTER_FIELDS`, those that it reads.
        slots: what it keeps from round to round, an int64 tensor for every parameter.
    """

    fields: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()


_ADAM: Final = {"beta1": "0.9", "beta2": "0.99", "eps": "0.00000001"}

INNER_OPTIMISERS: Final[Mapping[str, InnerOptimiser]] = MappingProxyType(
    {
        "adamw": InnerOptimiser(_ADAM, ("m", "v"), has_corrections=True),
        "lion": InnerOptimiser({"beta1": "0.9", "beta2": "0.99"}, ("m",), steps_whole=True),
        "muon": InnerOptimiser(
            _ADAM | {"momentum": "0"},
            ("m",),
            rest="adamw",
            has_corrections=True,
            is_orthogonal=True,
        ),
        "sgd": InnerOptimiser(
            {"momentum": "0"}, ("m",), slots_need_momentum=True, moves_by_gradient=True
        ),
    }
)
"""By the name that a manifest has."""
OUTER_OPTIMISERS: Final[Mapping[str, OuterOptimiser]] = MappingProxyType(
    {
        "sgd": OuterOptimiser(),
        "nesterov": OuterOptimiser(("momentum",), ("momentum",)),
        "adam": OuterOptimiser(("momentum", "beta2", "eps"), ("momentum", "second")),
        "sign": OuterOptimiser(),
        "delayed_nesterov": OuterOptimiser(("momentum", "period"), ("buffer", "momentum")),
    }
)
"""By the name that a manifest has."""
