"""Attention's products as int16 in pairs: the integers' own, or not used."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from atoll.numerics.kernels import int16_products
from atoll.numerics.kernels.build import FLAGS, _compile
from atoll.numerics.kernels.gemm import layouts
from atoll.numerics.kernels.int16_products import SOURCE, Int16Product, with_int16
from atoll.numerics.kernels.interface import attention_levels

LANES = {(): 0} | ({("-mavx2",): 8} if platform.machine() == "x86_64" else {})
"""By flags: what a processor with no more than these has."""


def unused(x: Tensor, y: Tensor) -> Tensor:
    raise AssertionError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def built(flags: tuple[str, ...], folder: Path) -> ctypes.CDLL:
    compiler, path = shutil.which("cc"), folder / "products.so"
    assert compiler is not None
    _compile(SOURCE, compiler, (*FLAGS, *flags), path)
    return ctypes.CDLL(str(path))


def operands(shape: tuple[int, int, int, int], seed: int, extreme: bool) -> tuple[Tensor, Tensor]:
    groups, rows, inner, columns = shape
    levels = attention_levels(2048, inner)
    generator = torch.Generator().manual_seed(seed)
    x, y = (
        torch.randint(-levels, levels + 1, size, generator=generator).float()
        for size in ((groups, rows, inner), (groups, inner, columns))
    )
    return (x.sign() * levels, y.sign() * levels) if extreme else (x, y)


@given(
    shape=st.tuples(
        st.integers(1, 3), st.integers(8, 40), st.integers(1, 130), st.integers(1, 140)
    ),
    seed=st.integers(0, 2**31),
    extreme=st.booleans(),
)
def test_they_are_the_integers_own_in_every_layout(
    shape: tuple[int, int, int, int], seed: int, extreme: bool
) -> None:
    x, y = operands(shape, seed, extreme)
    product, expected = with_int16(torch.matmul), (x.double() @ y.double()).float()
    for left in layouts(x):
        for right in layouts(y):
            assert torch.equal(product(left, right), expected)


@pytest.mark.parametrize("flags", LANES)
def test_processors_with_less_give_the_same_or_none(flags: tuple[str, ...], tmp_path: Path) -> None:
    library = built(flags, tmp_path)
    assert library.lanes() == LANES[flags]
    if not library.lanes():
        return
    product = Int16Product(library, unused)
    for shape in ((2, 128, 64, 128), (1, 13, 7, 19), (3, 24, 128, 65)):
        for extreme in (False, True):
            x, y = operands(shape, 5, extreme)
            for right in layouts(y):
                assert torch.equal(product(x, right), (x.double() @ y.double()).float())


def test_few_rows_and_many_threads_take_the_other_way() -> None:
    x, y = operands((2, 9, 16, 24), 6, False)
    product = with_int16(unused)
    if product is unused:  # this processor has none, or there is no compiler
        return
    assert torch.equal(product(x, y), x @ y)
    with pytest.raises(AssertionError):
        product(x[:, :1], y)
    torch.set_num_threads(4)
    with pytest.raises(AssertionError):
        product(x, y)


def test_wrong_ones_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pairs whose sums wrap in int16, as they would in an instruction of another meaning."""
    wrong = tmp_path / "wrong.c"
    text = SOURCE.read_text()
    assert "convertvector(sum[r][k], floats)" in text
    wrong.write_text(text.replace("(sum[r][k], floats)", "(sum[r][k] << 16 >> 16, floats)"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(int16_products, "SOURCE", wrong)
    int16_products._library.cache_clear()
    try:
        assert with_int16(unused) is unused
    finally:
        int16_products._library.cache_clear()
