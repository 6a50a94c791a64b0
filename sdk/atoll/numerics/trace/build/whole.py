"""A job's program from its manifest."""

from __future__ import annotations

from math import prod
from typing import Final

from atoll.errors import ManifestError
from atoll.numerics.codec.factored import FactoredLayout
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.schedule_tables import table_sizes
from atoll.numerics.state_layout import Shapes, moment_layout, trained_shapes
from atoll.numerics.trace.build.generation_trace import make_generation
from atoll.numerics.trace.build.graph import MOST_TEMPLATES, too_many
from atoll.numerics.trace.build.step_trace import make_step
from atoll.numerics.trace.build.update_proof import make_update_proof
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_shape import MergeShape, Numbers
from atoll.protocol.program import Fragment, Part, TraceHeader, TraceTemplate
from atoll.protocol.terms import MAX_SHOWN, shown_bytes
from atoll.protocol.types import ZERO_DIGEST, Digest

MAX_BATCH: Final = 512
"""Sequences: the last one's draw takes 0.17M gas, since those before it must be drawn, too."""


def can_be_judged(manifest: Manifest) -> bool:
    """Whether the EVM can execute any one of the job's operations.

    It can where a transaction has gas for all draws of a batch, and for what a segment's steps
    resulted in.
    """
    inner, is_sampled = manifest.inner, manifest.task is not None
    shown = shown_bytes(inner.segment, inner.micro_batches, is_sampled=is_sampled)
    return inner.batch <= MAX_BATCH and shown <= MAX_SHOWN


def program_of(manifest: Manifest, initial: Digest) -> Program:
    """The program of a job; `initial` is the digest of round 0's global state.

    Raises:
        ManifestError: its operations cannot be judged, its traces would have more nodes than
            numbers, or it has too many templates.
    """
    if not can_be_judged(manifest):
        raise ManifestError(
            "manifest: the operations of this job cannot be judged, and every job has a judge",
            next_step=f"choose at most {MAX_BATCH} sequences a step, or shorter segments",
        )
    takes = manifest.codec.fragments if manifest.codec.carries_params else 0
    m, result = make_step(manifest)
    nodes, templates = m.graph.templates(Part.STEP, result)
    if len(templates) * (1 + takes) > MOST_TEMPLATES:
        raise too_many()
    update_proofs = [
        make_update_proof(manifest, fragment) for fragment in range(manifest.codec.fragments)
    ]
    taking = [_taking(manifest, fragment) for fragment in range(takes)]
    fragments = [Fragment(update_proofs[f][0], step[0]) for f, step in enumerate(taking)]
    generating = _generating(manifest, takes)
    generation = [count for count, _ in generating]
    data, inner, total = manifest.data, manifest.inner, m.total_steps
    header = TraceHeader(
        step_nodes=nodes,
        update_proof_nodes=0 if fragments else update_proofs[0][0],
        steps=inner.steps,
        segment=inner.segment,
        micro_batches=inner.batch // inner.micro_batch,
        data_root=data.root,
        train_tokens=data.train_tokens,
        token_bytes=data.token_bytes,
        masked=data.masked,
        batch=inner.batch,
        seq=manifest.model.seq,
        tables_root=manifest.tables,
        tables_bytes=sum(table_sizes(manifest.model, inner, total)),
        base_root=_base_root(manifest),
        initial=initial,
        reset_period=manifest.reset_period,
        overlap=manifest.codec.overlap,
        fragments=tuple(fragments),
        generation_nodes=tuple(generation),
    )
    parts = (part for _, made in (*update_proofs, *taking, *generating) for part in made)
    return Program(header, (*templates, *parts), merge_shape_of(manifest))


def merge_shape_of(manifest: Manifest) -> MergeShape:
    """What the chain has to know of the job's merges."""
    shapes, codec = trained_shapes(manifest), manifest.codec
    shared = moment_layout(manifest, shapes)
    sent = (
        {name: shape for name, shape in shapes.items() if codec.is_sent(name, round)}
        for round in range(codec.fragments)
    )
    factored = FactoredLayout(Layout.of(shared.v)).total if shared.v else 0
    return MergeShape(
        rule=manifest.robust.rule,
        codec=codec.kind,
        sent=tuple(map(_numbers, sent)),
        first=_numbers(shared.m),
        factored_bytes=4 * factored,
        sampled_bytes=manifest.sampled_bytes,
        low=codec.min_exponent,
        high=codec.max_exponent,
        fragments=tuple(codec.fragment_of(name) for name in sorted(shapes)),
    )


def _numbers(shapes: Shapes) -> Numbers:
    return Numbers(len(shapes), sum(map(prod, shapes.values())))


def _taking(manifest: Manifest, fragment: int) -> tuple[int, tuple[TraceTemplate, ...]]:
    """The step that takes the fragment in, of a job whose seats keep parameters of their own."""
    m, result = make_step(manifest, fragment)
    return m.graph.templates(1 + manifest.codec.fragments + fragment, result)


def _generating(manifest: Manifest, takes: int) -> list[tuple[int, tuple[TraceTemplate, ...]]]:
    """The trace of a sampled token: of a plain step, and of one that takes each fragment in."""
    if manifest.task is None:
        return []
    first = 1 + max(1, 2 * takes)
    made = [make_generation(manifest, taken) for taken in (None, *range(takes))]
    return [m.graph.templates(first + at, result) for at, (m, result) in enumerate(made)]


def _base_root(manifest: Manifest) -> Digest:
    if manifest.lora is None or manifest.init.root is None:
        return ZERO_DIGEST
    return manifest.init.root
