"""Kinds of layers, of MLPs and of rotary scaling, each as its family has it."""

from __future__ import annotations

from atoll.protocol.families import LAYER_KINDS, MLP_KINDS, ROPE_SCALINGS


def test_llama_norms_heads_and_inputs_and_olmo_neither() -> None:
    norms = {name: (kind.norms_heads, kind.norms_inputs) for name, kind in LAYER_KINDS.items()}
    assert norms == {"llama": (True, True), "olmo2": (False, False)}


def test_only_swiglu_reads_a_gate() -> None:
    inputs = {name: kind.inputs for name, kind in MLP_KINDS.items()}
    assert inputs == {"swiglu": ("gate", "up"), "relu2": ("up",)}


def test_rotary_angles_are_divided_by_a_factor_and_llama3_spares_the_fast() -> None:
    kinds = {name: (kind.divides, kind.spares_fast) for name, kind in ROPE_SCALINGS.items()}
    assert kinds == {"none": (False, False), "linear": (True, False), "llama3": (True, True)}
