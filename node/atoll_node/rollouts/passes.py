"""How a provider knows its helpers: by passes, of which its config has the digests.

A helper has another pass for each provider, which follows from its own secret: so none of them can
show another one what it was shown. Nobody who does not see their line has it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from atoll.files import write_once

FILE: Final = "secret"
"""In a helper's home."""


def pass_for(home: Path, url: str) -> str:
    """What a helper with this home shows the provider at this address. Raises OSError."""
    file = home / FILE
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_once(file, secrets.token_hex(32).encode())
    return hmac.new(file.read_bytes(), url.encode(), sha256).hexdigest()


def header_of(pass_: str) -> str:
    """As it is sent, under `Authorization`."""
    return f"Bearer {pass_}"


def digest_of(header: str) -> str:
    """What a provider's config has of the pass that was sent."""
    # What is no UTF-8 of what a stranger sends comes as surrogates.
    return sha256(header.removeprefix("Bearer ").encode(errors="surrogateescape")).hexdigest()


def name_of(header: str, names: Mapping[str, str]) -> str | None:
    """Whose pass was sent, of those with these names by digest; None where it is nobody's.

    It takes as long whatever was sent, so that nothing of a digest is learned from that.
    """
    sent = digest_of(header).encode()
    matching = [
        name for digest, name in names.items() if hmac.compare_digest(digest.encode(), sent)
    ]
    return matching[0] if matching else None
