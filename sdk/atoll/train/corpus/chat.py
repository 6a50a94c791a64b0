"""Conversations as text, and which of its characters are answers.

Rule of this file: what is learned is what the template says that the assistant says, where it says
so, and else what it writes for an answer and not for the question before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from atoll.numerics.errors import DataUnusable
from atoll.train.corpus.marks import chat_template, special_tokens
from atoll.train.corpus.talks import Messages

if TYPE_CHECKING:
    from atoll.train.corpus.template import ChatTemplate

Render = Callable[[Messages, bool], str]
"""The text of messages; with the opening of an answer after it where the flag is set."""
Span = tuple[int, int]
ASSISTANT: Final = "assistant"
PLAIN: Final = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""`plain_template` as a chat template."""


def plain_template(messages: Messages, opens_answer: bool) -> str:
    """A line with the role in <| |>, the content, a line's end: where a tokenizer says nothing."""
    text = "".join(f"<|{m['role']}|>\n{m['content']}\n" for m in messages)
    return text + f"<|{ASSISTANT}|>\n" * opens_answer


def find_template(folder: Path, marks: Mapping[str, str] | None = None) -> Render:
    """The chat template of a tokenizer's folder, or the plain one where there is none.

    Args:
        marks: the folder's special tokens by name; None reads them.

    Raises:
        DataUnusable: the template cannot be read or compiled, or jinja2 is not installed.
    """
    source = chat_template(folder)
    if source is None:
        return plain_template
    return _compiled(source, special_tokens(folder) if marks is None else marks, folder)


def asks_date(render: Render) -> bool:
    """Whether a template asks for the date, which is one and the same for everybody."""
    return bool(getattr(render, "asks_date", False))


def rendering(render: Render) -> object:
    """All that a text follows from beside its messages, in plain values."""
    return [getattr(render, "source", PLAIN), getattr(render, "marks", {})]


def answers(messages: Messages, render: Render, name: str) -> tuple[str, list[Span]]:
    """A conversation's text, and where in it the assistant's answers lie, their ends included.

    An answer is what stands in the template's {% generation %}. Where it has none, it begins where
    the text of what came before, with an answer opened, ends; and it ends with its content and what
    the template then closes it with.

    Raises:
        DataUnusable: the template refuses the messages, or writes earlier ones otherwise later.
    """
    marked = _marked(render, messages, name)
    if marked is not None:
        return marked
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


def _marked(render: Render, messages: Messages, name: str) -> tuple[str, list[Span]] | None:
    """What the template says itself; None where it says nothing."""
    find = getattr(render, "marked", None)
    with _refusing(name):
        marked: tuple[str, list[Span]] | None = None if find is None else find(messages)
    if marked is not None and not marked[1]:
        raise DataUnusable(
            f"{name}: the chat template says of nothing that it is the assistant's",
            next_step="take the row out, or use another template",
        )
    return marked


def _rendered(render: Render, messages: Messages, opens_answer: bool, name: str) -> str:
    with _refusing(name):
        return render(messages, opens_answer)


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    # A template is somebody's program: whatever it raises is about this row.
    except Exception as error:
        raise DataUnusable(
            f"{name}: the chat template refuses the messages: {error}",
            next_step="take the row out, or use another template",
        ) from error


def _compiled(source: str, marks: Mapping[str, str], folder: Path) -> ChatTemplate:
    try:
        import jinja2  # noqa: F401, PLC0415 (an extra)

        from atoll.train.corpus.template import ChatTemplate  # noqa: PLC0415
    except ImportError as error:
        raise DataUnusable(
            f"the chat template of {folder} needs jinja2 3.1.6, which is not installed",
            next_step="pip install 'atoll[chat]'",
        ) from error
    try:
        return ChatTemplate(source, marks)
    except Exception as error:  # jinja2's own, or too deep for it
        raise DataUnusable(
            f"the chat template of {folder} does not compile: {error}",
            next_step="mend it, or take it out for the plain one",
        ) from error
