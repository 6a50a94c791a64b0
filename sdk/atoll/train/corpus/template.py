"""A chat template, compiled and rendered as `transformers` does it. Needs jinja2.

Rule of this file: a template is somebody's program. It runs in jinja2's sandbox with the names that
`transformers` gives it and no others, and has no clock: everybody has the same text. Source:
transformers 5.23, utils/chat_template_utils.py, whose sandbox takes jinja2 3.1.6 or newer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from atoll.train.corpus.talks import Messages

Span = tuple[int, int]
TODAY: Final = datetime(2024, 7, 26)  # noqa: DTZ001 (a date, of no place)
"""What a template is told that asks for the date: what Llama 3's says where it has no clock."""


class ChatTemplate:
    """A template with the special tokens that it may name.

    Attributes:
        source, marks: the template, and these tokens by name, such as `eos_token`.
        asks_date: whether it names what gives the date.

    Raises:
        TemplateError: it does not compile.
    """

    def __init__(self, source: str, marks: Mapping[str, str]) -> None:
        environment = _environment()
        self.source, self.marks = source, dict(marks)
        self.asks_date = "strftime_now" in source
        self._template = environment.from_string(source)
        self._tracker = environment.extensions[_Generation.identifier]

    def __call__(self, messages: Messages, opens_answer: bool) -> str:
        """The text; raises whatever the template does."""
        return "".join(self._blocks(messages, opens_answer))

    def marked(self, messages: Messages) -> tuple[str, list[Span]] | None:
        """The text, and where in it the template itself says that answers are.

        None where it says so nowhere, or in a place of which only the text is known, such as a
        macro.
        """
        tracker = self._tracker
        assert isinstance(tracker, _Generation)
        if not tracker.is_used:
            return None
        tracker.blocks, tracker.found = [], []
        try:
            for block in self._blocks(messages, opens_answer=False):
                tracker.blocks.append(block)
            text, spans = "".join(tracker.blocks), tracker.found
        finally:
            tracker.blocks = tracker.found = None
        if any(not text.startswith(answer, start) for start, answer in spans):
            return None
        return text, [(start, start + len(answer)) for start, answer in spans if answer]

    def _blocks(self, messages: Messages, opens_answer: bool) -> Any:
        return self._template.generate(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=opens_answer,
            **self.marks,
        )


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}`: what is within is what the assistant says."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own way)

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.is_used = False
        self.blocks: list[str] | None = None
        self.found: list[tuple[int, str]] | None = None

    def parse(self, parser: Parser) -> nodes.Node:
        self.is_used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_take"), [], [], body).set_lineno(line)

    def _take(self, caller: Callable[[], str]) -> str:
        text = caller()
        if self.blocks is not None and self.found is not None:
            self.found.append((sum(map(len, self.blocks)), text))
        return text


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        autoescape=False,
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(
        raise_exception=_refuse,
        strftime_now=TODAY.strftime,
        dict=_Dict(),
        namespace=_Namespace,
    )
    return environment


def _tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


class _Dict:
    """Makes maps, and has nothing else that a class has."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """jinja2's, without names that begin with an underscore."""

    def __init__(*args: Any, **values: Any) -> None:
        namespace, args = args[0], args[1:]
        values_of = dict(*args, **values)
        for name in values_of:
            _check_name(name)
        Namespace.__init__(namespace, values_of)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no {name!r}")
