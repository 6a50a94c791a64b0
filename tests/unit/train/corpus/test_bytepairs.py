"""The fast way to a tokenizer's tokens is taken where it gives the same ones, and only there."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from atoll.train.corpus.bytepairs import BytePairs, plain_byte_pairs

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = (Path(sysconfig.get_path("stdlib")) / "argparse.py").read_text(encoding="utf-8")
Change = Callable[[dict[str, Any]], None]


def trained(cut: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT[:60_000]], trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def split_first() -> pre_tokenizers.PreTokenizer:
    own = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), own])


GPT2 = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
FAST = {"gpt2": plain_byte_pairs(GPT2), "llama3": plain_byte_pairs(trained(split_first()))}


def changed(change: Change) -> Tokenizer:
    made = json.loads(GPT2.to_str())
    change(made)
    return Tokenizer.from_str(json.dumps(made))


def assert_same(pairs: BytePairs | None, texts: list[str]) -> None:
    assert pairs is not None
    wanted = pairs.slow.encode_batch_fast(texts, add_special_tokens=False)
    for found, one in zip(pairs.encode(texts), wanted, strict=True):
        assert found.dtype == np.uint32
        assert found.tolist() == one.ids


@pytest.mark.parametrize("name", FAST)
def test_real_text_has_the_same_tokens(name: str) -> None:
    assert_same(FAST[name], [TEXT[at : at + 5_000] for at in range(0, len(TEXT), 5_000)])


@pytest.mark.parametrize("name", FAST)
@given(
    st.lists(
        st.text(
            st.one_of(
                st.sampled_from("aetis nr\n\t '.(_0123"), st.characters(exclude_categories=["Cs"])
            )
        ),
        max_size=4,
    )
)
def test_any_text_has_the_same_tokens(name: str, texts: list[str]) -> None:
    assert_same(FAST[name], texts)


def test_a_mark_that_a_text_spells_is_text() -> None:
    assert_same(FAST["gpt2"], ["a<|endoftext|>b"])


def test_a_megabyte_of_blanks_goes_the_slow_way() -> None:
    assert_same(FAST["gpt2"], [" " * 1_000_000 + "x", "short"])


def test_letters_are_composed_first_where_the_tokenizer_does() -> None:
    tokenizer = trained(split_first())
    tokenizer.normalizer = normalizers.NFC()
    assert_same(plain_byte_pairs(tokenizer), ["e\u0301t\u00e9", "plain"])


def test_ids_out_of_the_merges_order_are_not_taken() -> None:
    def swap(made: dict[str, Any]) -> None:
        vocab, merges = made["model"]["vocab"], made["model"]["merges"]
        first, last = ("".join(merges[place]) for place in (0, -1))
        vocab[first], vocab[last] = vocab[last], vocab[first]

    assert plain_byte_pairs(changed(swap)) is None


def test_a_token_that_its_own_letters_do_not_come_to_is_not_taken() -> None:
    def lose_a_merge(made: dict[str, Any]) -> None:
        del made["model"]["merges"][-1]

    assert plain_byte_pairs(changed(lose_a_merge)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["pre_tokenizer"].update(add_prefix_space=True),
        lambda made: made.update(pre_tokenizer={"type": "Whitespace"}),
        lambda made: made.update(pre_tokenizer=None),
        lambda made: made.update(normalizer={"type": "Lowercase"}),
        lambda made: made["model"].update(dropout=0.1),
        lambda made: made["model"].update(byte_fallback=True),
        lambda made: made["added_tokens"][0].update(special=False),
    ],
    ids=["prefix space", "words", "not cut", "lower case", "dropout", "fallback", "added words"],
)  # fmt: skip
def test_a_tokenizer_that_does_more_is_not_taken(change: Change) -> None:
    assert plain_byte_pairs(changed(change)) is None


def test_other_models_are_not_taken() -> None:
    assert plain_byte_pairs(Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))) is None
