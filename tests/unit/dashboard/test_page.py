"""The page: the document lies in it whole, and nothing in it is a document of another kind."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from tests.unit.dashboard.jobs import HOSTILE, document_of, finished, with_strangers

from atoll import dashboard
from atoll.dashboard.page import as_json, embedded, page, policy, write_page
from atoll.errors import StorageError


class Elements(HTMLParser):
    """Names of the elements, and what lies in script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self._open = f"{tag} {dict(attrs).get('type') or ''}".strip()

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.inside.setdefault(self._open, []).append(data)


@pytest.fixture(scope="module")
def whole() -> str:
    return page(document_of(with_strangers(finished())))


def test_strangers_strings_make_no_element(whole: str) -> None:
    found = Elements(whole)
    assert found.names.count("script") == 3
    assert not {"img", "svg", "b", "iframe", "object"} & set(found.names)
    embedded_again = json.loads("".join(found.inside["script application/json"]))
    shown = {member["gateway"] for member in embedded_again["members"]}
    assert set(HOSTILE) <= shown


def test_what_is_embedded_is_the_document() -> None:
    document = {"kind": "job", "text": "<!--<script>]]>&amp;\u2028"}
    text = embedded(document)
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == document == json.loads(as_json(document))


def test_only_our_script_and_style_are_allowed(whole: str) -> None:
    found = Elements(whole)
    rules = dict(rule.split(" ", 1) for rule in policy(live=False).split("; "))
    for kind, count in (("script", 2), ("style", 1)):
        texts = [text for text in found.inside[kind] if text.strip()]
        digests = [
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts
        ]
        assert rules[f"{kind}-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
        assert len(digests) == count
    assert "default-src 'none'" in policy(live=False)
    assert "connect-src" not in policy(live=False)
    assert "unsafe" not in policy(live=True)
    assert 'http-equiv="Content-Security-Policy"' in whole


def test_the_file_needs_no_network(whole: str) -> None:
    outside = whole.replace(embedded(document_of(with_strangers(finished()))), "")
    names = re.findall(r"https?://[^\s\"'`]+", outside)
    assert names == ["https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(src|href)=\"(?!#|data:,)", outside)


UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""Of the package uplot 1.6.32 at the registry of npm, its files as they are; by SHA-256."""


def test_uplot_is_the_package_as_it_was_published() -> None:
    for name, digest in UPLOT.items():
        assert (
            hashlib.sha256(files(dashboard).joinpath("uplot", name).read_bytes()).hexdigest()
            == digest
        )


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_page(document_of(finished()), tmp_path / "file" / "page.html")
    write_page(document_of(finished()), tmp_path / "new" / "page.html")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["page.html"]
