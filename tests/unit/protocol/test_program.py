"""A program's bytes: one spelling of headers and templates, and whose nodes a template is of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.protocol.models import HEADER, with_reset_periods

from atoll.protocol import program
from atoll.protocol.program import Input, MalformedProgram, Part, Source, TraceHeader, TraceTemplate

INPUTS = (Input(Source.TRACE, 3, 2, 40), Input(Source.EXPONENTS, 0, 0, 301))
TEMPLATE = TraceTemplate(Part.UPDATE_PROOF, 0x0102, 4, 40, 5, 3, 2, INPUTS, (7, 1 << 40), b"a tail")


def test_a_templates_nodes_are_its_first_and_so_many_more_a_stride_apart() -> None:
    found = [TEMPLATE.iteration(node) for node in range(13)]
    assert found == [None] * 5 + [0, None, 1, None, 2] + [None] * 3
    alone = replace(TEMPLATE, count=1, stride=0)
    assert [alone.iteration(node) for node in (4, 5, 6, 7)] == [None, 0, None, None]


def test_an_operation_is_told_the_iteration_its_words_and_the_tail() -> None:
    numbers = b"".join(number.to_bytes(8, "big") for number in (2, 7, 1 << 40))
    assert TEMPLATE.attributes(2) == numbers + b"a tail"


def test_a_template_has_one_spelling_and_is_whole() -> None:
    data = TEMPLATE.to_bytes()
    assert TraceTemplate.from_bytes(data) == TEMPLATE
    assert TraceTemplate.from_bytes(data[:-6]) == replace(TEMPLATE, tail=b"")
    for length in range(len(data) - 6):
        with pytest.raises(MalformedProgram):
            TraceTemplate.from_bytes(data[:length])
    unknown = data.replace(bytes([Source.EXPONENTS]) + bytes(8), b"\xfe" + bytes(8))
    with pytest.raises(MalformedProgram):
        TraceTemplate.from_bytes(unknown)


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        with_reset_periods(3).header,
        replace(HEADER, generation_nodes=(7,)),
        replace(with_reset_periods(3).header, generation_nodes=(7, 8, 9)),
    ],
    ids=["one part", "fragments", "sampled", "fragments, sampled"],
)
def test_a_header_has_one_spelling_and_is_whole(header: TraceHeader) -> None:
    data = header.to_bytes()
    assert TraceHeader.from_bytes(data) == header
    assert TraceHeader.from_bytes(replace(header, masked=True).to_bytes()).masked is True
    masked = replace(header, masked=True).to_bytes()
    (position,) = (at for at, (a, b) in enumerate(zip(data, masked, strict=True)) if a != b)
    for odd in (
        bytes([2]) + data[1:],
        data[:-1],
        data + b"\0",
        data[:position] + b"\2" + data[position + 1 :],
        data[:100],
        b"",
    ):
        with pytest.raises(MalformedProgram):
            TraceHeader.from_bytes(odd)


def test_tokens_have_parts_behind_all_others() -> None:
    plain = replace(HEADER, generation_nodes=(7,))
    assert plain.generation_part(Part.STEP) == 2
    assert [plain.nodes(part) for part in range(3)] == [9, 3, 7]
    assert (plain.loss_bytes, HEADER.loss_bytes) == (12, 4)
    several = replace(with_reset_periods(3).header, generation_nodes=(7, 8, 10))
    parts = [several.generation_part(several.step_part(round_, 0)) for round_ in range(3)]
    assert parts == [5, 6, 7]
    assert [several.nodes(part) for part in range(8)] == [9, 5, 6, 20, 21, 7, 8, 10]
    with pytest.raises(IndexError):
        HEADER.nodes(HEADER.generation_part(Part.STEP))


def test_a_segment_is_playable_up_to_what_a_transaction_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = program.shown_bytes(HEADER.segment, HEADER.micro_batches, is_sampled=False)
    for most, is_it in ((shown - 1, False), (shown, True), (shown + 1, True)):
        monkeypatch.setattr(program, "MAX_SHOWN", most)
        assert HEADER.is_playable is is_it
