"""Canonical encodings, trees, manifests: one step before the edge of a rule, on it, after."""

from __future__ import annotations

from typing import Any

import pytest
from libipld import decode_dag_cbor
from tests.support.identities import cid, digest
from tests.support.manifests import make_manifest

from atoll.errors import ManifestError
from atoll.protocol.canonical import CidLink, dag_cbor_cid, decode, encode, is_cid
from atoll.protocol.manifest import Manifest
from atoll.protocol.merkle import merkle_proof

LINK = encode(CidLink(b"\x01\x55\x12\x20" + bytes(32)))


@pytest.mark.parametrize("around", [b"", b"\x81", b"\x81\x81", b"\xa1\x61a", b"\xa1\x61a\x81"])
def test_a_link_anywhere_is_not_canonical(around: bytes) -> None:
    """It would be a second spelling of a CID, which is bytes here."""
    with pytest.raises(ValueError, match="not the canonical encoding"):
        decode(around + LINK, 100)


@pytest.mark.parametrize("initial_state", [b"\x81", b"\xa1\x61a", b"\xc1"])
def test_containers_nest_to_a_depth_of_32(initial_state: bytes) -> None:
    with pytest.raises(ValueError, match="deeper than 32"):
        decode(initial_state * 33 + b"\x00", 100)
    if initial_state != b"\xc1":  # a tag of DAG-CBOR holds a link alone
        assert decode(initial_state * 32 + b"\x00", 100) is not None


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"\x1c", "not definite"),
        (b"\x5f", "not definite"),
        (b"\x81", "ends inside"),
        (b"\xa1\x61a", "ends inside"),
    ],
)
def test_a_head_that_says_no_length_is_refused(head: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(head, 100)
    assert decode(b"\x1b" + b"\xff" * 8, 100) == 2**64 - 1


@pytest.mark.parametrize("index", [-1, 5])
def test_there_is_no_proof_of_a_leaf_outside_of_the_tree(index: int) -> None:
    leaves = [bytes([at]) * 32 for at in range(5)]
    with pytest.raises((ValueError, IndexError)):
        merkle_proof(leaves, index)


def refused(manifest: Manifest, path: tuple[str, ...], value: object) -> bool:
    plain: Any = decode_dag_cbor(manifest.to_bytes())
    target = plain
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    try:
        Manifest.from_bytes(encode(plain))
    except ManifestError:
        return True
    return False


def test_fragments_are_at_most_the_layers() -> None:
    manifest = make_manifest({"codec.mixing": "0.5", "reset_period": 4})
    layers = manifest.model.layers
    assert not refused(manifest, ("codec", "fragments"), layers)
    assert refused(manifest, ("codec", "fragments"), layers + 1)


def test_feedback_goes_with_one_fragment_and_no_overlap() -> None:
    manifest = make_manifest({"codec.feedback": "1", "reset_period": 4})
    assert not refused(manifest, ("codec", "mixing"), "0.5")
    assert refused(manifest, ("codec", "fragments"), 2)
    assert refused(manifest, ("codec", "overlap"), 1)


def test_an_overlap_ends_within_its_round() -> None:
    manifest = make_manifest({"codec.mixing": "0.5", "reset_period": 4})
    assert not refused(manifest, ("codec", "overlap"), manifest.inner.steps - 1)
    assert refused(manifest, ("codec", "overlap"), manifest.inner.steps)


def test_a_delayed_outer_step_has_a_period_of_two_rounds_or_more() -> None:
    outer: dict[str, object] = {"kind": "delayed_nesterov", "beta2": "0", "eps": "0"}
    manifest = make_manifest()
    base = manifest.outer.model_dump() | outer | {"momentum": "0.9"}
    assert refused(manifest, ("outer",), base | {"period": 1})
    assert not refused(manifest, ("outer",), base | {"period": 2})


def test_heads_are_of_an_even_size() -> None:
    manifest = make_manifest()
    model = manifest.model.model_dump() | {"width": 24, "kv_heads": 1}
    assert not refused(manifest, ("model",), model | {"head_dim": 4})
    assert refused(manifest, ("model",), model | {"head_dim": 3})


def test_the_smallest_numbers_are_in_their_heads() -> None:
    for number, data in ((0, b"\x00"), (23, b"\x17"), (24, b"\x18\x18"), (255, b"\x18\xff")):
        assert encode({"n": number}) == b"\xa1\x61n" + data
        assert decode(b"\xa1\x61n" + data, 64) == {"n": number}


def test_a_cid_is_a_version_a_codec_a_hash_and_its_digest() -> None:
    name, content = digest("content"), cid("content")
    assert dag_cbor_cid(name) == b"\x01\x71\x12\x20" + name
    for codec in (0x55, 0x70, 0x71):
        assert is_cid(bytes([1, codec]) + content[2:])
    for odd in (
        content[:-1],
        content + b"\0",
        b"\x02" + content[1:],
        *(bytes([1, codec]) + content[2:] for codec in (0x54, 0x56, 0x6F, 0x72)),
        content[:2] + b"\x13\x20" + content[4:],
        content[:2] + b"\x12\x21" + content[4:],
    ):
        assert not is_cid(odd)


def test_a_document_may_be_as_long_as_is_allowed_and_no_longer() -> None:
    data = encode([1, 2, 3])
    assert decode(data, len(data)) == [1, 2, 3]
    with pytest.raises(ValueError, match="at most 3 are allowed"):
        decode(data, len(data) - 1)
