"""CIDs: text and binary forms against published examples, and refusal of everything else."""

from __future__ import annotations

import pytest

from atoll.storage import DAG_CBOR, DAG_PB, RAW, Cid

# From the CID and Kubo documentation: the empty file, the empty directory, "hello world".
EMPTY_V1 = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
EMPTY_V0 = "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"
HELLO_V1 = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"


def test_names_published_blocks() -> None:
    assert str(Cid.of(b"")) == EMPTY_V1
    assert str(Cid.of(b"hello world")) == HELLO_V1


@pytest.mark.parametrize("text", [EMPTY_V0, EMPTY_V1, HELLO_V1])
def test_text_round_trips(text: str) -> None:
    assert str(Cid.parse(text)) == text


@pytest.mark.parametrize("codec", [RAW, DAG_PB, DAG_CBOR])
def test_binary_round_trips(codec: int) -> None:
    cid = Cid.of(b"block", codec)
    assert Cid.from_bytes(cid.to_bytes()) == cid
    assert len(cid.to_bytes()) == 36


def test_all_multibases_name_the_same_block() -> None:
    cid = Cid.parse(HELLO_V1)
    spelled = [HELLO_V1.upper(), "f" + cid.to_bytes().hex(), "F" + cid.to_bytes().hex().upper()]
    assert [Cid.parse(text) for text in spelled] == [cid] * 3


def test_version_0_converts_to_the_same_digest() -> None:
    old = Cid.parse(EMPTY_V0)
    assert (old.version, old.to_v1().version, old.to_v1().digest) == (0, 1, old.digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "hello",
        EMPTY_V1[:-1],
        EMPTY_V1 + "a",
        EMPTY_V1[:-1] + "v",  # other unused bits, the same bytes
        EMPTY_V1.replace("k", "K", 1),
        "z" + EMPTY_V0,
        "Qm" + "0" * 44,
        "bafy" + "2" * 500,
        "bafyaa",  # identity hash
        "f0155" + "00",
        "b" + "é" * 50,
    ],
)
def test_refuses_what_is_not_a_cid(text: str) -> None:
    with pytest.raises(ValueError):
        Cid.parse(text)


def test_refuses_other_hashes_and_codecs() -> None:
    digest = bytes(32)
    for binary in (
        b"\x01\x55\x13\x20",
        b"\x01\x55\x12\x1f",
        b"\x01\x72\x12\x20",
        b"\x02\x55\x12\x20",
    ):
        with pytest.raises(ValueError):
            Cid.from_bytes(binary + digest)


def test_matches_only_its_own_block() -> None:
    cid = Cid.of(b"block")
    assert cid.matches(b"block")
    assert not cid.matches(b"Block")
