"""int8 and int4 on the shared grid: the default codecs, stateless; 1 and 0.5 bytes a parameter.

Per coordinate the update is rounded half to even to a whole number of grid steps and clamped to
±127 or ±7. A provider keeps no private state, NaN and infinity cannot be written down, and
saturation is a clip per coordinate. Bodies: int8 values, never −128; or the codes value + 7,
4 bits each, packed (`packing`).
"""

from __future__ import annotations

import numpy as np

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.grid_rounding import Float32Vector, Int8Vector, to_nearest
from atoll.numerics.codec.packing import pack, packed_length, unpack
from atoll.numerics.codec.update_codec import UpdateCodec
from atoll.protocol.codecs import CODECS

LIMIT = 127
"""Largest magnitude of int8."""
LIMIT4 = 7
_WIDTH4 = 4
_to_int8, _to_int4 = to_nearest(LIMIT), to_nearest(LIMIT4)


class Grid8Body:
    """int8."""

    codec = CODECS["grid8"].number

    def sections(self, length: int) -> tuple[int, ...]:
        """One byte a value."""
        return (length,)

    def encode(self, scaled: Float32Vector, _piece: int) -> bytes:
        """As `Body.encode`."""
        return _to_int8(scaled).astype(np.int8).tobytes()

    def decode(self, body: memoryview, _length: int, _start: int) -> Int8Vector:
        """As `Body.decode`: a read-only view of the body."""
        values = np.frombuffer(body, dtype=np.int8)
        if values.size and int(values.min()) < -LIMIT:
            raise MalformedUpdate("a value of −128 is not on the grid")
        return values


class Grid4Body:
    """int4."""

    codec = CODECS["grid4"].number

    def sections(self, length: int) -> tuple[int, ...]:
        """Half a byte a value."""
        return (packed_length(length, _WIDTH4),)

    def encode(self, scaled: Float32Vector, _piece: int) -> bytes:
        """As `Body.encode`."""
        values = _to_int4(scaled).astype(np.int8)
        values += LIMIT4
        return pack(values.view(np.uint8), _WIDTH4)

    def decode(self, body: memoryview, length: int, _start: int) -> Int8Vector:
        """As `Body.decode`."""
        codes = unpack(body, length, _WIDTH4)
        if codes.size and codes.max() > 2 * LIMIT4:
            raise MalformedUpdate(f"a code above {2 * LIMIT4} is not on the grid")
        values = codes.view(np.int8)
        values -= LIMIT4
        return values


GRID8 = UpdateCodec(Grid8Body())
GRID4 = UpdateCodec(Grid4Body())
