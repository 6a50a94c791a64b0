"""Tokens as words in arrays, and the types that a manifest may name. Needs no torch.

A word is a token. Where a job's weights differ its highest bit is the mask bit, set where the token
has weight 0; a job whose tokens all have weight 1 has no mask bit (0), and the bit is a token's.
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
    """The bit of a word that can say that its token has weight 0."""
    return 1 << 8 * DTYPES[dtype].itemsize - 1


def dtype_for(vocab: int, *, mask_bits: int) -> TokenType:
    """The smallest type of words that hold so many tokens, and as many mask bits (0 or 1).

    Raises ValueError where none does.
    """
    names: tuple[TokenType, ...] = get_args(TokenType)
    for name in names:
        if vocab <= 1 << 8 * DTYPES[name].itemsize - mask_bits:
            return name
    raise ValueError(f"no word holds {vocab} tokens")
