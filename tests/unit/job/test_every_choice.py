"""Every value that a manifest admits can be asked for by a job file.

The values are read off the manifest's fields, which take them from registries: what is added there
is asked for here, and a field with choices that no job file reaches fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from tests.support.jobs import PLAIN
from tests.unit.job.test_spec import DATA, NOW, NUMERICS, cid, digest

from atoll.errors import ConfigError, ManifestError
from atoll.job.methods import DENSE_CODECS, METHODS, rules_for
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml, to_toml
from atoll.numerics.tokens import dtype_for
from atoll.protocol.choices import OneOf
from atoll.protocol.manifest import InitSpec, Manifest
from atoll.protocol.method_spec import InnerSpec, OuterSpec
from atoll.protocol.rules import RULES
from atoll.protocol.task_spec import TaskSpec

ROOT = Path(__file__).parents[3]
Changes = dict[str, Any]


def choices_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The values of a field that has a list of them; nothing of one that has none."""
    names = (getattr(part, "func", None) for part in metadata)
    known = next((each.names for each in names if isinstance(each, OneOf)), ())
    if known or annotation is bool:
        return known or (False, True)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return choices_of(inner, tuple(more))
    return tuple(value for part in get_args(annotation) for value in choices_of(part))


def groups_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [group for part in get_args(annotation) for group in groups_in(part)]


