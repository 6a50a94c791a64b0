"""Conversations as text, and which of its characters are answers.

Rule of this file: a template is rendered like `transformers` renders it, in jinja2's sandbox, and
without the date, so that everybody has the same text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from atoll.bits.errors import DataUnusable
from atoll.train.corpus.streams import reading
from atoll.train.corpus.talks import Messages

Render = Callable[[Messages, bool], str]
"""The text of messages; with the opening of an answer after it where the flag is set."""
Span = tuple[int, int]
ASSISTANT: Final = "assistant"


def plain_template(messages: Messages, opens_answer: bool) -> str:
    """A line with the role in <| |>, the content, a line's end: where a tokenizer says nothing."""
    text = "".join(f"<|{m['role']}|>\n{m['content']}\n" for m in messages)
    return text + f"<|{ASSISTANT}|>\n" * opens_answer


def find_template(folder: Path) -> Render:
    """The chat template of a tokenizer's folder, or the plain one where there is none.

    Raises:
        DataUnusable: the template cannot be read or compiled, or jinja2 is not installed.
    """
    source, marks = _template_source(folder)
    return plain_template if source is None else _compile(source, marks, folder)


def answers(messages: Messages, render: Render, name: str) -> tuple[str, list[Span]]:
    """A conversation's text, and where in it the assistant's answers lie, their ends included.

    An answer begins where the text of what came before, with an answer opened, ends; and it ends
    with its content and what the template then closes it with.

    Raises:
        DataUnusable: the template refuses the messages, or writes earlier ones otherwise later.
    """
    text = _rendered(render, messages, False, name)
    spans: list[Span] = []
    for index, message in enumerate(messages):
        if message["role"] != ASSISTANT:
            continue
        before = _rendered(render, messages[:index], True, name)
        alone = _rendered(render, messages[: index + 1], False, name)
        content = message["content"].strip()
        # Nothing is everywhere: an empty answer is where its opening ends.
        start = alone.rfind(content) if content else len(before)
        answer = alone[start:]
        at = text.find(answer, len(before))
        if min(start, at) < 0 or not answer or not text.startswith(before):
            raise DataUnusable(
                f"{name}: the chat template does not keep message {index + 1} as it was answered",
                next_step="take the row out, or use another template",
            )
        spans.append((len(before), at + len(answer)))
    return text, spans


def _rendered(render: Render, messages: Messages, opens_answer: bool, name: str) -> str:
    try:
        return render(messages, opens_answer)
    # A template is somebody's program: whatever it raises is about this row.
    except Exception as error:
        raise DataUnusable(
            f"{name}: the chat template refuses the messages: {error}",
            next_step="take the row out, or use another template",
        ) from error


def _template_source(folder: Path) -> tuple[str | None, dict[str, str]]:
    """The template, and the special tokens that it may name."""
    config = folder / "tokenizer_config.json"
    plain: Any = {}
    if config.is_file():
        with reading(config):
            raw = config.read_bytes()
        try:
            plain = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise DataUnusable(f"{config} is not JSON: {error}") from error
    plain = plain if isinstance(plain, dict) else {}
    marks = {key: token_text(plain[key]) for key in plain if key.endswith("_token")}
    template = plain.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    file = folder / "chat_template.jinja"
    if file.is_file():
        with reading(file):
            template = file.read_text(encoding="utf-8")
    known = {key: mark for key, mark in marks.items() if mark}
    return (template if isinstance(template, str) else None), known


def token_text(value: object) -> str:
    """A token as tokenizer_config.json writes it: text, or a map of content. Empty for neither."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _compile(source: str, marks: dict[str, str], folder: Path) -> Render:
    try:
        from jinja2 import TemplateError  # noqa: PLC0415 (an extra)
        from jinja2.ext import loopcontrols  # noqa: PLC0415
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
    except ImportError as error:
        raise DataUnusable(
            f"the chat template of {folder} needs jinja2, which is not installed",
            next_step="pip install 'atoll[chat]'",
        ) from error

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    try:
        template = environment.from_string(source)
    except TemplateError as error:
        raise DataUnusable(
            f"the chat template of {folder} does not compile: {error}",
            next_step="mend it, or take it out for the plain one",
        ) from error
    return lambda messages, opens_answer: template.render(
        messages=messages, add_generation_prompt=opens_answer, **marks
    )
