"""What the manifest says about inner steps, in the form that steps use.

Rule of this file: scalars are binary64, each rounded once from the manifest's decimals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from atoll.numerics.frozen_base import Base
from atoll.numerics.kernels.interface import AdamFactors, Frozen
from atoll.numerics.kernels.philox import Mask
from atoll.numerics.memory_plan import ROOMY, MemoryPlan
from atoll.numerics.model import Dropper, keep_all
from atoll.numerics.ops import Ops, operations
from atoll.numerics.schedule_tables import Schedule, schedule_of
from atoll.protocol.manifest import Manifest
from atoll.protocol.method_spec import InnerSpec
from atoll.protocol.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the manifest says about a step.

    Attributes:
        total_steps: global steps of the whole job, for schedules that end.
        base: what adapters are added to, where they are trained.
        memory: what a step does for want of it, which changes no bit.
        rounded: of the parameters of a step, linears of one input as `Ops.freeze` makes them, by
            the name of the first; none where each micro-batch rounds them for itself.
    """

    model: ModelSpec
    inner: InnerSpec
    total_steps: int
    ops: Ops
    base: Base | None = None
    memory: MemoryPlan = ROOMY
    rounded: Mapping[str, Frozen] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest, base: Base | None = None) -> Recipe:
        """Raises ValueError where the manifest trains adapters and no base is given."""
        if (manifest.lora is None) != (base is None):
            raise ValueError("adapters have a base, and nothing else has")
        total_steps = manifest.terms.rounds * manifest.inner.steps
        ops = operations()
        return cls(manifest.model, manifest.inner, total_steps, ops, base)

    @property
    def schedule(self) -> Schedule:
        """Rates and bias corrections of the job's steps."""
        return schedule_of(self.inner, self.total_steps)


def clip_scale(norm: float, limit: float) -> float:
    """The factor that brings a gradient of this norm within the limit; 1 when it is already."""
    return min(1.0, limit / norm) if norm > 0.0 else 1.0


def decay_of(p: Tensor, inner: InnerSpec) -> float:
    """Decoupled weight decay: only matrices decay."""
    return float(inner.weight_decay) if p.dim() > 1 else 0.0


def adam_factors(
    recipe: Recipe, count: int, scale: float, rate: float, decay: float
) -> AdamFactors:
    """The scalars of AdamW's step `count`, which counts from 1."""
    correct1, correct2 = recipe.schedule.correction(count)
    return AdamFactors(
        scale=scale,
        beta1=float(recipe.inner.beta1),
        beta2=float(recipe.inner.beta2),
        correct1=correct1,
        correct2=correct2,
        eps=float(recipe.inner.eps),
        decay=decay,
        rate=rate,
    )


def dropper(mask: Mask, sequences: int, ops: Ops) -> Dropper:
    """Dropout of a micro-batch with so many sequences before it: masks are of the whole batch."""
    if mask.share == "0":
        return keep_all

    def drop(x_bTD: Tensor, site: int) -> Tensor:
        return ops.dropout(x_bTD, replace(mask, site=site, first=sequences * x_bTD[0].numel()))

    return drop
