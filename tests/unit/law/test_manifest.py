"""A valid manifest, broken in one place at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dag_cbor
import pytest
from pydantic import ValidationError
from tests.unit.law.factories import cid, make_manifest

from atoll.errors import ManifestError
from atoll.law import canonical
from atoll.law.hashing import sha256, terms_hash
from atoll.law.manifest import INNER_LIMIT, InitSpec, LoraSpec, Manifest, RobustSpec
from atoll.law.terms import check_terms, terms_from_plain, terms_to_plain
from atoll.law.words import Digest

Plain = dict[str, Any]


def broken(change: Callable[[Plain], object]) -> bytes:
    """The bytes of a valid manifest after one change to its plain form."""
    plain: Any = dag_cbor.decode(make_manifest().to_bytes())
    change(plain)
    return dag_cbor.encode(plain)


def put(*path: str, value: object) -> Callable[[Plain], object]:
    """Sets one field, named by its path."""

    def change(plain: Plain) -> None:
        for key in path[:-1]:
            plain = plain[key]
        plain[path[-1]] = value

    return change


LINEAR = {"kind": "linear", "factor": "4", "low": "0", "high": "0", "positions": 0}
LLAMA3 = {"kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 8192}
LARGE = make_manifest().model.model_dump() | {"width": 1 << 15, "mlp": "relu2"}


def long_batch(plain: Plain, sequences: int, length: int) -> None:
    """One micro-batch of so many sequences of that length."""
    plain["model"].update(seq=length)
    plain["inner"].update(batch=sequences, micro_batch=sequences)
    plain["terms"].update(tokens_per_step=sequences * length)


def bear_nobody(plain: Plain, rule: str) -> None:
    plain["robust"].update(rule=rule, f=0)
    plain["terms"].update(f=0)


AT_THE_BOUND: dict[str, Callable[[Plain], object]] = {
    "vocabulary": lambda plain: (
        plain["data"].update(dtype="uint32"),
        plain["model"].update(vocab=1 << 20),
    ),
    "gated ffn": put("model", "ffn", value=INNER_LIMIT // 2),
    "plain ffn": lambda plain: plain["model"].update(mlp="relu2", ffn=1 << 17),
    "initial weights by content": lambda plain: plain["init"].update(
        seed=None, cid=cid("weights"), root=bytes(32)
    ),
    "stacked attention": put("model", "head_dim", value=11094),
    "linear scaling": lambda plain: plain["model"].update(rope_scaling=LINEAR),
    "scaling as Llama 3.1 has it": lambda plain: plain["model"].update(rope_scaling=LLAMA3),
    "elements": put("model", value=LARGE | {"ffn": (1 << 16) - 1}),
    "micro-batch": lambda plain: long_batch(plain, 8, 16643),
}
BROKEN: dict[str, Callable[[Plain], object]] = {
    "an unknown field": put("inner", "noise", value="0.1"),
    "a missing field": lambda plain: plain["inner"].pop("clip"),
    "an unknown field at the top": put("comment", value="hello"),
    "a float": put("inner", "lr", value=0.003),
    "a boolean for a number": put("model", "layers", value=True),
    "a number for a string": put("name", value=5),
    "a trailing zero": put("inner", "lr", value="0.0030"),
    "an exponent": put("inner", "lr", value="3e-3"),
    "a sign": put("inner", "lr", value="-0.003"),
    "a leading zero": put("inner", "lr", value="00.3"),
    "a newline after a decimal": put("inner", "lr", value="0.003\n"),
    "digits of another script": put("inner", "lr", value="0.٣"),
    "a rate of zero": put("inner", "lr", value="0"),
    "a beta of one": put("inner", "beta1", value="1"),
    "a dropout of everything": put("inner", "dropout", value="1"),
    "momentum with AdamW": put("inner", "momentum", value="0.9"),
    "an eps of zero with AdamW": put("inner", "eps", value="0"),
    "betas with SGD": put("inner", "optimizer", value="sgd"),
    "segments that do not divide the steps": put("inner", "segment", value=7),
    "micro-batches that do not divide the batch": put("inner", "micro_batch", value=3),
    "more segments than a round has": lambda plain: (
        plain["inner"].update(steps=65, segment=1),
        plain["terms"].update(steps=65, segment_steps=1),
    ),
    "a segment that nobody can open in a game": lambda plain: (
        plain["inner"].update(batch=1 << 14, micro_batch=2),
        plain["terms"].update(tokens_per_step=plain["model"]["seq"] << 14),
    ),
    "other segments in the terms": put("terms", "segment_steps", value=10),
    "another f in the terms": put("terms", "f", value=0),
    "a rule that bears nobody": put("robust", "rule", value="mean"),
    "other steps in the terms": put("terms", "steps", value=41),
    "other tokens in the terms": put("terms", "tokens_per_step", value=1),
    "an amount as a number": put("terms", "price_per_token", value=5),
    "an amount with a leading zero": put("terms", "price_per_token", value="05"),
    "an amount in other digits": put("terms", "price_per_token", value="٣"),
    "an amount above 128 bits": put("terms", "price_per_token", value=str(1 << 128)),
    "a window of zero": put("terms", "train_seconds", value=0),
    "more seats than a word has bits": put("terms", "seats", value=257),
    "unknown terms": put("terms", "bonus", value=1),
    "a CID of another hash": put("data", "cid", value=b"\x01\x71\x11\x14" + bytes(32)),
    "a CID that is too short": put("data", "cid", value=cid("x")[:-1]),
    "a digest that is too long": put("numerics", "code_digest", value=bytes(33)),
    "a vocabulary that its dtype cannot hold": put("model", "vocab", value=257),
    "a data root that is too short": put("data", "root", value=bytes(31)),
    "tables that are none": put("tables", value=None),
    "more steps than tables have rates": put("terms", "rounds", value=(1 << 20) // 40 + 1),
    "more positions than tables hold": lambda plain: (
        plain["model"].update(seq=1 << 17, width=512, heads=1, kv_heads=1, head_dim=512),
        plain["terms"].update(tokens_per_step=8 << 17),
    ),
    "less data than one sequence": put("data", "train_tokens", value=64),
    "less held-out data than one sequence": put("data", "eval_tokens", value=64),
    "a vocabulary beyond the law's": lambda plain: (
        plain["data"].update(dtype="uint32"),
        plain["model"].update(vocab=(1 << 20) + 1),
    ),
    "stacked attention beyond int32's sums": put("model", "head_dim", value=11096),
    "initial weights from nowhere": put("init", "seed", value=None),
    "initial weights from two places": lambda plain: plain["init"].update(
        cid=cid("weights"), root=bytes(32)
    ),
    "initial weights without their root": lambda plain: plain["init"].update(
        seed=None, cid=cid("weights")
    ),
    "initial weights without their content": lambda plain: plain["init"].update(
        seed=None, root=bytes(32)
    ),
    "an odd head size": put("model", "head_dim", value=15),
    "a scaling of another kind": put("model", "rope_scaling", "kind", value="yarn"),
    "a factor without scaling": put("model", "rope_scaling", "factor", value="2"),
    "a factor that shortens": put("model", "rope_scaling", value=LINEAR | {"factor": "0.5"}),
    "figures of llama3 with linear scaling": put(
        "model", "rope_scaling", value=LINEAR | {"positions": 64}
    ),
    "llama3 without positions": put("model", "rope_scaling", value=LLAMA3 | {"positions": 0}),
    "llama3 from low to low": put("model", "rope_scaling", value=LLAMA3 | {"high": "1"}),
    "llama3 from zero": put("model", "rope_scaling", value=LLAMA3 | {"low": "0"}),
    "a gated ffn beyond int32's sums": put("model", "ffn", value=INNER_LIMIT // 2 + 1),
    "a tensor beyond int64's sums of squares": put("model", value=LARGE | {"ffn": 1 << 16}),
    "a micro-batch beyond int32's sums": lambda plain: long_batch(plain, 5, 26629),
    "key heads that do not divide the heads": put("model", "kv_heads", value=3),
    "an exponent outside its bounds": put("codec", "exponents", "matrix", value=-40),
    "momentum without Nesterov": put("outer", "momentum", value="0.9"),
    "a period without delay": put("outer", "period", value=2),
    "a delay without a period": put("outer", "kind", value="delayed_nesterov"),
    "adam without an eps": put("outer", "kind", value="adam"),
    "an unknown outer optimiser": put("outer", "kind", value="lion"),
    "an unknown codec": put("codec", "kind", value="grid2"),
    "feedback above one": put("codec", "feedback", value="1.1"),
    "sparse updates without their rule": put("codec", "kind", value="sparse"),
    "a contributor mean of dense updates": lambda plain: bear_nobody(plain, "contributor_mean"),
    "fp32 updates under a robust rule": lambda plain: plain["codec"].update(
        kind="fp32",
        min_exponent=-40,
        max_exponent=-40,
        exponents={"embedding": -40, "matrix": -40, "vector": -40},
    ),
    "fp32 updates on a grid": lambda plain: (
        plain["codec"].update(kind="fp32"),
        bear_nobody(plain, "mean"),
    ),
    "an unknown rule": put("robust", "rule", value="nnm_nnm_mean"),
    "a mixed contributor mean": put("robust", "rule", value="nnm_contributor_mean"),
    "Krum among too few": put("robust", "rule", value="nnm_krum"),
    "a kappa below one": put("robust", "kappa", value="0.5"),
    "an f of half of the seats": lambda plain: (
        plain["robust"].update(f=2),
        plain["terms"].update(f=2),
    ),
    "an unknown version": put("version", value=2),
    "an empty name": put("name", value=""),
    "numerics without a probe": put("numerics", "probe_digest", value=None),
    "numerics of a mode": put("numerics", "mode", value="exact"),
}


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_what_sums_just_hold_is_accepted(name: str) -> None:
    Manifest.from_bytes(broken(AT_THE_BOUND[name]))


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_manifest_with_one_thing_wrong_is_refused(change: Callable[[Plain], object]) -> None:
    with pytest.raises(ManifestError) as refusal:
        Manifest.from_bytes(broken(change))
    assert refusal.value.next_step


@pytest.mark.parametrize(
    "data",
    [b"", b"\x81" * 16_000, b"\xf9\x7e\x00", b"\xa0", b"\x80", b"\xd8\x2a\x58\x25\x00" + cid("x")],
    ids=["nothing", "deep nesting", "a half float", "an empty map", "a list", "a link"],
)
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)


def test_deep_nesting_costs_nothing_whatever_the_recursion_limit() -> None:
    program = (
        "import resource, sys\n"
        "from atoll.law.canonical import decode\n"
        "sys.setrecursionlimit(1_000_000)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
        "try:\n    decode(b'\\x81' * 16_000, 16_384)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"nested deeper" in done.stdout


@pytest.mark.parametrize(("depth", "is_read"), [(32, True), (33, False)])
def test_nesting_has_a_limit(depth: int, is_read: bool) -> None:
    data = b"\x81" * (depth - 1) + b"\x80"
    if is_read:
        assert canonical.encode(canonical.decode(data, 100)) == data
    else:
        with pytest.raises(ValueError, match="nested deeper than 32"):
            canonical.decode(data, 100)


def test_keys_in_another_order_are_refused() -> None:
    data = make_manifest().to_bytes()
    plain: Any = dag_cbor.decode(data)
    pairs = [dag_cbor.encode(key) + dag_cbor.encode(plain[key]) for key in sorted(plain)]
    swapped = data[:1] + b"".join(pairs)
    assert len(swapped) == len(data)
    assert swapped != data
    with pytest.raises(ManifestError):
        Manifest.from_bytes(swapped)


def test_a_manifest_is_read_back_as_it_was() -> None:
    manifest = make_manifest()
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert manifest.digest() == sha256(manifest.to_bytes())
    assert manifest.cid() == b"\x01\x71\x12\x20" + manifest.digest()


def test_a_manifest_is_frozen() -> None:
    with pytest.raises(ValidationError):
        make_manifest().name = "other"


def test_terms_that_differ_from_the_chains_are_refused() -> None:
    manifest = make_manifest()
    manifest.check_terms(terms_hash(manifest.terms))
    cheaper = replace(manifest.terms, price_per_token=1)
    with pytest.raises(ManifestError, match="not the ones on chain"):
        manifest.check_terms(terms_hash(cheaper))


def test_derived_numbers_follow_the_manifest() -> None:
    manifest = make_manifest()
    data, held_out = manifest.data, cid("held out")
    assert data.cids == (data.cid, data.nodes_cid, data.tokenizer_cid)
    assert data.model_copy(update={"eval_cid": held_out}).cids == (*data.cids, held_out)
    assert manifest.segments == 8
    assert manifest.tokens_per_step == 8 * 64


@pytest.mark.parametrize(
    ("rule", "f", "seats", "message"),
    [
        ("nnm_trimmed_mean", 2, 7, None),
        ("nnm_trimmed_mean", 2, 6, "above 1 of 6"),
        ("median", 1, 3, "above 0 of 3"),
        ("mean", 1, 4, "bears nobody"),
        ("contributor_mean", 1, 9, "bears nobody"),
        ("nnm_mean", 1, 4, None),
        ("krum", 1, 5, None),
        ("nnm_multi_krum", 1, 4, "at least 5"),
        ("minimum_diameter", 5, 25, None),
        ("minimum_diameter", 8, 32, "too many subsets"),
        ("minimum_diameter", 6, 26, "too many subsets"),
        ("minimum_diameter", 6, 25, None),
        ("contributor_mean", 0, 1, None),
    ],
)
def test_a_rules_condition_on_seats_is_said(
    rule: str, f: int, seats: int, message: str | None
) -> None:
    spec = RobustSpec(rule=rule, f=f, kappa="3")
    if message is None:
        spec.check_seats(seats)
    else:
        with pytest.raises(ValueError, match=message):
            spec.check_seats(seats)


def test_terms_are_written_and_read_back() -> None:
    terms = replace(make_manifest().terms, provider_bond=10**30, program=Digest(b"\7" * 32))
    assert terms_from_plain(terms_to_plain(terms)) == terms


@pytest.mark.parametrize("value", ["2", True, 2.0, None])
def test_numbers_of_terms_are_read_as_integers_only(value: object) -> None:
    plain = terms_to_plain(make_manifest().terms)
    with pytest.raises(ValueError, match="terms: rounds is not an integer"):
        terms_from_plain({**plain, "rounds": value})


def test_a_job_of_two_fragments_renews_no_momentum_by_periods() -> None:
    with pytest.raises(ValidationError, match="too far apart"):
        make_manifest({"codec.fragments": 2, "outer.kind": "delayed_nesterov", "outer.period": 2})


def test_terms_whose_tokens_overflow_are_refused() -> None:
    terms = replace(make_manifest().terms, tokens_per_step=1 << 60)
    with pytest.raises(ManifestError, match="64 bits"):
        check_terms(terms)


def test_a_preset_gives_the_same_bytes_twice() -> None:
    assert make_manifest().to_bytes() == make_manifest().to_bytes()


def test_a_model_is_evaluated_where_there_are_tokens_and_batches() -> None:
    whole = {"data.eval_cid": cid("held out"), "data.eval_tokens": 10_000, "data.eval_batches": 2}
    assert make_manifest(whole).data.is_evaluated
    assert not make_manifest(whole | {"data.eval_batches": 0}).data.is_evaluated
    assert not make_manifest().data.is_evaluated


@pytest.mark.parametrize("name", ["rounds", "train_seconds", "provider_bond"])
def test_terms_are_integers_and_truth_is_none(name: str) -> None:
    for wrong in (True, "1", 1.0):
        with pytest.raises(ManifestError, match=name):
            check_terms(replace(make_manifest().terms, **{name: wrong}))


def test_initial_weights_are_drawn_or_named_and_of_adapters_both() -> None:
    cid_, root = cid("weights"), bytes(32)
    for seed, content in ((1, False), (None, True), (1, True)):
        named = {"cid": cid_, "root": root} if content else {"cid": None, "root": None}
        assert InitSpec.model_validate({"seed": seed, **named}).seed == seed
    for wrong in (
        {"seed": None, "cid": None, "root": None},
        {"seed": 1, "cid": cid_, "root": None},
        {"seed": 1, "cid": None, "root": root},
        {"seed": None, "cid": cid_, "root": None},
        {"seed": None, "cid": None, "root": root},
    ):
        with pytest.raises(ValidationError, match="a seed, or a cid and a root"):
            InitSpec.model_validate(wrong)


def test_adapters_are_of_linears_that_the_model_has_and_no_larger() -> None:
    model = make_manifest().model
    gateless = model.model_copy(update={"mlp": "relu2"})
    smallest = min(model.linears["q"])
    LoraSpec(rank=1, alpha="1", targets=("q",)).check_model(model)
    LoraSpec(rank=smallest, alpha="1", targets=("q",)).check_model(model)
    for rank, target, of in ((smallest + 1, "q", model), (1, "gate", gateless)):
        with pytest.raises(ValueError, match="lora"):
            LoraSpec(rank=rank, alpha="1", targets=(target,)).check_model(of)


def test_a_submitter_serves_data_tokeniser_and_weights() -> None:
    drawn = make_manifest()
    assert drawn.content == drawn.data.cids
    weights = InitSpec(seed=None, cid=cid("weights"), root=Digest(bytes(32)))
    named = drawn.model_copy(update={"init": weights})
    assert named.content == (*drawn.data.cids, cid("weights"))


@pytest.mark.parametrize("data", [b"\xff", b"\x18", b"\x61\xff"])
def test_what_is_wrong_with_bytes_is_said_in_a_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\Anot DAG-CBOR: \S[^\n]*\Z"):
        canonical.decode(data, 100)


@pytest.mark.parametrize(
    ("dtype", "masked", "tokens"),
    [("uint8", False, 256), ("uint8", True, 128), ("uint16", True, 32_768)],
)
def test_a_mask_takes_a_bit_of_every_word(dtype: str, masked: bool, tokens: int) -> None:
    data = make_manifest().data.model_copy(update={"dtype": dtype, "masked": masked})
    assert data.most_tokens == tokens
