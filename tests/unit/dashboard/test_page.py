"""The page: the document lies in it whole, and nothing in it is a document of another kind."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.unit.dashboard.jobs import HOSTILE, document_of, finished, with_strangers

from atoll.dashboard.page import as_json, embedded, page, policy, write_page
from atoll.errors import StorageError


class Elements(HTMLParser):
    """Names of the elements, and what lies in script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self._open = f"{tag} {dict(attrs).get('type') or ''}".strip()

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.inside[self._open] = self.inside.get(self._open, "") + data


@pytest.fixture(scope="module")
def whole() -> str:
    return page(document_of(with_strangers(finished())))


def test_strangers_strings_make_no_element(whole: str) -> None:
    found = Elements(whole)
    assert found.names.count("script") == 2
    assert not {"img", "svg", "b", "iframe", "object"} & set(found.names)
    embedded_again = json.loads(found.inside["script application/json"])
    shown = {member["gateway"] for member in embedded_again["members"]}
    assert set(HOSTILE) <= shown


def test_what_is_embedded_is_the_document() -> None:
    document = {"kind": "job", "text": "<!--<script>]]>&amp;\u2028"}
    text = embedded(document)
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == document == json.loads(as_json(document))


def test_only_our_script_and_style_are_allowed(whole: str) -> None:
    found = Elements(whole)
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.inside[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy(live=False)
    assert "default-src 'none'" in policy(live=False)
    assert "connect-src" not in policy(live=False)
    assert "unsafe" not in policy(live=True)
    assert 'http-equiv="Content-Security-Policy"' in whole


def test_the_file_needs_no_network(whole: str) -> None:
    outside = whole.replace(embedded(document_of(with_strangers(finished()))), "")
    names = re.findall(r"https?://[^\s\"'`]+", outside)
    assert names == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(src|href)=\"(?!#|data:,)", outside)


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_page(document_of(finished()), tmp_path / "file" / "page.html")
    write_page(document_of(finished()), tmp_path / "new" / "page.html")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["page.html"]
