"""Whatever bytes a seat reveals as its update, every codec reads them as integers or refuses them.

Which of the two may not depend on whether they are read whole or as they arrive.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.border import bent
from tests.unit.aggregation.test_codec_streams import codec_named, delta_of, exponents_of

from atoll.errors import MalformedUpdate
from atoll.numerics.codec.header import header_length
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.update_codec import Integers
from atoll.numerics.codec.vector_layout import Layout

DELTA = delta_of({"a": (63,), "b": (65, 2)})
LAYOUT = Layout.of_tensors(DELTA)
EVERY = pytest.mark.parametrize("kind", CODECS)


@cache
def written(kind: str) -> bytes:
    return codec_named(kind).encode(DELTA, exponents_of(kind, iter(DELTA)))


@cache
def length(kind: str) -> int:
    """Of what is merged: coefficients, where a codec has them in place of coordinates."""
    whole = read_whole(kind, written(kind))
    assert whole is not None
    return len(whole)


def read_whole(kind: str, data: bytes) -> Integers | None:
    """The integers, or None where they are refused."""
    exponents = exponents_of(kind, iter(DELTA))
    try:
        return codec_named(kind).decode_flat(data, LAYOUT, exponents)
    except MalformedUpdate:
        return None


def read_opened(kind: str, data: bytes) -> Integers | None:
    """The same where they are decoded as they are read."""
    exponents = exponents_of(kind, iter(DELTA))
    try:
        return codec_named(kind).open(data, LAYOUT, exponents)[:]
    except MalformedUpdate:
        return None


@EVERY
@settings(max_examples=100)
@given(data=st.data())
def test_bent_bytes_are_integers_or_refused_however_they_are_read(
    kind: str, data: st.DataObject
) -> None:
    update = data.draw(bent(written(kind)))
    whole, opened = read_whole(kind, update), read_opened(kind, update)
    if whole is None:
        assert opened is None
    else:
        assert len(whole) == length(kind)
        assert np.issubdtype(whole.dtype, np.signedinteger)
        assert opened is not None and np.array_equal(opened, whole)


@EVERY
@settings(max_examples=60)
@given(data=st.data())
def test_any_body_behind_a_valid_header_is_integers_or_refused(
    kind: str, data: st.DataObject
) -> None:
    valid, start = written(kind), header_length(LAYOUT)
    size = len(valid) - start
    body = data.draw(st.binary(min_size=size, max_size=size))
    whole = read_whole(kind, valid[:start] + body)
    opened = read_opened(kind, valid[:start] + body)
    assert (whole is None) == (opened is None)
    if whole is not None and opened is not None:
        assert np.array_equal(opened, whole)
