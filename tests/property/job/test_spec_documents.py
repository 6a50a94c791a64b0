"""Any job that can be described is written as TOML and read back the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.job.groups import duration_text, parse_duration, parse_tokens, tokens_text
from atoll.job.methods import DENSE_CODECS, METHODS
from atoll.job.presets import PRESETS
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml, to_toml

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
NAMES = TEXT.map(lambda text: text[:20] or "job")
WEI = st.integers(0, 2**128 - 1)
SHARES = st.decimals(0, 1, places=9)
SECONDS = st.integers(1, 2**32 - 1)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES,
        "rounds": st.integers(1, 2**32 - 1),
        "lifetime": maybe(SECONDS),
        "init.seed": st.integers(0, 2**63 - 1),
        "data.paths": st.lists(TEXT.filter(bool), max_size=3),
        "data.tokenizer": TEXT,
        "data.max_tokens": maybe(st.integers(1, 2**32 - 1)),
        "data.held_out": SHARES,
        "inner.lr": st.decimals("0.000001", 100, places=9),
        "inner.beta1": maybe(st.decimals(0, "0.9", places=6)),
        "inner.micro_batch": maybe(st.integers(1, 2**20)),
        "outer.kind": maybe(st.sampled_from(["sgd", "adam"])),
        "method.name": st.sampled_from(sorted(METHODS)),
        "method.codec": st.sampled_from(["", *DENSE_CODECS]),
        "audit.rate": maybe(SHARES),
        "audit.budget": maybe(SHARES),
        "money.flop_price": maybe(WEI),
        "money.budget": maybe(WEI),
        "money.duty_fee": maybe(WEI),
        "members.seats": st.integers(1, 256),
        "members.slots": st.integers(1, 256),
        "windows.train": maybe(SECONDS),
        "windows.move": maybe(SECONDS),
        "windows.slower": st.decimals(1, 100, places=3),
    },
)


@given(st.sampled_from(sorted(PRESETS)), CHANGES)
def test_any_job_is_written_and_read_back(name: str, changes: dict[str, Any]) -> None:
    spec = PRESETS[name].but(changes)
    text = to_toml(spec, "A job.\n\nWith a head.")
    assert JobSpec.of(parse_toml(text)) == spec
    assert to_toml(JobSpec.of(parse_toml(text)), "A job.\n\nWith a head.") == text


@given(WEI)
def test_amounts_are_read_back(wei: int) -> None:
    assert parse_tokens(tokens_text(wei)) == wei


@given(SECONDS)
def test_durations_are_read_back(seconds: int) -> None:
    assert parse_duration(duration_text(seconds)) == seconds