def fields_with_choices(group: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in group.model_fields.items():
        inside = groups_in(field.annotation)
        for each in inside:
            yield from fields_with_choices(each, f"{path}{name}.")
        if not inside and choices_of(field.annotation, tuple(field.metadata)):
            yield path + name, field


CHOICES = [
    (path, value)
    for path, field in fields_with_choices(Manifest)
    for value in choices_of(field.annotation, tuple(field.metadata))
]


def asked_alike(path: str, value: Any) -> Iterator[Changes]:
    """A key of the same name, with what its neighbours have to say where it is so."""
    yield {}
    yield {path: value}
    group = path.rpartition(".")[0]
    yield from ({path: value} | each for each in NEIGHBOURS.get(group, ()))


UNUSED: Changes = {"momentum": "0", "beta1": "0", "beta2": "0", "eps": "0"}
USED: Changes = {"momentum": "0.9", "beta1": "0.9", "beta2": "0.99", "eps": "0.00001", "period": 2}


def settings_of(group: str, spec: type[BaseModel]) -> tuple[Changes, ...]:
    """Every way to use some of an optimiser's fields and leave the others at zero."""
    names = [name for name in USED if name in spec.model_fields]
    return tuple(
        {f"{group}.{name}": USED[name] if name in used else UNUSED.get(name, 0) for name in names}
        for count in range(len(names), -1, -1)
        for used in combinations(names, count)
    )


NEIGHBOURS: Mapping[str, tuple[Changes, ...]] = {
    "inner": settings_of("inner", InnerSpec),
    "outer": settings_of("outer", OuterSpec),
    "model.rope_scaling": (
        {"model.rope_scaling.factor": "2"},
        {
            "model.rope_scaling.factor": "2",
            "model.rope_scaling.low": "1",
            "model.rope_scaling.high": "4",
            "model.rope_scaling.positions": 64,
        },
    ),
}


def asked_by_method(_path: str, value: Any) -> Iterator[Changes]:
    """A codec is the method's, or chosen in its place."""
    yield {"method.codec": value}
    yield from ({"method.name": name} for name in METHODS)


def asked_of_the_merge(_path: str, value: Any) -> Iterator[Changes]:
    for name, codec in product(METHODS, ("", *DENSE_CODECS)):
        yield {"method.name": name, "method.codec": codec, "method.rule": value}


def asked_of_the_text(_path: str, _value: Any) -> Iterator[Changes]:
    """How text is stored follows from its vocabulary, and from what of it is learned."""
    for bits, chat, packed in product(range(1, 21), (False, True), (False, True)):
        yield {"model.vocab": 1 << bits, "data.chat": chat, "data.packed": packed}


def asked_of_adapters(_path: str, value: Any) -> Iterator[Changes]:
    yield {"lora": {"rank": 2, "alpha": "4", "targets": [value]}}


def asked_of_the_task(_path: str, value: Any) -> Iterator[Changes]:
    """A kind of reward; without any task a manifest has none of its fields."""
    yield {"task": {"group": 2, "new_tokens": 4, "rewards": [{"kind": value}]}}


ASKED: Mapping[str, Callable[[str, Any], Iterator[Changes]]] = {
    "codec": asked_by_method,
    "data": asked_of_the_text,
    "lora": asked_of_adapters,
    "robust": asked_of_the_merge,
    "task": asked_of_the_task,
}
"""By group of the manifest; in the others a key of the job file is called as the manifest's."""


def manifest_of(changes: Changes) -> Manifest:
    """Of a job file that says so, read as a submitter's."""
    spec = JobSpec.of(parse_toml(to_toml(PLAIN.but({"members.seats": 8} | changes))))
    assert spec.model is not None
    masked = spec.data.chat or spec.data.packed
    words = {
        "dtype": dtype_for(spec.model.vocab, mask_bits=int(masked)),
        "masked": masked,
        "aligned": spec.data.packed,
    }
    weights = InitSpec(seed=None, cid=cid("weights"), root=digest("weights"))
    init = None if spec.lora is None else weights
    if spec.task is None:
        return spec.resolve(DATA.model_copy(update=words), init, NUMERICS, NOW)
    rows = {"prompts": 2, "prompt_tokens": 4, "answer_bytes": 4, "ends": []}
    task = TaskSpec.model_validate(rows | spec.task.fields)
    words = {"dtype": "uint16", "train_tokens": task.words(spec.model.vocab)}
    nothing = {"eval_cid": None, "eval_tokens": 0, "eval_batches": 0}
    data = DATA.model_copy(update=words | nothing)
    return spec.resolve(data, init, NUMERICS, NOW, task=task)


def has(manifest: Manifest, path: str, value: Any) -> bool:
    *groups, name = path.split(".")
    group = reduce(getattr, groups, manifest)
    if isinstance(group, tuple):
        return any(getattr(each, name) == value for each in group)
    said = getattr(group, name)
    return value in said if isinstance(said, tuple) else bool(said == value)


@pytest.mark.parametrize(("path", "value"), CHOICES, ids=str)
def test_a_job_file_can_ask_for_it(path: str, value: Any) -> None:
    group = path.partition(".")[0]
    for changes in ASKED.get(group, asked_alike)(path, value):
        try:
            manifest = Manifest.from_bytes(manifest_of(changes).to_bytes())
        except (ConfigError, ManifestError, ValidationError):
            continue
        if has(manifest, path, value):
            return
    pytest.fail(f"no job file was found whose manifest has {path} = {value}")


def test_the_choices_are_those_of_the_registries() -> None:
    """What is looked for above is what there is, so that a field which lost its choices is seen."""
    found = dict.fromkeys(path for path, _ in CHOICES)
    assert {"codec.kind", "robust.rule", "inner.optimizer", "outer.kind"} <= found.keys()
    assert {"inner.schedule", "model.kind", "model.mlp", "data.dtype"} <= found.keys()
    assert {value for path, value in CHOICES if path == "robust.rule"} == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_its_row_where_attacks_are_measured(rule: str) -> None:
    """A rule that nobody has attacked is no rule to choose."""
    page = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    heads = [line for line in page.splitlines() if line.startswith(("| attack |", "| the rule "))]
    measured = {cell.strip() for line in heads for cell in line.split("|")}
    # Sparse codecs have one rule, so that a column of theirs is of that one.
    is_measured = rule in measured or (RULES[rule].is_sparse and "sparse" in measured)
    assert is_measured, f"no table of docs/attacks.md has a column {rule}"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_does_not_go_with_the_codec_is_refused_with_those_that_do(rule: str) -> None:
    for codec in DENSE_CODECS:
        if rule in rules_for(codec):
            continue
        with pytest.raises(ManifestError, match=f"not merged by {rule}") as caught:
            PLAIN.but({"method.codec": codec, "method.rule": rule})
        assert "median" in (caught.value.next_step or "") or codec == "fp32"


def test_a_rule_that_needs_more_asks_for_more_members() -> None:
    job = PLAIN.but({"members.seats": 8, "method.rule": "krum"})
    assert job.resolve(DATA, None, NUMERICS, NOW).terms.min_providers == 2 * 2 + 3
    with pytest.raises(ConfigError, match="krum bears 1 that lie among 5 or more"):
        PLAIN.but({"members.seats": 4, "method.rule": "krum"})


def test_a_rule_that_would_try_too_much_is_refused_before_any_text_is_read() -> None:
    PLAIN.but({"members.seats": 24, "method.rule": "minimum_diameter"})
    with pytest.raises(ConfigError, match="would try too many subsets"):
        PLAIN.but({"members.seats": 28, "method.rule": "minimum_diameter"})
