"""The process that a submission asks about this machine, or whoever stands in for it."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll.job.asking import asking
from atoll.job.prepare_manifest import machine_numerics
from atoll.train.probe import numerics_spec, pin_torch


async def test_one_process_answers_until_it_cannot() -> None:
    """The second question that it is asked is none, which ends it: its last words are passed on."""
    async with asking() as ask:
        told = await machine_numerics(ask)
        with pytest.raises(ConfigError, match=r"could not be probed: ValueError: no question") as e:
            await ask({"chaos": "tomorrow"})
        assert "atoll.train.answers" in e.value.next_step
        with pytest.raises(ConfigError, match="could not be probed"):
            await ask({"numerics": ""})
    pin_torch()
    assert told == numerics_spec()


async def test_who_has_torch_is_asked_instead() -> None:
    asked: list[dict[str, str]] = []

    async def answer(question: dict[str, str]) -> Any:
        asked.append(question)
        return {"code_digest": "00" * 32, "probe_digest": "01" * 32}

    async with asking(answer) as ask:
        told = await machine_numerics(ask)
    assert asked == [{"numerics": ""}]
    assert (told.code_digest, told.probe_digest) == (bytes(32), b"\x01" * 32)
