"""How much a model computes, by its shape.

Rule of this file: it needs no torch, and looks at no machine.
"""

from __future__ import annotations

from atoll.numerics.state_layout import param_count
from atoll.protocol.model_spec import ModelSpec


def token_operations(model: ModelSpec) -> int:
    """Multiplications and additions of one token's forward and backward pass, with its context.

    Six for each weight of a product (Kaplan et al. 2020, section 2.1), and what attention adds.
    Frozen weights count as much, which is too much for adapters by a third at most.
    """
    embedding = model.vocab * model.width
    weights = param_count(model) - (0 if model.tied else embedding)
    return 6 * weights + 12 * model.layers * model.seq * model.heads * model.head_dim
