"""Cuts of tensors between ranks."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest

from atoll.job.presets import preset
from atoll.numerics.state_layout import param_shapes
from atoll.train.shard_cuts import UNIT, Cuts

SHAPES = {
    "embedding": (50_257, 768),
    "odd": (1001, 96),
    "narrow": (3, 7),
    "matrix": (768, 2048),
    "other": (768, 2048),
    "gain": (768,),
    "long": (70_000,),
}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_rows_follow_one_another_and_fill_whole_chunks(size: int) -> None:
    cuts = Cuts.of(SHAPES, ["matrix"], size)
    assert list(cuts.shapes) == list(SHAPES)
    for name, shape in SHAPES.items():
        marks = cuts.ends[name]
        assert (marks[0], marks[-1], len(marks)) == (0, shape[0], size + 1)
        assert list(marks) == sorted(marks)
        width = prod(shape[1:])
        inner = {mark for mark in marks if 0 < mark < shape[0]}
        assert all(mark * width % UNIT == 0 for mark in inner)
        assert sum(cuts.counts(name)) == prod(shape)
        assert [prod(cuts.part(name, rank)) for rank in range(size)] == cuts.counts(name)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_is_stepped_as_a_whole_has_one_holder(size: int) -> None:
    cuts = Cuts.of(SHAPES, ["matrix", "other"], size)
    for name in ("matrix", "other", "narrow"):
        assert sum(count > 0 for count in cuts.counts(name)) == 1
    assert all(cuts.counts("embedding"))


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["gpt2-small", "llama-1b"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_each_rank_of_a_real_model_has_its_share(size: int, name: str, is_whole: bool) -> None:
    model = preset(name).model
    assert model is not None
    shapes = param_shapes(model)
    linears = [n for n, shape in shapes.items() if len(shape) > 1 and n.startswith("model.layers")]
    cuts = Cuts.of(shapes, linears if is_whole else [], size)
    held = [sum(cuts.counts(n)[rank] for n in shapes) for rank in range(size)]
    assert sum(held) == sum(map(prod, shapes.values()))
    assert max(held) <= 1.05 * sum(held) / size


def test_the_marks_of_a_tensor_are_of_nothing_but_shapes_and_ranks() -> None:
    backwards = dict(reversed(SHAPES.items()))
    cuts, others = Cuts.of(SHAPES, [], 3), Cuts.of(backwards, [], 3)
    assert cuts.ends == others.ends
    assert [cuts.rows("long", rank) for rank in range(3)] == [
        slice(start, end) for start, end in pairwise(cuts.ends["long"])
    ]
