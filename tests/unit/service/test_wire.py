"""What a service and the worker of another release say to each other."""

from __future__ import annotations

import dataclasses
import json
import pickle
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from tests.vectors import generate_wire
from tests.vectors.generate_wire import WireError, renewed, spoken

from atoll.errors import AtollError, NotFound, NumericsMismatch
from atoll.protocol.types import Address, Domain, JobId, RoundId, RoundIndex
from atoll.service.task import Task
from atoll.service.wire import (
    CLASSES,
    ERRORS,
    WORK,
    NotOnTheWire,
    named,
    pack,
    pack_error,
    unpack,
    unpack_error,
)
from atoll.train.replay import SeatReplay
from atoll.train.round import TrainedRound
from atoll.train.seat_task import TrainTask
from atoll_node.behaviour import TRAIN

KNOWN = json.loads(generate_wire.PATH.read_text())
ROUND_ID = RoundId(Domain(31337, Address("0x" + "ab" * 20)), JobId(7), RoundIndex(3))
VALUES = [
    None, True, -3, 10**60, 0.1, "β", b"\x00\xff", (), (1, b"a"), [1, (2,)], {1: (b"", None)},
    ROUND_ID, {"bytes": "a text"},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    line = pack(result=value)
    found = unpack(line)["result"]
    assert found == value and type(found) is type(value)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert b"atoll." not in line


def hints_of(thing: Any) -> dict[str, Any]:
    """The types of a function's parameters or of a class's fields."""
    only_checked = {"SeatReplay": SeatReplay, "TrainTask": TrainTask, "TrainedRound": TrainedRound}
    return typing.get_type_hints(thing, localns=only_checked)


def classes_in(hint: Any) -> Iterator[type]:
    """Classes that a value of such a type may have in it."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if typing.get_origin(hint) in (typing.ClassVar, Task):
        return
    for inner in typing.get_args(hint):
        yield from classes_in(inner)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        yield typing.cast(type, hint)


def carried() -> set[type]:
    """Every class that work is given or gives, and those in them."""
    found, waiting = set[type](), list[type]()
    for place in (place for tag, place in WORK.items() if tag != "train-round.v1"):
        for hint in hints_of(named(place).resolve()).values():
            waiting.extend(classes_in(hint))
    while waiting:
        cls = waiting.pop()
        if cls not in found:
            found.add(cls)
            for hint in hints_of(cls).values():
                waiting.extend(classes_in(hint))
    return found


def test_all_that_work_carries_has_a_tag() -> None:
    """`TRAIN` is asked for by no service: `run_training` calls it where it runs."""
    assert carried() == {named(place) for place in CLASSES.values()}


def value_of(hint: Any) -> Any:
    """Some value of a type."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return value_of(args[0])
    if origin is tuple:
        return tuple(value_of(arg) for arg in args if arg is not Ellipsis)
    if origin is dict or "Mapping" in str(origin):
        return {value_of(args[0]): value_of(args[1])}
    if "Sequence" in str(origin):
        return (value_of(args[0]),)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return some(typing.cast(type, hint))
    simple: dict[Any, Any] = {int: 7, str: "text", bytes: b"\x01", float: 0.5, bool: True}
    return simple.get(hint)


def some(cls: type) -> Any:
    """An instance whose fields are of their types, made without its own checks."""
    hints = hints_of(cls)
    if hasattr(cls, "_fields"):
        return cls(*(value_of(hints[name]) for name in cls._fields))
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(made, field.name, value_of(hints[field.name]))
    return made


@pytest.mark.parametrize("tag", CLASSES)
def test_each_class_comes_back_whole(tag: str) -> None:
    value = some(named(CLASSES[tag]))
    line = pack(value=value)
    assert json.loads(line)["value"]["is"] == tag
    found = unpack(line)["value"]
    assert found == value and type(found) is type(value)


def test_a_function_in_a_command_goes_by_its_tag() -> None:
    assert b"atoll" not in pack(value=(TRAIN,))
    assert unpack(pack(value=(TRAIN,))) == {"value": (TRAIN,)}


def test_each_handle_has_the_tag_that_it_goes_by() -> None:
    assert {tag: named(place).kind for tag, place in WORK.items()} == {tag: tag for tag in WORK}


@pytest.mark.parametrize("value", [object(), {1}, bytearray(b"x"), ValueError("x")])
def test_what_releases_do_not_say_is_refused(value: object) -> None:
    with pytest.raises(NotOnTheWire, match="do not know"):
        pack(value=value)
    with pytest.raises(NotOnTheWire, match="do not know"):
        pack(work=Task("a-cheats.v1", __name__))


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b'{"a":{"bytes":"0g"}}', b'{"a":{"is":"none","of":{}}}', b'{"a":{"b":1,"c":2}}',
     b'{"a":{"is":"slot","of":{}}}', b'{"a":{"work":"nothing"}}'],
)  # fmt: skip
def test_a_line_that_no_release_sends_is_told(line: bytes) -> None:
    with pytest.raises(NotOnTheWire):
        unpack(line)


def test_errors_come_back_as_what_they_are() -> None:
    lost = NotFound("block x is not here", next_step="fetch it")
    lost.lost = "bafy"
    for error in (NumericsMismatch("other bits", next_step="go"), lost, AtollError("a")):
        found = unpack_error(unpack(pack(**pack_error(error))))
        assert (type(found), str(found)) == (type(error), str(error))
        assert getattr(found, "next_step", None) == error.next_step
        assert getattr(found, "lost", "") == getattr(error, "lost", "")
        assert str(pickle.loads(pickle.dumps(found))) == str(error)  # the worker's own way


def test_an_error_without_a_tag_is_the_nearest_that_has_one() -> None:
    class Late(NotFound):
        """Of a later version."""

    assert type(unpack_error(unpack(pack(**pack_error(Late("a")))))) is NotFound
    assert str(unpack_error(unpack(pack(**pack_error(KeyError("a")))))) == "KeyError: 'a'"
    assert len({*ERRORS.values()}) == len(ERRORS)


def test_the_word_stands_for_what_is_written_down() -> None:
    """`tests/vectors/generate_wire.py`, with another word where anything but the word changed."""
    assert renewed(KNOWN, spoken()) == KNOWN


def test_nothing_changes_under_the_same_word() -> None:
    now = spoken()
    next(iter(now["classes"].values())).append("more")
    with pytest.raises(WireError, match="another word"):
        renewed(KNOWN, now)
    assert renewed(KNOWN, now | {"word": "atoll-worker.other"})["word"] == "atoll-worker.other"
