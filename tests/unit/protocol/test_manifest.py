"""A valid manifest, broken in one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from libipld import decode_dag_cbor
from pydantic import ValidationError
from tests.support.identities import cid
from tests.support.manifests import make_manifest
from tests.unit.protocol.refused_manifests import AT_THE_BOUND, BROKEN, NO_MANIFEST, Plain, broken

from atoll.errors import ManifestError
from atoll.protocol import canonical
from atoll.protocol.hashing import sha256, terms_hash
from atoll.protocol.manifest import InitSpec, Manifest
from atoll.protocol.method_spec import RobustSpec
from atoll.protocol.model_spec import LoraSpec
from atoll.protocol.terms import check_terms, terms_from_json_value, terms_to_json_value
from atoll.protocol.types import Digest


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_what_sums_just_hold_is_accepted(name: str) -> None:
    Manifest.from_bytes(broken(AT_THE_BOUND[name]))


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_manifest_with_one_thing_wrong_is_refused(change: Callable[[Plain], object]) -> None:
    with pytest.raises(ManifestError) as refusal:
        Manifest.from_bytes(broken(change))
    assert refusal.value.next_step


@pytest.mark.parametrize("data", NO_MANIFEST.values(), ids=NO_MANIFEST.keys())
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)


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
    plain: Any = decode_dag_cbor(data)
    pairs = [canonical.encode(key) + canonical.encode(plain[key]) for key in sorted(plain)]
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
    cheaper = replace(manifest.terms, segment_pay=1)
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
    assert terms_from_json_value(terms_to_json_value(terms)) == terms


@pytest.mark.parametrize("value", ["2", True, 2.0, None])
def test_numbers_of_terms_are_read_as_integers_only(value: object) -> None:
    plain = terms_to_json_value(make_manifest().terms)
    with pytest.raises(ValueError, match="terms: rounds is not an integer"):
        terms_from_json_value({**plain, "rounds": value})


@pytest.mark.parametrize("value", ["7" * 32, None, 7])
def test_the_program_of_terms_is_read_as_bytes_only(value: object) -> None:
    plain = terms_to_json_value(make_manifest().terms)
    with pytest.raises(ValueError, match="terms: program is not bytes"):
        terms_from_json_value({**plain, "program": value})


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
    [
        ("uint8", False, 256),
        ("uint8", True, 128),
        ("uint16", True, 1 << 15),
        ("uint32", True, 1 << 31),
    ],
)
def test_a_mask_takes_a_bit_of_every_word(dtype: str, masked: bool, tokens: int) -> None:
    data = make_manifest().data.model_copy(update={"dtype": dtype, "masked": masked})
    assert data.most_tokens == tokens
