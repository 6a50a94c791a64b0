"""The sections of an update, one after another: SPEC-MERGE.md, chapter 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.second_client.documents import Manifest, Shapes, is_public, is_sent, moments_of
from tests.second_client.state import State

PIECE = 1024


@dataclass(frozen=True)
class Spoken:
    """What a round's updates speak of: the shapes of each section's tensors, none without it; and
    how many bytes of ids they have."""

    delta: Shapes
    first: Shapes
    second: Shapes
    ids: int = 0


def spoken_of(manifest: Manifest, model: State) -> Spoken:
    codec = manifest["codec"]
    shapes: Shapes = {name: p.shape for name, p in model["params"].items()}
    sent = {name: s for name, s in shapes.items() if is_sent(name, codec, model["round"])}
    ids = ids_size(manifest) if "task" in manifest else 0
    if not is_public(codec):
        return Spoken(sent, {}, {}, ids)
    return Spoken(sent, *moments_of(shapes, manifest["inner"]), ids)


def ids_size(manifest: Manifest) -> int:
    """Bytes of a round's ids, of a job that samples."""
    inner = manifest["inner"]
    return 4 * inner["steps"] * inner["batch"] * (manifest["model"]["seq"] + 1)


def joined(sections: Sequence[bytes]) -> bytes:
    """Each begins at a whole piece."""
    filled = [section + bytes(-len(section) % PIECE) for section in sections[:-1]]
    return b"".join([*filled, sections[-1]])


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Sections of these sizes. Raises ValueError for another size, or where filling is not zero."""
    found, at = [], 0
    for size in sizes:
        found.append(data[at : at + size])
        at += size + -size % PIECE
    if joined(found) != data or [len(section) for section in found] != list(sizes):
        raise ValueError("another size than this round's, or filling that is not zero")
    return found
