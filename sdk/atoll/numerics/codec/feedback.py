"""Error feedback: what a coarse codec could not send is added to the next round's update.

The residual is the provider's private state from round to round, beside the optimiser's moments
(Seide et al. 2014; Karimireddy et al. 2019, arXiv:1901.09847).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from atoll.errors import ConfigError
from atoll.numerics.codec.update_codec import UpdateCodec
from atoll.numerics.codec.vector_layout import Layout

if TYPE_CHECKING:
    from torch import Tensor


def encode_with_feedback(
    codec: UpdateCodec,
    delta: Mapping[str, Tensor],
    residual: Mapping[str, Tensor],
    exponents: Mapping[str, int],
    decay: float,
) -> tuple[bytes, dict[str, Tensor]]:
    """The bytes of delta + decay · residual, and what they lack of it: the next residual.

    Args:
        delta, residual: fp32 tensors by name, of the same shapes.
        decay: rounded to fp32; 1 keeps all that was not sent, SparseLoCo takes 0.95.

    Raises:
        NonFiniteDeltaError: a value is NaN or infinite.
        ConfigError: the residual is of other tensors, the decay outside [0, 1], or the exponents
            not of these tensors.
    """
    layout = Layout.of_tensors(delta)
    if not 0 <= decay <= 1:
        raise ConfigError(f"error feedback decays by a factor in [0, 1], not {decay}")
    if layout != Layout.of_tensors(residual):
        raise ConfigError("the error feedback is not of the update's tensors")
    factor = torch.tensor(decay, dtype=torch.float32)
    # Product, sum and difference are separate operations: fused, they would round elsewhere.
    wanted = {name: delta[name] + residual[name] * factor for name in layout.names}
    data = codec.encode(wanted, exponents)
    sent = codec.decode(data, layout, exponents)
    return data, {name: wanted[name] - sent[name] for name in layout.names}
