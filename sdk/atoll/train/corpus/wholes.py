"""A tokenizer.json as a tokenizer that gives one text one sequence of tokens, and loses no letter.

Rule of this file: what would make other tokens each time is off, a letter that the model has no
token for is seen, and what a tokenizer puts before a text it puts before the text's first part
alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import Tokenizer

from atoll.nested import loads
from atoll.train.said_once import parse
from atoll.train.tokenizer import read_tokenizer

_GONE: Final = "<a letter that no token has>"
_RANDOM: Final = ("dropout", "alpha", "nbest_size")
"""What makes a model draw its tokens: of byte pairs and of unigrams."""
Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wholes:
    """A tokenizer, in the forms that encoding takes.

    Attributes:
        tokenizer: as it is given, with nothing drawn.
        file: its tokenizer.json, byte for byte as it was given where nothing had to go.
        first, later: for the first part of a text, and for others; both give `gone` for a letter
            that the model would leave out.
        gone: no number of the tokenizer's; None where no letter can go.
        unknown: the number of what stands for any unknown text; None where there is none.
        notes: what was changed, for people.
    """

    tokenizer: Tokenizer
    file: bytes
    first: Tokenizer
    later: Tokenizer
    gone: int | None
    unknown: int | None
    notes: tuple[str, ...]


def open_wholes(raw: bytes) -> Wholes:
    """The tokenizer of a tokenizer.json. Raises ValueError where the bytes are none."""
    parsed = parse(raw)
    given = read_tokenizer(raw)
    given.no_padding()
    given.no_truncation()
    made: Plain = loads(given.to_str())
    drawn = [name for name in _RANDOM if _model(parsed).pop(name, None)]
    for name in _RANDOM:
        made["model"].pop(name, None)
    file = json.dumps(parsed, ensure_ascii=False).encode() if drawn else raw
    tokenizer = _of(made) if drawn else given
    notes = tuple(
        f"the tokenizer's {name} is off: it draws other tokens each time" for name in drawn
    )
    gone = _make_losses_seen(made)
    first = tokenizer if gone is None else _of(made)
    steps = {name: deepcopy(made[name]) for name in ("normalizer", "pre_tokenizer")}
    later = made | steps  # of a model with a million merges, one copy is enough
    _unmark(later)
    unknown = _unknown(made["model"], tokenizer, gone)
    return Wholes(
        tokenizer, file, first, first if later == made else _of(later), gone, unknown, notes
    )


def _model(parsed: Any) -> Plain:
    """The part that says the model; empty where it has another form, which no tokenizer has."""
    model = parsed.get("model") if isinstance(parsed, dict) else None
    return model if isinstance(model, dict) else {}


def _of(made: Plain) -> Tokenizer:
    return read_tokenizer(json.dumps(made, ensure_ascii=False).encode())


# --- letters without a token ---


def _make_losses_seen(made: Plain) -> int | None:
    """Gives byte pairs that leave letters out a token for them; its number, None for no need.

    Other models end where they have no token for something.
    """
    model = made["model"]
    if model["type"] != "BPE" or model.get("unk_token") is not None or _has_every_byte(made):
        return None
    added = (token["id"] for token in made["added_tokens"])
    number = max([*model["vocab"].values(), *added], default=-1) + 1
    model["vocab"][_GONE] = number
    model["unk_token"], model["fuse_unk"] = _GONE, False
    return number


def _has_every_byte(made: Plain) -> bool:
    """Whether each byte has a token, whatever stands before and after it in its word."""
    model, vocab = made["model"], made["model"]["vocab"]
    if model.get("byte_fallback"):
        return all(f"<0x{byte:02X}>" in vocab for byte in range(256))
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    last = _steps(made["pre_tokenizer"], "pretokenizers")[-1:]
    letters = pre_tokenizers_of_bytes()
    return [step["type"] for step in last] == ["ByteLevel"] and letters <= vocab.keys()


def pre_tokenizers_of_bytes() -> set[str]:
    """The letters that ByteLevel writes bytes with."""
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415 (its stub has no alphabet)

    return set(ByteLevel.alphabet())


def _unknown(model: Plain, tokenizer: Tokenizer, gone: int | None) -> int | None:
    if gone is not None:
        return None
    if model["type"] == "Unigram":
        unknown = model.get("unk_id")
        return unknown if type(unknown) is int else None
    name = model.get("unk_token")
    return tokenizer.token_to_id(name) if isinstance(name, str) else None


# --- what is put before a text, or taken from its ends ---


def _unmark(made: Plain) -> None:
    """Makes a tokenizer take its text for a later part of one."""
    made["normalizer"] = _without(
        made["normalizer"], "normalizers", lambda step: step["type"] in ("Prepend", "Strip")
    )
    steps = _steps(made["pre_tokenizer"], "pretokenizers")
    for place, step in enumerate(steps):
        if step["type"] == "Metaspace":
            # Of pieces that a step before has cut, "always" marks each, in the whole text as well.
            is_marked = step["prepend_scheme"] == "first" or place == 0
            step["prepend_scheme"] = "never" if is_marked else step["prepend_scheme"]
        elif step["type"] == "ByteLevel" and place == 0:
            step["add_prefix_space"] = False


def _steps(part: Plain | None, name: str) -> list[Plain]:
    """The steps of a part of a tokenizer, which may be a sequence, and sequences in one."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for inner in part[name] for step in _steps(inner, name)]


def _without(part: Plain | None, name: str, goes: Callable[[Plain], bool]) -> Plain | None:
    if part is None or goes(part):
        return None
    if part["type"] != "Sequence":
        return part
    kept = [step for inner in part[name] if (step := _without(inner, name, goes)) is not None]
    return part | {name: kept}
