"""What the parts of a job's work hold in memory at once: arithmetic over its sizes.

Rule of this file: a part's figure is what it holds at its fullest, by what its code keeps, and a
process's start; `bench/jobs.py` prints it beside what a process of that part was seen to take, and
docs/sizes.md has both.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from atoll.numerics.memory_plan import LEAN, PLANS, ROOMY, MemoryPlan
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

_LAYER: Final = "model.layers.0."
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


def plan_for(manifest: Manifest, room: int, ranks: int = 1) -> MemoryPlan:
    """What steps have to do for want of memory where each of some ranks has so many bytes."""
    sizes = _Sizes(manifest, ranks)
    fitting = (plan for plan in PLANS if START_BYTES + sizes.steps(plan) <= room)
    return next(fitting, LEAN)


def rank_bytes(manifest: Manifest, ranks: int, plan: MemoryPlan = ROOMY) -> int:
    """What a step holds at its fullest at each of some ranks."""
    return START_BYTES + _Sizes(manifest, ranks).steps(plan)


def state_fits(manifest: Manifest, room: int) -> bool:
    """Whether so many bytes hold a seat's state beside a GPU that has its parameters."""
    return START_BYTES + _Sizes(manifest).state <= room


def slots_fit(manifest: Manifest, room: int) -> bool:
    """Whether so many bytes hold a merge with the outer optimiser's slots."""
    return START_BYTES + _Sizes(manifest).merge(ROOMY) <= room


def peaks(manifest: Manifest, update_bytes: int, plan: MemoryPlan = ROOMY) -> dict[str, int]:
    """Bytes of each part of a round, by name: a provider's `train`, to the update proof of its
    update and its last state; a verifier's `replay`, which is the same; of verifiers and submitters
    `evaluate`; of every member `start`, `open`, `check` and `merge`.

    Args:
        update_bytes: of a seat's update.
        plan: of the steps.
    """
    sizes = _Sizes(manifest)
    # The model goes before the update's sections are joined.
    update_proof = sizes.held(plan) + max(sizes.model + update_bytes, 2 * update_bytes)
    if manifest.codec.carries_feedback:
        # What is wanted, in steps of a grid, as ranks, and what is said; and the difference.
        update_proof += 5 * sizes.model
    train = max(sizes.steps(plan), update_proof)
    parts = {
        "open": sizes.whole(plan) + sizes.moments + sizes.opened,
        "train": train,
        "replay": train,
        "check": sizes.model,
        "merge": sizes.merge(plan),
        "evaluate": sizes.base + sizes.model + sizes.logits,
    }
    return {"start": START_BYTES} | {name: START_BYTES + size for name, size in parts.items()}


def provider_bytes(manifest: Manifest, update_bytes: int) -> int:
    """What a provider's largest part holds at least: it merges what it will train on."""
    parts = peaks(manifest, update_bytes, LEAN)
    return max(size for name, size in parts.items() if name not in _OF_VERIFIERS)


