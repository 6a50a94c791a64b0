"""Tokens lie in the store as files, and are read a MiB at a time, each checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.manifests import unstored_data

from atoll.errors import CorruptBlock, NotFound
from atoll.numerics.errors import MalformedDataset
from atoll.numerics.pieces import PIECE_BYTES, SHARD_BYTES, piece_root
from atoll.numerics.tokens import mask_bit
from atoll.protocol.games.judge import Need
from atoll.protocol.games.trees import piece_root as shown_root
from atoll.protocol.manifest import DataSpec
from atoll.storage.cid import Cid
from atoll.storage.leaves import Leaves
from atoll.storage.local import LocalStore
from atoll.train.belongings import Belongings
from atoll.train.data import TokenFile, WordForm, nodes_bytes, read_nodes, write_tokens
from atoll.train.input_proofs import prove_tokens
from atoll.train.tokenizer import byte_tokenizer, open_tokenizer


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


def words_of(count: int, dtype: str = "uint16", below: int = 251) -> np.ndarray:
    return (np.arange(count) * 7 % below).astype(dtype)


def opened(
    store: LocalStore, words: np.ndarray, *, vocab: int = 251, masked: bool = False
) -> TokenFile:
    written = write_tokens(words, store)
    nodes = store.read_bytes(Cid.from_bytes(written.nodes_cid), nodes_bytes(words.nbytes))
    bit = mask_bit(words.dtype.name) if masked else 0
    form = WordForm(words.dtype.name, bit, vocab)
    return TokenFile(store, written.cid, len(words), form, nodes)


def spec_of(store: LocalStore, words: np.ndarray) -> DataSpec:
    written = write_tokens(words, store)
    return unstored_data(
        cid=written.cid,
        root=written.root,
        nodes_cid=written.nodes_cid,
        dtype=words.dtype.name,
        train_tokens=len(words),
    )


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_piece_is_opened_from_its_mebibyte_and_the_nodes_of_the_others(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, shards: int, is_stored: bool
) -> None:
    words = words_of((shards - 1) * SHARD_BYTES // 2 + 1601)
    tokens = opened(store, words) if is_stored else words
    read = list[int]()
    kept = Leaves.read
    monkeypatch.setattr(Leaves, "read", lambda self, at: (read.append(at), kept(self, at))[1])
    root, last = piece_root(words.tobytes()), words.nbytes - 2
    for offset in (0, words.nbytes // 4 * 2, last):
        read.clear()
        initial_state = prove_tokens(tokens, Need(0, offset, 2))
        first = offset // PIECE_BYTES
        assert shown_root(initial_state.data, first, words.nbytes, initial_state.siblings) == root
        assert set(read) <= {offset // SHARD_BYTES}


def test_pieces_on_both_sides_of_a_mebibyte_s_end_are_opened_at_once(store: LocalStore) -> None:
    words = words_of(3 * SHARD_BYTES // 2)
    need = Need(0, SHARD_BYTES - 2, 4)
    initial_state = prove_tokens(opened(store, words), need)
    first = SHARD_BYTES // PIECE_BYTES - 1
    found = shown_root(initial_state.data, first, words.nbytes, initial_state.siblings)
    assert found == piece_root(words.tobytes())


def test_the_byte_tokenizer_maps_every_byte_to_itself() -> None:
    tokenizer = byte_tokenizer()
    text = "naïve € 𝄞\r\n\t\0  spaces  "
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.get_vocab_size() == 256


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_words_read_back_over_the_edges_of_shards(dtype: str, store: LocalStore) -> None:
    words = words_of(2 * SHARD_BYTES + 3, dtype)
    found = opened(store, words)
    assert len(found) == len(words)
    edge = SHARD_BYTES // words.itemsize
    for start, stop in ((0, 5), (edge - 3, edge + 3), (edge, 2 * edge), (len(words) - 3, None)):
        assert np.array_equal(found[start:stop], words[start:stop])
    assert np.array_equal(found[:], words)
    assert len(found[7:7]) == len(found[9:2]) == 0
    with pytest.raises(ValueError, match="order"):
        found[::2]
    found.check()


def test_the_file_is_the_one_of_its_bytes_and_the_nodes_lead_to_their_root(
    store: LocalStore,
) -> None:
    for count in (1, 512, 513, SHARD_BYTES // 2, SHARD_BYTES // 2 + 1, 5 * SHARD_BYTES // 2 + 77):
        words = words_of(count)
        written = write_tokens(words, store)
        assert written.cid == store.add_bytes(words.tobytes()).to_bytes()
        assert written.root == piece_root(words.tobytes())
    spec = spec_of(store, words)
    assert len(read_nodes(spec, store)) == 32 * 6
    for changes in (
        {"root": bytes(32)},
        {"train_tokens": count + 512},
        {"train_tokens": count + SHARD_BYTES},
        {"nodes_cid": store.add_bytes(bytes(32 * 6)).to_bytes()},
        {"nodes_cid": store.add_bytes(bytes(32 * 7)).to_bytes()},
        {"nodes_cid": store.add_bytes(bytes(31)).to_bytes()},
    ):
        with pytest.raises(MalformedDataset, match=r"nodes|another root"):
            read_nodes(spec.model_copy(update=changes), store)


def test_a_slice_reads_only_the_shards_that_it_lies_in(store: LocalStore) -> None:
    found = opened(store, words_of(4 * SHARD_BYTES, "uint8"))
    leaves = store.leaves(store.add_bytes(found[:].tobytes()), 4 * SHARD_BYTES)
    again = opened(store, words_of(4 * SHARD_BYTES, "uint8"))
    for leaf in leaves[1:]:
        next(store.root.rglob(leaf.cid.digest.hex())).unlink()
    assert len(again[:SHARD_BYTES]) == SHARD_BYTES
    with pytest.raises(NotFound):
        again[SHARD_BYTES - 1 : SHARD_BYTES + 1]


def test_a_shard_that_is_not_the_roots_is_refused(store: LocalStore) -> None:
    """Its CID holds; only the node over it tells that it is not what the manifest's root is of."""
    words = words_of(SHARD_BYTES)
    other = words.copy()
    other[-1] ^= 1
    nodes = store.read_bytes(Cid.from_bytes(write_tokens(words, store).nodes_cid), 1 << 20)
    form = WordForm("uint16", 0, 251)
    forged = TokenFile(store, write_tokens(other, store).cid, len(words), form, nodes)
    assert np.array_equal(forged[:9], words[:9])
    with pytest.raises(MalformedDataset, match="MiB 1"):
        forged.check()


