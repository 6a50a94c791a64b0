"""int4 on the shared grid, as the int8 codec: −7 … 7 steps, half to even; 0.5 bytes a parameter.

It is stateless and decodes to an int8 vector in grid steps. The body is the codes value + 7, 4 bits
each in coordinate order, packed (`packing`); it follows the common header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from atoll.aggregate.grid import Int8Vector, as_tensors, quantise, to_nearest
from atoll.aggregate.header import CodecId, body_of, header, header_length
from atoll.aggregate.layout import Layout
from atoll.aggregate.packing import pack, packed_length, unpack
from atoll.errors import MalformedUpdate

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 7
_WIDTH = 4
_ROUND = to_nearest(LIMIT)


class Grid4Codec:
    """int4; `GRID4` is the one there is."""

    def encoded_length(self, layout: Layout) -> int:
        """Bytes of any update of this layout."""
        return header_length(layout) + packed_length(layout.total, _WIDTH)

    def encode(self, delta: Mapping[str, Tensor], exponents: Mapping[str, int]) -> bytes:
        """The canonical bytes of an update.

        Raises:
            NonFiniteDeltaError: a value is NaN or infinite.
            ConfigError: exponents out of range or not of these tensors.
        """
        layout = Layout.of_tensors(delta)
        head = header(CodecId.GRID4, layout, exponents)
        values = np.empty(layout.total, dtype=np.int8)
        quantise(delta, exponents, _ROUND, values)
        values += LIMIT
        return head + pack(values.view(np.uint8), _WIDTH)

    def decode_flat(self, data: bytes, layout: Layout, exponents: Mapping[str, int]) -> Int8Vector:
        """The values in grid steps, flat in layout order.

        Raises:
            MalformedUpdate: not the canonical encoding of this layout and these exponents.
        """
        head = header(CodecId.GRID4, layout, exponents)
        body = body_of(data, head, packed_length(layout.total, _WIDTH))
        codes = unpack(body, layout.total, _WIDTH)
        if codes.size and codes.max() > 2 * LIMIT:
            raise MalformedUpdate(f"a code above {2 * LIMIT} is not on the grid")
        values = codes.view(np.int8)
        values -= LIMIT
        return values

    def decode(
        self, data: bytes, layout: Layout, exponents: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The update as fp32 tensors.

        Raises:
            MalformedUpdate: as `decode_flat`.
        """
        return as_tensors(self.decode_flat(data, layout, exponents), layout, exponents)


GRID4 = Grid4Codec()
