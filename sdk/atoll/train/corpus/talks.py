"""Rows of conversations as messages with a role and a content, whichever way they are written.

Rule of this file: what cannot be said in a role and a content is refused by name. Nothing of a
conversation is excluded, and nobody learns from what was not to be learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

from atoll.train.corpus.rows import INSTRUCTION, OUTPUT, BadRow

Messages: TypeAlias = list[dict[str, str]]
ASSISTANT: Final = "assistant"
_SHAREGPT_ROLES: Final = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "assistant": ASSISTANT,
}
_MEANT: Final = (
    "tool_calls",
    "tool_call_id",
    "function_call",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
    "audio",
    "images",
)
"""Of a message: what a chat template or a trainer reads beside role and content."""
_LEARNED: Final = ("weight", "train", "loss")
"""Of a message: whether it is to be learned, in other trainers."""


def messages_of(row: Mapping[str, object], column: str, name: str) -> Messages:
    """The messages of a row.

    Args:
        column: under which the messages are, or `instruction` of a row in Alpaca's form.
        name: the row's file and line, for complaints.

    Raises:
        BadRow: it has no answer, or something that no message has.
    """
    for beside in row:
        if beside not in (column, "system", "input", "history", OUTPUT) and row[beside]:
            _refuse(name, f"{beside!r} beside the messages, which is not taken")
    messages = _alpaca(row, name) if column == INSTRUCTION else _turns(row[column], name)
    system = _text_or_nothing(row, "system", name)
    if system:
        if any(message["role"] == "system" for message in messages):
            _refuse(name, "two of its texts are the system's")
        messages = [{"role": "system", "content": system}, *messages]
    if not any(message["role"] == ASSISTANT for message in messages):
        _refuse(name, "no message of the assistant, so nothing to learn")
    return messages


# --- Alpaca ---


def _alpaca(row: Mapping[str, object], name: str) -> Messages:
    """An instruction, perhaps with an input after an empty line, and the answer; talk before it."""
    messages: Messages = []
    history = row.get("history") or []
    for pair in history if isinstance(history, list) else [None]:
        if not isinstance(pair, list) or [type(text) for text in pair] != [str, str]:
            _refuse(name, "'history' is no list of pairs of texts")
        messages += [_message("user", pair[0]), _message(ASSISTANT, pair[1])]
    asked = [_text_or_nothing(row, part, name) for part in (INSTRUCTION, "input")]
    answer = row[OUTPUT]
    if not isinstance(answer, str) or not any(asked):
        _refuse(name, f"{INSTRUCTION!r} and {OUTPUT!r} are not both text")
    return [
        *messages,
        _message("user", "\n\n".join(filter(None, asked))),
        _message(ASSISTANT, answer),
    ]


def _text_or_nothing(row: Mapping[str, object], column: str, name: str) -> str:
    text = row.get(column)
    if text is not None and not isinstance(text, str):
        _refuse(name, f"{column!r} is {type(text).__name__}, not text")
    return text or ""


# --- lists of turns ---


def _turns(value: object, name: str) -> Messages:
    turns = _listed(value)
    if not isinstance(turns, list) or not turns:
        what = "an empty list" if turns == [] else f"{type(value).__name__}, not a list"
        _refuse(name, f"its messages are {what}")
    return [_turn(turn, f"message {number}", name) for number, turn in enumerate(turns, 1)]


def _listed(value: object) -> object:
    """A list of objects, also where it is an object of lists, as `datasets` keeps a Sequence."""
    if not isinstance(value, dict) or not all(isinstance(part, list) for part in value.values()):
        return value
    if len({len(part) for part in value.values()}) != 1:
        return value
    return [dict(zip(value, turn, strict=True)) for turn in zip(*value.values(), strict=True)]


def _turn(turn: object, which: str, name: str) -> dict[str, str]:
    if not isinstance(turn, dict):
        _refuse(name, f"{which} is {type(turn).__name__}, not an object with a role and a content")
    for key in _MEANT:
        if turn.get(key):
            _refuse(name, f"{which} has {key!r}, which is not taken")
    for key in _LEARNED:
        if turn.get(key) not in (None, 1):
            _refuse(name, f"{which} has {key!r} = {turn[key]!r}: every answer is learned here")
    if turn.get("role") is None and turn.get("from") is not None:
        return _sharegpt(turn, which, name)
    role, content = turn.get("role"), turn.get("content")
    if not isinstance(role, str):
        _refuse(name, f"{which} has no role of text")
    return _message(role, _content(content, which, name))


def _sharegpt(turn: dict[str, Any], which: str, name: str) -> dict[str, str]:
    speaker = turn["from"]
    role = _SHAREGPT_ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        _refuse(name, f"{which} is from {speaker!r}: of ShareGPT, system, human and gpt are taken")
    return _message(role, _content(turn.get("value"), which, name))


def _content(content: object, which: str, name: str) -> str:
    """A content as one text; parts of text are put one after another."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        _refuse(name, f"{which} has no content of text")
    return "".join(_part(part, f"part {at} of {which}", name) for at, part in enumerate(content, 1))


def _part(part: object, which: str, name: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(text, str):
        _refuse(name, f"{which} is of the type {kind!r}, and text alone is taken")
    return text


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _refuse(name: str, fault: str) -> NoReturn:
    raise BadRow(name, fault, "no conversation that is taken", "take the row out")
