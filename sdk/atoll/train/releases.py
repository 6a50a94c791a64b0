"""Which digests of training code this version has the bits of, and which release each is. No torch.

`equivalent.json` lists digests for which every vector, the probe and the second client gave the
bits that they give here. The list is of one version of the code, which it names: whoever changes
that has none until `tests/vectors/record_release.py` has compared again. `releases.json` has the
digest of every release, which is only for telling people what to install: a manifest names the
digest and no number, since a number is a stranger's word that nothing could be held against.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from atoll.errors import NumericsMismatch
from atoll.nested import loads
from atoll.protocol.types import Digest
from atoll.train.code import code_digest

EQUIVALENT = Path(__file__).with_name("equivalent.json")
RELEASES = Path(__file__).with_name("releases.json")


@lru_cache(maxsize=1)
def met_digests() -> frozenset[Digest]:
    """The digests of jobs whose bits the code here gives: its own, and those that equal it."""
    return digests_met_by(code_digest(), EQUIVALENT.read_bytes())


def digests_met_by(own: Digest, listed: bytes) -> frozenset[Digest]:
    """A version's own digest, and those of `equivalent.json` where that is of this version."""
    found: dict[str, Any] = loads(listed)
    same = found["same_bits"] if found["code"] == own.hex() else []
    return frozenset({own, *(Digest(bytes.fromhex(digest)) for digest in same)})


def check_code(wanted: Digest) -> None:
    """Raises NumericsMismatch where the code here is not known to give a job's bits."""
    if wanted in met_digests():
        return
    here, there = code_digest().hex()[:16], wanted.hex()[:16]
    number = release_with([wanted])
    which = f"which is release {number}" if number else "of a release that is not known here"
    raise NumericsMismatch(
        f"the training code here is {here}, the job needs {there}, {which}: "
        f"`atoll release add {number or 'NUMBER'}` installs it beside this one, for the next "
        "start of the service",
        next_step="add the release that the job was made with, or take another job",
    )


def releases() -> dict[str, Digest]:
    """Numbers of releases with their digests, the oldest first; the last one may be under way."""
    found: dict[str, str] = loads(RELEASES.read_bytes())
    return {number: Digest(bytes.fromhex(digest)) for number, digest in found.items()}


def release_with(digests: Iterable[Digest]) -> str | None:
    """The newest release with one of the digests; None for those of no release known here."""
    wanted = set(digests)
    return next((number for number, has in reversed(releases().items()) if has in wanted), None)
