"""A job's program from its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from atoll.errors import ManifestError
from atoll.numerics.schedule_tables import table_sizes
from atoll.numerics.trace.build.graph import MOST_TEMPLATES, too_many
from atoll.numerics.trace.build.step_trace import make_step
from atoll.numerics.trace.build.update_proof import make_update_proof
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.manifest import Manifest
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
    inner = manifest.inner
    shown = shown_bytes(inner.segment, inner.micro_batches)
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
    if manifest.task is not None:
        # No trace has generated ids, so there is none: a round's pool decides (SPEC-GAME.md, 2).
        return Program(_header(manifest, initial, [], [Fragment(0, 0)] * takes), ())
    m, result = make_step(manifest)
    nodes, templates = m.graph.templates(Part.STEP, result)
    if len(templates) * (1 + takes) > MOST_TEMPLATES:
        raise too_many()
    update_proofs = [
        make_update_proof(manifest, fragment) for fragment in range(manifest.codec.fragments)
    ]
    taking = [_taking(manifest, fragment) for fragment in range(takes)]
    fragments = [Fragment(update_proofs[f][0], step[0]) for f, step in enumerate(taking)]
    header = _header(manifest, initial, [nodes, update_proofs[0][0]], fragments)
    parts = (part for _, made in (*update_proofs, *taking) for part in made)
    return Program(header, (*templates, *parts))


def _header(
    manifest: Manifest, initial: Digest, nodes: Sequence[int], fragments: Sequence[Fragment]
) -> TraceHeader:
    """`nodes` are those of a step and of the update proof where there are no fragments."""
    data, inner = manifest.data, manifest.inner
    step_nodes, update_proof_nodes = nodes or (0, 0)
    total = manifest.terms.rounds * inner.steps
    return TraceHeader(
        step_nodes=step_nodes,
        update_proof_nodes=0 if fragments else update_proof_nodes,
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
    )


def _taking(manifest: Manifest, fragment: int) -> tuple[int, tuple[TraceTemplate, ...]]:
    """The step that takes the fragment in, of a job whose seats keep parameters of their own."""
    m, result = make_step(manifest, fragment)
    return m.graph.templates(1 + manifest.codec.fragments + fragment, result)


def _base_root(manifest: Manifest) -> Digest:
    if manifest.lora is None or manifest.init.root is None:
        return ZERO_DIGEST
    return manifest.init.root