def test_a_token_must_be_below_the_vocabulary(store: LocalStore) -> None:
    words = words_of(1000)
    with pytest.raises(MalformedDataset, match="vocabulary's 250"):
        opened(store, words, vocab=250).check()
    words[3] |= 1 << 15
    opened(store, words, masked=True).check()
    with pytest.raises(MalformedDataset, match="vocabulary"):
        opened(store, words).check()


@pytest.mark.parametrize("size", [9, 11, 19, 21])
def test_a_file_of_another_size_is_refused(size: int, store: LocalStore) -> None:
    cid = store.add_bytes(bytes(size)).to_bytes()
    with pytest.raises(MalformedDataset, match="bytes"):
        TokenFile(store, cid, 5, WordForm("uint16", 0, 2))


def test_a_file_of_other_leaves_is_refused(store: LocalStore) -> None:
    from atoll.storage.unixfs import LEGACY, Profile

    data = bytes(3 * SHARD_BYTES)
    small = Profile("small", SHARD_BYTES // 2, 1024, raw_leaves=True, cid_version=1)
    for profile in (small, LEGACY):
        cid = store.add_bytes(data, profile).to_v1().to_bytes()
        with pytest.raises(MalformedDataset):
            TokenFile(store, cid, len(data), WordForm("uint8", 0, 256))


def test_a_missing_or_damaged_shard_is_named(store: LocalStore) -> None:
    found = opened(store, words_of(10))
    path = next(store.root.rglob(write_tokens(words_of(10), store).cid[4:].hex()))
    path.write_bytes(b"y" * 20)
    with pytest.raises(CorruptBlock):
        found[0:1]
    with pytest.raises(NotFound):
        opened_again(store)
    path.write_bytes(b"")  # as a power cut leaves it: this disk's fault, and not the job's
    with pytest.raises(CorruptBlock):
        opened_again(store)


def opened_again(store: LocalStore) -> None:
    cid = Cid.of(words_of(10).tobytes()).to_bytes()
    TokenFile(store, cid, 10, WordForm("uint16", 0, 251)).check()


PANICS = '{"type": "Precompiled", "precompiled_charsmap": ""}'
"""A normaliser that the library ends in a panic over, which is no `Exception`."""


@pytest.mark.parametrize(
    "file",
    [
        b"{}",
        b"\xff",
        byte_tokenizer().to_str().replace('"normalizer":null', f'"normalizer":{PANICS}').encode(),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(store: LocalStore, file: bytes) -> None:
    with pytest.raises(MalformedDataset, match=r"tokenizer\.json"):
        whole = Belongings({"tokenizer.json": file}).to_bytes()
        open_tokenizer(store, store.add_bytes(whole).to_bytes())
    with pytest.raises(MalformedDataset, match="what goes with the model"):
        open_tokenizer(store, store.add_bytes(file).to_bytes())


def test_a_bit_that_turns_while_it_is_trained_on_is_found(store: LocalStore) -> None:
    """Words that were checked once and turned on the disk afterwards would be trained on: the work
    of an honest seat would be false, and its bond lost.
    """
    words = words_of(3 * SHARD_BYTES // 2)
    found = opened(store, words)
    assert np.array_equal(found[:], words)
    path = next(store.root.rglob(Cid.of(words.tobytes()[: 1 << 20]).digest.hex()))
    raw = bytearray(path.read_bytes())
    raw[2 * 70_000] ^= 1
    path.write_bytes(raw)
    assert np.array_equal(found[:60_000], words[:60_000])
    with pytest.raises(CorruptBlock):
        found[69_990:70_010]
