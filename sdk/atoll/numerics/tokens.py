"""Tokens as words in arrays, and the types that a manifest may name. Needs no torch.

A word is a token. In masked data its highest bit is set where the token is no target.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from atoll.protocol.manifest import TokenType

DTYPES: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype("<u1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
Tokens: TypeAlias = NDArray[Any]
"""Token ids, unsigned little-endian."""


class TokenSource(Protocol):
    """Words that lie in an array, or elsewhere and are read when they are asked for."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, span: slice, /) -> NDArray[Any]:
        """The words of a span without a step."""


def mask_bit(dtype: str) -> int:
    """The bit of a word of masked data that says that its token is no target."""
    return 1 << 8 * DTYPES[dtype].itemsize - 1


def dtype_for(vocab: int, *, masked: bool) -> TokenType:
    """The smallest type of words that hold so many tokens. Raises ValueError where none does."""
    for name in get_args(TokenType):
        if vocab <= (mask_bit(name) if masked else 2 * mask_bit(name)):
            found: TokenType = name
            return found
    raise ValueError(f"no word holds {vocab} tokens")
