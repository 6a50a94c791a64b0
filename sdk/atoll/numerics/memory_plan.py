"""What a step does for want of memory. No bit of a state depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How a step makes do with less memory, at the price of time.

    Attributes:
        recomputes_layers: of a forward pass only what each layer reads is kept, and the layer is
            computed again for its backward pass (Chen et al. 2016, arXiv:1604.06174).
        moments_apart: the optimiser's moments lie in a file that is mapped, away from a GPU, and go
            through the optimiser tensor by tensor (Rajbhandari et al. 2021, arXiv:2104.07857).
    """

    recomputes_layers: bool = False
    moments_apart: bool = False


ROOMY: Final = MemoryPlan()
"""Everything is kept."""
RECOMPUTING: Final = MemoryPlan(recomputes_layers=True)
LEAN: Final = MemoryPlan(recomputes_layers=True, moments_apart=True)
"""As little as can be."""
PLANS: Final = (ROOMY, RECOMPUTING, LEAN)
"""The next one where there is no room for one."""
