"""The kinds of layers and of MLPs that a model may be made of: SPEC-STEP.md, chapter 13."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """What the tensors of a kind of layer are.

    Attributes:
        norms: the gains of D, attention's and the MLP's.
        by_head: whether a gain of queries or keys is as long as a head, else as all of them.
    """

    norms: tuple[str, str]
    by_head: bool


LAYERS = {
    "llama": Layer(("input_layernorm", "post_attention_layernorm"), by_head=True),
    "olmo2": Layer(("post_attention_layernorm", "post_feedforward_layernorm"), by_head=False),
}
MLPS = {"swiglu": ("mlp.gate_proj", "mlp.up_proj"), "relu2": ("mlp.up_proj",)}
"""The linears that an MLP reads its input with."""