def verifier_bytes(manifest: Manifest, update_bytes: int) -> int:
    """What a verifier's largest part holds at least: it replays whole rounds, merges and
    evaluates.
    """
    return max(peaks(manifest, update_bytes, LEAN).values())


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
        state: a seat's; without_moments: the same but for the optimiser's moments.
        layer: a layer's trained parameters.
        global_state: the model with the outer optimiser's slots.
        moments: the merged ones.
        opened: what making the initial state's largest tensor takes.
        numerators: of a section as it is merged; change: of the first one as it is kept.
        base: the model that adapters are added to, and what freezing its largest weight takes;
            frozen: that model alone.
        logits: of a micro-batch, with what is computed of them at once.

    Args:
        ranks: that hold a seat's state together.
    """

    def __init__(self, manifest: Manifest, ranks: int = 1) -> None:
        trained, model = trained_count(manifest), manifest.model
        slots = len(manifest.outer.properties.slots)
        largest = max(prod(shape) for shape in trained_shapes(manifest).values())
        tokens = manifest.inner.micro_batch * model.seq
        self.logits = tokens * _LOGIT * model.vocab + _SUMS
        self.model = _NUMBER * trained
        self.state = _NUMBER * seat_layout(manifest).elements
        self.without_moments = _NUMBER * replace(seat_layout(manifest), m={}, v={}).elements
        layer = (prod(s) for n, s in trained_shapes(manifest).items() if n.startswith(_LAYER))
        self.layer = _NUMBER * sum(layer)
        self.global_state = self.model * (1 + 2 * slots)
        self.moments = first_moment_bytes(manifest) + _NUMBER * moment_layout(manifest).factored
        self.opened = _NUMBER * largest if self.moments else 0
        codec = manifest.codec.properties
        self.numerators = self.model * (2 if codec.is_exact else 1)
        self.change = self.numerators if codec.fineness is None else trained
        self.frozen = 0 if manifest.lora is None else _frozen_bytes(manifest)
        self.base = self.frozen + (_freezing_bytes(manifest) if self.frozen else 0)
        self._manifest, self._largest, self._tokens = manifest, largest, tokens
        self._ranks = ranks

    def steps(self, plan: MemoryPlan) -> int:
        """What a step holds at its fullest: one state, and the gradients' sums.

        Beside these there is, as the backward pass of a micro-batch begins, what it needs, with the
        head; as it ends the embedding's sums; and then what the optimiser makes of the largest
        tensor, and the reference's, where the step is run twice.

        Of several ranks each has a share of the state and of the sums, and a layer's gradients, or
        a lane's, before they are sent; and the weights that are gathered, as of a base that is in
        rows.
        """
        manifest, largest = self._manifest, self._largest
        inner, slots = manifest.inner, self.state // self.model
        # A layer's gradients are there before they are added, and a lane's sum beside the lanes'.
        lanes = 2 if inner.lane < inner.micro_batches else 1
        sums = lanes * self._share(self.model) + self.layer if inner.micro_batches > 1 else 0
        # A rank that has whole lanes keeps one's sum until it is sent (`rank_sums.runs_of`).
        has_lanes = inner.micro_batches // inner.lane >= self._ranks > 1
        if has_lanes and inner.lane > 1 and not plan.recomputes_layers:
            sums += self.model
        if self._ranks > 1:
            # What is sent of the largest tensor's gradient, and what comes in for it: by then the
            # head is done with, whose memory the heap keeps.
            sums += 2 * _NUMBER * largest
        # The head's weight, whose integers and gradient are there, is the largest or its size; the
        # reference, which runs a step once more, has such integers in fp64.
        head = (2 + _NUMBER + 2 * _NUMBER) * largest if manifest.lora is None else 0
        kept = self._tokens * _kept_of_a_token(manifest.model, plan) + self.logits + head
        model = self._share(self.model)
        gradients = model + (2 + 1) * _NUMBER * largest
        optimised = model + 2 * slots * _NUMBER * largest
        mixed = model if manifest.codec.carries_params else 0  # that a fragment is mixed with
        held = self._share(self.held(plan)) + self._gathered(plan)
        return self._base(plan) + held + max(sums + kept, gradients, optimised) + mixed

    def _base(self, plan: MemoryPlan) -> int:
        """In rows where several ranks compute layers again (`open_base_of_ranks`): the first one
        freezes weight by weight, which is more than any product or embedding that is read.
        """
        if self._ranks == 1 or not plan.recomputes_layers or self._manifest.task is not None:
            return self.base
        return self._share(self.frozen) + self.base - self.frozen

    def _gathered(self, plan: MemoryPlan) -> int:
        """Weights of other ranks' rows: linears as integers, all or a layer's, and the ends."""
        if self._ranks == 1 or self._manifest.lora is not None:
            return 0 if self._ranks == 1 else self.model
        model = self._manifest.model
        ends = _NUMBER * model.vocab * model.width * (1 if model.tied else 2)
        linears = self.layer if plan.recomputes_layers else self.model - ends
        return ends + linears // _NUMBER

    def _share(self, count: int) -> int:
        return -(-count // self._ranks)

    def held(self, plan: MemoryPlan) -> int:
        """Of a seat's state what is in memory."""
        return self.without_moments if plan.moments_apart else self.state

    def whole(self, plan: MemoryPlan) -> int:
        """Of a global state; its slots are apart where moments are."""
        return self.model if plan.moments_apart else self.global_state

    def merge(self, plan: MemoryPlan) -> int:
        """Section by section; then what came of it, and the whole state with the moments before."""
        sections = self.model + self.change + self.numerators + self.moments
        whole = self.whole(plan) + self.change + 2 * self.moments + self.opened
        return max(sections, whole) + _MERGED_AT_ONCE


def _kept_of_a_token(model: ModelSpec, plan: MemoryPlan) -> int:
    """What a forward pass keeps of a token for the backward pass beside the logits: in each layer
    some fifteen vectors as wide as the model and three as wide as the MLP, as seen; of layers that
    are computed again what each reads, and one layer's at a time.
    """
    width = max(model.width, model.heads * model.head_dim)
    layer = 15 * width + 3 * model.ffn
    if plan.recomputes_layers:
        return _NUMBER * (model.layers * model.width + layer)
    return _NUMBER * model.layers * layer


def _frozen_bytes(manifest: Manifest) -> int:
    """Linears as one slice of int8 and the head as two, the embedding in fp32."""
    model = manifest.model
    ends = model.vocab * model.width
    linears = param_count(model) - ends * (1 if model.tied else 2)
    return linears + (_NUMBER + 2) * ends


def _freezing_bytes(manifest: Manifest) -> int:
    """What is there besides as a base's largest weight is frozen."""
    return 2 * _NUMBER * max(prod(shape) for shape in param_shapes(manifest.model).values())
