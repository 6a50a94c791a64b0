"""What the parts of a job's work hold in memory at once: arithmetic over its sizes.

Rule of this file: a part's figure is what it holds at its fullest, by what its code keeps, and a
process's start; `bench/jobs.py` prints it beside what a process of that part was seen to take, and
docs/sizes.md has both.
"""

from __future__ import annotations

from math import prod
from typing import Final

from atoll.numerics.state_layout import (
    first_moment_bytes,
    moment_layout,
    param_count,
    param_shapes,
    seat_layout,
    trained_count,
    trained_shapes,
)
from atoll.protocol.manifest import Manifest
from atoll.protocol.model_spec import ModelSpec

_OF_VERIFIERS: Final = {"replay", "evaluate"}
START_BYTES: Final = 500_000_000
"""A worker that has done nothing: Python, torch and what it loads; and what its allocator keeps."""
_MERGED_AT_ONCE: Final = 3 << 26
"""What a merge decodes of two updates at once, and its sums (`aggregation.chunks.BLOCK`); of more
updates there are fewer sums."""
_NUMBER: Final = 4
"""Bytes of an fp32 number; a coordinate that is merged takes as many, of fp32 updates twice that.
Rounded it takes one."""
_LOGIT: Final = 2 * _NUMBER + 2
"""Of a logit: itself and its gradient, or its gradient and that in integers."""
_SUMS: Final = 3 << 26
"""Of a product in two slices, some rows at a time (`kernels.linear`): the head's."""


def peaks(manifest: Manifest, update_bytes: int) -> dict[str, int]:
    """Bytes of each part of a round, by name: a provider's `train`, to the update proof of its
    update and its last state; a verifier's `replay`, which is the same; of verifiers and submitters
    `evaluate`; of every member `start`, `open`, `check` and `merge`.

    Args:
        update_bytes: of a seat's update.
    """
    sizes = _Sizes(manifest)
    steps = sizes.base + max(sizes.two_states, sizes.state + max(sizes.kept, sizes.gradients))
    if manifest.codec.carries_params:
        steps += sizes.model  # what a merged fragment is mixed in from
    update_proof = sizes.state + 2 * sizes.model + 2 * update_bytes
    if manifest.codec.carries_feedback:
        update_proof += (
            4 * sizes.model
        )  # what is wanted, in steps of a grid, as ranks, and what is said
    # Section by section; then what came of it, and the whole state with the moments before.
    sections_merged = sizes.model + sizes.change + sizes.numerators + sizes.moments
    whole = sizes.global_state + sizes.change + 2 * sizes.moments + sizes.opened
    merge = max(sections_merged, whole) + _MERGED_AT_ONCE
    # Seen beside its steps: what is kept of writing the update.
    train = max(steps + update_bytes // 2, update_proof)
    parts = {
        "open": sizes.global_state + sizes.moments + sizes.opened,
        "train": train,
        "replay": train,
        "check": sizes.model,
        "merge": merge,
        "evaluate": sizes.base + sizes.model + sizes.logits,
    }
    return {"start": START_BYTES} | {name: START_BYTES + size for name, size in parts.items()}


def provider_bytes(manifest: Manifest, update_bytes: int) -> int:
    """What a provider's largest part holds: it merges what it will train on."""
    parts = peaks(manifest, update_bytes)
    return max(size for name, size in parts.items() if name not in _OF_VERIFIERS)


def verifier_bytes(manifest: Manifest, update_bytes: int) -> int:
    """What a verifier's largest part holds: it replays whole rounds, merges and evaluates."""
    return max(peaks(manifest, update_bytes).values())


def submitter_bytes(manifest: Manifest, update_bytes: int) -> int:
    """What evaluating takes, or fetching the result: the state that its digest is of, and of
    adapters the model that they are merged into.
    """
    parts = peaks(manifest, update_bytes)
    merged = _NUMBER * param_count(manifest.model) if manifest.lora is not None else 0
    return max(parts["open"] + merged, parts["evaluate"])


class _Sizes:
    """Bytes of what a job's parts hold.

    Attributes:
        model: what is trained, in fp32.
        state: a seat's.
        global_state: the model with the outer optimiser's slots.
        moments: the merged ones.
        opened: what making the initial state's largest tensor takes.
        numerators: of a section as it is merged; change: of the first one as it is kept.
        base: the model that adapters are added to, and what freezing its largest weight takes.
        two_states: as a step ends: the one before it, the one after it, and the optimiser's work on
            the largest tensor.
        logits: of a micro-batch, with what is computed of them at once.
        kept: beside a state as the backward pass of a micro-batch begins, with its head.
        gradients: beside a state as it ends, with the embedding's sums.
    """

    def __init__(self, manifest: Manifest) -> None:
        trained, model = trained_count(manifest), manifest.model
        slots = len(manifest.outer.properties.slots)
        largest = max(prod(shape) for shape in trained_shapes(manifest).values())
        tokens = manifest.inner.micro_batch * model.seq
        self.logits = tokens * _LOGIT * model.vocab + _SUMS
        self.model = _NUMBER * trained
        self.state = _NUMBER * seat_layout(manifest).elements
        self.global_state = self.model * (1 + 2 * slots)
        self.moments = first_moment_bytes(manifest) + _NUMBER * moment_layout(manifest).factored
        self.opened = _NUMBER * largest if self.moments else 0
        codec = manifest.codec.properties
        self.numerators = self.model * (2 if codec.is_exact else 1)
        self.change = self.numerators if codec.fineness is None else trained
        self.base = 0 if manifest.lora is None else _frozen_bytes(manifest)
        self.two_states = 2 * self.state + 2 * _NUMBER * largest
        # The head's weight, whose integers and gradient are there, is the largest or its size.
        head = (2 + _NUMBER) * largest if manifest.lora is None else 0
        self.kept = tokens * _kept_of_a_token(model) + self.logits + head
        self.gradients = self.model + (2 + 1) * _NUMBER * largest


def _kept_of_a_token(model: ModelSpec) -> int:
    """What a forward pass keeps of a token for the backward pass beside the logits: in each layer
    some fifteen vectors as wide as the model and three as wide as the MLP, as seen.
    """
    width = max(model.width, model.heads * model.head_dim)
    return _NUMBER * model.layers * (15 * width + 3 * model.ffn)


def _frozen_bytes(manifest: Manifest) -> int:
    """Linears as one slice of int8 and the head as two, the embedding in fp32."""
    model = manifest.model
    ends = model.vocab * model.width
    largest = max(prod(shape) for shape in param_shapes(model).values())
    linears = param_count(model) - ends * (1 if model.tied else 2)
    return linears + (_NUMBER + 2) * ends + 2 * _NUMBER * largest
